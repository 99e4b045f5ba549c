"""Decode and prefill speed of a whole cluster, and where a window's time goes, from its own /metrics.

    tests/load/cluster_bench.py [--json] [--set experts.slots=100% ...]

Not a test: figures belong into docs/performance.md, together with the machine they were measured on.
"""
import argparse
import json
import os
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "cluster"))
from support import Cluster  # noqa: E402

STORY = "Tell me a story about a fox and a swan."
PROMPT = "The animals of the lake decided to have a contest to bake the best nuts. " * 80
GATHERING_S = 0.6  # the gateway reads its processes' metrics a few times a second


def snapshot(cluster):
    time.sleep(GATHERING_S)
    values = {}
    for (name, labels), value in cluster.metrics().items():
        stage = dict(labels).get("stage") or dict(labels).get("served_by") or ""
        values[name, stage] = values.get((name, stage), 0.0) + value
    return values


def measure(cluster, work):
    before = snapshot(cluster)
    start = time.monotonic()
    tokens = work()
    seconds = time.monotonic() - start
    after = snapshot(cluster)
    return tokens, seconds, lambda name, label="": after.get((name, label), 0.0) - before.get((name, label), 0.0), after


def decode(cluster, clients):
    counts = [0] * clients

    def answer(index):
        counts[index] = cluster.chat(STORY, max_tokens=200, seed=index, temperature=0.6)["usage"]["completion_tokens"]

    def work():
        threads = [threading.Thread(target=answer, args=(index,)) for index in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(counts)
    tokens, seconds, grown, after = measure(cluster, work)
    windows = grown("strata_decode_windows_total")
    phases = {label: grown(name, label) / windows * 1e3 for name, label in after
              if name == "strata_decode_stage_seconds_total" and grown(name, label) > 0}
    vram, cpu = grown("strata_expert_uses_total", "vram"), grown("strata_expert_uses_total", "cpu")
    return {"clients": clients, "tokens_per_second": tokens / seconds, "windows": windows,
            "window_ms": grown("strata_decode_seconds_total") / windows * 1e3,
            "hit_ratio": vram / (vram + cpu) if vram + cpu else 0.0,
            "phase_ms_per_window": dict(sorted(phases.items(), key=lambda item: -item[1]))}


def prefill(cluster):
    def work():
        return cluster.chat(PROMPT, max_tokens=1)["usage"]["prompt_tokens"]
    work()  # page cache and buffers
    tokens, seconds, _, _ = measure(cluster, work)
    return {"prompt_tokens": tokens, "tokens_per_second": tokens / seconds}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE")
    arguments = parser.parse_args()
    with Cluster(dict(setting.split("=", 1) for setting in arguments.set)) as cluster:
        cluster.text(STORY, max_tokens=100)
        result = {"decode": [decode(cluster, clients) for clients in (1, 4)], "prefill": prefill(cluster)}
    if arguments.json:
        print(json.dumps(result, indent=1))
        return
    for row in result["decode"]:
        print(f"decode, {row['clients']} clients: {row['tokens_per_second']:.0f} tok/s, {row['window_ms']:.2f} ms a window, "
              f"hit ratio {row['hit_ratio']:.2f}")
        print("   " + ", ".join(f"{name} {value:.2f}" for name, value in row["phase_ms_per_window"].items()) + "  (ms a window)")
    print(f"prefill of {result['prefill']['prompt_tokens']} tokens: {result['prefill']['tokens_per_second']:.0f} tok/s")


if __name__ == "__main__":
    main()
