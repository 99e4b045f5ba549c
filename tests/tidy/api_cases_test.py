"""Every case and rule of the API has its tests: the tables of tests/e2e/README.md and docs/api.md have them all, and what they name exists."""
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


def manual_faults():
    """That the tests it names exist is a check of tidy_test.py."""
    table = manual_rows()
    yield from (f"docs/api.md: {rule} is not in the table" for rule in MANUAL_RULES if rule not in table)
    for rule, cell in table.items():
        if not re.search(r"`\w+\.\w+`|tests/e2e|does not apply|not at run time", cell):
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
