"""Builds the ggml back end of examples/ggml_backend against an installed Lathe and the sources of
ggml that --source names, and asks it what it would do. Needs no GPU. Without sources: exit 77."""

import argparse
import pathlib
import sys
import tempfile

from consumer import HERE, SOURCE, install, run


def ggml_of(source):
    """The folder of ggml itself: `source`, or the one inside llama.cpp."""
    for folder in (source / "ggml", source):
        if (folder / "src" / "ggml-backend-impl.h").exists():
            return folder
    print(f"skipped: {source} holds no sources of ggml")
    sys.exit(77)


def build(source, folder, *settings):
    run("cmake", "-G", "Ninja", "-S", source, "-B", folder, "-DCMAKE_BUILD_TYPE=Release", *settings)
    run("cmake", "--build", folder)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", default="")
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--cxx", default="c++")
    parser.add_argument("--setting", action="append", default=[])
    arguments = parser.parse_args()
    if not arguments.source:
        print("skipped: LATHE_GGML_SOURCE_DIR is not set")
        sys.exit(77)
    ggml = ggml_of(pathlib.Path(arguments.source))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        install(arguments.build, folder / "lathe")
        settings = [f"-DGGML_SOURCE_DIR={ggml}", f"-DCMAKE_PREFIX_PATH={folder / 'lathe'}",
                    f"-DCMAKE_CXX_COMPILER={arguments.cxx}",
                    *(f"-D{setting}" for setting in arguments.setting)]
        build(SOURCE / "examples" / "ggml_backend", folder / "backend", *settings)
        build(HERE / "ggml", folder / "host", *settings)
        run(folder / "host" / "ggml_host", folder / "backend" / "libggml-lathe.so")


if __name__ == "__main__":
    main()
