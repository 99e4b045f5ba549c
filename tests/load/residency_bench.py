"""What exchanges cost and bring in a whole cluster, from its own counters.

    tests/load/residency_bench.py wait [--pairs 5] [--tokens 400]    # windows with exchanges and without, by turns
    tests/load/residency_bench.py switch [--pairs 5] [--tokens 512]  # hit rate after a change of topic
    tests/load/residency_bench.py simulator [--policy P]             # hit rate, measured and simulated, of the same traffic

All take --set PATH=VALUE (device.type=cuda, model.path=...) and --json. Not tests: figures belong into docs/performance.md, together
with the machine they were measured on.
"""
import argparse
import json
import os
import statistics
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "cluster"))
from support import DEMO, ROOT, Cluster, strata, wait_for  # noqa: E402

TOPICS = ["Tell me a story about a fox and a swan.", "Write a python function that reverses a list.", "What does the Bible say about light?",
          "Add 127 and 348, then multiply by 12.", "What is a harbour, and who works there?"]
LONG = {"logit_bias": {"8160": -100, "8162": -100}, "temperature": 0.6}  # the demo model's end tokens are forbidden
GATHERING_S = 0.6  # the gateway reads its processes' metrics a few times a second


def run_json(*arguments, timeout=600):
    result = strata(*arguments, timeout=timeout)
    if result.returncode != 0:
        raise SystemExit(f"strata {' '.join(arguments)}: {result.stderr}")
    return json.loads(result.stdout)


def residency(cluster):
    return run_json("residency", "show", "--json", "--run-dir", cluster.run_dir)


def filled(cluster):
    def look():
        shown = residency(cluster)
        return shown["slots_used"] == shown["slots"] and shown["exchanges_in_flight"] == 0
    wait_for(look, 60, "the arena is filled")


def decode_counts(cluster):
    shown = residency(cluster)
    return shown["decode"]["hits"], shown["decode"]["hits"] + shown["decode"]["misses"]


# --- wait

def decode_seconds(cluster):
    time.sleep(GATHERING_S)
    values = cluster.metrics()

    def total(name, **labels):
        return sum(value for (found, pairs), value in values.items() if found == name and set(labels.items()) <= pairs)
    return {"windows": total("strata_decode_windows_total"), "seconds": total("strata_decode_seconds_total"),
            "wait": total("strata_decode_stage_seconds_total", stage="exchange_wait"), "exchanges": total("strata_expert_exchanges_total"),
            "hits": total("strata_expert_uses_total", served_by="vram"), "uses": total("strata_expert_uses_total")}


def one_measurement(cluster, tokens, seed):
    before = decode_seconds(cluster)
    for number, topic in enumerate(TOPICS):
        cluster.text(topic, max_tokens=tokens, seed=seed * len(TOPICS) + number, **LONG)
    after = decode_seconds(cluster)
    grown = {name: after[name] - before[name] for name in after}
    return {"window_ms": grown["seconds"] / grown["windows"] * 1e3, "windows": grown["windows"], "exchanges": grown["exchanges"],
            "exchange_wait_seconds": grown["wait"], "exchange_wait_share": grown["wait"] / grown["seconds"],
            "hit_rate": grown["hits"] / grown["uses"]}


def measure_wait(arguments):
    """One cluster, the rate changed live: the same process, memory and clock for both sides of a pair; orders take turns."""
    results = {"on": [], "off": []}
    with Cluster(arguments.settings) as cluster:
        filled(cluster)
        one_measurement(cluster, arguments.tokens, 0)
        for pair in range(arguments.pairs):
            for side in ("on", "off") if pair % 2 == 0 else ("off", "on"):
                rate = "auto" if side == "on" else "0"
                run_json("residency", "rate", "--per-window", rate, "--json", "--run-dir", cluster.run_dir)
                results[side].append(one_measurement(cluster, arguments.tokens, pair + 1))
    ratios = [on["window_ms"] / off["window_ms"] for on, off in zip(results["on"], results["off"])]
    windows = sum(each["windows"] for each in results["on"])
    wait = sum(each["exchange_wait_seconds"] for each in results["on"])
    return {**results, "ratios": ratios, "ratio_median": statistics.median(ratios), "exchange_wait_seconds_per_1000_windows": wait / windows * 1e3,
            "exchange_wait_share": statistics.mean(each["exchange_wait_share"] for each in results["on"]),
            "exchanges_per_window": sum(each["exchanges"] for each in results["on"]) / windows}


def print_wait(result):
    print(f"{'pair':>4} {'on, ms':>8} {'off, ms':>8} {'ratio':>7} {'hits on':>8} {'off':>7} {'exchanges':>10} {'waited':>9}")
    for number, (on, off) in enumerate(zip(result["on"], result["off"])):
        print(f"{number + 1:>4} {on['window_ms']:>8.3f} {off['window_ms']:>8.3f} {on['window_ms'] / off['window_ms']:>7.3f} {on['hit_rate']:>8.3f} "
              f"{off['hit_rate']:>7.3f} {on['exchanges']:>10.0f} {on['exchange_wait_share']:>8.4%}")
    print(f"median ratio {result['ratio_median']:.3f}; with {result['exchanges_per_window']:.2f} exchanges per window, windows waited "
          f"{result['exchange_wait_seconds_per_1000_windows']:.6f} s per 1,000 of them, {result['exchange_wait_share']:.4%} of their time")


# --- switch

def decode_uses(cluster, prompt, length, seed):
    before = decode_counts(cluster)
    cluster.text(prompt, max_tokens=length, seed=seed, **LONG)
    after = decode_counts(cluster)
    return after[0] - before[0], after[1] - before[1]


def rates_of_tokens(cluster, warm_up, prompt, arguments):
    """Hit rates of the answer's tokens 0-64 and 64-128, from answers of these lengths, each behind an answer to `warm_up`."""
    hits, uses = [0, 0], [0, 0]
    for repetition in range(arguments.pairs):
        for place, length in enumerate((65, 129)):
            cluster.text(warm_up, max_tokens=arguments.tokens, seed=100 + repetition, **LONG)
            found = decode_uses(cluster, prompt, length, 200 + repetition)
            hits[place] += found[0]
            uses[place] += found[1]
    return hits[0] / uses[0], (hits[1] - hits[0]) / (uses[1] - uses[0])


def measure_switch(arguments):
    """Steady is what the same tokens hit when the answer before, with another seed, was about the same: their text has much to do with
    their hit rate, so other tokens' rate would be no measure. No two begin with quite the same residency, so each is measured --pairs
    times and the uses are added up."""
    rows = []
    with Cluster(arguments.settings) as cluster:
        filled(cluster)
        for old, new in zip(TOPICS, TOPICS[1:] + TOPICS[:1]):
            switched = rates_of_tokens(cluster, old, new, arguments)
            steady = rates_of_tokens(cluster, new, new, arguments)
            rows.append({"from": old, "to": new, "first_64": switched[0], "64_to_128": switched[1], "steady_first_64": steady[0],
                         "steady_64_to_128": steady[1], "recovered": switched[1] / steady[1]})
    return {"switches": rows, "recovered_least": min(row["recovered"] for row in rows)}


def print_switch(result):
    print(f"{'first 64':>9} {'steady':>8} {'64-128':>8} {'steady':>8} {'recovered':>10}  to")
    for row in result["switches"]:
        print(f"{row['first_64']:>9.3f} {row['steady_first_64']:>8.3f} {row['64_to_128']:>8.3f} {row['steady_64_to_128']:>8.3f} "
              f"{row['recovered']:>10.1%}  {row['to']}")
    print(f"least recovered within 64 tokens: {result['recovered_least']:.1%} of the steady rate")


# --- simulator

def measure_simulator(arguments):
    """Records the traffic while it is measured, and replays it through the same policy from the same profile."""
    profile = arguments.settings.get("experts.profile", os.path.join(ROOT, "models", "strata-demo.profile"))
    # The simulator looks behind every window.
    settings = {"experts.slots": "25%", "experts.exchange_interval_ms": "0", "experts.policy": arguments.policy, "experts.profile": profile, **arguments.settings}
    with tempfile.TemporaryDirectory(prefix="strata-test-") as folder, Cluster(settings) as cluster:
        filled(cluster)
        prompts, trace = os.path.join(folder, "prompts"), os.path.join(folder, "trace.bin")
        with open(prompts, "w") as file:
            file.write("\n".join(TOPICS * arguments.pairs) + "\n")
        before = decode_counts(cluster)
        recorded = strata("profile", "record", "--run-dir", cluster.run_dir, "--prompts", prompts, "--trace", trace, "--max-tokens",
                          str(arguments.tokens), timeout=1200)
        if recorded.returncode != 0:
            raise SystemExit(recorded.stderr)
        after = decode_counts(cluster)
        simulated = run_json("simulate", "--traces", trace, "--continuous", "--profile", profile, "--policies", arguments.policy, "--budgets",
                             settings["experts.slots"], "--landing-windows", str(arguments.landing_windows), "--json")
    measured = (after[0] - before[0]) / (after[1] - before[1])
    # Of all uses, as the cluster counts them; the row's own rate is the mean over the conversations.
    conversations = simulated[0]["conversations"]
    simulated = sum(each["decode_hits"] for each in conversations) / sum(each["decode_uses"] for each in conversations)
    return {"policy": arguments.policy, "uses": after[1] - before[1], "measured": measured, "simulated": simulated,
            "difference_points": 100 * (measured - simulated)}


def print_simulator(result):
    print(f"{result['policy']}: measured {result['measured']:.4f} over {result['uses']} uses, simulated {result['simulated']:.4f}: "
          f"{result['difference_points']:+.2f} points")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("wait", "switch", "simulator"))
    parser.add_argument("--pairs", type=int, default=5, help="pairs of measurements; for switch: repetitions; for simulator: rounds over the prompts (default: 5)")
    parser.add_argument("--tokens", type=int, default=400, help="of each answer (default: 400)")
    parser.add_argument("--policy", default="topic", help="for simulator (default: topic)")
    parser.add_argument("--landing-windows", type=int, default=2,
                        help="for simulator: windows from the look to the first with the expert in place, less one (default: 2: Retire "
                             "takes effect at the second boundary behind a look, Land at the next)")
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", dest="settings", help=f"over {os.path.basename(DEMO)}")
    parser.add_argument("--json", action="store_true", help="one JSON object for programs")
    arguments = parser.parse_args()
    arguments.settings = dict(setting.split("=", 1) for setting in arguments.settings)
    measure, show = {"wait": (measure_wait, print_wait), "switch": (measure_switch, print_switch),
                     "simulator": (measure_simulator, print_simulator)}[arguments.what]
    result = measure(arguments)
    if arguments.json:
        print(json.dumps(result))
    else:
        show(result)


if __name__ == "__main__":
    main()
