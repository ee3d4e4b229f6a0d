"""GPU kernels made for a model's shapes while the program runs, and language models decoded with
them, from GGUF files and P64 containers.

See docs/python.md. Kernels: Key, emit, Device. Plain matrices: DenseProducts. Models: Model, Session,
Batch. Failures: Error."""

from lathe._lathe import (
    Access,
    Blocks,
    CacheCounts,
    DenseCounts,
    Element,
    Executor,
    Fusion,
    Geometry,
    Integrity,
    Key,
    KvFormat,
    KvPart,
    Language,
    Model,
    ModelReport,
    Parameter,
    Part,
    Precision,
    Ptx,
    Route,
    Snapshot,
    token_set,
    version,
)
from lathe.arrays import current_stream
from lathe.batches import Batch, DraftCounts
from lathe.dense import DenseCache, DenseKey, DenseProducts, weight_fingerprint
from lathe.errors import Error, Status
from lathe.kernels import Compilers, Device, Kernel, emit
from lathe.progress import ProgressBar
from lathe.sessions import KvAtoms, Session

__version__ = version()

__all__ = [
    "Access",
    "Batch",
    "Blocks",
    "CacheCounts",
    "Compilers",
    "DenseCache",
    "DenseCounts",
    "DenseKey",
    "DenseProducts",
    "Device",
    "DraftCounts",
    "Element",
    "Error",
    "Executor",
    "Fusion",
    "Geometry",
    "Integrity",
    "Kernel",
    "Key",
    "KvAtoms",
    "KvFormat",
    "KvPart",
    "Language",
    "Model",
    "ModelReport",
    "Parameter",
    "Part",
    "Precision",
    "ProgressBar",
    "Ptx",
    "Route",
    "Session",
    "Snapshot",
    "Status",
    "current_stream",
    "emit",
    "token_set",
    "version",
    "weight_fingerprint",
]
