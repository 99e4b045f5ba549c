"""`strata bench`: a synthetic model through a whole cluster, measured; nothing is left behind, and what is made up is said everywhere."""
import json
import os
import re
import signal
import subprocess
import tempfile
import time
import unittest

from support import BIN, DEMO, Cluster, strata, wait_for

MODEL = "demo-shape:layers=4:types=Q8_0/Q4_0:seed=3"
# Two clusters at once would pin the same cores; small numbers, so that it is over soon.
SMALL = ["--set", "engine.context_tokens=512", "--set", "experts.slots=50%", "--set", "cpu_experts.workers=1", "--set", "cpu_experts.threads=1",
         "--tokens", "24", "--clients", "1,2", "--prompts", "64,128,30000"]


def left_behind():
    """Folders of benches and segments of clusters."""
    return {name for name in os.listdir("/dev/shm") if re.match(r"strata-(bench-|[0-9a-f]{8}-)", name)}


class Bench(unittest.TestCase):
    def setUp(self):
        self.before = left_behind()
        folder = tempfile.TemporaryDirectory(prefix="strata-test-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def bench(self, *arguments, timeout=240):
        path = os.path.join(self.folder, "report.json")
        result = strata("bench", *SMALL, "--warm-up", "200", "--json", path, *arguments, timeout=timeout)
        self.assertEqual(result.returncode, 0, result.stderr)
        with open(path) as file:
            return result, json.load(file)

    def check_figures(self, report):
        self.assertEqual([row["clients"] for row in report["decode"]], [1, 2])
        for row in report["decode"]:
            self.assertGreater(row["tokens"], row["clients"])
            self.assertGreater(row["tokens_per_second"], 1)
            self.assertLess(row["tokens_per_second"], 1e5)
            self.assertGreater(row["first_token_ms"], 0)
            self.assertLessEqual(row["pause_ms"]["median"], row["pause_ms"]["p99"])
            self.assertGreater(row["windows"], 0)
            self.assertGreater(row["window_ms"], 0)
            self.assertLessEqual(sum(row["phase_ms"].values()), row["window_ms"] * 1.2)
            self.assertIn("mixers", row["phase_ms"])
            self.assertTrue(0 <= row["hit_rate"] <= 1, row)
            self.assertTrue(0 <= row["exchange_wait_seconds"] < row["windows"] * row["window_ms"] / 1e3, row)
            self.assertGreaterEqual(row["exchanges"], 0)
        self.assertEqual([row["tokens"] for row in report["prefill"]], [64, 128])
        for row in report["prefill"]:
            self.assertAlmostEqual(row["tokens_per_second"] * row["first_token_ms"] / 1e3, row["tokens"], delta=0.5)
        self.assertEqual(report["prefill_left_out"], [30000])
        self.assertGreater(report["memory"]["host_bytes"]["kv"], 0)
        self.assertGreater(report["warm_up"]["tokens"], 0)
        self.assertEqual(report["device"], "host")

    def test_answers_under_a_grammar_are_measured_beside_free_ones(self):
        result, report = self.bench("--synthetic", MODEL, "--constrained")
        self.assertEqual([(row["clients"], row["constrained"], row["tokens"]) for row in report["decode"]],
                         [(1, False, 24), (1, True, 24), (2, False, 48), (2, True, 48)])
        self.assertRegex(result.stdout, r"1: windows under a grammar take [0-9.]+ ms, [+-][0-9.]+%")

    def test_a_synthetic_model_is_measured_and_gone_afterwards(self):
        result, report = self.bench("--synthetic", MODEL)
        self.check_figures(report)
        self.assertEqual(left_behind(), self.before)
        self.assertEqual((report["synthetic"]["weights"], report["synthetic"]["routing"], report["synthetic"]["routing_spec"]),
                         (True, True, "mild"))
        self.assertIn(MODEL, report["synthetic"]["model"])
        self.assertTrue(result.stdout.startswith("SYNTHETIC weights"), result.stdout)
        self.assertRegex(result.stdout, r"2: \d+ exchanges; \d+ windows waited 0\.\d+ s for them in all")
        self.assertIn("SYNTHETIC", result.stderr)
        self.assertEqual(report["experts_total"], 4 * 64)
        # Half of the experts take nearly all picks: the cache finds them.
        self.assertGreater(report["decode"][1]["hit_rate"], 0.5)

    def test_the_configured_model_is_measured_as_it_is(self):
        result, report = self.bench("--config", DEMO)
        self.check_figures(report)
        self.assertEqual((report["synthetic"]["weights"], report["synthetic"]["routing"]), (False, False))
        self.assertNotIn("SYNTHETIC", result.stdout)
        self.assertEqual(report["decode"][0]["tokens"], 24)
        self.assertEqual(left_behind(), self.before)

    def test_an_interrupt_cleans_up(self):
        arguments = [os.path.join(BIN, "strata"), "bench", *SMALL, "--synthetic", MODEL, "--warm-up", "1000000"]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            wait_for(lambda: any("arena" in name for name in left_behind() - self.before), 120, "the cluster's arena")
            time.sleep(1)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1, errors)
        self.assertIn("cancelled", errors)
        self.assertEqual(left_behind(), self.before)

    def test_a_model_written_into_a_file_is_an_ordinary_one_that_says_what_it_is(self):
        model = os.path.join(self.folder, "model.gguf")
        written = strata("bench", "--synthetic", MODEL, "--out", model)
        self.assertEqual(written.returncode, 0, written.stderr)
        self.assertIn("SYNTHETIC", written.stdout)
        inspected = strata("inspect", model)
        self.assertEqual(inspected.returncode, 0, inspected.stderr)
        self.assertIn("strata.synthetic", inspected.stdout)
        again = strata("bench", "--synthetic", MODEL, "--out", model)
        self.assertEqual((again.returncode, "File exists" in again.stderr), (2, True), again.stderr)
        settings = {"model.path": model, "model.name": "", "experts.profile": "", "engine.context_tokens": "512"}
        routed = self.answer(settings)
        self.assertEqual(self.answer({**settings, "experts.slots": "0"}), routed)
        synthetic = {**settings, "engine.synthetic_routing": "strong,seed=2"}
        self.assertNotEqual(self.answer(synthetic, "routing is synthetic"), routed)
        self.assertEqual(self.answer({**synthetic, "experts.slots": "0"}), self.answer(synthetic))

    def answer(self, settings, warning="the weights are synthetic"):
        with Cluster(settings) as cluster:
            self.assertIn(warning, cluster.tail(1 << 20))
            _, models, _ = cluster.request("GET", "/v1/models")
            self.assertIn("SYNTHETIC", json.dumps(models))
            body = {"prompt": list(range(40, 60)), "max_tokens": 16, "temperature": 0, "logprobs": 2}
            status, completion, _ = cluster.request("POST", "/v1/completions", body)
            self.assertEqual(status, 200, completion)
            return completion["choices"][0]["text"], completion["choices"][0]["logprobs"]["token_logprobs"]

    def test_faults_are_said_before_anything_starts(self):
        for arguments, said in ((["--synthetic", "qwen"], "demo-shape"), (["--synthetic", "demo-shape:layers=x"], "layers=x"), ([], "--synthetic"),
                                (["--synthetic", MODEL, "--set", "experts.slot=1"], "experts.slots"),
                                (["--synthetic", MODEL, "--folder", "/nowhere"], "/nowhere")):
            result = strata("bench", *arguments)
            self.assertNotEqual(result.returncode, 0)
            self.assertIn(said, result.stderr)
        result = strata("bench", "--synthetic", MODEL, "--routing", "mlid", *SMALL)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("mlid", result.stderr)
        self.assertEqual(left_behind(), self.before)


if __name__ == "__main__":
    unittest.main()
