"""The way from arrays to addresses, streams and launches, with arrays that only say they are on a
GPU."""

import ctypes

import numpy
import pytest

import lathe
from lathe import _lathe, arrays, kernels
from lathe.progress import ProgressBar

# NumPy's own __dlpack__ takes max_version from there on.
needs_versions = pytest.mark.skipif(numpy.lib.NumpyVersion(numpy.__version__) < "2.1.0",
                                    reason="NumPy before 2.1 makes no versioned DLPack capsules")
KEY = lathe.Key("gemv.q8_0.k256.n8.w4")
BYTES = KEY.parameters[0].bytes


class OnDevice:
    """NumPy memory that says it is a GPU's."""

    def __init__(self, array, device=0, read_only=False, stream=None):
        self.array, self.device = array, device
        self.interface = {"shape": array.shape, "typestr": array.dtype.str, "version": 3,
                          "data": (array.ctypes.data, read_only),
                          "strides": None if array.flags.c_contiguous else array.strides}

    def __dlpack_device__(self):
        return arrays.DLPACK_CUDA, self.device

    @property
    def __cuda_array_interface__(self):
        return self.interface


class OnlyDlpack(OnDevice):
    """By a capsule from before DLPack 1."""

    __cuda_array_interface__ = None

    def __dlpack__(self, *, stream=None):
        assert stream == -1
        return self.array.__dlpack__()


class OnlyVersionedDlpack(OnlyDlpack):
    def __dlpack__(self, *, stream=None, max_version=None):
        assert stream == -1
        return self.array.__dlpack__(max_version=max_version)


class Loaded:
    """In place of a kernel that is loaded on a GPU."""

    name = "kernel"

    def __init__(self):
        self.launches = []

    def launch(self, arguments, stream):
        self.launches.append((arguments, stream))


@pytest.fixture
def kernel():
    return kernels.Kernel(Loaded(), KEY.parameters, 0)


def buffers():
    return [numpy.zeros(BYTES, numpy.uint8), numpy.zeros(256, numpy.float32),
            numpy.zeros(8, numpy.float32)]


@pytest.mark.parametrize("kind", [
    OnDevice, OnlyDlpack, pytest.param(OnlyVersionedDlpack, marks=needs_versions)])
def test_addresses_go_to_the_launch_in_order(kernel, kind):
    hosts = buffers()
    kernel.launch(*map(kind, hosts))
    kernel.launch(*map(kind, hosts), stream=77)
    addresses = [host.ctypes.data for host in hosts]
    assert kernel.loaded.launches == [(addresses, 0), (addresses, 77)]


def test_numbers_are_addresses(kernel):
    kernel.launch(256, 512, 1024, stream=5)
    assert kernel.loaded.launches == [([256, 512, 1024], 5)]


def refuse(kernel, error, words, **replaced):
    arguments = dict(zip(("weights", "x", "y"), map(OnDevice, buffers())))
    arguments.update(replaced)
    with pytest.raises(error, match=words):
        kernel.launch(*arguments.values())
    assert not kernel.loaded.launches


def test_what_would_go_wrong_on_the_gpu_is_refused(kernel):
    refuse(kernel, ValueError, "takes 1024 bytes, and the array has 1020",
           x=OnDevice(numpy.zeros(255, numpy.float32)))
    refuse(kernel, TypeError, "elements of type f4, not f8", x=OnDevice(numpy.zeros(256)))
    refuse(kernel, ValueError, "not contiguous",
           x=OnDevice(numpy.zeros((256, 2), numpy.float32)[:, 0]))
    refuse(kernel, ValueError, "not contiguous",
           x=OnlyDlpack(numpy.zeros((256, 2), numpy.float32)[:, 0]))
    refuse(kernel, ValueError, "not in device memory", x=numpy.zeros(256, numpy.float32))
    refuse(kernel, ValueError, "on device 1, the kernel on 0",
           x=OnDevice(numpy.zeros(256, numpy.float32), device=1))
    refuse(kernel, ValueError, "read-only", y=OnDevice(numpy.zeros(8, numpy.float32), read_only=True))
    refuse(kernel, TypeError, "neither", x="a string")
    with pytest.raises(TypeError, match="takes 3 arrays"):
        kernel.launch(1, 2)


@needs_versions
def test_what_dlpack_says_is_read_only_is_read_and_not_written_to(kernel):
    weights, x, y = buffers()
    for array in (x, y):
        array.flags.writeable = False
    refuse(kernel, ValueError, "y is written to, and the array is read-only",
           y=OnlyVersionedDlpack(y))
    # Which its producer hands over by a capsule that can say so, and by no other.
    with pytest.raises(BufferError):
        kernel.launch(OnDevice(weights), OnlyDlpack(x), 1024)
    kernel.launch(OnDevice(weights), OnlyVersionedDlpack(x), 1024, stream=5)
    assert kernel.loaded.launches == [([weights.ctypes.data, x.ctypes.data, 1024], 5)]


def test_a_custom_kernel_takes_values_by_their_bytes():
    kernel = kernels.CustomKernel(Loaded(), 0)
    array = numpy.zeros(4, numpy.float32)
    kernel.launch(OnDevice(array), numpy.float32(1.0), numpy.int32(-1), 7, stream=3)
    assert kernel.loaded.launches == [([array.ctypes.data, 0x3F800000, 0xFFFFFFFF, 7], 3)]


def test_streams_of_other_libraries():
    class Torch:
        cuda_stream = 11

    class Cupy:
        ptr = 12

    class CudaPython:
        def __cuda_stream__(self):
            return 0, 13

    assert [arrays.stream_handle(stream) for stream in (Torch(), Cupy(), CudaPython(), 14)] == [
        11, 12, 13, 14]
    with pytest.raises(TypeError, match="no CUDA stream"):
        arrays.stream_handle("stream")


@pytest.mark.parametrize("shape, strides, dense", [
    ((3, 4), None, True), ((3, 4), (16, 4), True), ((3, 4), (32, 4), False),
    ((1, 4), (999, 4), True), ((0, 4), (1, 1), True), ((), (), True), ((3, 4), (4, 12), False)])
def test_density(shape, strides, dense):
    assert arrays._dense(shape, strides, 4) is dense


def test_a_capsule_is_read():
    array = numpy.arange(6, dtype=numpy.int32).reshape(2, 3)
    address, shape, strides, *rest = _lathe.read_capsule(array.__dlpack__())
    assert (address, shape, *rest) == (array.ctypes.data, (2, 3), "i4", False, False)
    assert strides in ((3, 1), None)  # None of NumPy before 2.1, where there are no gaps


@needs_versions
def test_a_versioned_capsule_is_read():
    array = numpy.arange(6, dtype=numpy.int32).reshape(2, 3)
    seen = array.ctypes.data, (2, 3), (3, 1), "i4"
    assert _lathe.read_capsule(array.__dlpack__(max_version=(1, 0))) == (*seen, False, False)
    assert _lathe.read_capsule(array.__dlpack__(max_version=(1, 0), copy=True))[-1] is True
    array.flags.writeable = False
    assert _lathe.read_capsule(array.__dlpack__(max_version=(1, 0))) == (*seen, True, False)


# In pure C, so that a capsule can have what no library makes: no strides, an offset, a later version.
class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class VersionedTensor(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32),
                ("manager", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
                ("flags", ctypes.c_uint64), ("tensor", Tensor)]


def capsule_of(held, name):
    new = ctypes.pythonapi.PyCapsule_New
    new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    new.restype = ctypes.py_object
    return new(ctypes.addressof(held), name, None)


def test_a_capsule_without_strides_with_an_offset_and_of_a_later_version():
    lengths = (ctypes.c_int64 * 2)(4, 5)
    tensor = Tensor(data=4096, ndim=2, code=2, bits=32, lanes=1, shape=lengths, byte_offset=64)
    seen = 4160, (4, 5), None, "f4"
    assert _lathe.read_capsule(capsule_of(tensor, b"dltensor")) == (*seen, False, False)
    versioned = VersionedTensor(major=1, minor=9, tensor=tensor)
    for flags, said in ((0xFFFC, (False, False)), (1, (True, False)), (2, (False, True)),
                        (3, (True, True))):
        versioned.flags = flags
        assert _lathe.read_capsule(capsule_of(versioned, b"dltensor_versioned")) == (*seen, *said)
    versioned.major = 2
    with pytest.raises(ValueError, match="version 2.9, and 1 is known"):
        _lathe.read_capsule(capsule_of(versioned, b"dltensor_versioned"))
    for wrong in (capsule_of(tensor, b"used_dltensor"), 7):
        with pytest.raises((ValueError, TypeError)):
            _lathe.read_capsule(wrong)


class Produced(OnlyDlpack):
    """f32 by a capsule of DLPack 1, whose flags are said."""

    def __init__(self, flags, device_type, array):
        super().__init__(array)
        self.lengths, self.device_type = (ctypes.c_int64 * 1)(array.size), device_type
        self.held = VersionedTensor(major=1, flags=flags, tensor=Tensor(
            data=self.array.ctypes.data, ndim=1, code=2, bits=32, lanes=1, shape=self.lengths))

    def __dlpack_device__(self):
        return self.device_type, self.device

    def __dlpack__(self, *, stream=None, max_version=None):
        return capsule_of(self.held, b"dltensor_versioned")


class OnHost(Produced):
    __cuda_array_interface__ = property()  # hasattr() says no

    def __init__(self, flags, array):
        super().__init__(flags, arrays.DLPACK_CPU, array)


def test_what_was_copied_to_be_handed_over_is_refused(kernel):
    refuse(kernel, ValueError, "The Produced was copied to be handed over",
           x=Produced(2, arrays.DLPACK_CUDA, numpy.zeros(256, numpy.float32)))
    with pytest.raises(ValueError, match="^values was copied to be handed over"):
        arrays.host_view(OnHost(2, numpy.zeros(256, numpy.float32)), "values")
    whole = OnHost(0, numpy.zeros(256, numpy.float32))
    assert arrays.host_view(whole, "values").address == whole.array.ctypes.data
    weights = buffers()[0]
    x = Produced(0, arrays.DLPACK_CUDA, numpy.zeros(256, numpy.float32))
    kernel.launch(OnDevice(weights), x, 1024)
    assert kernel.loaded.launches == [([weights.ctypes.data, x.array.ctypes.data, 1024], 0)]


@pytest.mark.parametrize("code", ["f4", "f8", "i2", "u4"])
def test_numbers_of_the_host_that_are_not_aligned_are_refused(code):
    size = int(code[1:])
    held = numpy.zeros(9 * size, numpy.uint8)
    for offset in range(1, size):
        array = held[offset:offset + 4 * size].view(code)
        with pytest.raises(ValueError, match=rf"^values is not aligned to the {size} bytes of its "
                                             r"elements; numpy.array\(values\) is a copy that is"):
            arrays.host_view(array, "values")
        copy = numpy.array(array)
        assert arrays.host_view(copy, "values").address == copy.ctypes.data
        assert arrays.host_view(array[:0], "values").bytes == 0
    whole = held[size:5 * size].view(code)
    assert arrays.host_view(whole, "values").address == whole.ctypes.data
    # Bytes, and whatever else is no number, lie where they like.
    assert arrays.host_view(held[1:], "raw").address == held.ctypes.data + 1
    assert arrays.host_view(held[1:5].view("V4"), "raw").address == held.ctypes.data + 1


def test_the_same_of_what_comes_by_dlpack_and_as_a_buffer():
    held = numpy.zeros(41, numpy.uint8)
    array = held[1:].view(numpy.float32)
    assert array.ctypes.data % 4
    for given in (OnHost(0, array), memoryview(array)):
        with pytest.raises(ValueError, match="^values is not aligned to the 4 bytes"):
            arrays.host_floats(given, "values")
    with pytest.raises(ValueError, match="^raw is not aligned to the 4 bytes"):
        lathe.DenseKey(array.reshape(2, 5))
    assert lathe.DenseKey(held[1:], "f32", (2, 5)) == lathe.DenseKey(numpy.zeros((2, 5), "f4"))


def test_what_a_producer_raises_is_not_taken_for_its_age(kernel):
    class Failing(OnlyDlpack):
        def __dlpack__(self, *, stream=None, max_version=None):
            if max_version is not None:
                raise TypeError("no elements of bfloat16 here")
            return super().__dlpack__(stream=stream)

    class WithoutWords(OnlyDlpack):
        def __dlpack__(self, **options):
            if "max_version" in options:
                raise TypeError("__dlpack__() takes no keyword arguments")  # as C functions say it
            return super().__dlpack__(**options)

    array = numpy.zeros(256, numpy.float32)
    refuse(kernel, TypeError, "no elements of bfloat16 here", x=Failing(array))
    kernel.launch(256, WithoutWords(array), 1024)
    assert kernel.loaded.launches == [([256, array.ctypes.data, 1024], 0)]


def test_a_bar_is_drawn_on_a_terminal(monkeypatch):
    written = []

    class Terminal:
        def isatty(self):
            return True

        def write(self, text):
            written.append(text)

        def flush(self):
            pass

    bar = ProgressBar(Terminal())
    bar("building", 1, 2)
    bar("building", 2, 2)
    bar.close()
    assert written[0] == f"\rbuilding [{'#' * 15}{' ' * 15}]  50%"
    assert "100%" in written[1] and written[2].startswith("\r\033[Kbuilding: 0.")
