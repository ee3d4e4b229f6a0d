"""What a program sets around sessions: when to give up, where weights are, who is told; and on a GPU
PyTorch's memory, tensors and captures."""

import gc
import math

import numpy
import pytest

import lathe
import tiny_model
from test_arrays import OnDevice

PROMPT = [5, 17, 200]


def test_a_run_can_be_cancelled(open_session):
    expected = open_session().complete(PROMPT, 40)
    asked = []
    session = open_session()
    tokens = session.complete(PROMPT, 40, cancel=lambda: asked.append(1) or len(asked) > 2)
    assert len(asked) == 3 and tokens == expected[:len(tokens)] and 0 < len(tokens) < 40
    assert session.length == len(PROMPT) - 1 + len(tokens)

    def refuse():
        raise KeyError("no")

    with pytest.raises(KeyError):
        session.generate(1, 8, cancel=refuse)
    session.step(1)


def test_numbers_of_an_opening_are_checked(open_session):
    for wrong in ({"chunk": -1}, {"wait_limit": 0}, {"wait_limit": -1.0}, {"wait_limit": math.nan}):
        with pytest.raises(ValueError):
            open_session(**wrong)
    session = open_session(chunk=0, wait_limit=math.inf)
    assert session.chunk == 0 and session.borrowed_bytes == 0
    open_session(chunk=16, wait_limit=0.5)


def test_weights_on_a_device_are_not_the_cpus(open_session):
    array = OnDevice(numpy.zeros(64, numpy.float32))
    with pytest.raises(lathe.Error, match="cpu executor"):
        open_session(weights={"output_norm.weight": array})
    with pytest.raises(ValueError, match="not in device memory"):
        open_session(weights={"output_norm.weight": numpy.zeros(64, numpy.float32)})


def test_a_step_is_recorded_on_a_captured_stream_only(open_session):
    session = open_session()
    for call in (session.record_step, lambda: session.begin_replays(1),
                 lambda: session.take_replays(1)):
        with pytest.raises(lathe.Error) as raised:
            call()
        assert raised.value.status in (lathe.Status.UNSUPPORTED, lathe.Status.NOT_ELIGIBLE,
                                       lathe.Status.INVALID_ARGUMENT)


def test_a_model_is_reported_and_converted(open_session, model_file, tmp_path):
    model = lathe.Model(str(model_file))
    report = model.report(context=32, kv_format=lathe.KvFormat.F32)
    assert (report.container, report.decodes, report.context) == ("GGUF", True, 32)
    assert report.file_bytes == model_file.stat().st_size
    assert report.kv_bytes == 2 * model.layers * 32 * model.kv_heads * model.head_dim * 4
    told = []
    path = tmp_path / "tiny.p64"
    model.convert(str(path), lambda *word: told.append(word))
    assert told and told[-1][1] == told[-1][2]
    converted = lathe.Model(str(path), lathe.Integrity.FULL)
    assert converted.report().container == "P64"
    session = lathe.Session(converted, executor=lathe.Executor.CPU, context=64, threads=1)
    assert session.complete(PROMPT, 8) == open_session().complete(PROMPT, 8)
    with pytest.raises(KeyError):
        model.convert(str(tmp_path / "refused.p64"), lambda *word: {}["refused"])


@pytest.fixture
def torch():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch finds no GPU.")
    return torch


def on_the_gpu(model_file, **options):
    return lathe.Session(lathe.Model(str(model_file)), context=64, **options)


def test_an_opening_can_be_cancelled(torch, model_file):
    with pytest.raises(lathe.Error, match="cancelled") as raised:
        on_the_gpu(model_file, cancel=lambda: True)
    assert raised.value.status == lathe.Status.CANCELLED
    with pytest.raises(KeyError, match="raised"):
        on_the_gpu(model_file, cancel=lambda: {}["raised"])
    assert on_the_gpu(model_file, cancel=lambda: False).length == 0


def tensors():
    """Of the tiny model: the name and the bytes of each."""
    data, offset = tiny_model.weight_data(None, tiny_model.F32), 0
    for name, shape in tiny_model.tensor_shapes(tiny_model.VOCABULARY).items():
        size = 4 * math.prod(shape)
        yield name, data[offset:offset + size]
        offset += size + -size % tiny_model.ALIGNMENT


def test_a_device_tells_its_log_and_takes_the_programs_memory(torch, model_file, tmp_path):
    lines, taken, given = [], [], []

    def allocate(size):
        taken.append(torch.cuda.caching_allocator_alloc(size))
        return taken[-1]

    def free(address):
        given.append(address)
        torch.cuda.caching_allocator_delete(address)

    options = {"cache_directory": str(tmp_path), "memory": (allocate, free),
               "log": lambda level, line: lines.append((level, line))}
    expected = on_the_gpu(model_file).complete(PROMPT, 8)
    for warm in (False, True):
        session = on_the_gpu(model_file, device=lathe.Device(**options))
        assert session.complete(PROMPT, 8) == expected
        assert (session.kernels_built == 0) == warm
        assert 0 < session.build_wait_seconds <= session.build_seconds
        del session  # and with it the device, whose hooks are called until then
    gc.collect()
    assert len(taken) >= 6 and sorted(taken) == sorted(given)
    assert any(line.startswith("lathe,1,kernel,built") for _, line in lines)
    assert any(line.startswith("lathe,1,kernel,cached") for _, line in lines)
    device = lathe.Device(cache_directory=str(tmp_path), cache_read_only=True)
    kernel = device.kernel("gemv.q8_0.k256.n8.w4").loaded
    assert kernel.cubin_bytes > 0 and kernel.load_ms > 0 and kernel.emit_ms > 0
    assert (device.cache.hits, device.cache.writes) == (0, 0) and device.cache.misses > 0


def test_weights_of_torch_are_read_in_place(torch, model_file):
    plain = on_the_gpu(model_file)
    expected = plain.complete(PROMPT, 8)
    weights = {name: torch.frombuffer(bytearray(data), dtype=torch.uint8).cuda()
               for name, data in tensors()}
    torch.cuda.synchronize()
    session = on_the_gpu(model_file, weights=weights)
    weights.clear()  # the session keeps them, whatever becomes of the mapping
    gc.collect()
    assert session.borrowed_bytes > 0
    assert session.complete(PROMPT, 8) == expected
    with pytest.raises(ValueError, match="Tensor output_norm.weight has 256 bytes, and its array 12"):
        on_the_gpu(model_file, weights={"output_norm.weight": torch.zeros(3, device="cuda")})


@pytest.mark.parametrize("executor", [lathe.Executor.EAGER, lathe.Executor.GRAPH,
                                      lathe.Executor.MEGA])
def test_a_step_is_replayed_in_a_graph_of_torchs(torch, fusible_file, executor):
    try:
        expected = on_the_gpu(fusible_file, executor=executor).complete(PROMPT, 12)
    except lathe.Error as error:
        if error.status != lathe.Status.NOT_ELIGIBLE:
            raise
        pytest.skip(error.message)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        session = on_the_gpu(fusible_file, executor=executor, stream="current")
        session.feed(PROMPT[:-1])
        x = torch.zeros(4, device="cuda")
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        graph.capture_begin()
        session.record_step()
        x += 1
        graph.capture_end()
        session.begin_replays(PROMPT[-1])
        for _ in range(12):
            graph.replay()
        assert session.take_replays(12) == expected
        assert session.length == len(PROMPT) - 1 + 12
        torch.cuda.synchronize()
        assert x.tolist() == [12.0] * 4
