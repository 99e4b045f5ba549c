"""kill -9 and SIGSTOP of each process in the middle of an answer: the answer completes and equals the undisturbed one."""
import http.client
import os
import signal
import time
import unittest

from support import Cluster, wait_for

STORY = "Tell me a story about a fox and a swan."
# Long enough that a client which gets no core for a while still meets the middle of it: the end tokens are forbidden.
FIELDS = {"max_tokens": 500, "logit_bias": {"8160": -100, "8162": -100}}
ATTEMPTS = 5  # at hitting an answer before it is over


class Failures(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster({"experts.slots": "25%", "cpu_experts.lost_after_ms": "500"})
        cls.cluster.__enter__()
        cls.addClassCleanup(cls.cluster.__exit__)
        cls.undisturbed = cls.cluster.text(STORY, **FIELDS)

    def setUp(self):
        self.wait_ready()

    def wait_ready(self):
        def ready():
            try:
                return self.cluster.request("GET", "/ready")[1].get("status") == "ready"
            except OSError:
                return False  # a gateway that is not back yet
        wait_for(ready, 20, "/ready without a degraded part")

    def disturbed(self, name, number=signal.SIGKILL):
        """Streams the story, hits the process after the third piece; the text and the pid that was hit."""
        for _ in range(ATTEMPTS):
            pid = self.cluster.process_of(name)["pid"]  # asked before: the whole answer takes a second
            pieces = []
            for piece in self.cluster.stream(STORY, **FIELDS):
                pieces.append(piece)
                if len(pieces) == 3:
                    os.kill(pid, number)
                    hit = time.monotonic()
            if time.monotonic() - hit > 0.05:
                return "".join(pieces), pid
            self.cluster.wait_restarted(name, pid)
            self.wait_ready()
        self.fail("each answer was over before the signal could matter")

    def check(self, name, number=signal.SIGKILL):
        text, pid = self.disturbed(name, number)
        self.assertEqual(text, self.undisturbed)
        self.cluster.wait_restarted(name, pid)
        self.wait_ready()
        self.assertEqual(self.cluster.text(STORY, **FIELDS), self.undisturbed)

    def test_a_killed_expert_worker_changes_nothing(self):
        self.check("cpu-expert-worker")

    def test_a_stopped_expert_worker_is_fenced_and_changes_nothing(self):
        self.check("cpu-expert-worker", signal.SIGSTOP)

    def test_a_killed_cache_manager_changes_nothing(self):
        self.check("cache-manager")

    def test_a_killed_gpu_worker_pauses_the_stream_and_it_goes_on(self):
        self.check("gpu-worker")

    def test_a_killed_gateway_breaks_its_connections_only(self):
        for _ in range(ATTEMPTS):
            pid = self.cluster.process_of("gateway")["pid"]
            text = ""
            try:
                for piece in self.cluster.stream(STORY, **FIELDS):
                    if not text:
                        os.kill(pid, signal.SIGKILL)
                    text += piece
            except (OSError, http.client.HTTPException):
                pass  # the connection breaks in one of several ways, a plain end included
            self.cluster.wait_restarted("gateway", pid)
            if len(text) < len(self.undisturbed):
                break
        self.assertLess(len(text), len(self.undisturbed), "each answer was over before the signal could matter")
        wait_for(lambda: self.cluster.status()["running_sequences"] == 0, 10, "the engine stopped the orphaned work")
        self.assertEqual(self.cluster.text(STORY, **FIELDS), self.undisturbed)


class Degraded(unittest.TestCase):
    def test_ready_lists_what_is_missing_until_it_is_back(self):
        # A long back-off keeps the worker away long enough to be seen.
        with Cluster({"supervisor.backoff_ms": "3000"}) as cluster:
            pid = cluster.kill("cpu-expert-worker")

            def degraded():
                status, body, _ = cluster.request("GET", "/ready")
                return status == 200 and body["status"] == "degraded" and any("cpu-expert-worker" in name for name in body["degraded"])
            wait_for(degraded, 5, "/ready says degraded")
            self.assertIn("violin", cluster.text("What is a violin?", max_tokens=30).lower())
            cluster.wait_restarted("cpu-expert-worker", pid)


if __name__ == "__main__":
    unittest.main()
