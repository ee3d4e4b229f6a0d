"""Uses Lathe as other projects do: an installed package, a subproject, plain C with pkg-config.
Each program prints the PTX of one kernel, which needs no GPU."""

import argparse
import os
import pathlib
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parents[1]


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def expect_ptx(program, **options):
    output = run(program, **options)
    if ".visible .entry gemv_q4_k_k4096_n14336_w4" not in output or ".target sm_80" not in output:
        raise SystemExit(f"{program} printed no PTX:\n{output[:500]}")


def install(build, prefix):
    for component in ("Runtime", "Development"):
        run("cmake", "--install", build, "--prefix", prefix, "--component", component)


def libraries(prefix):
    return next(prefix.glob("**/liblathe.so")).parent


def package(arguments, folder):
    """find_package, with the installed tree moved to see that nothing in it names its place."""
    install(arguments.build, folder / "staged")
    prefix = (folder / "staged").rename(folder / "moved")
    run("cmake", "-G", "Ninja", "-S", HERE / "package", "-B", folder / "build",
        f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCMAKE_CXX_COMPILER={arguments.cxx}")
    run("cmake", "--build", folder / "build")
    for program in ("cpp_default", "c_shared", "cpp_static"):
        expect_ptx(folder / "build" / program)
    if arguments.llvm:
        # The LLVM route's library is found beside liblathe.so.
        if not (libraries(prefix) / "liblathe_llvm.so").exists():
            raise SystemExit("liblathe_llvm.so was not installed")


def pkg_config(arguments, folder):
    prefix = folder / "prefix"
    install(arguments.build, prefix)
    where = libraries(prefix)
    environment = {**os.environ, "PKG_CONFIG_PATH": str(where / "pkgconfig")}

    def flags(*options):
        return run("pkg-config", *options, "lathe", env=environment).split()

    strict = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror"]
    run(arguments.cc, *strict, HERE / "main.c", "-o", folder / "shared",
        *flags("--cflags", "--libs"))
    expect_ptx(folder / "shared", env={**os.environ, "LD_LIBRARY_PATH": str(where)})
    # With the shared library out of reach, the same words find the static one.
    for library in where.glob("liblathe.so*"):
        library.unlink()
    run(arguments.cc, *strict, HERE / "main.c", "-o", folder / "static",
        *flags("--static", "--cflags", "--libs"))
    expect_ptx(folder / "static")


def subproject(arguments, folder):
    """Configures for real and builds the consumer's own files. The sources of Lathe are those of
    the build under test, whose library is linked in place of compiling them once more."""
    build = folder / "build"
    run("cmake", "-G", "Ninja", "-S", HERE / "subproject", "-B", build, f"-DLATHE_SOURCE={SOURCE}",
        f"-DCMAKE_CXX_COMPILER={arguments.cxx}", "-DLATHE_WITH_LLVM=OFF",
        *(f"-D{setting}" for setting in arguments.setting))
    compiled = object_of(build)
    run("ninja", "-C", build, compiled)
    run(arguments.cxx, build / compiled, arguments.build / "liblathe.a", "-o", folder / "consumer",
        "-lpthread", "-ldl")
    expect_ptx(folder / "consumer")


def object_of(build):
    targets = run("ninja", "-C", build, "-t", "targets", "all").splitlines()
    return next(line.split(":")[0] for line in targets
                if line.startswith("CMakeFiles/consumer.dir/") and ".cpp.o:" in line)


WAYS = {"package": package, "pkg_config": pkg_config, "subproject": subproject}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--cc", default="cc")
    parser.add_argument("--cxx", default="c++")
    parser.add_argument("--setting", action="append", default=[])
    parser.add_argument("--llvm", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        WAYS[arguments.way](arguments, pathlib.Path(folder))


if __name__ == "__main__":
    main()
