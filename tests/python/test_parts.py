"""Parts of a model, hidden states, and the times of steps."""

import numpy
import pytest

import lathe

TOKENS = [5, 17, 200]


def test_parts_make_the_whole(open_session):
    whole = open_session()
    layers, hidden = whole.layers, whole.hidden_size
    first = open_session(part=lathe.Part(layers=1, to_hidden=True))
    rest = open_session(part=lathe.Part(first_layer=1, from_hidden=True))
    assert (first.layers, rest.layers) == (1, layers - 1)
    for token in TOKENS:
        whole.step(token)
        first.step(token)
        state = first.hidden()
        assert state.shape == (hidden,) and state.dtype == numpy.float32
        rest.step_hidden(state, token)
        assert numpy.allclose(rest.logits(), whole.logits(), rtol=1e-5, atol=1e-6)
        assert rest.sampled == whole.sampled
        assert numpy.allclose(rest.hidden(normed=True), whole.hidden(normed=True), atol=1e-5)
        assert not numpy.allclose(whole.hidden(), whole.hidden(normed=True))


def test_a_block_with_and_without_the_residual(open_session):
    for blocks in (lathe.Blocks.ATTENTION, lathe.Blocks.FFN):
        both = [open_session(part=lathe.Part(first_layer=1, layers=1, from_hidden=True,
                                             to_hidden=True, blocks=blocks, residual=residual))
                for residual in (True, False)]
        state = numpy.linspace(-1, 1, both[0].hidden_size, dtype=numpy.float32)
        for session in both:
            session.step_hidden(state)
        assert numpy.allclose(both[0].hidden(), both[1].hidden() + state, atol=1e-5)


def test_what_is_no_part_or_no_state_is_refused(open_session):
    with pytest.raises(lathe.Error, match="takes no token"):
        open_session(part=lathe.Part(first_layer=1))
    with pytest.raises(lathe.Error, match="of one layer"):
        open_session(part=lathe.Part(from_hidden=True, to_hidden=True, blocks=lathe.Blocks.FFN))
    session = open_session(part=lathe.Part(from_hidden=True))
    state = numpy.zeros(session.hidden_size, numpy.float32)
    with pytest.raises(lathe.Error, match="not tokens"):
        session.step(1)
    with pytest.raises(lathe.Error, match="no hidden state before"):
        session.hidden()
    with pytest.raises(lathe.Error, match="values, not 3"):
        session.step_hidden(state[:3])
    for wrong in (state.astype(numpy.float64), state.reshape(1, -1), "state"):
        with pytest.raises(TypeError):
            session.step_hidden(wrong)
    with pytest.raises(lathe.Error, match="vocabulary"):
        session.step_hidden(state, 10**6)
    with pytest.raises(lathe.Error, match="takes tokens"):
        open_session().step_hidden(state)


def test_steps_have_times(open_session):
    session = open_session(time_steps=True, parity=0.99)
    assert session.parity >= 0.99
    session.step(5)
    times = session.step_times()
    assert len(times) == session.launches
    label, layer, kernel, microseconds = times[0]
    assert (label, layer) == ("token_embd", -1)
    assert kernel.startswith("embed.") and microseconds >= 0
    assert session.submit_round_trip(3) == (0, 0)
    assert session.submissions == session.bytes_to_device == session.bytes_to_host == 0
    assert len(session.graph_key) == 16 and "attention in" in session.tuning
    with pytest.raises(lathe.Error, match="not timed"):
        other = open_session()
        other.step(5)
        other.step_times()
    with pytest.raises(lathe.Error, match="parity is 2"):
        open_session(parity=2)
