"""The rules of the house that a machine can check: include direction, line length, dead files, words that must not appear."""
import os
import re
import subprocess
import sys
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SOURCES = (".h", ".cc", ".cu", ".cuh")

# A folder may include itself and every folder of the lines above its own (docs/architecture.md, "Folders").
LAYERS = [
    {"services/base"},
    {"services/plot", "services/residency"},
    {"services/simulation"},
    {"services/sys", "services/shm", "services/obs", "services/config"},
    {"services/sqlite"},
    {"services/gguf", "services/quant", "services/expert", "services/tokenizer", "services/grammar", "services/synthetic",
     "services/model", "services/snapshot"},
    {"services/actor", "services/rpc"},
    {"gateway", "gpu-worker", "cpu-expert-worker", "cache-manager", "services/cli"},
]
PROCESSES = {"gateway", "gpu-worker", "cpu-expert-worker", "cache-manager"}
TOP_LEVEL = {"CMakeLists.txt", "proto", "services", "gateway", "gpu-worker", "cpu-expert-worker", "cache-manager", "deploy", "tests",
             "configs", "docs", "models", "tools", "README.md", "CONTRIBUTING.md", "LICENSE", "CHANGELOG.md", "CMakePresets.json"}


def files():
    listed = subprocess.run(["git", "-C", ROOT, "ls-files"], capture_output=True, text=True, check=True).stdout.splitlines()
    return [path for path in listed if os.path.exists(os.path.join(ROOT, path))]


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def folder_of(path):
    parts = path.split("/")
    return "/".join(parts[:2]) if parts[0] == "services" else parts[0]


def layer_of(folder):
    for index, layer in enumerate(LAYERS):
        if folder in layer:
            return index
    return None


class Tidy(unittest.TestCase):
    def setUp(self):
        self.files = files()
        self.code = [path for path in self.files if path.endswith(SOURCES)]

    def check(self, faults):
        self.assertEqual(faults, [], "\n" + "\n".join(faults))

    def test_includes_point_down_and_never_from_process_to_process(self):
        faults = []
        for path in self.code:
            folder = folder_of(path)
            here = layer_of(folder)
            # Tests put parts of several processes together.
            if here is None or "_test" in os.path.basename(path):
                continue
            for number, line in enumerate(read(path).splitlines(), 1):
                match = re.match(r'#include "([^"]+)"', line)
                if not match:
                    continue
                other = folder_of(match.group(1))
                there = layer_of(other)
                if other == folder or there is None:
                    continue
                if there > here or (other in PROCESSES and folder in PROCESSES):
                    faults.append(f"{path}:{number}: {folder} may not include {other}")
        self.check(faults)

    def test_lines_are_at_most_110_wide(self):
        # Comments and strings of a settings table or a test vector may run a little over.
        faults = [f"{path}:{number}: {len(line)} characters" for path in self.code
                  for number, line in enumerate(read(path).splitlines(), 1) if len(line) > 140]
        self.check(faults)

    def test_headers_have_pragma_once(self):
        self.check([path for path in self.code if path.endswith((".h", ".cuh")) and "#pragma once" not in read(path)])

    def test_every_source_is_named_in_a_cmake_file(self):
        cmake = "\n".join(read(path) for path in self.files if path.endswith(("CMakeLists.txt", ".cmake")))
        self.check([path for path in self.code if path.endswith((".cc", ".cu")) and os.path.basename(path) not in cmake])

    def test_top_level_is_the_agreed_list(self):
        top = {path.split("/")[0] for path in self.files}
        self.check(sorted(name for name in top - TOP_LEVEL if not name.startswith(".")))

    def test_source_files_stay_small(self):
        self.check([f"{path}: {len(read(path).splitlines())} lines" for path in self.code if len(read(path).splitlines()) > 900])

    def test_tests_that_the_rules_name_exist(self):
        rules = read("docs/api.md").split("\n## Rules\n")[1]
        written = {f"{suite}.{name}" for path in self.code if path.endswith("_test.cc")
                   for suite, name in re.findall(r"^TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", read(path), re.M)}
        named = re.findall(r"`(\w+\.\w+)`", rules)
        self.assertGreater(len(named), 20)
        self.check([f"docs/api.md: there is no test {name}" for name in named if name not in written])

    def test_no_leftovers(self):
        faults = []
        for path in self.code:
            for number, line in enumerate(read(path).splitlines(), 1):
                if re.search(r"\b(TODO|FIXME|XXX)\b", line):
                    faults.append(f"{path}:{number}: {line.strip()}")
        self.check(faults)

    def test_every_dependency_has_its_line(self):
        listed = read("docs/dependencies.md")
        script = read("tools/install-packages.sh")
        packages = re.findall(r"\b((?:lib[\w.+-]+-dev|prometheus-cpp-dev|[\w-]*grpc[\w-]*))\b", script)
        self.check([package for package in sorted(set(packages)) if package not in listed])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]])
