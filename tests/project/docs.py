"""Checks the Markdown files: links lead somewhere, and each ```cpp block compiles against the
public headers.

A block is compiled as it stands; if that fails, as the body of a function that returns
lathe::Result<void>, with its #include lines in front. A fragment that cannot compile alone is
marked ```c++ instead.
"""

import argparse
import concurrent.futures
import re
import subprocess
import tempfile

from project_tree import ROOT, files, finish, name

FENCE = re.compile(r"^```[^\n]*\n.*?^```[ \t]*$", re.M | re.S)
CPP_BLOCK = re.compile(r"^```cpp[ \t]*\n(.*?)^```[ \t]*$", re.M | re.S)
LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^)\s]+)\)|!\[[^\]\n]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+[ \t]+(.+?)[ \t#]*$", re.M)


def documents():
    return [path for path in files(suffixes={".md"})]


def anchor(heading):
    heading = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", heading))


def anchors(path):
    return {anchor(match.group(1)) for match in HEADING.finditer(FENCE.sub("", path.read_text()))}


def broken_links(path):
    text = FENCE.sub(lambda m: "\n" * m.group(0).count("\n"), path.read_text())
    text = re.sub(r"`[^`\n]*`", lambda m: "`" * len(m.group(0)), text)
    for match in LINK.finditer(text):
        target = match.group(1) or match.group(2)
        if re.match(r"[a-z]+:", target):
            continue
        where = f"{name(path)}:{text.count(chr(10), 0, match.start()) + 1}"
        file, _, fragment = target.partition("#")
        goal = (path.parent / file).resolve() if file else path
        if not goal.exists():
            yield f"{where}: the link to {target} leads nowhere"
        elif fragment and goal.suffix == ".md" and fragment not in anchors(goal):
            yield f"{where}: {file or 'this file'} has no heading #{fragment}"


def compile_text(cxx, text):
    with tempfile.NamedTemporaryFile("w", suffix=".cpp") as source:
        source.write(text)
        source.flush()
        run = subprocess.run(
            [cxx, "-std=c++20", "-fsyntax-only", f"-I{ROOT}/include", source.name],
            capture_output=True, text=True)
    return None if run.returncode == 0 else run.stderr


def as_function(block):
    lines = block.splitlines()
    heads = [line for line in lines if line.lstrip().startswith("#")]
    body = [line for line in lines if not line.lstrip().startswith("#")]
    return "\n".join(['#include "lathe/library.h"', *heads, "lathe::Result<void> snippet() {",
                      *body, "return {};", "}", ""])


def compile_block(cxx, path, match):
    block = match.group(1)
    error = compile_text(cxx, block)
    if error and compile_text(cxx, as_function(block)):
        line = path.read_text().count("\n", 0, match.start()) + 1
        return f"{name(path)}:{line}: this block does not compile:\n{error}"
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("check", choices=("links", "snippets"))
    parser.add_argument("--cxx", default="g++")
    arguments = parser.parse_args()
    if arguments.check == "links":
        paths = documents()
        finish([problem for path in paths for problem in broken_links(path)], len(paths))
    jobs = [(path, match) for path in documents() for match in CPP_BLOCK.finditer(path.read_text())]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda job: compile_block(arguments.cxx, *job), jobs))
    finish([result for result in results if result], len(jobs))


if __name__ == "__main__":
    main()
