"""`strata probe` on the demo model: through a whole cluster of its own, or one that runs. Figures are checked for being there and fitting together,
never for how long something took."""
import json
import os
import tempfile
import unittest

from support import DEMO, Cluster, strata

SMALL = ["--conversations", "2", "--tokens", "150", "--rounds", "1", "--steps", "2", "--answer-tokens", "4"]
SERIES = {"alternate": {"cold": 2, "warm": 2, "switched": 2, "repeated": 2}, "loop": {"cold": 1, "step": 2}, "shared": {"cold": 1, "shared": 1},
          "edit": {"cold": 2, "edited": 2}, "compact": {"cold": 2, "compacted": 2}}


class Probe(unittest.TestCase):
    def check(self, report, patterns):
        self.assertEqual([result["pattern"] for result in report["patterns"]], patterns)
        for result in report["patterns"]:
            self.assertEqual({series["name"]: len(series["requests"]) for series in result["series"]}, SERIES[result["pattern"]])
            self.assertEqual(result["identical"], result["compared"])
            for series in result["series"]:
                for request in series["requests"]:
                    self.assertGreater(request["ttft_s"], 0)
                    self.assertLess(request["cached_tokens"], request["prompt_tokens"])
                self.assertLessEqual(series["median_ttft_s"], series["worst_ttft_s"])
            # A text is a whole number of words away from what was asked for, and the template adds its own.
            cold = result["series"][0]
            self.assertTrue(130 < cold["prompt_tokens"] < 300, cold)

    def test_every_pattern_on_a_running_cluster(self):
        with Cluster() as cluster, tempfile.TemporaryDirectory(prefix="strata-test-") as folder:
            plot = os.path.join(folder, "probe.svg")
            result = strata("probe", "all", *SMALL, "--run-dir", cluster.run_dir, "--seed", "5", "--json", "--plot", plot, timeout=240)
            self.assertEqual(result.returncode, 0, result.stderr)
            report = json.loads(result.stdout)
            self.check(report, list(SERIES))
            self.assertEqual((report["model"], report["context_tokens"], report["seed"]), ("strata-demo", 4096, 5))
            with open(plot) as file:
                requests = sum(sum(series.values()) for series in SERIES.values())
                self.assertEqual(file.read().count("<circle"), requests)

            url = f"http://127.0.0.1:{cluster.port}"
            table = strata("probe", "shared", *SMALL, "--url", url)
            self.assertEqual(table.returncode, 0, table.stderr)
            self.assertRegex(table.stdout, r"(?m)^shared +cold +1 .*\n +shared +1 ")

            long = strata("probe", "alternate", "--tokens", "4000", "--url", url)
            self.assertEqual(long.returncode, 2)
            self.assertRegex(long.stderr, r"alternate needs a context of about \d+ tokens, the server has 4096: lower --tokens or --rounds")
            some = strata("probe", "all", *SMALL[:6], "--steps", "1000", *SMALL[8:], "--url", url, "--json", timeout=240)
            self.assertEqual(some.returncode, 0, some.stderr)
            report = json.loads(some.stdout)
            self.check(report, ["alternate", "shared", "edit", "compact"])
            self.assertEqual([left["pattern"] for left in report["left_out"]], ["loop"])

    def test_a_cluster_of_its_own_and_pairs_of_loops(self):
        result = strata("probe", "alternate", *SMALL, "--config", DEMO, "--json", timeout=120)
        self.assertEqual(result.returncode, 0, result.stderr)
        report = json.loads(result.stdout)
        self.check(report, ["alternate"])
        self.assertGreater(report["cold_ttft_s"], 0)
        self.assertGreater(report["switched_ttft_s"], 0)

        paired = strata("probe", "loop", *SMALL, "--config", DEMO, "--pairs", "2", "--against", "experts.slots=0", "--json", timeout=240)
        self.assertEqual(paired.returncode, 0, paired.stderr)
        report = json.loads(paired.stdout)
        self.check(report, ["loop"])
        self.assertEqual(report["against"], ["experts.slots=0"])
        ratios = [pair["ratio"] for pair in report["pairs"]]
        self.assertEqual(len(ratios), 2)
        self.assertAlmostEqual(report["tax"], sum(ratios) / 2 - 1)

    def test_faults_are_said_before_anything_starts(self):
        for arguments, code, words in [
                (["probe", "sideways"], 2, "sideways"),
                (["probe", "loop", "--set", "log.level=info"], 2, "--config"),
                (["probe", "loop", "--pairs", "2"], 2, "--config"),
                (["probe", "loop", "--config", DEMO, "--url", "http://127.0.0.1:1"], 2, "--url"),
                (["probe", "loop", "--config", DEMO, "--conversations", "1"], 2, "--conversations"),
                (["probe", "edit", "--config", DEMO, "--pairs", "1"], 2, "--pairs"),
                (["probe", "loop", "--config", "/nowhere.yaml"], 2, "/nowhere.yaml"),
                (["probe", "loop", "--config", DEMO, "--pairs", "1", "--against", "no.setting=1"], 2, "no.setting"),
                (["probe", "loop", "--run-dir", "/tmp/strata-no-such-cluster"], 3, "no cluster runs"),
                (["probe", "loop", "--url", "ftp://127.0.0.1"], 2, "expected http://"),
                (["probe", "loop", "--url", "https://127.0.0.1:1"], 1, "127.0.0.1:1"),
                (["probe", "loop", "--url", "http://127.0.0.1:1"], 1, "127.0.0.1:1")]:
            with self.subTest(arguments=arguments):
                result = strata(*arguments)
                self.assertEqual(result.returncode, code, result.stderr)
                self.assertIn(words, result.stderr)
                self.assertEqual(result.stdout, "")


if __name__ == "__main__":
    unittest.main()
