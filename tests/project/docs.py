"""Checks the Markdown files: links lead somewhere, and each ```cpp or ```c block compiles against
the public headers.

A ```c block is C99 as it stands. A ```cpp block is compiled as it stands; if that fails, as the
body of a function that returns lathe::Result<void>, with its #include lines in front. A fragment
that cannot compile alone is marked ```c++ instead.
"""

import argparse
import concurrent.futures
import re
import subprocess
import tempfile

from project_tree import ROOT, files, finish, name

FENCE = re.compile(r"^```[^\n]*\n.*?^```[ \t]*$", re.M | re.S)
BLOCK = re.compile(r"^```(cpp|c)[ \t]*\n(.*?)^```[ \t]*$", re.M | re.S)
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


def compile_text(command, suffix, text):
    with tempfile.NamedTemporaryFile("w", suffix=suffix) as source:
        source.write(text)
        source.flush()
        run = subprocess.run([*command, "-fsyntax-only", f"-I{ROOT}/include", source.name],
                             capture_output=True, text=True)
    return None if run.returncode == 0 else run.stderr


def as_function(block):
    lines = block.splitlines()
    heads = [line for line in lines if line.lstrip().startswith("#")]
    body = [line for line in lines if not line.lstrip().startswith("#")]
    return "\n".join(['#include "lathe/library.h"', *heads, "lathe::Result<void> snippet() {",
                      *body, "return {};", "}", ""])


def compile_block(arguments, path, match):
    language, block = match.groups()
    if language == "c":
        error = compile_text([arguments.cc, "-std=c99", "-Wall", "-Werror"], ".c", block)
    else:
        command = [arguments.cxx, "-std=c++20"]
        error = compile_text(command, ".cpp", block)
        if error and not compile_text(command, ".cpp", as_function(block)):
            error = None
    if not error:
        return None
    line = path.read_text().count("\n", 0, match.start()) + 1
    return f"{name(path)}:{line}: this block does not compile:\n{error}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("check", choices=("links", "snippets"))
    parser.add_argument("--cxx", default="g++")
    parser.add_argument("--cc", default="gcc")
    arguments = parser.parse_args()
    if arguments.check == "links":
        paths = documents()
        finish([problem for path in paths for problem in broken_links(path)], len(paths))
    jobs = [(path, match) for path in documents() for match in BLOCK.finditer(path.read_text())]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda job: compile_block(arguments, *job), jobs))
    finish([result for result in results if result], len(jobs))


if __name__ == "__main__":
    main()
