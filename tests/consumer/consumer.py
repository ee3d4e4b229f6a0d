"""Uses Lathe as other projects do: an installed package, a Debian package, a subproject, plain C with
pkg-config. Each program prints the PTX of one kernel, which needs no GPU."""

import argparse
import os
import pathlib
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parents[1]
STRICT = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror"]


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

    run(arguments.cc, *STRICT, HERE / "main.c", "-o", folder / "shared",
        *flags("--cflags", "--libs"))
    expect_ptx(folder / "shared", env={**os.environ, "LD_LIBRARY_PATH": str(where)})
    # With the shared library out of reach, the same words find the static one.
    for library in where.glob("liblathe.so*"):
        library.unlink()
    run(arguments.cc, *STRICT, HERE / "main.c", "-o", folder / "static",
        *flags("--static", "--cflags", "--libs"))
    expect_ptx(folder / "static")


def debian(arguments, folder):
    """The package that cpack makes of the build, unpacked to a folder."""
    run(arguments.cpack, "-G", "DEB", "-B", folder, "--config", arguments.build / "CPackConfig.cmake")
    package, = folder.glob("*.deb")
    told = dict(line.split(": ", 1) for line in run("dpkg-deb", "-f", package).splitlines()
                if ": " in line and not line.startswith(" "))
    if told["Package"] != "lathe" or "libc6" not in told["Depends"]:
        raise SystemExit(f"{package} says {told}")
    root = folder / "root"
    run("dpkg-deb", "-x", package, root)
    where = libraries(root)
    environment = {**os.environ, "PKG_CONFIG_PATH": str(where / "pkgconfig"),
                   "LD_LIBRARY_PATH": str(where)}
    words = run("pkg-config", "--cflags", "--libs", "lathe", env=environment).split()
    run(arguments.cc, *STRICT, HERE / "main.c", "-o", folder / "consumer", *words)
    expect_ptx(folder / "consumer", env=environment)
    run(root / "usr" / "bin" / "lathe", "--help", env=environment)


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


def without_routes(arguments, folder):
    """Neither the LLVM nor the NVRTC route: the text templates are left, and the others say why."""
    build = folder / "build"
    run("cmake", "-G", "Ninja", "-S", HERE / "subproject", "-B", build, f"-DLATHE_SOURCE={SOURCE}",
        f"-DCMAKE_CXX_COMPILER={arguments.cxx}", "-DLATHE_WITH_LLVM=OFF", "-DLATHE_WITH_NVRTC=OFF",
        "-DBUILD_SHARED_LIBS=OFF", *(f"-D{setting}" for setting in arguments.setting))
    compiled = object_of(build)
    route = next(line.split(":")[0] for line in targets_of(build)
                 if line.split(":")[0].endswith("lathe_codegen.dir/nvrtc_route.cpp.o"))
    run("ninja", "-C", build, compiled, route)
    # The object comes before the archive, whose own is then not taken.
    run(arguments.cxx, build / compiled, build / route, arguments.build / "liblathe.a", "-o",
        folder / "consumer", "-lpthread", "-ldl")
    expect_ptx(folder / "consumer")
    refused = subprocess.run([folder / "consumer", "nvrtc"], capture_output=True, text=True)
    if refused.returncode == 0 or "has no NVRTC route" not in refused.stderr:
        raise SystemExit(f"the NVRTC route said: {refused.stdout[:200]}{refused.stderr}")


def targets_of(build):
    return run("ninja", "-C", build, "-t", "targets", "all").splitlines()


def object_of(build):
    return next(line.split(":")[0] for line in targets_of(build)
                if line.startswith("CMakeFiles/consumer.dir/") and ".cpp.o:" in line)


WAYS = {way.__name__: way for way in (package, pkg_config, debian, subproject, without_routes)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--cc", default="cc")
    parser.add_argument("--cxx", default="c++")
    parser.add_argument("--cpack", default="cpack")
    parser.add_argument("--setting", action="append", default=[])
    parser.add_argument("--llvm", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        WAYS[arguments.way](arguments, pathlib.Path(folder))


if __name__ == "__main__":
    main()
