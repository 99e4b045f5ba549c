"""Every tensor type in every role of a model, through a whole cluster: small random models (docs/testing.md) answer, and the same whether
all experts are resident or none is."""
import concurrent.futures
import math
import os
import re
import struct
import subprocess
import tempfile
import unittest

from support import BIN, DEMO, Cluster, strata

# Small clusters start faster. The demo's profile belongs to another model.
SETTINGS = {"experts.profile": "", "engine.context_tokens": "512", "engine.sequences": "1"}
# What a row of every expert of the large models is a multiple of: only types with short blocks can have it.
PUBLISHED_WIDTH = 640
TYPES_MIN = 25
TOKENS = 16
# The marks of a chat are the last tokens of such a model's vocabulary: without them an answer has its full length.
NO_MARKS = {str(token): -100 for token in range(260, 265)}


def make_model(path, *options):
    return subprocess.run([os.path.join(BIN, "strata-make-model"), path, *options], capture_output=True, text=True, timeout=60)


def known_types():
    """The names that the generator lists."""
    usage = subprocess.run([os.path.join(BIN, "strata-make-model"), "--help"], capture_output=True, text=True, timeout=10).stdout
    return re.search(r"^Types: (.+)$", usage, re.MULTILINE).group(1).split()


def with_type_id(path, tensor, type_id, changed_path):
    """Writes a copy of a GGUF file in which a tensor has another type; no other byte differs."""
    with open(path, "rb") as file:
        data = bytearray(file.read())
    key = struct.pack("<Q", len(tensor)) + tensor.encode()
    at = data.index(key) + len(key)
    dims, = struct.unpack_from("<I", data, at)
    struct.pack_into("<I", data, at + 4 + 8 * dims, type_id)
    with open(changed_path, "wb") as file:
        file.write(data)


def answers(model, slots, environment=None):
    """What a cluster says with so many experts resident: texts and the log probability of every token, and the faults in its log."""
    with Cluster({**SETTINGS, "model.path": model, "experts.slots": slots}, environment=environment) as cluster:
        chat = cluster.chat("What is a violin?", max_tokens=TOKENS, logprobs=True, logit_bias=NO_MARKS)["choices"][0]
        body = {"prompt": "Once upon a time", "max_tokens": TOKENS, "temperature": 0, "logprobs": 3, "logit_bias": NO_MARKS}
        status, completion, _ = cluster.request("POST", "/v1/completions", body)
        if status != 200:
            raise AssertionError(f"completion: {status} {completion}")
        completion = completion["choices"][0]
        # That the model is a made-up one is said as a warning, and is right.
        faults = [line for line in cluster.tail(1 << 20).splitlines()
                  if not re.match(r"\S+Z (info |warn +gpu-worker model: the weights are synthetic)", line)]
    return {"chat": chat["message"]["content"], "chat log probabilities": [entry["logprob"] for entry in chat["logprobs"]["content"]],
            "text": completion["text"], "text log probabilities": completion["logprobs"]["token_logprobs"]}, faults


class Types(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="strata-test-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name

    def model_of(self, *options):
        model = os.path.join(self.folder, "model.gguf")
        made = make_model(model, *options)
        self.assertEqual(made.returncode, 0, made.stderr)
        return model

    def check_answers(self, model):
        """The same with all and without resident experts; the answers."""
        with concurrent.futures.ThreadPoolExecutor() as pool:
            (resident, faults), (missed, more_faults) = pool.map(lambda slots: answers(model, slots), ("100%", "0"))
        self.assertEqual(faults + more_faults, [])
        self.assertEqual(resident, missed)
        for kind in ("chat", "text"):
            values = resident[f"{kind} log probabilities"]
            self.assertEqual(len(values), TOKENS)
            self.assertTrue(all(math.isfinite(value) and value <= 0 for value in values), values)
            self.assertGreater(len(set(values)), TOKENS // 2, "every token is as likely as the others: nothing was computed")
        return resident

    def test_a_model_of_one_type_answers_the_same_with_all_and_without_resident_experts(self):
        names = known_types()
        self.assertGreaterEqual(len(names), TYPES_MIN)
        for name in names:
            with self.subTest(type=name):
                wide = make_model(os.devnull, "--down", name, "--expert-width", str(PUBLISHED_WIDTH), "--layers", "1", "--experts", "2")
                width = ["--expert-width", str(PUBLISHED_WIDTH)] if wide.returncode == 0 else []
                self.check_answers(self.model_of("--type", name, "--small", name, *width))

    def test_types_mixed_as_in_published_files_give_the_same_with_the_plainest_kernels_too(self):
        model = self.model_of("--dense", "Q8_0", "--gate-up", "IQ2_XS", "--down", "IQ4_NL", "--embedding", "Q4_K", "--head", "Q6_K",
                              "--table", "IQ4_NL", "--expert-width", str(PUBLISHED_WIDTH), "--layers", "4", "--attention-interval", "4",
                              "--experts", "6")
        fastest = self.check_answers(model)
        self.assertEqual(answers(model, "0", {"STRATA_CPU_KERNELS": "scalar"}), (fastest, []))

    def test_a_tensor_of_an_unknown_type_is_named(self):
        good, bad = (os.path.join(self.folder, name) for name in ("good.gguf", "bad.gguf"))
        self.assertEqual(make_model(good, "--type", "F32", "--experts", "2").returncode, 0)
        never_defined, integers = 999, 26
        for tensor, type_id in (("blk.1.ffn_up_exps.weight", never_defined), ("blk.1.ffn_up_exps.weight", integers),
                                ("per_layer_token_embd.weight", integers), ("token_embd.weight", integers)):
            with self.subTest(tensor=tensor, type=type_id):
                with_type_id(good, tensor, type_id, bad)
                result = strata("up", "--config", DEMO, "--set", f"model.path={bad}", "--set", "experts.profile=",
                                "--run-dir", os.path.join(self.folder, "run"), "--listen", "127.0.0.1:0")
                self.assertEqual(result.returncode, 2, result.stderr)
                self.assertRegex(result.stderr, f"{re.escape(bad)}.*{re.escape(tensor)}.*type {type_id if type_id == never_defined else 'I32'}")


if __name__ == "__main__":
    unittest.main()
