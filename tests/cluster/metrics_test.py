"""/metrics of the gateway covers the whole cluster, keeps its identities, and never loses a series."""
import re
import shutil
import subprocess
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
        wait_for(lambda: all(cls.cluster.metrics().get(key, 0) == 1 for key in cls.worker_keys()), 10, "all workers are up")
        cls.at_start = cls.cluster.metrics()
        for topic in TOPICS:
            cls.cluster.text(topic, max_tokens=60)

    @classmethod
    def worker_keys(cls):
        found = [key for key in cls.cluster.metrics() if key[0] == "strata_worker_up"]
        assert len(found) == 3, found
        return found

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

    def test_prompt_tokens_add_up_and_every_use_is_served_by_somebody(self):
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
        self.assertGreaterEqual(self.cluster.metric("strata_worker_restarts_total", worker="gpu0"), 1)

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
