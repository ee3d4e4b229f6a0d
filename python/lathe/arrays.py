"""Owns the way from another library's array to an address, on a device or of the host, and to the
stream it is used on."""

import sys
from typing import Any, Dict, Iterable, Mapping, NamedTuple, Optional, Tuple

import numpy

from lathe import _lathe

# Device types of DLPack: those whose memory a kernel may use, and those that the host may read.
DLPACK_CUDA, DLPACK_CUDA_MANAGED = 2, 13
DLPACK_CPU, DLPACK_CUDA_HOST = 1, 3
# Whose capsules say whether an array may be written to. Producers of older ones refuse to hand over
# one that may not, or say nothing.
DLPACK_VERSION = (1, 0)
TYPE_CODES = {_lathe.Element.F32: "f4", _lathe.Element.I32: "i4"}


class View(NamedTuple):
    """An array as a kernel sees it."""

    address: int
    bytes: int
    type_code: str  # "f4", "i4", "u1" ...: kind and bytes of an element
    read_only: bool = False


def view(array: Any, ordinal: Optional[int]) -> View:
    """By __cuda_array_interface__ or DLPack. Refuses what is not dense memory of device `ordinal`."""
    kind = type(array).__name__
    if hasattr(array, "__dlpack_device__"):
        device_type, device = array.__dlpack_device__()
        if device_type not in (DLPACK_CUDA, DLPACK_CUDA_MANAGED):
            raise ValueError(f"The {kind} is not in device memory.")
        if ordinal is not None and device != ordinal:
            raise ValueError(f"The {kind} is on device {int(device)}, the kernel on {ordinal}.")
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is not None:
        return _by_interface(interface, kind)
    if hasattr(array, "__dlpack__"):
        # -1: the stream on which it is used is the caller's affair, as with the other protocol.
        return _by_dlpack(array, f"The {kind}", stream=-1)[0]
    raise TypeError(f"A {kind} has neither __cuda_array_interface__ nor __dlpack__.")


def _by_interface(interface: Any, kind: str) -> View:
    shape, type_code = tuple(interface["shape"]), interface["typestr"][1:]
    size = int(type_code[1:])
    if not _dense(shape, interface.get("strides"), size):
        raise ValueError(f"The {kind} is not contiguous.")
    address, read_only = interface["data"]
    return View(int(address), _product(shape) * size, type_code, bool(read_only))


class HostView(NamedTuple):
    """An array as the host sees it."""

    address: int
    bytes: int
    type_code: str
    shape: Tuple[int, ...]
    read_only: bool = False


def host_view(array: Any, name: str) -> HostView:
    """By __array_interface__, DLPack or the buffer protocol. Refuses what is not dense memory of the
    host, with each number where a number of its size may lie, by the argument's name."""
    kind = type(array).__name__
    where = array.__dlpack_device__()[0] if hasattr(array, "__dlpack_device__") else DLPACK_CPU
    if hasattr(array, "__cuda_array_interface__") or where not in (DLPACK_CPU, DLPACK_CUDA_HOST):
        raise ValueError(f"{name} is read in host memory, and the {kind} is on a device.")
    if not hasattr(array, "__array_interface__") and hasattr(array, "__dlpack__"):
        seen, shape = _by_dlpack(array, name)
        return _aligned(
            HostView(seen.address, seen.bytes, seen.type_code, shape, seen.read_only), name)
    if not hasattr(array, "__array_interface__"):
        try:
            array = numpy.asarray(memoryview(array))
        except TypeError:
            raise TypeError(f"{name} is no array, but a {kind}.") from None
    interface = array.__array_interface__
    shape, type_code = tuple(interface["shape"]), interface["typestr"][1:]
    size = int(type_code[1:])
    if interface["typestr"][0] == ">":
        raise TypeError(f"{name} has numbers in the other order of bytes.")
    if not _dense(shape, interface.get("strides"), size):
        raise ValueError(f"{name} is not contiguous.")
    address, read_only = interface["data"]
    return _aligned(
        HostView(int(address), _product(shape) * size, type_code, shape, bool(read_only)), name)


def _aligned(seen: HostView, name: str) -> HostView:
    """The same, unless its numbers, if it has any, are not aligned to their size."""
    kind, size = seen.type_code[0], int(seen.type_code[1:])
    if seen.bytes > 0 and kind in "iuf" and seen.address % size:
        raise ValueError(f"{name} is not aligned to the {size} bytes of its elements; "
                         f"numpy.array({name}) is a copy that is.")
    return seen


def host_floats(array: Any, name: str, shape: Optional[Tuple[int, ...]] = None) -> HostView:
    """The same, of f32 only, and of one shape where it is given."""
    seen = host_view(array, name)
    if seen.type_code != "f4":
        raise TypeError(f"{name} takes elements of type f4, not {seen.type_code}.")
    if shape is not None and seen.shape != shape:
        raise ValueError(f"{name} takes the shape {shape}, not {seen.shape}.")
    return seen


def _by_dlpack(array: Any, name: str, **options: Any) -> Tuple[View, Tuple[int, ...]]:
    """The array, and its shape."""
    try:
        capsule = array.__dlpack__(max_version=DLPACK_VERSION, **options)
    except TypeError as error:
        # A producer from before DLPack 1 does not know the word; other errors are the producer's own.
        if not any(words in str(error) for words in ("max_version", "keyword argument")):
            raise
        capsule = array.__dlpack__(**options)
    address, shape, strides, type_code, read_only, copied = _lathe.read_capsule(capsule)
    if copied:  # the copy goes with the capsule, and what is written to it is lost
        raise ValueError(f"{name} was copied to be handed over.")
    size = int(type_code[1:])
    if not _dense(shape, strides and [stride * size for stride in strides], size):
        raise ValueError(f"{name} is not contiguous.")
    return View(address, _product(shape) * size, type_code, read_only), shape


def _product(shape: Iterable[int]) -> int:
    product = 1
    for length in shape:
        product *= int(length)
    return product


def _dense(shape: Tuple[int, ...], strides: Optional[Iterable[int]], size: int) -> bool:
    if strides is None:
        return True
    expected = size
    for length, stride in zip(reversed(shape), reversed(list(strides))):
        if length > 1 and stride != expected:
            return _product(shape) == 0
        expected *= int(length)
    return True


def addresses_of(weights: Mapping[str, Any], device: Any) -> Dict[str, Tuple[int, int]]:
    """The address and the bytes of each array, which must be on the device."""
    ordinal = getattr(device, "ordinal", None)
    views = {name: view(array, ordinal) for name, array in weights.items()}
    return {name: (seen.address, seen.bytes) for name, seen in views.items()}


def address_for(array: Any, parameter: _lathe.Parameter, ordinal: Optional[int]) -> int:
    """The address to pass for a parameter. A number is taken as it is; an array must be large enough,
    of the parameter's type of element, and writable where the kernel writes."""
    if isinstance(array, int):
        return array
    seen = view(array, ordinal)
    if not parameter.per_position and seen.bytes < parameter.bytes:
        raise ValueError(f"{parameter.name} takes {parameter.bytes} bytes, and the array has "
                         f"{seen.bytes}.")
    wanted = TYPE_CODES.get(parameter.element)
    if wanted is not None and seen.type_code != wanted:
        raise TypeError(f"{parameter.name} takes elements of type {wanted}, not {seen.type_code}.")
    if seen.read_only and parameter.access != _lathe.Access.READ:
        raise ValueError(f"{parameter.name} is written to, and the array is read-only.")
    return seen.address


def argument_value(argument: Any, ordinal: Optional[int]) -> int:
    """What to pass for a parameter of which nothing is known: an array's address, or the bytes of a
    NumPy scalar."""
    if isinstance(argument, int):
        return argument
    if getattr(argument, "shape", None) == () and not hasattr(argument, "__cuda_array_interface__"):
        return int.from_bytes(argument.tobytes(), "little")
    return view(argument, ordinal).address


def stream_handle(stream: Any) -> int:
    """The CUstream of PyTorch's, CuPy's or CUDA Python's stream, or of a number."""
    if isinstance(stream, int):
        return stream
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    for attribute in ("cuda_stream", "ptr"):  # PyTorch's, CuPy's
        if hasattr(stream, attribute):
            return int(getattr(stream, attribute))
    raise TypeError(f"A {type(stream).__name__} is no CUDA stream.")


def current_stream(*arrays: Any, device: Optional[int] = None) -> int:
    """The stream that the arrays' library would use now: PyTorch's current one, or CuPy's. Without
    arrays, of what is loaded. 0, the legacy default stream, where neither is."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        tensors = [array for array in arrays if isinstance(array, torch.Tensor)]
        if tensors or not arrays:
            where = tensors[0].device if tensors else device
            return int(torch.cuda.current_stream(where).cuda_stream)
    cupy = sys.modules.get("cupy")
    if cupy is not None and (not arrays or any(isinstance(a, cupy.ndarray) for a in arrays)):
        return int(cupy.cuda.get_current_stream().ptr)
    return 0


def current_device() -> int:
    """The ordinal of the device that PyTorch works on now, or CuPy; 0 where neither is loaded."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return int(torch.cuda.current_device())
    cupy = sys.modules.get("cupy")
    return int(cupy.cuda.runtime.getDevice()) if cupy is not None else 0
