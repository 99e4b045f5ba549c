"""Starting and stopping: ready line, run directory, start-up faults, SIGTERM, leftovers of a killed supervisor."""
import os
import signal
import subprocess
import tempfile
import time
import unittest

from support import BIN, DEMO, Cluster, alive, segments, strata, wait_for


class Lifecycle(unittest.TestCase):
    def test_sigterm_stops_everything_and_leaves_nothing(self):
        with Cluster() as cluster:
            pids = [entry["pid"] for entry in cluster.status()["processes"]]
            prefix = cluster.segment_prefix()
            self.assertTrue(segments(prefix))
            cluster.text("Hello", max_tokens=4)
            start = time.monotonic()
            cluster.process.send_signal(signal.SIGTERM)
            self.assertEqual(cluster.process.wait(10), 0)
            self.assertLess(time.monotonic() - start, 6)
            self.assertEqual([pid for pid in pids if alive(pid)], [])
            self.assertEqual(segments(prefix), set())
            self.assertEqual([name for name in os.listdir(cluster.run_dir) if name.endswith(".sock")], [])

    def test_sigterm_during_an_answer_drains_or_cancels_within_five_seconds(self):
        with Cluster() as cluster:
            stream = cluster.stream("Tell me a very long story.", max_tokens=3000, temperature=1)
            next(stream)
            start = time.monotonic()
            cluster.process.send_signal(signal.SIGTERM)
            self.assertEqual(cluster.process.wait(10), 0)
            self.assertLess(time.monotonic() - start, 6)
            stream.close()

    def test_a_killed_supervisor_takes_its_children_along_and_the_next_start_cleans_up(self):
        with tempfile.TemporaryDirectory(prefix="strata-test-") as folder:
            run_dir = os.path.join(folder, "run")
            with Cluster(run_dir=run_dir) as cluster:
                pids = [entry["pid"] for entry in cluster.status()["processes"]]
                cluster.process.kill()
                cluster.process.wait(10)
                wait_for(lambda: not any(alive(pid) for pid in pids), 5, "children end with the supervisor")
            with Cluster(run_dir=run_dir) as cluster:
                self.assertIn("violin", cluster.text("What is a violin?", max_tokens=30).lower())
                prefix = cluster.segment_prefix()
        self.assertEqual(segments(prefix), set())

    def test_two_clusters_share_a_machine_but_not_a_run_directory(self):
        with Cluster() as first, Cluster() as second:
            self.assertNotEqual(first.port, second.port)
            self.assertEqual(first.text("What is a violin?", max_tokens=20), second.text("What is a violin?", max_tokens=20))
            result = strata("up", "--config", DEMO, "--run-dir", first.run_dir, "--listen", "127.0.0.1:0")
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(str(first.process.pid), result.stderr)

    def test_a_listener_on_ipv6_is_taken_as_written(self):
        with tempfile.TemporaryDirectory(prefix="strata-test-") as folder:
            run_dir = os.path.join(folder, "run")
            result = strata("up", "--detach", "--config", DEMO, "--run-dir", run_dir, "--listen", "[::1]:0")
            strata("down", "--run-dir", run_dir)
            if "address" in result.stderr.lower() and "::1" in result.stderr:
                self.skipTest("this machine has no IPv6 loopback")
            self.assertRegex(result.stdout, r"^ready http://\[::1\]:\d+\n$", result.stderr)

    def test_detach_returns_when_ready_and_down_stops(self):
        with tempfile.TemporaryDirectory(prefix="strata-test-") as folder:
            run_dir = os.path.join(folder, "run")
            result = strata("up", "--detach", "--config", DEMO, "--run-dir", run_dir, "--listen", "127.0.0.1:0")
            try:
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertRegex(result.stdout, r"^ready http://127\.0\.0\.1:\d+\n$")
                self.assertEqual(strata("status", "--run-dir", run_dir).returncode, 0)
            finally:
                down = strata("down", "--run-dir", run_dir)
            self.assertEqual(down.returncode, 0, down.stderr)
            self.assertNotEqual(strata("status", "--run-dir", run_dir).returncode, 0)


class StartupFaults(unittest.TestCase):
    """Never retried: one line that says what to change, exit 2, within seconds."""

    def fault(self, *arguments):
        with tempfile.TemporaryDirectory(prefix="strata-test-") as folder:
            result = strata("up", "--config", DEMO, "--run-dir", os.path.join(folder, "run"), "--listen", "127.0.0.1:0", *arguments,
                            timeout=20)
        self.assertEqual(result.returncode, 2, result.stderr)
        return result.stderr

    def test_a_missing_model(self):
        error = self.fault("--set", "model.path=nosuch.gguf")
        self.assertIn("nosuch.gguf", error)
        self.assertEqual(len(error.strip().splitlines()), 1, error)

    def test_a_damaged_model(self):
        with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
            with open(os.path.join(os.path.dirname(DEMO), "..", "models", "strata-demo.gguf"), "rb") as model:
                file.write(model.read(1000000))
            file.flush()
            self.assertIn(file.name, self.fault("--set", f"model.path={file.name}"))

    def test_an_unknown_setting_names_the_nearest(self):
        self.assertIn("experts.slots", self.fault("--set", "experts.slot=5"))

    def test_a_value_out_of_range(self):
        error = self.fault("--set", "engine.sequences=1000")
        self.assertIn("engine.sequences", error)

    def test_a_port_in_use(self):
        with Cluster() as cluster:
            with tempfile.TemporaryDirectory(prefix="strata-test-") as folder:
                result = strata("up", "--config", DEMO, "--run-dir", os.path.join(folder, "run"), "--listen",
                                f"127.0.0.1:{cluster.port}", timeout=30)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(str(cluster.port), result.stderr)

    def test_no_gpu_in_this_build_is_said_plainly(self):
        self.assertIn("cuda", self.fault("--set", "device.type=cuda").lower())


class Command(unittest.TestCase):
    def test_help_everywhere(self):
        for arguments in ([], ["up"], ["status"], ["chat"], ["inspect"], ["config"], ["profile"], ["down"]):
            result = strata(*arguments, "--help")
            self.assertEqual(result.returncode, 0, arguments)
            self.assertGreater(len(result.stdout), 100, arguments)
        for program in ("strata-gateway", "strata-gpu-worker", "strata-cpu-expert-worker", "strata-cache-manager"):
            result = subprocess.run([os.path.join(BIN, program), "--help"], capture_output=True, text=True, timeout=10)
            self.assertEqual(result.returncode, 0, program)

    def test_wrong_options_fail(self):
        self.assertNotEqual(strata("up", "--nonsense").returncode, 0)
        self.assertNotEqual(strata("nonsense").returncode, 0)

    def test_inspect_shows_the_demo_model(self):
        result = strata("inspect", os.path.join(os.path.dirname(DEMO), "..", "models", "strata-demo.gguf"))
        self.assertEqual(result.returncode, 0, result.stderr)
        for part in ("qwen4exp", "Q4_K", "IQ4_NL"):
            self.assertIn(part, result.stdout)

    def test_chat_answers_piped_lines(self):
        with Cluster() as cluster:
            result = strata("chat", "--run-dir", cluster.run_dir, "--temperature", "0", input="What is a violin?\n", timeout=60)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("instrument", result.stdout)


if __name__ == "__main__":
    unittest.main()
