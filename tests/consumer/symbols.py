"""Holds what liblathe.so shows to the recorded list, and the list to the C headers."""

import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
HEADERS = (HERE.parents[1] / "include/lathe/c").glob("*.h")


def main():
    nm, library = sys.argv[1:]
    listing = subprocess.run([nm, "-D", "--defined-only", library], capture_output=True, text=True,
                             check=True).stdout
    exported = {line.split()[-1] for line in listing.splitlines()}
    recorded = set((HERE / "exported_symbols.txt").read_text().split())
    declared = {name for header in HEADERS
                for name in re.findall(r"^LATHE_API .*?\b(lathe_\w+)\(", header.read_text(), re.M)}
    problems = [f"{name}: {what}" for names, what in (
        (exported - recorded, "exported, but not in exported_symbols.txt"),
        (recorded - exported, "in exported_symbols.txt, but not exported: programs that call it break"),
        (declared ^ recorded, "the headers and exported_symbols.txt differ")) for name in sorted(names)]
    print("\n".join(problems) or f"{len(recorded)} symbols")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
