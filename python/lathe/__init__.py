"""GPU kernels made for a model's shapes while the program runs, and GGUF models decoded with them.

See docs/python.md. Kernels: Key, emit, Device. Models: Model, Session. Failures: Error."""

from lathe._lathe import (
    Access,
    Element,
    Executor,
    Fusion,
    Geometry,
    Key,
    KvFormat,
    Language,
    Model,
    Parameter,
    Ptx,
    Route,
    version,
)
from lathe.arrays import current_stream
from lathe.errors import Error, Status
from lathe.kernels import Compilers, Device, Kernel, emit
from lathe.progress import ProgressBar
from lathe.sessions import Session

__version__ = version()

__all__ = [
    "Access",
    "Compilers",
    "Device",
    "Element",
    "Error",
    "Executor",
    "Fusion",
    "Geometry",
    "Kernel",
    "Key",
    "KvFormat",
    "Language",
    "Model",
    "Parameter",
    "ProgressBar",
    "Ptx",
    "Route",
    "Session",
    "Status",
    "current_stream",
    "emit",
    "version",
]
