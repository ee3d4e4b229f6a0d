"""Holds every file to the house rules: length, words left behind, white space."""

import re

from project_tree import CPP, files, finish, name

MAX_LINES = 400
# Tables are as long as what they list.
TABLES = re.compile(r"(^|[/_])tables?([._]|$)|_table\.")
CODE = CPP | {".py", ".cmake", ".sh"}
TEXT = CODE | {".md", ".txt", ".json", ".ptx", ".in", ""}
# Split, so that this file keeps to its own rule.
LEFT_BEHIND = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" + "XX", "HA" + "CK")) + r")\b")


def check(path, problems):
    try:
        text = path.read_text()
    except UnicodeDecodeError:
        return
    lines = text.splitlines()
    if path.suffix in CODE and len(lines) > MAX_LINES and not TABLES.search(name(path)):
        problems.append(f"{name(path)}: {len(lines)} lines; a file has at most {MAX_LINES}")
    for number, line in enumerate(lines, 1):
        match = LEFT_BEHIND.search(line)
        if match:
            problems.append(f"{name(path)}:{number}: '{match.group(1)}' was left behind")
        if path.suffix in CODE and line != line.rstrip():
            problems.append(f"{name(path)}:{number}: white space at the end of the line")


def main():
    problems, checked = [], 0
    for path in files():
        if path.suffix in TEXT and path.name != "LICENSE":
            check(path, problems)
            checked += 1
    finish(problems, checked)


if __name__ == "__main__":
    main()
