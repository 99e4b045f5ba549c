"""Exchanges in a running cluster: kill -9 of either side at each step of one, and what an operator changes while it runs.

Records are checked by checksums here (experts.verify_records): a slot that is read before its bytes are there, or written after
that, ends the gpu-worker, which these tests would see as a restart that they did not ask for.
"""
import json
import os
import tempfile
import unittest

from support import Cluster, strata, wait_for

STORY = "Tell me a story about a fox and a swan."
OTHER = "Write a python function that reverses a list."
FIELDS = {"max_tokens": 300, "logit_bias": {"8160": -100, "8162": -100}}
CACHE_MANAGER_STEPS = ("before-retire", "retired", "copying", "copied", "land-sent", "landed")
GPU_WORKER_STEPS = ("retire-asked", "retire-applied", "land-asked", "land-applied")
SETTINGS = {"experts.slots": "25%", "experts.verify_records": "on", "experts.policy": "lru"}  # lru exchanges most
ROUNDS = 20  # of two answers, in which each step is sure to be taken


def residency(cluster, *arguments):
    """What `strata residency` prints: show, or the words of a change."""
    result = strata("residency", *(arguments or ("show",)), "--json", "--run-dir", cluster.run_dir)
    if result.returncode != 0:
        raise AssertionError(f"strata residency {arguments}: {result.returncode} {result.stderr}")
    return json.loads(result.stdout)


def check_table(test, shown):
    """No expert twice, none in more slots than there are."""
    for layer in shown["layers"]:
        test.assertEqual(len(set(layer["experts"])), len(layer["experts"]), layer)
        test.assertTrue(all(expert < layer["expert_count"] for expert in layer["experts"]), layer)
    test.assertEqual(sum(len(layer["experts"]) for layer in shown["layers"]), shown["slots_used"])
    test.assertLessEqual(shown["slots_used"], shown["slots"])


class Crashes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="strata-test-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        places = ",".join(f"{step}@{cls.armed(step)}" for step in CACHE_MANAGER_STEPS + GPU_WORKER_STEPS)
        cls.cluster = Cluster({**SETTINGS, "supervisor.backoff_ms": "50", "supervisor.backoff_max_ms": "100"},
                              environment={"STRATA_TEST_CRASH_AT": places})
        cls.cluster.__enter__()
        cls.addClassCleanup(cls.cluster.__exit__)
        cls.undisturbed = {prompt: cls.cluster.text(prompt, **FIELDS) for prompt in (STORY, OTHER)}

    @classmethod
    def armed(cls, step):
        return os.path.join(cls.folder, step)

    def settled(self):
        """Both sides agree again: attached, filled, nothing on its way."""
        def look():
            result = strata("residency", "show", "--json", "--run-dir", self.cluster.run_dir)
            if result.returncode != 0:
                return None
            shown = json.loads(result.stdout)
            at_rest = shown["attached"] and shown["exchanges_in_flight"] == 0 and shown["slots_used"] == shown["slots"]
            return shown if at_rest else None
        return wait_for(look, 30, "all slots filled, nothing in flight")

    def crash(self, steps, victims):
        self.settled()
        pids = {name: self.cluster.process_of(name)["pid"] for name in ("cache-manager", "gpu-worker")}
        for step in steps:
            with open(self.armed(step), "w"):
                pass
        for _ in range(ROUNDS):
            for prompt, expected in self.undisturbed.items():
                self.assertEqual(self.cluster.text(prompt, **FIELDS), expected)
            if not any(os.path.exists(self.armed(step)) for step in steps):
                break
        else:
            self.fail(f"{steps}: nobody came by in {ROUNDS} rounds")
        for name in victims:
            self.cluster.wait_restarted(name, pids[name])
        for name in set(pids) - set(victims):
            self.assertEqual(self.cluster.process_of(name)["pid"], pids[name], f"{name} was to live")
        check_table(self, self.settled())
        before = residency(self.cluster)["exchanges_total"]
        for prompt, expected in self.undisturbed.items():
            self.assertEqual(self.cluster.text(prompt, **FIELDS), expected)
        self.assertGreater(residency(self.cluster)["exchanges_total"], before, "exchanges go on")

    def test_the_cache_manager_dies_at_each_step(self):
        for step in CACHE_MANAGER_STEPS:
            with self.subTest(step):
                self.crash([step], ["cache-manager"])

    def test_the_gpu_worker_dies_at_each_step(self):
        for step in GPU_WORKER_STEPS:
            with self.subTest(step):
                self.crash([step], ["gpu-worker"])

    def test_both_die_in_one_exchange(self):
        for steps in (("land-sent", "land-asked"), ("copying", "retire-applied"), ("landed", "land-applied")):
            with self.subTest(steps):
                self.crash(steps, ["cache-manager", "gpu-worker"])


class Control(unittest.TestCase):
    def setUp(self):
        # Each test begins with the configuration.
        self.cluster = Cluster({**SETTINGS, "experts.policy": "lfu-decay"})
        self.cluster.__enter__()
        self.addCleanup(self.cluster.__exit__)
        wait_for(lambda: residency(self.cluster)["slots_used"] == residency(self.cluster)["slots"], 20, "the arena is filled")

    def absent(self, layer):
        shown = residency(self.cluster)["layers"][layer]
        return next(expert for expert in range(shown["expert_count"]) if expert not in shown["experts"])

    def resident(self, layer, expert):
        return expert in residency(self.cluster)["layers"][layer]["experts"]

    def fails(self, code, said, *arguments):
        result = strata("residency", *arguments, "--run-dir", self.cluster.run_dir)
        self.assertEqual((result.returncode, result.stdout), (code, ""), result.stderr)
        self.assertIn(said, result.stderr)

    def test_shows_layers_for_people_and_programs(self):
        self.cluster.text(STORY, max_tokens=30)
        shown = residency(self.cluster)
        check_table(self, shown)
        self.assertEqual(len(shown["layers"]), 8)
        self.assertEqual(sum(layer["quota"] for layer in shown["layers"]), shown["slots"])
        self.assertEqual(shown["decode"]["hits"] + shown["decode"]["misses"], 29 * 8 * 6)  # the last token is never fed back
        self.assertTrue(0 < shown["decode"]["hit_rate"] < 1)
        self.assertEqual((shown["changed"], shown["own_quotas"]), ([], True))
        self.assertEqual(shown["limits"]["exchanges_per_window"], 4)  # one per two layers
        text = strata("residency", "show", "--run-dir", self.cluster.run_dir).stdout
        self.assertIn("policy lfu-decay", text)
        self.assertEqual(len([line for line in text.splitlines() if line.strip()[:1].isdigit()]), 8)

    def test_a_pinned_expert_comes_stays_and_outlives_the_gpu_worker(self):
        expert = self.absent(3)
        changed = residency(self.cluster, "pin", f"3:{expert}")
        self.assertEqual((changed["changed"], changed["layers"][3]["pinned"]), (["pins"], [expert]))
        wait_for(lambda: self.resident(3, expert), 10, "the pinned expert, without any traffic")
        for prompt in (STORY, OTHER):
            self.cluster.text(prompt, max_tokens=100)
        self.assertTrue(self.resident(3, expert))
        pid = self.cluster.kill("gpu-worker")
        self.cluster.wait_restarted("gpu-worker", pid)
        wait_for(lambda: self.resident(3, expert), 20, "the pinned expert in the new gpu-worker's arena")
        self.assertEqual(residency(self.cluster, "unpin", f"3:{expert}")["changed"], [])

    def test_policy_quotas_and_rate_change_at_once_and_end_with_the_cache_manager(self):
        before = residency(self.cluster)
        changed = residency(self.cluster, "policy", "lru")
        self.assertEqual(changed["policy"], "lru")
        self.assertEqual([layer["experts"] for layer in changed["layers"]], [layer["experts"] for layer in before["layers"]])
        quotas = [layer["quota"] for layer in before["layers"]]
        quotas[0], quotas[1] = quotas[0] - 4, quotas[1] + 4
        changed = residency(self.cluster, "quotas", ",".join(map(str, quotas)))
        self.assertEqual([layer["quota"] for layer in changed["layers"]], quotas)
        self.cluster.text(STORY, max_tokens=100)
        wait_for(lambda: [len(layer["experts"]) for layer in residency(self.cluster)["layers"]] == quotas, 10, "slots moved between layers")
        changed = residency(self.cluster, "rate", "--per-window", "0", "--copy-budget", "1GiB")
        self.assertEqual(changed["limits"]["copy_bytes_per_second"], 1 << 30)
        self.assertEqual(changed["changed"], ["policy", "quotas", "rate"])
        wait_for(lambda: residency(self.cluster)["exchanges_in_flight"] == 0, 10, "nothing in flight")
        still = residency(self.cluster)["exchanges_total"]
        self.cluster.text(OTHER, max_tokens=100)
        self.assertEqual(residency(self.cluster)["exchanges_total"], still, "no exchange is allowed")
        self.assertIn("until the cache manager restarts", strata("residency", "show", "--run-dir", self.cluster.run_dir).stdout)
        pid = self.cluster.kill("cache-manager")
        self.cluster.wait_restarted("cache-manager", pid)
        again = wait_for(lambda: (lambda shown: shown if shown["attached"] else None)(residency(self.cluster)), 10, "attached again")
        self.assertEqual((again["policy"], again["changed"]), ("lfu-decay", []))

    def test_what_cannot_be_had_is_refused_with_a_reason(self):
        self.fails(2, "the model has none", "pin", "99:0")
        self.fails(2, "expected LAYER:EXPERT", "pin", "3-4")
        self.fails(1, "is not pinned", "unpin", "0:0")
        self.fails(2, "nothing to change", "unpin")
        self.fails(2, "experts.policy: expected", "policy", "best")
        self.fails(2, "quotas for 8 layers", "quotas", "1,2,3")
        self.fails(2, "experts.exchanges_in_flight", "rate", "--in-flight", "many")
        self.assertEqual(residency(self.cluster)["changed"], [])
        nowhere = strata("residency", "show", "--run-dir", os.path.join(self.cluster.folder, "nowhere"))
        self.assertEqual(nowhere.returncode, 3, nowhere.stderr)

    def test_layers_are_counted_in_the_metrics(self):
        self.cluster.text(STORY, max_tokens=30)
        def uses():  # the gateway gathers in the background
            return sum(value for (name, labels), value in self.cluster.metrics().items()
                       if name == "strata_expert_layer_uses_total" and ("phase", "decode") in labels)
        wait_for(lambda: uses() >= 29 * 8 * 6, 10, "uses by layer")
        self.assertEqual(uses(), 29 * 8 * 6)
        self.assertEqual(self.cluster.metric("strata_expert_layer_slots"), residency(self.cluster)["slots"])
        for name in ("strata_expert_layer_slots_used", "strata_expert_layer_exchanges_total"):
            self.assertGreater(self.cluster.metric(name, layer="7"), 0, name)


if __name__ == "__main__":
    unittest.main()
