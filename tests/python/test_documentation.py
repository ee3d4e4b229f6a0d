"""Runs the code of docs/python.md and the example; types the package with mypy."""

import pathlib
import re
import subprocess
import sys

import pytest

import lathe
from conftest import ROOT

DOCUMENT = ROOT / "docs" / "python.md"
EXAMPLE = ROOT / "examples" / "embed_torch.py"
BLOCKS = re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text(), re.M | re.S)


def has_torch_with_a_gpu():
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()


def test_the_documented_code_runs(model_file, capsys):
    assert len(BLOCKS) >= 5
    names = {"path": str(model_file), "prompt": [5, 17, 200]}
    ran = 0
    for block in BLOCKS:
        code = compile(block, str(DOCUMENT), "exec")
        if "import torch" not in block or has_torch_with_a_gpu():
            exec(code, names)
            ran += 1
    assert ran >= len(BLOCKS) - 1
    assert "cpu on CPU" in capsys.readouterr().out


def test_the_keys_of_the_documents_exist():
    keys = re.findall(r'"(\w+\.\w+\.[\w.]*k\d+[\w.-]*)"', DOCUMENT.read_text())
    assert len(keys) >= 2
    for key in keys:
        if "q9" not in key:
            lathe.Key(key)


def test_the_example_says_what_is_missing():
    run = subprocess.run([sys.executable, EXAMPLE, "256", "256"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert re.fullmatch(r"There is no PyTorch here\.\n|PyTorch finds no GPU here\.\n"
                        r"|256 x 256: relative error \d\.\de-0[678]\n", run.stdout), run.stdout


def test_the_types_are_sound():
    package = pathlib.Path(lathe.__file__).parent
    assert (package / "py.typed").exists() and (package / "_lathe.pyi").exists()
    pytest.importorskip("mypy")
    run = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--no-incremental", "-p", "lathe"],
                         capture_output=True, text=True)
    assert run.returncode == 0, run.stdout


@pytest.mark.parametrize("status", lathe.Status)
def test_statuses_are_those_of_the_library(status):
    from lathe import _lathe

    words = _lathe.status_text(int(status))
    assert words and words != _lathe.status_text(999)
