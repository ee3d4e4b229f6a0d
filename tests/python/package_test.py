"""Makes a wheel of the Python package with the libraries of a build, installs it in an environment of
its own and runs the tests in this folder there; then uses it in a fresh environment that has nothing
else."""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = HERE.parents[1] / "python"
SKIPPED = 77  # the exit code that ctest takes for "skipped"
PROGRAM = """import lathe
ptx = lathe.emit("gemv.q4_k.k4096.n14336.w4", "sm_80", lathe.Route.TEXT)
assert ".visible .entry gemv_q4_k_k4096_n14336_w4" in ptx.text and ptx.target == "sm_80"
print(lathe.__version__, "in", lathe.__file__)"""
NEEDS = ["scikit-build-core>=0.10", "nanobind>=2.4", "ninja", "numpy", "pytest", "mypy"]


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, **options)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout}")
    return done.stdout


def pip(python, *arguments):
    return [str(python), "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments]


def environment_of(folder):
    """The environment's Python, with what the package is built and tested by."""
    python = folder / "bin" / "python"
    if not python.exists():
        run(sys.executable, "-m", "venv", "--clear", folder)
    fetched = subprocess.run(pip(python, "install", "--quiet", *NEEDS), text=True,
                             capture_output=True)
    if fetched.returncode != 0:
        skip(f"pip cannot fetch {', '.join(NEEDS)}:\n{fetched.stderr}")
    return python


def make_wheel(python, arguments, folder):
    wheels = folder / "wheels"
    shutil.rmtree(wheels, ignore_errors=True)
    # Always the same place: in another everything would be compiled anew.
    prefix = folder / "installed"
    shutil.rmtree(prefix, ignore_errors=True)
    for component in ("Runtime", "Development"):
        run("cmake", "--install", arguments.build, "--prefix", prefix, "--component", component)
    run(*pip(python, "wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", str(wheels),
             "--config-settings", f"cmake.define.lathe_ROOT={prefix}",
             "--config-settings", f"build-dir={folder / 'compiled'}", str(PACKAGE)),
        env={**os.environ, "CXX": arguments.cxx})
    wheel, = wheels.glob("lathe-*.whl")
    return wheel


def use_in_fresh_environment(python, wheel, folder):
    """With the wheel and what it says that it needs, and no more."""
    fresh = folder / "fresh"
    run(sys.executable, "-m", "venv", "--clear", "--without-pip", fresh)
    run(*pip(python, "--python", str(fresh / "bin" / "python"), "install", "--quiet", str(wheel)))
    print(run(fresh / "bin" / "python", "-c", PROGRAM, cwd=folder), end="")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=lambda path: pathlib.Path(path).resolve(), required=True)
    parser.add_argument("--cxx", required=True)
    parser.add_argument("--lacks", help="what was not found when the build was configured")
    arguments = parser.parse_args()
    if arguments.lacks:
        skip(f"no {arguments.lacks}")
    folder = arguments.build / "python"
    python = environment_of(folder / "environment")
    wheel = make_wheel(python, arguments, folder)
    run(*pip(python, "install", "--no-deps", "--force-reinstall", str(wheel)))
    use_in_fresh_environment(python, wheel, folder)
    # From elsewhere: the sources of the package must not be taken for the installed one.
    tests = subprocess.run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", HERE],
                           cwd=folder, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
    sys.exit(tests.returncode)


if __name__ == "__main__":
    main()
