"""Every case and rule of the API has its tests: the tables of tests/e2e/README.md and docs/api.md have them all, and what they name exists."""
import glob
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CASES = [str(number) for number in range(1, 41)]
RULES = [f"{area}{number}" for area, first, last in (("B", 1, 33), ("F", 11, 11), ("H", 8, 10), ("I", 1, 11)) for number in range(first, last + 1)]
MANUAL_RULES = RULES + [f"K{number}" for number in range(1, 9)]


def rows():
    """{case or rule: the cells behind its id and name}"""
    with open(os.path.join(ROOT, "tests", "e2e", "README.md")) as page:
        return dict(re.findall(r"^\| ([A-Z]?\d+) \| [^|]+ \| (.*) \|$", page.read(), re.M))


def manual_rows():
    """{rule: its last cell}, of docs/api.md"""
    with open(os.path.join(ROOT, "docs", "api.md")) as page:
        return dict(re.findall(r"^\| ([BFHIK]\d+) \| [^|]+ \| (.*) \|$", page.read(), re.M))


def unit_tests():
    """All Suite.Test of the sources; also of tests with parameters."""
    found = set()
    for folder in ("gateway", "services", "gpu-worker", "cpu-expert-worker", "cache-manager", "tests"):
        for path in glob.glob(os.path.join(ROOT, folder, "**", "*_test.c*"), recursive=True):
            with open(path) as source:
                found.update(f"{suite}.{test}" for suite, test in re.findall(r"^TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", source.read(), re.M))
    return found


def manual_faults():
    table, tests = manual_rows(), unit_tests()
    yield from (f"docs/api.md: {rule} is not in the table" for rule in MANUAL_RULES if rule not in table)
    for rule, cell in table.items():
        named = re.findall(r"`([A-Z]\w+\.[A-Z]\w+)`", cell)
        yield from (f"docs/api.md, {rule}: there is no {test}" for test in named if test not in tests)
        if not named and "does not apply" not in cell and "not at run time" not in cell and "tests/e2e" not in cell:
            yield f"docs/api.md, {rule}: neither a test nor a word why there is none"


def named_tests(cells):
    """(file, test) pairs; a file stands in front of the tests that it holds."""
    path = None
    for file, quoted, word in re.findall(r'`([^`]+)`|"([^"]+)"|([A-Za-z_]\w+)', cells):
        if file:
            path = file if "/" in file else os.path.join("tests", "e2e", file)
        else:
            yield path, quoted or word


def faults():
    table = rows()
    yield from (f"{row} is not in the tables" for row in CASES + RULES if row not in table)
    for row, cells in table.items():
        tests = list(named_tests(cells))
        if not tests:
            yield f"{row} names no test"
        for path, test in tests:
            if not os.path.exists(os.path.join(ROOT, path)):
                yield f"{row}: there is no {path}"
                continue
            with open(os.path.join(ROOT, path)) as file:
                if test not in file.read():
                    yield f"{row}: {path} has no {test}"


found = [*faults(), *manual_faults()]
print("\n".join(found) or f"{len(rows())} cases and rules have their tests, and {len(manual_rows())} in the manual")
sys.exit(bool(found))
