"""Every case and rule of the API has its tests: the tables of tests/e2e/README.md have them all, and what they name exists."""
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CASES = [str(number) for number in range(1, 41)]
RULES = [f"{area}{number}" for area, first, last in (("B", 1, 33), ("F", 11, 11), ("H", 8, 10), ("I", 1, 11)) for number in range(first, last + 1)]


def rows():
    """{case or rule: the cells behind its id and name}"""
    with open(os.path.join(ROOT, "tests", "e2e", "README.md")) as page:
        return dict(re.findall(r"^\| ([A-Z]?\d+) \| [^|]+ \| (.*) \|$", page.read(), re.M))


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


found = list(faults())
print("\n".join(found) or f"{len(rows())} cases and rules have their tests")
sys.exit(bool(found))
