"""What the tests in this folder share: running a program, and what every run must keep to."""

import os
import pathlib
import subprocess
import sys
import unittest

PROGRAMS = pathlib.Path(os.environ["LATHE_PROGRAMS"])
SKIPPED = 77  # the exit code that ctest takes for "skipped"


def environment():
    """The tests' own environment without what the user may have set for Lathe."""
    return {name: value for name, value in os.environ.items() if not name.startswith("LATHE_")}


class ProgramTest(unittest.TestCase):
    """A test of one program, which a class names."""

    program = ""
    extra_environment = {}

    def run_program(self, *arguments, stdin="", text=True, env=None, **options):
        return subprocess.run(
            [PROGRAMS / self.program, *map(str, arguments)],
            input=stdin if text else stdin.encode(), capture_output="stdout" not in options,
            text=text, timeout=300, env={**environment(), **self.extra_environment, **(env or {})},
            **options)

    def succeed(self, *arguments, **options):
        run = self.run_program(*arguments, **options)
        self.assertEqual(run.returncode, 0, f"{arguments}: {run.stderr}")
        return run

    def fail_to_run(self, words, *arguments, code=1, **options):
        """The run fails with one sentence that has all the words; details are indented below
        it."""
        run = self.run_program(*arguments, **options)
        self.assertEqual(run.returncode, code, f"{arguments}: {run.stdout} {run.stderr}")
        self.assert_one_sentence(run.stderr, arguments)
        for word in words:
            self.assertIn(word, run.stderr, arguments)
        return run

    def assert_one_sentence(self, stderr, subject):
        lines = stderr.splitlines()
        self.assertTrue(lines and lines[0].startswith(f"{self.program}: "), f"{subject}: {stderr}")
        for line in lines[1:]:
            self.assertTrue(line.startswith("  ") or line == f"Try '{self.program} --help'.",
                            f"{subject}: {stderr}")

    def refuse(self, words, *arguments, **options):
        """A usage error: nothing on stdout, and a hint to the help."""
        run = self.fail_to_run(words, *arguments, code=2, **options)
        self.assertEqual(run.stdout, "")
        return run


def main():
    """Runs the tests of the calling file; a file of which nothing ran counts as skipped."""
    program = unittest.main(exit=False)
    result = program.result
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(SKIPPED if result.testsRun == len(result.skipped) else 0)
