"""What parked conversations cost and bring, beside what `strata probe` measures of one cluster.

    tests/load/conversations_bench.py disk [--tokens 1500]      # first token of conversations from disk after a restart, over their cold read
    tests/load/conversations_bench.py rotation                  # 20 conversations against a budget of 5: stored bytes, memory of the processes
    tests/load/conversations_bench.py switch [--tokens 1500]    # return to a parked conversation with one place on the device, over its cold read

All take --set PATH=VALUE and --json. Not tests: figures belong into docs/conversations.md, together with the machine they were measured on.
"""
import argparse
import glob
import json
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "cluster"))
from support import DEMO, Cluster, strata, wait_for  # noqa: E402


def run_json(*arguments):
    result = strata(*arguments, timeout=600)
    if result.returncode != 0:
        raise SystemExit(f"strata {' '.join(arguments)}: {result.stderr}")
    return json.loads(result.stdout)


def listed(cluster):
    return run_json("conversations", "list", "--json", "--run-dir", cluster.run_dir)


def probe(cluster, arguments):
    return run_json("probe", "alternate", "--run-dir", cluster.run_dir, "--conversations", str(arguments.conversations), "--tokens",
                    str(arguments.tokens), "--rounds", "1", "--seed", str(arguments.seed), "--json")


# --- disk

def measure_disk(arguments):
    """The same conversations in two clusters, one after the other, with one folder."""
    with tempfile.TemporaryDirectory(prefix="strata-test-") as folder:
        settings = {"engine.sequences": "1", "conversations.disk_folder": os.path.join(folder, "parked"), **arguments.settings}
        with Cluster(settings) as cluster:
            before = probe(cluster, arguments)

            def written():
                snapshots = listed(cluster)["snapshots"]
                return snapshots and all("disk" in each["tiers"] for each in snapshots if each["kind"] != "interval")
            wait_for(written, 60, "everything is on disk")
        with Cluster(settings) as cluster:
            wait_for(lambda: listed(cluster)["snapshots"], 30, "the disk tier offers its snapshots")
            after = probe(cluster, arguments)
    return {"cold_ttft_s": before["cold_ttft_s"], "from_memory_ttft_s": before["switched_ttft_s"], "from_disk_ttft_s": after["cold_ttft_s"],
            "from_memory_over_cold": before["switched_ttft_s"] / before["cold_ttft_s"],
            "from_disk_over_cold": after["cold_ttft_s"] / before["cold_ttft_s"]}


def print_disk(result):
    print(f"first token: cold {result['cold_ttft_s'] * 1e3:.0f} ms, from memory {result['from_memory_ttft_s'] * 1e3:.0f} ms "
          f"({result['from_memory_over_cold']:.1%}), from disk after a restart {result['from_disk_ttft_s'] * 1e3:.0f} ms ({result['from_disk_over_cold']:.1%})")


# --- rotation

PROCESSES = ("cache-manager", "gpu-worker", "gateway")


class Memory:
    """What the cluster holds, in bytes. Looks from outside: whoever asks the processes makes them take memory for the answer."""

    def __init__(self, cluster):
        self.pids = {name: cluster.process_of(name)["pid"] for name in PROCESSES}
        self.stored_in = f"/dev/shm/{cluster.segment_prefix()}snapshots*"

    def own(self):
        """Of each process, what belongs to it alone."""
        found = {}
        for name, pid in self.pids.items():
            with open(f"/proc/{pid}/status") as file:
                found[name] = next(int(line.split()[1]) * 1024 for line in file if line.startswith("RssAnon"))
        return found

    def stored(self):
        """Snapshots, in the memory that the processes share: what of it is there, whoever has touched it."""
        return sum(os.stat(path).st_blocks * 512 for path in glob.glob(self.stored_in))


def ask(cluster, number, tokens):
    words = " ".join(f"word{(number * 7919 + place * 104729) % 9973}" for place in range(tokens // 4))
    status, answer, _ = cluster.request("POST", "/v1/chat/completions", {
        "messages": [{"role": "user", "content": f"{number}: {words}"}], "temperature": 0, "max_tokens": 12})
    if status != 200:
        raise SystemExit(f"chat: {status} {answer}")
    return answer["choices"][0]["message"]["content"]


def rotate(cluster, arguments):
    """20 conversations in turns: after each request what is stored and what each process has grown by since the first one, and wrong answers."""
    memory = Memory(cluster)
    ask(cluster, 1000, arguments.tokens)  # buffers are taken
    begun, rows, first, wrong = memory.own(), [], {}, 0
    for _ in range(1 + arguments.rounds):
        for number in range(20):
            answer = ask(cluster, number, arguments.tokens)
            wrong += answer != first.setdefault(number, answer)
            rows.append({"stored": memory.stored(), **{name: now - begun[name] for name, now in memory.own().items()}})
    return rows, wrong


def measure_rotation(arguments):
    settings = {"engine.sequences": "1", "conversations.disk_budget": "0", "conversations.park_after_ms": "0", **arguments.settings}
    with Cluster(settings) as cluster:
        ask(cluster, 0, arguments.tokens)
        wait_for(lambda: listed(cluster)["snapshots"], 30, "one is parked")
        time.sleep(0.5)
        budget = 5 * listed(cluster)["memory"]["used_bytes"]
    with Cluster({**settings, "conversations.ram_budget": str(budget)}) as cluster:
        rows, wrong = rotate(cluster, arguments)
        evicted = sum(value for (name, labels), value in cluster.metrics().items()
                      if name == "strata_conv_evictions_total" and ("tier", "ram") in labels)
    # Processes also grow by answering: heaps fill, threads begin. What the same requests cost where nothing is kept is not the conversations' part.
    with Cluster({**settings, "conversations.ram_budget": "0"}) as cluster:
        without, _ = rotate(cluster, arguments)
    most = {name: max(row[name] for row in rows) for name in ("stored", *PROCESSES)}
    most_without = {name: max(row[name] for row in without) for name in PROCESSES}
    most["all"] = max(row["stored"] + sum(row[name] for name in PROCESSES) for row in rows)
    most["kept"] = max(row["stored"] + sum(row[name] - other[name] for name in PROCESSES) for row, other in zip(rows, without))
    return {"budget_bytes": budget, "evictions": evicted, "wrong_answers": wrong, "most_bytes": most, "most_bytes_without_parking": most_without,
            "most_over_budget": {name: value / budget for name, value in most.items()}}


def print_rotation(result):
    most, mib = result["most_over_budget"], 2**20
    print(f"budget {result['budget_bytes'] / mib:.1f} MiB: stored {most['stored']:.1%} of it at most; stored, and grown beyond what the same requests cost "
          f"without parking, {most['kept']:.1%} ({most['all']:.1%} with all growth); {result['evictions']:.0f} evictions, {result['wrong_answers']} wrong answers")
    for name in PROCESSES:
        print(f"  {name} grew by {result['most_bytes'][name] / mib:.2f} MiB, without parking by {result['most_bytes_without_parking'][name] / mib:.2f} MiB")


# --- switch

def measure_switch(arguments):
    """What a switch costs where every return goes through what is parked: one place on the device. The parts come from the gpu-worker's own metrics."""
    with Cluster({"engine.sequences": "1", **arguments.settings}, config=arguments.config) as cluster:
        before = restores(cluster)
        result = run_json("probe", "alternate", "--run-dir", cluster.run_dir, "--conversations", str(arguments.conversations), "--tokens", str(arguments.tokens),
                          "--rounds", str(arguments.rounds), "--seed", str(arguments.seed), "--json")
        time.sleep(1)  # the gateway reads its processes' metrics a few times a second
        count, total = (now - then for now, then in zip(restores(cluster), before))
    return {**{name: result[name] for name in ("cold_ttft_s", "warm_ttft_s", "switched_ttft_s")},
            "switched_over_cold": result["switched_ttft_s"] / result["cold_ttft_s"], "restores": count, "restore_s": total / max(count, 1)}


def restores(cluster):
    values = {name: value for (name, labels), value in cluster.metrics().items() if ("tier", "ram") in labels}
    return [values.get(f"strata_conv_restore_seconds_{part}", 0.0) for part in ("count", "sum")]


def print_switch(result):
    print(f"first token: cold {result['cold_ttft_s'] * 1e3:.1f} ms, warm {result['warm_ttft_s'] * 1e3:.1f} ms, switched {result['switched_ttft_s'] * 1e3:.1f} ms "
          f"({result['switched_over_cold']:.1%} of cold); {result['restores']:.0f} restores, {result['restore_s'] * 1e3:.2f} ms each, from asking to the last page")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("disk", "rotation", "switch"))
    parser.add_argument("--tokens", type=int, default=1500, help="of each conversation (default: 1500)")
    parser.add_argument("--conversations", type=int, default=4, help="for disk and switch (default: 4)")
    parser.add_argument("--rounds", type=int, default=2, help="for rotation and switch (default: 2)")
    parser.add_argument("--seed", type=int, default=1, help="for disk and switch: of the texts (default: 1)")
    parser.add_argument("--config", default=DEMO, help="for switch (default: the demo model's)")
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", dest="settings")
    parser.add_argument("--json", action="store_true", help="one JSON object for programs")
    arguments = parser.parse_args()
    arguments.settings = dict(setting.split("=", 1) for setting in arguments.settings)
    measure, show = {"disk": (measure_disk, print_disk), "rotation": (measure_rotation, print_rotation),
                     "switch": (measure_switch, print_switch)}[arguments.what]
    result = measure(arguments)
    if arguments.json:
        print(json.dumps(result))
    else:
        show(result)


if __name__ == "__main__":
    main()
