"""Routing: recorded from a running cluster, built into profiles, learned and loaded again; and plans of machines that are not there."""
import json
import os
import re
import struct
import subprocess
import tempfile
import time
import unittest

from support import BIN, DEMO, ROOT, Cluster, strata, wait_for

MODEL = os.path.join(ROOT, "models", "strata-demo.gguf")
LAYERS, EXPERTS, USED = 8, 64, 6


def read_trace(path):
    """[(tokens, roles, picks)] of a trace of at most 256 experts."""
    with open(path, "rb") as file:
        data = file.read()
    assert data[:8] == b"STRTRC01", data[:8]
    count, layers, experts, used = struct.unpack_from("<4I", data, 8)
    assert (layers, experts, used) == (LAYERS, EXPERTS, USED), (layers, experts, used)
    at, conversations = 24, []
    for _ in range(count):
        (tokens,) = struct.unpack_from("<I", data, at)
        at += 4
        ids = struct.unpack_from(f"<{tokens}i", data, at)
        at += 4 * tokens
        roles, domains = data[at:at + tokens], data[at + tokens:at + 2 * tokens]
        at += 2 * tokens
        assert not any(domains)
        picks = data[at:at + tokens * layers * used]
        at += tokens * layers * used
        conversations.append((ids, list(roles), picks))
    assert at == len(data), (at, len(data))
    return conversations


def hit_share(cluster, ask):
    """The share of expert uses that were served from the arena while `ask` ran."""
    def uses():
        rows = {dict(labels)["served_by"]: value for (name, labels), value in cluster.metrics().items()
                if name == "strata_expert_uses_total"}
        return (rows["vram"], rows["cpu"]) if rows else None  # not gathered from the process yet
    before = wait_for(uses, 30, "the metrics are there")
    ask()
    seen = []

    def settled():  # metrics follow the counters ten times a second
        seen.append(uses())
        time.sleep(0.3)
        return seen[-1] != before and len(seen) > 1 and seen[-1] == seen[-2]
    wait_for(settled, 30, "the uses are counted")
    hits, misses = (now - then for now, then in zip(seen[-1], before))
    return hits / (hits + misses)


def profile_tokens(path):
    with open(path, "rb") as file:
        return struct.unpack_from("<Q", file.read(32), 24)[0]


class Recording(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster()
        cls.cluster.__enter__()
        cls.addClassCleanup(cls.cluster.__exit__)

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="strata-test-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def record(self, *arguments):
        return strata("profile", "record", "--run-dir", self.cluster.run_dir, *arguments, timeout=120)

    def prompts(self, *lines):
        with open(self.path("prompts"), "w") as file:
            file.write("\n".join(lines))
        return self.path("prompts")

    def test_a_trace_holds_prompts_and_answers_token_by_token(self):
        result = self.record("--trace", self.path("t.bin"), "--out", self.path("p"), "--max-tokens", "8", "--prompts",
                             self.prompts("What is a violin?", "Count to three."))
        self.assertEqual(result.returncode, 0, result.stderr)
        conversations = read_trace(self.path("t.bin"))
        self.assertEqual(len(conversations), 2)
        said = 0
        for ids, roles, picks in conversations:
            generated = roles.index(2)
            self.assertGreater(generated, 4, "the prompt with its marks")
            self.assertEqual(set(roles[:generated]), {1})
            self.assertEqual(set(roles[generated:]), {2})
            self.assertGreaterEqual(7, len(roles) - generated)
            for token in range(len(ids)):
                for layer in range(LAYERS):
                    at = (token * LAYERS + layer) * USED
                    self.assertEqual(len(set(picks[at:at + USED])), USED, "the router's choice, all different")
            said += len(roles) - generated
        self.assertNotEqual(conversations[0][0], conversations[1][0])

        # The same numbers by way of the trace.
        self.assertEqual(profile_tokens(self.path("p")), said)
        built = strata("profile", "build", "--traces", self.path("t.bin"), "--model", MODEL, "--out", self.path("q"))
        self.assertEqual(built.returncode, 0, built.stderr)
        with open(self.path("p"), "rb") as recorded, open(self.path("q"), "rb") as from_trace:
            self.assertEqual(recorded.read(), from_trace.read())
        shown = strata("profile", "show", self.path("p"), "--model", MODEL, "--svg", self.path("p.svg"))
        self.assertEqual(shown.returncode, 0, shown.stderr)
        self.assertIn("█", shown.stdout)
        self.assertIn("top 10%", shown.stdout)
        with open(self.path("p.svg")) as svg:
            self.assertIn("times even use", svg.read())

    def test_the_same_prompts_give_the_same_profile(self):
        prompts = self.prompts("What is a violin?")
        for name in ("a", "b"):
            result = self.record("--out", self.path(name), "--prompts", prompts, "--max-tokens", "6")
            self.assertEqual(result.returncode, 0, result.stderr)
        with open(self.path("a"), "rb") as first, open(self.path("b"), "rb") as second:
            self.assertEqual(first.read(), second.read())

    def test_what_others_ask_is_recorded_without_prompts(self):
        recorder = subprocess.Popen([os.path.join(BIN, "strata"), "profile", "record", "--run-dir", self.cluster.run_dir, "--trace",
                                     self.path("t.bin"), "--seconds", "600"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(recorder.communicate)
        self.addCleanup(recorder.kill)
        self.assertIn("recording for 600 s", recorder.stderr.readline())
        second = self.record("--trace", self.path("no.bin"), "--seconds", "0.1")
        self.assertEqual(second.returncode, 1)
        self.assertIn("another recording is running", second.stderr)
        self.cluster.text("What is a violin?", max_tokens=5)
        recorder.terminate()
        self.assertEqual(recorder.wait(30), 0)
        (_, roles, _), = read_trace(self.path("t.bin"))
        self.assertEqual(roles.count(2), 4, "the last token of an answer is never read")
        self.assertFalse(os.path.exists(self.path("no.bin")))

    def test_nothing_is_written_when_nothing_happened(self):
        result = self.record("--trace", self.path("t.bin"), "--seconds", "0.2")
        self.assertEqual(result.returncode, 1)
        self.assertIn("nothing was computed", result.stderr)
        self.assertEqual(os.listdir(self.folder), [])
        self.assertEqual(self.record().returncode, 2, "nothing to write")

    def test_no_cluster_is_said(self):
        result = strata("profile", "record", "--run-dir", self.folder, "--trace", self.path("t.bin"))
        self.assertEqual(result.returncode, 3, result.stderr)


class Learning(unittest.TestCase):
    QUESTIONS = ("What is a violin?", "What is a piano?", "What is a drum?")
    SETTINGS = {"experts.profile": "", "experts.slots": "25%"}

    def ask(self, cluster):
        for question in self.QUESTIONS:
            cluster.text(question, max_tokens=24)

    def full(self, cluster):
        def filled():
            residency = cluster.status()["residency"]
            return residency["slots_used"] == residency["slots"] and residency["exchanges_in_flight"] == 0
        wait_for(filled, 30, "the arena fills")

    def test_a_restart_begins_warm(self):
        with tempfile.TemporaryDirectory(prefix="strata-test-") as folder:
            run_dir = os.path.join(folder, "run")
            learned = os.path.join(run_dir, "learned.profile")
            with Cluster(self.SETTINGS, run_dir=run_dir) as cluster:
                self.assertFalse(os.path.exists(learned))
                self.ask(cluster)
                self.ask(cluster)
            tokens = profile_tokens(learned)
            self.assertGreater(tokens, 60)
            self.assertEqual([name for name in os.listdir(run_dir) if name.startswith("learned.profile.")], [],
                             "written whole, nothing left over")
            with Cluster(self.SETTINGS, run_dir=run_dir) as cluster:
                self.full(cluster)  # before anybody asks
                share = hit_share(cluster, lambda: cluster.text(self.QUESTIONS[0], max_tokens=24))
                self.assertGreater(share, 0.38, "0.49 where it was measured; a cold start: 0.23")
            self.assertGreaterEqual(profile_tokens(learned), tokens, "learning goes on")

    def test_a_profile_of_another_model_or_a_damaged_one_is_refused_and_said(self):
        with open(os.path.join(ROOT, "models", "strata-demo.profile"), "rb") as file:
            good = file.read()
        for name, spoil in (("another model", lambda data: None), ("damaged", lambda data: data.__setitem__(100, data[100] ^ 1))):
            with self.subTest(name), tempfile.TemporaryDirectory(prefix="strata-test-") as folder:
                run_dir, path = os.path.join(folder, "run"), os.path.join(folder, "spoiled.profile")
                data = bytearray(good)
                spoil(data)
                with open(path, "wb") as file:
                    file.write(data)
                if name == "another model":
                    with Cluster({"model.path": MODEL, "experts.profile": ""}, run_dir=run_dir) as cluster:
                        made = strata("profile", "record", "--run-dir", run_dir, "--trace", os.path.join(folder, "t.bin"), "--max-tokens",
                                      "2", "--prompts", "/dev/stdin", input="Hi")
                        self.assertEqual(made.returncode, 0, made.stderr)
                    # Of no model at all.
                    made = strata("profile", "build", "--traces", os.path.join(folder, "t.bin"), "--out", path)
                    self.assertEqual(made.returncode, 0, made.stderr)
                    os.remove(os.path.join(run_dir, "learned.profile"))
                with Cluster({"experts.profile": path}, run_dir=run_dir) as cluster:
                    self.assertIn("violin", cluster.text("What is a violin?", max_tokens=20).lower())
                    self.assertIn("spoiled.profile", cluster.tail(20000))
                shown = strata("profile", "show", path, "--model", MODEL)
                self.assertEqual(shown.returncode, 2)


class Files(unittest.TestCase):
    TRACES = os.path.join(ROOT, "models", "traces")

    def test_cross_validation_of_the_recorded_conversations(self):
        result = strata("profile", "cross-validate", "--traces", os.path.join(self.TRACES, "routing.bin"), "--model", MODEL, "--json",
                        "--budgets", "10%,25%")
        self.assertEqual(result.returncode, 0, result.stderr)
        rows = json.loads(result.stdout)
        self.assertEqual([row["slots"] for row in rows], [51, 128])
        for row in rows:
            self.assertEqual(len(row["conversations"]), 10)
            self.assertGreater(row["mean"]["oracle"], row["mean"]["profile"])
        table = strata("profile", "cross-validate", "--traces", self.TRACES, "--layers", "8")
        self.assertEqual(table.returncode, 0, table.stderr)
        self.assertEqual(len(table.stdout.splitlines()), 4)

    def test_merging_needs_one_model(self):
        with tempfile.TemporaryDirectory(prefix="strata-test-") as folder:
            demo, other, out = (os.path.join(folder, name) for name in ("demo", "other", "out"))
            trace = os.path.join(self.TRACES, "routing.bin")
            self.assertEqual(strata("profile", "build", "--traces", trace, "--model", MODEL, "--out", demo).returncode, 0)
            self.assertEqual(strata("profile", "build", "--traces", trace, "--layers", "8", "--out", other).returncode, 0)
            merged = strata("profile", "merge", demo, demo, "--weights", "1,0.5", "--out", out)
            self.assertEqual(merged.returncode, 0, merged.stderr)
            self.assertEqual(profile_tokens(out), round(profile_tokens(demo) * 1.5))
            refused = strata("profile", "merge", demo, other, "--out", out)
            self.assertEqual(refused.returncode, 2)
            self.assertIn("is the profile of model", refused.stderr)
            wrong = strata("profile", "build", "--traces", MODEL, "--out", out)
            self.assertEqual(wrong.returncode, 2)
            self.assertIn("no recorded routing", wrong.stderr)


class Planning(unittest.TestCase):
    REAL = "qwen3.8-flash-next:types=IQ4_XS/IQ4_NL:ngram=full"

    def plan(self, *arguments):
        return strata("plan", *arguments, "--set", "engine.context_tokens=32768", "--set", "engine.sequences=1")

    def test_the_demo_as_configured(self):
        result = strata("plan", "--config", DEMO, "--json", "--ram", "8GiB")
        self.assertEqual(result.returncode, 0, result.stderr)
        (machine,) = json.loads(result.stdout)["machines"]
        self.assertEqual(machine["device"], "host")
        self.assertEqual(machine["slots"], 128)
        self.assertGreater(machine["hit_rate"], 0.3, "by the profile of the configuration")
        self.assertIn("hits", strata("plan", "--config", DEMO).stdout)

    def test_cards_for_the_real_shape(self):
        result = self.plan("--synthetic", self.REAL, "--vram", "4GiB,12GiB,16GiB,24GiB", "--ram", "96GiB")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"\n4GiB .* no\n12GiB .* yes\n16GiB .* yes\n24GiB .* yes\n")
        slots = [int(line.split()[3]) for line in result.stdout.splitlines() if re.match(r"\d+GiB +\d", line)]
        self.assertEqual(slots, sorted(slots))
        one = self.plan("--synthetic", self.REAL, "--card", "rtx 4090", "--ram", "64GiB")
        self.assertEqual(one.returncode, 0, one.stderr)
        for part in ("weights", "kv", "buffers", "staging", "tables", "arena", "reserve", "page cache", "n-gram table"):
            self.assertIn(part, one.stdout)

    def test_what_fits_nowhere_fails_and_says_why(self):
        result = self.plan("--synthetic", self.REAL, "--vram", "2GiB")
        self.assertEqual(result.returncode, 1)
        self.assertIn("not enough device memory", result.stdout)
        for wrong in (("--vram", "lots"), ("--card", "RTX 4099"), ("--synthetic", "nonsense"), ()):
            self.assertEqual(strata("plan", *wrong).returncode, 2, wrong)


if __name__ == "__main__":
    unittest.main()
