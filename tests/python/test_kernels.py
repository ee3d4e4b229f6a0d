"""Keys and PTX: what needs no GPU."""

import threading

import pytest

import lathe

KEY = "gemv.q8_0.k256.n8.w4"


def test_a_key_tells_what_it_names():
    key = lathe.Key(KEY)
    assert key.text == str(key) == KEY and repr(key) == f"Key('{KEY}')"
    assert key.entry == "gemv_q8_0_k256_n8_w4" and key.type == "gemv"
    assert key.geometry.threads == 128
    # Read: 8 rows of 256 / 32 blocks of 34 bytes and the vector.
    weights, x, y = key.parameters
    assert (weights.bytes, x.bytes, y.bytes) == (8 * 8 * 34, 4 * 256, 4 * 8)
    assert weights.element == lathe.Element.BLOCKS and x.element == lathe.Element.F32
    assert (x.access, y.access) == (lathe.Access.READ, lathe.Access.WRITE)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_ptx_is_emitted_for_a_target(target):
    ptx = lathe.emit(KEY, target)
    assert f".target {target}" in ptx.text and f".entry {ptx.entry}" in str(ptx)
    assert ptx.target == target and ptx.compiler
    assert ptx.geometry.threads == 128


def test_the_text_route_needs_no_compiler():
    ptx = lathe.emit(lathe.Key(KEY), "sm_90a", lathe.Route.TEXT)
    assert ptx.route == lathe.Route.TEXT


def test_refusals_name_the_thing_at_fault():
    with pytest.raises(lathe.Error, match="format 'q9' is not known") as raised:
        lathe.Key("gemv.q9.k256.n8.w4")
    assert raised.value.status == lathe.Status.UNSUPPORTED
    with pytest.raises(lathe.Error) as raised:
        lathe.emit(KEY, "sm_1")
    assert "sm_1" in raised.value.message
    with pytest.raises(lathe.Error) as raised:
        lathe.emit("gemv.q5_1.k256.n8.w4", "sm_90a", lathe.Route.TEXT)
    assert raised.value.details and str(raised.value).startswith(raised.value.message + "\n  ")


def test_a_missing_compiler_is_named():
    compilers = lathe.Compilers(nvrtc="/nowhere/libnvrtc.so")
    with pytest.raises(lathe.Error, match="/nowhere/libnvrtc.so"):
        compilers.version(lathe.Route.NVRTC)


def test_errors_belong_to_the_thread_that_made_them():
    seen = []

    def refuse(name):
        for _ in range(200):
            try:
                lathe.Key(name)
            except lathe.Error as error:
                seen.append(name[:-2] in str(error))

    threads = [threading.Thread(target=refuse, args=[f"kernel{i}.x"]) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 800 and all(seen)


def test_a_device_says_why_there_is_none():
    try:
        device = lathe.Device()
    except lathe.Error as error:
        assert error.status == lathe.Status.NO_DRIVER and error.hint
    else:
        assert device.target.startswith("sm_")
