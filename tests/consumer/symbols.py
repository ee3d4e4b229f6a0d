"""Holds what liblathe.so shows to the recorded list, and the list to the C headers and to the calls of
the fuzzer; its SONAME to LATHE_ABI_VERSION, and what it links to the system's own libraries."""

import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
HEADERS = list((HERE.parents[1] / "include/lathe/c").glob("*.h"))
CALLERS = list((HERE.parents[1] / "tests/fuzz").glob("c_*"))
SYSTEM = r"lib(c|m|dl|pthread|rt|stdc\+\+|gcc_s)\.so\.\d+|ld-linux\S*"


def dynamic_problems(readelf, library):
    dynamic = subprocess.run([readelf, "-d", library], capture_output=True, text=True,
                             check=True).stdout
    abi = re.search(r"^#define LATHE_ABI_VERSION (\d+)$",
                    (HERE.parents[1] / "include/lathe/c/base.h").read_text(), re.M).group(1)
    sonames = re.findall(r"SONAME\).*\[(.*)\]", dynamic)
    if sonames != [f"liblathe.so.{abi}"]:
        yield f"the SONAME is {sonames}, not that of LATHE_ABI_VERSION {abi}"
    for needed in re.findall(r"NEEDED\).*\[(.*)\]", dynamic):
        if not re.fullmatch(SYSTEM, needed):
            yield f"liblathe.so links {needed}"


def main():
    nm, readelf, library = sys.argv[1:]
    listing = subprocess.run([nm, "-D", "--defined-only", library], capture_output=True, text=True,
                             check=True).stdout
    exported = {line.split()[-1] for line in listing.splitlines()}
    recorded = set((HERE / "exported_symbols.txt").read_text().split())
    declared = {name for header in HEADERS
                for name in re.findall(r"^LATHE_API .*?\b(lathe_\w+)\(", header.read_text(), re.M)}
    called = {name for caller in CALLERS
              for name in re.findall(r"\blathe_\w+", caller.read_text())}
    problems = [f"{name}: {what}" for names, what in (
        (exported - recorded, "exported, but not in exported_symbols.txt"),
        (recorded - exported, "in exported_symbols.txt, but not exported: programs that call it break"),
        (declared ^ recorded, "the headers and exported_symbols.txt differ"),
        (declared - called, "no fuzzer calls it (tests/fuzz/)")) for name in sorted(names)]
    problems += dynamic_problems(readelf, library)
    print("\n".join(problems) or f"{len(recorded)} symbols")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
