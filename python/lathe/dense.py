"""Owns products of many vectors with plain matrices, in host memory: docs/dense-products.md."""

from types import TracebackType
from typing import Any, Iterable, NamedTuple, Optional, Tuple, Type

import numpy

from lathe import _lathe
from lathe.arrays import HostView, current_device, host_floats, host_view
from lathe.kernels import Device

# Formats that a type of element says.
FORMATS = {"f4": "f32", "f2": "f16"}
# Those whose arrays have the matrix's own shape.
PLAIN = ("f32", "f16", "bf16")


class DenseKey(_lathe.DenseKey):
    """What a matrix is found by: the hash of its bytes, its format and its shape. Hashes all bytes, so
    keep it. Equal keys are of equal matrices."""

    def __init__(self, raw: Any, format: Optional[str] = None,
                 shape: Optional[Tuple[int, int]] = None):
        """raw: a contiguous array, or other bytes, in host memory, as a model file has them.

        format: such as "q4_k"; None is that of the array's elements, f32 or f16. shape: rows and values
        of a row, (n_out, n_in); None is the array's own, of f32, f16 and bf16."""
        seen = host_view(raw, "raw")
        of = FORMATS.get(seen.type_code) if format is None else format
        if of is None:
            raise TypeError(f"Elements of type {seen.type_code} say no format: give it.")
        rows = seen.shape if shape is None and of in PLAIN else shape
        if rows is None or len(rows) != 2:
            raise ValueError(f"A matrix in {of} takes a shape, (rows, values of a row).")
        super().__init__(seen.address, seen.bytes, of, rows[1], rows[0])

    def _same(self) -> Tuple[int, int, str, int, int]:
        return self.digest, self.bytes, self.format, self.n_in, self.n_out

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DenseKey) and self._same() == other._same()

    def __hash__(self) -> int:
        return hash(self._same())

    def __repr__(self) -> str:
        return (f"<DenseKey of {self.n_out} rows of {self.n_in} values in {self.format}, "
                f"{self.digest:016x}>")


def weight_fingerprint(raw: Any, n_in: int, n_out: int) -> int:
    """FNV-1a of 64 bits over the bytes, then over the two sizes: what another system's caches are keyed
    by. Nothing here is found by it."""
    seen = host_view(raw, "raw")
    return _lathe.weight_fingerprint(seen.address, seen.bytes, n_in, n_out)


class DenseCache:
    """In host memory, the last 24 matrices that somebody used, as f32. Any number of threads at once;
    needs no GPU."""

    def __init__(self) -> None:
        self._opened = _lathe.DenseCache()

    def put(self, key: DenseKey, values: Any) -> None:
        """Keeps a copy of n_out rows of n_in f32, in place of what the key had."""
        seen = host_floats(values, "values", (key.n_out, key.n_in))
        self._opened.put(key, seen.address, key.n_out * key.n_in)

    def expand(self, key: DenseKey, raw: Any) -> None:
        """The same of what the key was made of, in any format, unless it is there."""
        self._opened.expand(key, _raw(key, raw).address, key.bytes)

    def read(self, key: DenseKey) -> Any:
        """A copy, as a NumPy array of n_out rows of n_in f32; Status.NOT_FOUND. A use."""
        values = numpy.empty((key.n_out, key.n_in), numpy.float32)
        self._opened.read(key, values.ctypes.data, values.size)
        return values

    def __contains__(self, key: DenseKey) -> bool:
        return self._opened.contains(key)

    def __len__(self) -> int:
        return self._opened.size()

    def clear(self) -> None:
        self._opened.clear()


class DenseProducts:
    """y = x Wᵀ on a GPU, of vectors and weights in host memory: NumPy arrays, PyTorch's tensors on the
    CPU and others that are contiguous. Any number of threads at once: one product at a time.

    hidden: rows of n_in f32, or one vector. Results are rows of n_out f32, or one: `out`, where that is
    given, else a NumPy array."""

    def __init__(self, device: Optional[Device] = None, *,
                 precision: _lathe.Precision = _lathe.Precision.FAITHFUL, budget_bytes: int = 0,
                 cache: Optional[DenseCache] = None):
        """device: whose kernels they share; None is a device of their own in the primary context.
        budget_bytes: of device memory for what is resident; 0 is 2 GiB. cache: None is one of their
        own."""
        of = Device(current_device()) if device is None else device
        self._opened = _lathe.DenseProducts(of, precision, budget_bytes,
                                            None if cache is None else cache._opened)

    def __enter__(self) -> "DenseProducts":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()

    def batch_gemv(self, hidden: Any, weight: Any, out: Any = None) -> Any:
        """With n_out rows of n_in f32, uploaded for this product alone."""
        matrix = host_floats(weight, "weight")
        if len(matrix.shape) != 2:
            raise ValueError(f"weight takes 2 dimensions, n_out rows of n_in, not {len(matrix.shape)}.")
        n_out, n_in = matrix.shape
        given = _vectors(hidden, n_in)
        results, places = _results(out, given, n_out)
        self._opened.batch_gemv(given.view.address, given.batch, n_in, n_out, matrix.address,
                                places.address)
        return results

    def batch_gemv_cached(self, key: DenseKey, raw: Any, hidden: Any, out: Any = None) -> Any:
        """With a weight that is resident or cached; else it is expanded from `raw`, which the key was
        made of, and kept."""
        given = _vectors(hidden, key.n_in)
        results, places = _results(out, given, key.n_out)
        self._opened.batch_gemv_cached(key, _raw(key, raw).address, given.view.address, given.batch,
                                       places.address)
        return results

    def batch_gemv_cached_only(self, key: DenseKey, hidden: Any, out: Any = None) -> Any:
        """The same, but Status.NOT_FOUND where the weight is neither resident nor cached."""
        given = _vectors(hidden, key.n_in)
        results, places = _results(out, given, key.n_out)
        self._opened.batch_gemv_cached(key, 0, given.view.address, given.batch, places.address)
        return results

    def preload(self, weights: Iterable[Tuple[DenseKey, Any]]) -> int:
        """Makes weights, each with what its key was made of, resident until clear(): how many were not
        before. What the budget has no room for is left out."""
        pairs = list(weights)
        views = [_raw(key, raw) for key, raw in pairs]
        return self._opened.preload([key for key, _ in pairs], [view.address for view in views])

    def preload_blob(self, number: int, array: Any) -> bool:
        """Bytes of an array, such as norms, up to 256 MiB, under a number that is not 0. False where
        they were resident before."""
        seen = host_view(array, "array")
        return self._opened.preload_blob(number, seen.address, seen.bytes)

    def blob_address(self, number: int) -> int:
        """On the device; Status.NOT_FOUND."""
        return self._opened.blob_address(number)

    def is_resident(self, key: DenseKey) -> bool:
        return self._opened.is_resident(key)

    @property
    def counts(self) -> _lathe.DenseCounts:
        return self._opened.counts

    def clear(self) -> None:
        """Frees what is resident; the cache keeps what it has."""
        self._opened.clear()

    def close(self) -> None:
        """Products that are under way end as usual."""
        self._opened.close()

    @property
    def closed(self) -> bool:
        return self._opened.closed


class _Vectors(NamedTuple):
    view: HostView
    batch: int
    rows: Tuple[int, ...]  # the shape without the values: () of one vector


def _vectors(hidden: Any, n_in: int) -> _Vectors:
    seen = host_floats(hidden, "hidden")
    if len(seen.shape) not in (1, 2) or seen.shape[-1] != n_in:
        raise ValueError(f"hidden takes one vector or rows of {n_in} values, not the shape "
                         f"{seen.shape}.")
    return _Vectors(seen, seen.shape[0] if len(seen.shape) == 2 else 1, seen.shape[:-1])


def _results(out: Any, given: _Vectors, n_out: int) -> Tuple[Any, HostView]:
    shape = (*given.rows, n_out)
    results = numpy.empty(shape, numpy.float32) if out is None else out
    places = host_floats(results, "out", shape)
    if places.read_only:
        raise ValueError("out is written to, and the array is read-only.")
    return results, places


def _raw(key: DenseKey, raw: Any) -> HostView:
    seen = host_view(raw, "raw")
    if seen.bytes != key.bytes:
        raise ValueError(f"raw has {seen.bytes} bytes, and its key is of {key.bytes}.")
    return seen
