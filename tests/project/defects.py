"""Checks that the tests which docs/defects.md names exist, and that it has every defect once."""

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
    named = set(re.findall(r"`(\w+\.\w+)`", text)) - {"Suite.Test"}
    tests = {test for test in named if not test.endswith((".py", ".h", ".cpp", ".weight"))}
    problems += [f"docs/defects.md: no test {test}" for test in sorted(tests - known)]
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
