"""Checks that the tests which two documents name exist, and that docs/defects.md has every defect
once."""

import re

from project_tree import ROOT, files, finish

NUMBERS = {"J": 19, "N": 25, "M": 22, "G": 9, "S": 9}
TEST = re.compile(r"^TEST(?:_[PF])?\(\s*(\w+),\s*(\w+)\)", re.M)


def main():
    known = set()
    for path in files("tests", suffixes={".cpp"}):
        known |= {f"{suite}.{test}" for suite, test in TEST.findall(path.read_text())}
    text = (ROOT / "docs/defects.md").read_text()
    problems = []
    tests = set()
    for document in ("docs/defects.md", "docs/source-systems.md"):
        named = set(re.findall(r"`(\w+\.\w+)`", (ROOT / document).read_text())) - {"Suite.Test"}
        here = {test for test in named if not test.endswith((".py", ".h", ".cpp", ".weight"))}
        problems += [f"{document}: no test {test}" for test in sorted(here - known)]
        tests |= here
    rows = re.findall(r"^\| ([A-Z]\d+) \| .* \| (.*) \|$", text, re.M)
    wanted = [f"{letter}{i}" for letter, last in NUMBERS.items() for i in range(1, last + 1)]
    for number in wanted:
        count = sum(number == row for row, _ in rows)
        if count != 1:
            problems.append(f"docs/defects.md: {number} stands there {count} times")
    for number, here in rows:
        if not ("`" in here or "cannot occur" in here or "*open*" in here):
            problems.append(f"docs/defects.md: {number} has neither test, reason nor 'open'")
    finish(problems, len(tests) + len(wanted))


if __name__ == "__main__":
    main()
