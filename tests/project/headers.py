"""Compiles each public header alone: as C++20 by every given compiler, and plain C headers as C."""

import argparse
import concurrent.futures
import re
import subprocess
import tempfile

from project_tree import ROOT, files, finish, name

# Headers that must compile as C99 too.
FOR_C = re.compile(r"include/lathe/(c/\w+|lathe)\.h$")
FLAGS = ["-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{ROOT}/include"]


def compile_alone(command, header, suffix):
    include = header.relative_to(ROOT / "include").as_posix()
    with tempfile.NamedTemporaryFile("w", suffix=suffix) as source:
        source.write(f'#include "{include}"\n#include "{include}"\n')
        source.flush()
        run = subprocess.run([*command, *FLAGS, source.name], capture_output=True, text=True)
    return None if run.returncode == 0 else f"{name(header)} with {command[0]}:\n{run.stderr}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cxx", action="append", required=True)
    parser.add_argument("--cc", default="")
    arguments = parser.parse_args()

    jobs = []
    for header in files("include", suffixes={".h", ".hpp"}):
        jobs += [([cxx, "-std=c++20"], header, ".cpp") for cxx in arguments.cxx]
        if arguments.cc and FOR_C.search(name(header)):
            jobs.append(([arguments.cc, "-std=c99"], header, ".c"))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda job: compile_alone(*job), jobs))
    finish([result for result in results if result], len(jobs))


if __name__ == "__main__":
    main()
