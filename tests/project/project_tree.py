"""What the checks in this folder share: the repository's files, C++ without comments, and the
report of what is wrong."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED_FOLDERS = {".git", "build", ".cache"}
CPP = {".cpp", ".h", ".hpp", ".c", ".cu", ".cuh"}


def files(*folders, suffixes=None):
    """Every file of the given top-level folders, or of the whole tree, sorted."""
    for start in [ROOT / folder for folder in folders] or [ROOT]:
        for path in sorted(start.rglob("*")):
            parts = path.relative_to(ROOT).parts
            if parts[0] in SKIPPED_FOLDERS or parts[0].startswith("build-"):
                continue
            if "__pycache__" in parts or not path.is_file():
                continue
            if suffixes is None or path.suffix in suffixes:
                yield path


def name(path):
    return path.relative_to(ROOT).as_posix()


def blank(match):
    """Keeps the line breaks of what is removed, so that line numbers stay right."""
    return "\n" * match.group(0).count("\n")


def strip_comments(text):
    """C++ with comments gone and string and character literals emptied."""
    tokens = re.compile(
        r'R"(?P<tag>[^()\s\\]{0,16})\(.*?\)(?P=tag)"|//[^\n]*|/\*.*?\*/'
        r'|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])*\'', re.S)
    return tokens.sub(lambda m: blank(m) if m.group(0)[0] == "/" else '""' + blank(m), text)


INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.M)


def includes(text):
    """(line, '<' or '"', path) of every include line."""
    for match in INCLUDE.finditer(text):
        yield text.count("\n", 0, match.start()) + 1, match.group(1), match.group(2)


def finish(problems, checked):
    for problem in problems:
        print(problem)
    print(f"{checked} checked, {len(problems)} wrong")
    sys.exit(1 if problems else 0)
