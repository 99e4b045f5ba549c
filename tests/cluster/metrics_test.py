"""/metrics of the gateway covers the whole cluster, keeps its identities, and never loses a series."""
import re
import shutil
import subprocess
import time
import unittest

from support import Cluster, wait_for

TOPICS = ["Write a python function that reverses a list.", "Add 127 and 348.", "What does the Bible say about light?",
          "Tell me a story about a fox.", "What is a harbour?"]


class Metrics(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster({"experts.slots": "25%"})
        cls.cluster.__enter__()
        cls.addClassCleanup(cls.cluster.__exit__)
        # The gateway gathers in the background: the first round must be through.
        needed = {"strata_decode_windows_total", "strata_cpu_pool_jobs_total", "strata_expert_exchanges_total"}
        wait_for(lambda: needed <= {name for name, _ in cls.cluster.metrics()}, 10, "metrics of every process")
        cls.at_start = cls.cluster.metrics()
        for topic in TOPICS:
            cls.cluster.text(topic, max_tokens=60)

    def test_every_process_is_up(self):
        for worker in ("gpu0", "cpu0", "cache"):
            wait_for(lambda worker=worker: self.cluster.metric("strata_worker_up", worker=worker) == 1, 5, f"{worker} is up")

    def test_hits_misses_and_exchanges_happen(self):
        wait_for(lambda: self.cluster.metric("strata_expert_exchanges_total") > 0, 5, "an exchange was counted")
        self.assertGreater(self.cluster.metric("strata_expert_uses_total", served_by="vram"), 0)
        self.assertGreater(self.cluster.metric("strata_expert_uses_total", served_by="cpu"), 0)

    def test_no_series_appears_later_or_vanishes(self):
        later = self.cluster.metrics()
        self.assertEqual({key for key in later if key not in self.at_start}, set())
        self.assertEqual({key for key in self.at_start if key not in later}, set())

    def test_window_phases_are_counted(self):
        total = self.cluster.metric("strata_decode_stage_seconds_total")
        self.assertGreater(total, 0)
        self.assertGreater(self.cluster.metric("strata_decode_windows_total"), 0)

    def test_every_routed_use_is_served_by_somebody(self):
        def uses():
            time.sleep(0.6)  # the gateway gathers a few times a second
            return self.cluster.metric("strata_expert_uses_total")
        before = uses()
        usage = self.cluster.chat("Tell me a story about a fox.", max_tokens=20)["usage"]
        # The last generated token is never fed back. 8 layers, 6 experts each.
        fed = usage["prompt_tokens"] + usage["completion_tokens"] - 1
        self.assertEqual(uses() - before, fed * 8 * 6)

    def test_prompt_tokens_add_up(self):
        before = self.cluster.metric("strata_prompt_tokens_total")
        usage = self.cluster.chat("What is a harbour?", max_tokens=3)["usage"]
        self.assertEqual(self.cluster.metric("strata_prompt_tokens_total") - before, usage["prompt_tokens"])

    def test_finish_reasons_and_outcomes(self):
        before = self.cluster.metric("strata_finish_total", reason="length")
        self.cluster.chat("Tell me a story about a fox.", max_tokens=3)
        self.assertEqual(self.cluster.metric("strata_finish_total", reason="length") - before, 1)
        self.assertGreater(self.cluster.metric("strata_requests_total", outcome="ok"), 0)

    def test_counters_survive_a_restart_of_the_worker_that_counts(self):
        before = self.cluster.metric("strata_decode_windows_total")
        pid = self.cluster.kill("gpu-worker")
        self.cluster.wait_restarted("gpu-worker", pid)
        self.cluster.text("What is a harbour?", max_tokens=5)
        wait_for(lambda: self.cluster.metric("strata_decode_windows_total") > before, 5, "the counter went on")
        wait_for(lambda: self.cluster.metric("strata_worker_restarts_total", worker="gpu0") >= 1, 5, "the restart was counted")

    def test_names_and_promtool(self):
        _, text, _ = self.cluster.request("GET", "/metrics")
        names = set(re.findall(r"^([a-z_]+)", text, re.MULTILINE))
        self.assertEqual([name for name in names if not name.startswith(("strata_", "process_"))], [])
        if not shutil.which("promtool"):
            self.skipTest("promtool is not installed")
        result = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=30)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)


if __name__ == "__main__":
    unittest.main()
