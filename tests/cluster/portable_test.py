"""The portable tree: installed, moved elsewhere, it runs a cluster with libraries of its own, on any Linux from Ubuntu 22.04 on."""
import os
import re
import shutil
import subprocess
import tempfile
import unittest
import zlib

import support

BUILD = os.path.dirname(support.BIN)
PROGRAMS = ["strata", "strata-cache-manager", "strata-cpu-expert-worker", "strata-gateway", "strata-gpu-worker"]
# What every C++ program takes from the system.
SYSTEM = re.compile(r"(ld-linux-x86-64|libc|libm|libdl|librt|libpthread|libresolv|libstdc\+\+|libgcc_s)\.so\.[\d.]+")
# The versions in Ubuntu 22.04, the oldest system that is meant.
NEWEST = {"GLIBC": (2, 35), "GLIBCXX": (3, 4, 30), "CXXABI": (1, 3, 13), "GCC": (12,)}


def environment():
    return {name: value for name, value in os.environ.items() if not name.startswith("LD_")}


def files_of(tree):
    return [os.path.join(folder, name) for folder, _, names in os.walk(tree) for name in names]


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


class Portable(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="strata-test-")
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        installed = os.path.join(cls.folder, "installed")
        for component in ("Unspecified", "bundle"):
            subprocess.run(["cmake", "--install", BUILD, "--prefix", installed, "--strip", "--component", component],
                           check=True, capture_output=True)
        cls.tree = os.path.join(cls.folder, "moved", "strata")
        os.mkdir(os.path.dirname(cls.tree))
        os.rename(installed, cls.tree)

    def path(self, *parts):
        return os.path.join(self.tree, *parts)

    def test_the_tree_is_complete_and_small(self):
        self.assertEqual(sorted(os.listdir(self.path("bin"))), PROGRAMS)
        for name in ("configs/demo.yaml", "models/strata-demo.gguf", "models/strata-demo.profile", "docs/configuration.md",
                     "tools/gpu-tests.sh", "README.md", "LICENSE"):
            self.assertTrue(os.path.isfile(self.path(name)), name)
        packed = 0
        for name in files_of(self.tree):
            with open(name, "rb") as file:
                packed += len(zlib.compress(file.read(), 1))
        self.assertLess(packed, 60e6)

    def test_every_library_is_in_the_tree_or_part_of_every_system(self):
        library_folder = os.path.realpath(self.path("lib"))
        for program in PROGRAMS:
            output = subprocess.run(["ldd", self.path("bin", program)], check=True, capture_output=True, text=True,
                                    env=environment()).stdout
            found = re.findall(r"(\S+) => (.*?)(?: \(0x|$)", output, re.M)
            self.assertGreater(len(found), 10, output)
            for name, where in found:
                if not SYSTEM.fullmatch(name):
                    self.assertEqual(os.path.dirname(os.path.realpath(where)), library_folder, f"{program}: {name} => {where}")

    def test_nothing_needs_newer_versions_than_the_oldest_system_has(self):
        checked = 0
        for path in filter(is_elf, files_of(self.tree)):
            output = subprocess.run(["objdump", "-p", path], check=True, capture_output=True, text=True).stdout
            needs = output.partition("Version References:")[2]
            for family, version in re.findall(r"\b(GLIBC|GLIBCXX|CXXABI|GCC)_([\d.]+)", needs):
                checked += 1
                self.assertLessEqual(tuple(map(int, version.split("."))), NEWEST[family], f"{path}: {family}_{version}")
        self.assertGreater(checked, 100)

    def test_a_cluster_answers_from_there_with_these_libraries(self):
        support.BIN = self.path("bin")
        for name in [name for name in os.environ if name.startswith("LD_")]:
            del os.environ[name]
        with support.Cluster(config=self.path("configs", "demo.yaml")) as cluster:
            self.assertIn("violin", cluster.text("What is a violin?", max_tokens=30).lower())
            for entry in cluster.status()["processes"]:
                with open(f"/proc/{entry['pid']}/maps", encoding="utf-8") as file:
                    mapped = {line.split()[-1] for line in file if ".so" in line}
                self.assertTrue(mapped)
                for library in mapped:
                    if not SYSTEM.fullmatch(os.path.basename(library)):
                        self.assertTrue(library.startswith(os.path.realpath(self.tree) + "/"), f"{entry}: {library}")


if __name__ == "__main__":
    unittest.main()
