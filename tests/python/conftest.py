"""What the tests of the Python package share: a tiny model, and sessions of it on the CPU."""

import pathlib
import sys

import pytest

import lathe

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "examples"))

import tiny_model  # noqa: E402


@pytest.fixture(scope="session")
def model_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    path.write_bytes(tiny_model.tiny_model().data)
    return path


@pytest.fixture(scope="session")
def fusible_file(tmp_path_factory):
    """Of the shape and the format that fused kernels take."""
    path = tmp_path_factory.mktemp("models") / "fusible.gguf"
    path.write_bytes(tiny_model.tiny_model(changes=tiny_model.FUSIBLE,
                                           matrices=tiny_model.Q8_0).data)
    return path


@pytest.fixture
def open_session(model_file):
    """Opens sessions of the tiny model on the CPU and closes them."""
    opened = []

    def open_one(**options):
        options = {"executor": lathe.Executor.CPU, "context": 64, "threads": 1, **options}
        opened.append(lathe.Session(lathe.Model(str(model_file)), **options))
        return opened[-1]

    yield open_one
    for session in opened:
        session.close()
