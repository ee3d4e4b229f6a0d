"""Owns the finding of NVRTC and nvJitLink in NVIDIA's wheels, which PyTorch and CuPy bring along."""

import ctypes
import functools
import importlib.util
import pathlib
from typing import Iterator

STEMS = ("libnvrtc.so", "libnvJitLink.so")
VERSIONS = ("13", "12")


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _in_wheels(name: str) -> Iterator[pathlib.Path]:
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        yield from pathlib.Path(folder).glob(f"*/lib/{name}")


@functools.cache
def preload() -> None:
    """Loads them where the dynamic linker would not find them, once: liblathe then gets the loaded
    ones by their names. What is not there stays away; Lathe says so when it needs it."""
    for stem in STEMS:
        names = [f"{stem}.{version}" for version in VERSIONS]
        if not any(map(_loads, names)):
            any(_loads(str(path)) for name in names for path in _in_wheels(name))
