"""tools/gpu-tests.sh with programs that only pretend: what it records, how it goes on, what its exit code says."""
import os
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SCRIPT = os.path.join(ROOT, "tools", "gpu-tests.sh")


class GpuTests(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="strata-test-")
        self.addCleanup(folder.cleanup)
        self.build, self.out = os.path.join(folder.name, "build"), os.path.join(folder.name, "out")
        self.runs = os.path.join(folder.name, "runs")

    def program(self, name, body, kind="tests/bin"):
        path = os.path.join(self.build, kind, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\necho {name} \"$@\" >> {self.runs}\n{body}\n")
        os.chmod(path, 0o755)

    def call(self, *arguments):
        return subprocess.run([SCRIPT, *arguments, "--build", self.build, "--out", self.out], capture_output=True, text=True,
                              timeout=60)

    def recorded(self, mode, name):
        with open(os.path.join(self.out, mode, name), encoding="utf-8") as file:
            return file.read().strip()

    def run_lines(self):
        with open(self.runs, encoding="utf-8") as file:
            return file.read().splitlines()

    def test_results_and_output_of_every_program_are_kept(self):
        self.program("cuda_a_test_gpu", "echo fine")
        self.program("cuda_b_test_gpu", "exit 77")
        self.program("cuda_c_test", "exit 1")  # of the emulation: not for here
        result = self.call("tests")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertEqual(self.recorded("tests", "cuda_a_test_gpu.status"), "0")
        self.assertEqual(self.recorded("tests", "cuda_a_test_gpu.log"), "fine")
        self.assertEqual(self.recorded("tests", "cuda_b_test_gpu.status"), "77")
        self.assertEqual([line.split()[0] for line in self.run_lines()], ["cuda_a_test_gpu", "cuda_b_test_gpu"])
        self.assertIn(f"--gtest_output=json:{self.out}/tests/cuda_a_test_gpu.json", self.run_lines()[0])

    def test_a_failure_is_named_and_remembered(self):
        self.program("cuda_a_test_gpu", "exit 1")
        self.program("cuda_b_test_gpu", "exit 0")
        for _ in range(2):
            result = self.call("tests")
            self.assertEqual(result.returncode, 1)
            self.assertIn("cuda_a_test_gpu: FAILED", result.stdout)
        self.assertEqual(len(self.run_lines()), 2, "nothing runs twice")

    def test_a_machine_without_a_gpu_is_no_success(self):
        self.program("cuda_a_test_gpu", "exit 77")
        self.assertEqual(self.call("tests").returncode, 77)

    def test_the_next_call_goes_on_where_the_time_was_over(self):
        self.program("cuda_a_test_gpu", "sleep 20")
        self.program("cuda_b_test_gpu", "exit 0")
        self.assertEqual(self.call("tests", "--seconds", "2").returncode, 3)
        self.assertEqual(self.call("tests", "--seconds", "30").returncode, 1)  # a had all of the time, and that is its result
        self.assertEqual(self.recorded("tests", "cuda_a_test_gpu.status"), "124")
        self.assertEqual(self.recorded("tests", "cuda_b_test_gpu.status"), "0")

    def test_benchmarks_write_json(self):
        self.program("cuda_x_bench", "exit 0", "bench")
        self.program("dot_bench", "exit 1", "bench")  # of the CPU
        result = self.call("bench")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertEqual(self.run_lines(),
                         [f"cuda_x_bench --benchmark_out={self.out}/bench/cuda_x_bench.json --benchmark_out_format=json"])

    def test_wrong_calls_say_why(self):
        for arguments, message in ((("tests", "--speed", "9"), "unknown option --speed"), (("tests",), "nothing to run"), ((), "--out")):
            result = self.call(*arguments)
            self.assertEqual(result.returncode, 2)
            self.assertIn(message, result.stderr)


if __name__ == "__main__":
    unittest.main()
