"""Owns the kernel level: PTX for a key, and kernels launched on other libraries' arrays."""

import functools
from typing import Any, Callable, Optional, Sequence, Tuple, Union

from lathe import _lathe
from lathe.arrays import address_for, argument_value, current_device, current_stream, stream_handle
from lathe.cuda_libraries import preload
from lathe.progress import Progress, progress_call

Named = Union[_lathe.Key, str]
# Told of one event as one line, with its level: 1 is a warning, 2 information.
Log = Callable[[int, str], object]
# Gives an address for so many bytes, or 0; and takes it back.
Memory = Tuple[Callable[[int], int], Callable[[int], object]]


def _key(key: Named) -> _lathe.Key:
    return _lathe.Key(key) if isinstance(key, str) else key


class Compilers(_lathe.Compilers):
    """What makes PTX, each loaded on first use. Any number of threads at once."""

    def __init__(self, *, nvrtc: Optional[str] = None, llvm: Optional[str] = None):
        preload()
        super().__init__(nvrtc, llvm)


@functools.cache
def _compilers() -> Compilers:
    return Compilers()


def emit(key: Named, target: str, route: _lathe.Route = _lathe.Route.DEFAULT, *,
         compilers: Optional[Compilers] = None) -> _lathe.Ptx:
    """PTX of one kernel for a target such as "sm_90a". Needs no GPU and no driver."""
    return (compilers or _compilers()).emit(_key(key), target, route)


class Kernel:
    """A kernel loaded in a device. Its code stays as long as this object or its device."""

    def __init__(self, loaded: _lathe.Kernel, parameters: Sequence[_lathe.Parameter],
                 ordinal: Optional[int]):
        self.loaded = loaded  # name, compiler, launch shape, registers
        self.parameters = list(parameters)
        self._ordinal = ordinal

    def launch(self, *arrays: Any, stream: Any = None) -> None:
        """Launches with one array, or device address, per parameter, and returns at once.

        On `stream`, or else on the current one of the library whose arrays these are, after what is
        there. Arrays must stay as they are until the kernel has run, as with any launch."""
        if len(arrays) != len(self.parameters):
            names = ", ".join(parameter.name for parameter in self.parameters)
            raise TypeError(f"{self.loaded.name} takes {len(self.parameters)} arrays ({names}), "
                            f"not {len(arrays)}.")
        values = [address_for(array, parameter, self._ordinal)
                  for array, parameter in zip(arrays, self.parameters)]
        self.loaded.launch(values, _stream_for(arrays, stream))


class CustomKernel:
    """A kernel of the caller's own, loaded in a device."""

    def __init__(self, loaded: _lathe.Kernel, ordinal: Optional[int]):
        self.loaded = loaded
        self._ordinal = ordinal

    def launch(self, *arguments: Any, stream: Any = None) -> None:
        """Like Kernel.launch. What is passed by value is a NumPy scalar of its type, such as
        numpy.float32(2), or an int."""
        values = [argument_value(argument, self._ordinal) for argument in arguments]
        self.loaded.launch(values, _stream_for(arguments, stream))


def _stream_for(arguments: Sequence[Any], stream: Any) -> int:
    return current_stream(*arguments) if stream is None else stream_handle(stream)


class Device(_lathe.Device):
    """A GPU context as a place for kernels; without `context` it is the device's primary one, which
    PyTorch and CuPy use too. Any number of threads at once."""

    def __init__(self, ordinal: Optional[int] = None, *, context: int = 0,
                 routes: Sequence[_lathe.Route] = (), disk_cache: bool = True,
                 cache_directory: Optional[str] = None, cache_read_only: bool = False,
                 cache_cap_bytes: int = 0, dump_directory: Optional[str] = None,
                 nvrtc: Optional[str] = None, llvm: Optional[str] = None,
                 log: Optional[Log] = None, memory: Optional[Memory] = None):
        """log: told of what is built, read and done without (docs/logging.md), on any thread. memory:
        where device memory of its sessions comes from, such as
        (torch.cuda.caching_allocator_alloc, torch.cuda.caching_allocator_delete). What these raise is
        told as of a destructor (sys.unraisablehook)."""
        preload()
        where = current_device() if ordinal is None else ordinal
        allocate, free = memory or (None, None)
        super().__init__(where, context, list(routes), disk_cache, cache_directory, cache_read_only,
                         cache_cap_bytes, dump_directory, nvrtc, llvm, log, allocate, free)
        self.ordinal = None if context else where  # of the GPU, where the context does not say

    def prepare(self, keys: Sequence[Named], progress: Progress = None) -> None:
        """Builds and loads many kernels, on all cores; kernel() then finds them."""
        with progress_call(progress) as told:
            super().prepare([_key(key) for key in keys], told)

    def kernel(self, key: Named) -> Kernel:
        """Builds and loads one kernel, from memory or the disk cache where it is there."""
        parsed = _key(key)
        return Kernel(super().load(parsed), parsed.parameters, self.ordinal)

    def custom_kernel(self, name: str, source: str, entry: str,
                      parameters: Sequence[Tuple[str, int]], geometry: _lathe.Geometry,
                      language: _lathe.Language = _lathe.Language.CUDA) -> CustomKernel:
        """Likewise a kernel of your own. parameters: (name, alignment of a device pointer in bytes,
        or 0 for a value)."""
        loaded = super().load_custom(name, source, entry, list(parameters), geometry, language)
        return CustomKernel(loaded, self.ordinal)
