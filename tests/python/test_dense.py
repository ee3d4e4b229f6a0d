"""Dense products: keys, fingerprints and the cache, which need no GPU; the way from arrays to a product
with one that the CPU makes; and on a GPU the products themselves."""

import ctypes
import threading

import numpy
import pytest

import lathe
from lathe import dense
from test_arrays import OnDevice, OnlyDlpack

WEIGHT = numpy.array([[1, -2, 3], [4, 5, 0.5]], numpy.float32)
HIDDEN = numpy.array([[1, 1, 1], [2, 0, -2]], numpy.float32)


class HostDlpack:
    """NumPy memory that is shown by DLPack alone, as PyTorch's is."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)


def floats_at(address, shape):
    size = int(numpy.prod(shape))
    return numpy.ctypeslib.as_array((ctypes.c_float * size).from_address(address)).reshape(shape)


class OnTheCpu:
    """In place of products on a GPU."""

    def __init__(self):
        self.calls = []

    def batch_gemv(self, hidden, batch, n_in, n_out, weight, out):
        self.calls.append((batch, n_in, n_out))
        floats_at(out, (batch, n_out))[:] = (floats_at(hidden, (batch, n_in))
                                             @ floats_at(weight, (n_out, n_in)).T)

    def batch_gemv_cached(self, key, raw, hidden, batch, out):
        self.calls.append((key, raw != 0, batch))
        if raw:
            self.batch_gemv(hidden, batch, key.n_in, key.n_out, raw, out)

    def preload(self, keys, raw):
        self.calls.append((keys, raw))
        return len(keys)

    def preload_blob(self, number, address, size):
        self.calls.append((number, ctypes.string_at(address, size)))
        return True


@pytest.fixture
def products():
    products = dense.DenseProducts.__new__(dense.DenseProducts)
    products._opened = OnTheCpu()
    return products


def test_a_key_is_of_bytes_format_and_shape():
    key = lathe.DenseKey(WEIGHT)
    assert (key.format, key.n_in, key.n_out, key.bytes) == ("f32", 3, 2, 24)
    assert key == lathe.DenseKey(WEIGHT.copy()) and hash(key) == hash(lathe.DenseKey(WEIGHT.copy()))
    assert key == lathe.DenseKey(WEIGHT.tobytes(), "f32", (2, 3))
    assert key == lathe.DenseKey(HostDlpack(WEIGHT))
    others = [lathe.DenseKey(WEIGHT.T.copy()), lathe.DenseKey(WEIGHT + 1), "key",
              lathe.DenseKey(WEIGHT.astype(numpy.float16)),
              lathe.DenseKey(WEIGHT.tobytes(), "f16", (2, 6))]
    assert all(key != other for other in others)
    assert repr(key).startswith("<DenseKey of 2 rows of 3 values in f32, ")
    assert lathe.DenseKey(numpy.zeros((4, 3), numpy.uint16), "bf16").n_out == 4
    assert lathe.DenseKey(bytes(34 * 4), "q8_0", (2, 64)).bytes == 136


@pytest.mark.parametrize("error, words, arguments", [
    (TypeError, "no array, but a str", ("a string",)),
    (TypeError, "type u1 say no format", (bytes(24),)),
    (TypeError, "type f8 say no format", (WEIGHT.astype(numpy.float64),)),
    (TypeError, "other order of bytes", (WEIGHT.astype(">f4"),)),
    (ValueError, "takes a shape", (WEIGHT.ravel(),)),
    (ValueError, "q8_0 takes a shape", (bytes(34), "q8_0")),
    (ValueError, "not contiguous", (WEIGHT[:, :2],)),
    (ValueError, "not contiguous", (HostDlpack(WEIGHT[:, :2]),)),
    (ValueError, "raw is read in host memory, and the OnDevice is on a device", (OnDevice(WEIGHT),)),
    (ValueError, "the OnlyDlpack is on a device", (OnlyDlpack(WEIGHT),)),
    (lathe.Error, "are 24 bytes, not 20", (bytes(20), "f32", (2, 3))),
    (lathe.Error, "q9", (bytes(20), "q9", (2, 3))),
    (lathe.Error, "whole blocks of q8_0", (bytes(34), "q8_0", (1, 33)))])
def test_what_has_no_key_is_refused(error, words, arguments):
    with pytest.raises(error, match=words):
        lathe.DenseKey(*arguments)


def fnv1a(data, *sizes):
    value = 0xCBF29CE484222325
    for word in [*data, *sizes]:
        value = (value ^ word) * 0x100000001B3 % 2**64
    return value


def test_the_fingerprint_is_fnv1a():
    assert lathe.weight_fingerprint(b"a", 4096, 14336) == fnv1a(b"a", 4096, 14336)
    assert lathe.weight_fingerprint(b"", 0, 0) == fnv1a(b"", 0, 0)
    assert lathe.weight_fingerprint(WEIGHT, 3, 2**40) == fnv1a(WEIGHT.tobytes(), 3, 2**40)


def test_the_cache_keeps_what_it_is_given():
    cache, key = lathe.DenseCache(), lathe.DenseKey(WEIGHT)
    assert len(cache) == 0 and key not in cache
    with pytest.raises(lathe.Error, match="not in the cache") as raised:
        cache.read(key)
    assert raised.value.status == lathe.Status.NOT_FOUND
    cache.put(key, WEIGHT)
    read = cache.read(key)
    assert key in cache and len(cache) == 1 and (read == WEIGHT).all()
    read[:] = 0  # a copy
    assert (cache.read(key) == WEIGHT).all()
    cache.clear()
    assert len(cache) == 0


def test_the_cache_expands_any_format():
    half = numpy.float16(0.5).tobytes() + bytes(range(32))
    raw = numpy.frombuffer(half * 4, numpy.uint8)
    cache, key = lathe.DenseCache(), lathe.DenseKey(raw, "q8_0", (2, 64))
    cache.expand(key, raw)
    assert (cache.read(key) == numpy.tile(numpy.arange(32) * 0.5, (2, 2))).all()
    halves = WEIGHT.astype(numpy.float16)
    cache.expand(lathe.DenseKey(halves), halves)
    assert (cache.read(lathe.DenseKey(halves)) == WEIGHT).all()


def test_the_cache_refuses_other_sizes_and_elements():
    cache, key = lathe.DenseCache(), lathe.DenseKey(WEIGHT)
    for error, words, values in (
            (ValueError, r"shape \(2, 3\), not \(3, 2\)", WEIGHT.T.copy()),
            (TypeError, "type f4, not f8", WEIGHT.astype(float)),
            (ValueError, "not contiguous", numpy.asfortranarray(WEIGHT)),
            (ValueError, "on a device", OnDevice(WEIGHT))):
        with pytest.raises(error, match=words):
            cache.put(key, values)
    with pytest.raises(ValueError, match="raw has 20 bytes, and its key is of 24"):
        cache.expand(key, bytes(20))
    assert len(cache) == 0


def test_the_cache_has_the_last_24():
    cache = lathe.DenseCache()
    keys = []
    for number in range(25):
        matrix = numpy.full((1, 1), number, numpy.float32)
        keys.append(lathe.DenseKey(matrix))
        cache.put(keys[-1], matrix)
        cache.read(keys[0])  # a use
    assert len(cache) == 24 and keys[0] in cache and keys[1] not in cache


def test_threads_share_a_cache():
    cache, wrong = lathe.DenseCache(), []

    def use(first):
        for number in range(first, first + 40):
            matrix = numpy.full((2, 8), number, numpy.float32)
            key = lathe.DenseKey(matrix)
            cache.put(key, matrix)
            try:
                if (cache.read(key) != number).any():
                    wrong.append(number)
            except lathe.Error as error:
                if error.status != lathe.Status.NOT_FOUND:
                    wrong.append(error)

    threads = [threading.Thread(target=use, args=[10 * i]) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("kind", [lambda array: array, HostDlpack])
def test_arrays_go_to_a_product_by_their_shapes(products, kind):
    expected = HIDDEN @ WEIGHT.T
    assert (products.batch_gemv(kind(HIDDEN), kind(WEIGHT)) == expected).all()
    one = products.batch_gemv(kind(HIDDEN[1]), kind(WEIGHT))
    assert one.shape == (2,) and (one == expected[1]).all()
    out = numpy.full((2, 2), numpy.nan, numpy.float32)
    given = kind(out)
    assert products.batch_gemv(kind(HIDDEN), kind(WEIGHT), given) is given
    assert (out == expected).all()
    assert products._opened.calls == [(2, 3, 2), (1, 3, 2), (2, 3, 2)]


def test_a_cached_weight_is_given_with_its_bytes_or_without(products):
    key = lathe.DenseKey(WEIGHT)
    assert (products.batch_gemv_cached(key, WEIGHT, HIDDEN) == HIDDEN @ WEIGHT.T).all()
    assert products.batch_gemv_cached_only(key, HIDDEN[0]).shape == (2,)
    assert products.preload((key, WEIGHT) for _ in range(2)) == 2
    assert products.preload_blob(7, memoryview(b"norm")) is True
    calls = products._opened.calls
    assert calls[0] == (key, True, 2) and calls[2] == (key, False, 1)
    assert calls[3] == ([key, key], [WEIGHT.ctypes.data] * 2) and calls[4] == (7, b"norm")


def test_what_no_product_has_is_refused_before_it(products):
    key = lathe.DenseKey(WEIGHT)
    read_only = numpy.zeros((2, 2), numpy.float32)
    read_only.flags.writeable = False
    for error, words, call in (
            (TypeError, "hidden takes elements of type f4, not f8",
             lambda: products.batch_gemv(HIDDEN.astype(float), WEIGHT)),
            (TypeError, "weight takes elements of type f4, not f2",
             lambda: products.batch_gemv(HIDDEN, WEIGHT.astype(numpy.float16))),
            (ValueError, "weight takes 2 dimensions, n_out rows of n_in, not 1",
             lambda: products.batch_gemv(HIDDEN, WEIGHT[0])),
            (ValueError, r"rows of 3 values, not the shape \(2, 2\)",
             lambda: products.batch_gemv(HIDDEN[:, :2].copy(), WEIGHT)),
            (ValueError, "not the shape", lambda: products.batch_gemv(HIDDEN[None], WEIGHT)),
            (ValueError, "hidden is not contiguous",
             lambda: products.batch_gemv(numpy.zeros((2, 6), numpy.float32)[:, ::2], WEIGHT)),
            (ValueError, "hidden is read in host memory",
             lambda: products.batch_gemv(OnDevice(HIDDEN), WEIGHT)),
            (ValueError, r"out takes the shape \(2, 2\), not \(2, 3\)",
             lambda: products.batch_gemv(HIDDEN, WEIGHT, HIDDEN.copy())),
            (ValueError, "read-only", lambda: products.batch_gemv(HIDDEN, WEIGHT, read_only)),
            (ValueError, "out is written to, and the array is read-only",
             lambda: products.batch_gemv(HIDDEN, WEIGHT, HostDlpack(read_only))),
            (ValueError, "raw has 48 bytes, and its key is of 24",
             lambda: products.batch_gemv_cached(key, numpy.zeros((2, 6), numpy.float32), HIDDEN)),
            (ValueError, "raw has 12 bytes", lambda: products.preload([(key, WEIGHT[0])])),
            (ValueError, "rows of 3 values",
             lambda: products.batch_gemv_cached_only(key, numpy.zeros(4, numpy.float32)))):
        with pytest.raises(error, match=words):
            call()
    assert not products._opened.calls


def test_products_say_why_there_are_none():
    try:
        products = lathe.DenseProducts()
    except lathe.Error as error:
        assert error.status in (lathe.Status.NO_DRIVER, lathe.Status.NOT_ELIGIBLE)
    else:
        products.close()
        assert products.closed
        with pytest.raises(RuntimeError, match="closed"):
            products.clear()


@pytest.fixture
def on_a_gpu():
    def open_products(**options):
        try:
            return lathe.DenseProducts(**options)
        except lathe.Error as error:
            if error.status not in (lathe.Status.NO_DRIVER, lathe.Status.NOT_ELIGIBLE):
                raise
            pytest.skip(error.message)
    return open_products


def relative_error(found, expected):
    return numpy.linalg.norm(found - expected) / numpy.linalg.norm(expected)


@pytest.mark.parametrize("precision, bound", [
    (lathe.Precision.FAITHFUL, 1e-6), (lathe.Precision.HALF, 1e-3), (lathe.Precision.BRAIN, 4e-3),
    (lathe.Precision.EIGHT, 0.13)])
def test_a_gpus_products_are_those_of_double_precision(on_a_gpu, precision, bound):
    random = numpy.random.default_rng(1)
    weight = random.standard_normal((96, 200), numpy.float32)
    hidden = random.standard_normal((5, 200), numpy.float32)
    expected = hidden.astype(float) @ weight.T.astype(float)
    cache, key = lathe.DenseCache(), lathe.DenseKey(weight)
    with on_a_gpu(precision=precision, cache=cache) as products:
        assert relative_error(products.batch_gemv(hidden, weight), expected) < bound
        with pytest.raises(lathe.Error, match="not in the cache"):
            products.batch_gemv_cached_only(key, hidden)
        assert relative_error(products.batch_gemv_cached(key, weight, hidden), expected) < bound
        assert key in cache and products.is_resident(key)
        one = products.batch_gemv_cached_only(key, hidden[3])
        assert relative_error(one, expected[3]) < bound
        assert products.preload([(key, weight)]) == 0
        assert products.preload_blob(9, weight[0]) and products.blob_address(9) > 0
        counts = products.counts
        assert (counts.weights, counts.blobs, counts.products, counts.uploads) == (1, 1, 3, 2)
        products.clear()
        assert products.counts.bytes == 0 and products.counts.cached == 1


def test_a_gpu_multiplies_tensors_of_torch(on_a_gpu):
    torch = pytest.importorskip("torch")
    hidden, weight = torch.randn(3, 64), torch.randn(16, 64)
    with on_a_gpu() as products:
        out = torch.empty(3, 16)
        assert products.batch_gemv(hidden, weight, out) is out
        assert relative_error(out.numpy(), (hidden.double() @ weight.double().T).numpy()) < 1e-6
        if torch.cuda.is_available():
            with pytest.raises(ValueError, match="on a device"):
                products.batch_gemv(hidden.cuda(), weight)
