"""Decoding on the CPU: what a session gives, and how it refuses."""

import signal
import threading

import numpy
import pytest

import lathe
import tiny_model

PROMPT = [5, 17, 200]


def test_a_model_describes_itself(model_file):
    model = lathe.Model(str(model_file))
    assert (model.architecture, model.name, model.path) == ("llama", "tiny", str(model_file))
    assert (model.layers, model.vocabulary) == (tiny_model.LAYERS, tiny_model.VOCABULARY)


def test_bytes_are_a_model_too(open_session, model_file):
    model = lathe.Model.from_bytes(model_file.read_bytes(), "in memory")
    session = lathe.Session(model, executor=lathe.Executor.CPU, context=64)
    del model  # the session keeps what it reads
    other = open_session()
    for each in (session, other):
        each.feed(PROMPT)
    assert numpy.array_equal(session.logits(), other.logits())


def test_tokens_follow_from_the_logits(open_session):
    session = open_session()
    session.feed(numpy.array(PROMPT))
    logits = session.logits()
    assert logits.dtype == numpy.float32 and logits.shape == (tiny_model.VOCABULARY,)
    assert session.sampled == logits.argmax() and session.length == 3
    session.step(session.sampled)
    # They are the caller's: what is decoded later does not change them.
    assert not numpy.array_equal(session.logits(), logits)


def test_ways_to_generate_agree(open_session):
    session = open_session()
    expected = session.complete(PROMPT, 20)
    stepped = open_session()
    stepped.feed(PROMPT[:-1])
    token, tokens = PROMPT[-1], []
    for _ in range(20):
        stepped.step(token)
        token = stepped.sampled
        tokens.append(token)
    assert tokens == expected
    streamed = open_session()
    streamed.feed(PROMPT[:-1])
    assert list(streamed.stream(PROMPT[-1], 20)) == expected
    assert session.length == stepped.length == streamed.length == 22


def test_a_stream_left_early_can_be_taken_up(open_session):
    session = open_session()
    expected = session.complete(PROMPT, 20)
    session = open_session()
    session.feed(PROMPT[:-1])
    token, tokens = PROMPT[-1], []
    for pieces in (3, 11, 6):  # none of them what is decoded at once
        for number, token in enumerate(session.stream(token, 20), 1):
            tokens.append(token)
            if number == pieces:
                break
    assert tokens == expected and session.length == 22


def test_a_run_ends_at_a_stop_token_or_when_told(open_session):
    session = open_session()
    expected = session.complete(PROMPT, 20)
    stop = expected[4]
    until = expected.index(stop) + 1
    assert open_session().complete(PROMPT, 20, stops=[stop]) == expected[:until]
    session = open_session()
    session.feed(PROMPT[:-1])
    assert list(session.stream(PROMPT[-1], 20, stops=[stop])) == expected[:until]

    told = []
    tokens = open_session().complete(PROMPT, 20, listener=lambda t: told.append(t) or len(told) < 3)
    assert told == expected[:3]
    # What was under way counts.
    assert tokens == expected[:len(tokens)] and 3 <= len(tokens) < 20


def test_sampling_draws_and_repeats(open_session):
    def drawn(seed):
        session = open_session()
        session.set_sampling(1.5, top_k=40, top_p=0.95, repeat_penalty=1.1, seed=seed)
        return session.complete(PROMPT, 16)

    assert drawn(1) == drawn(1) != drawn(2)
    with pytest.raises(lathe.Error, match="top-p"):
        open_session().set_sampling(1.0, top_p=1.5)


def test_refusals_leave_the_session_usable(open_session):
    session = open_session(context=4)
    with pytest.raises(lathe.Error, match="Token 99999 is outside the vocabulary") as raised:
        session.feed([1, 99999])
    assert raised.value.status == lathe.Status.OUT_OF_RANGE and session.length == 0
    with pytest.raises(lathe.Error, match="no room for 5 more") as raised:
        session.generate(1, 5)
    assert raised.value.hint
    with pytest.raises(lathe.Error, match="before the next step"):
        session.logits()
    with pytest.raises(lathe.Error, match="no room for 2000000000 more"):
        session.generate(1, 2 * 10**9)
    for run in (session.generate, lambda *of: list(session.stream(*of)),
                lambda token, count: session.complete([token, token], count)):
        with pytest.raises(ValueError, match="below 0"):
            run(1, -1)
    with pytest.raises(ValueError, match="repeat_last"):
        session.set_sampling(repeat_penalty=1.1, repeat_last=0)
    assert session.length == 0 and session.generate(1, 0) == []
    with pytest.raises(TypeError):
        session.feed([1.5])
    with pytest.raises(ValueError, match="empty"):
        session.complete([], 1)
    assert len(session.generate(1, 4)) == 4


def test_files_are_refused_with_a_sentence(tmp_path):
    with pytest.raises(lathe.Error, match="nowhere.gguf") as raised:
        lathe.Model(str(tmp_path / "nowhere.gguf"))
    assert raised.value.status in (lathe.Status.NOT_FOUND, lathe.Status.IO)
    with pytest.raises(lathe.Error) as raised:
        lathe.Model.from_bytes(b"GGUF" + bytes(60))
    assert raised.value.status in (lathe.Status.CORRUPT_FILE, lathe.Status.UNSUPPORTED)


def test_a_closed_session_says_so(open_session):
    with open_session() as session:
        session.step(1)
    assert session.closed
    with pytest.raises(RuntimeError, match="closed"):
        session.step(1)
    session.close()


def test_a_listener_that_raises_ends_the_run(open_session):
    session = open_session()

    def refuse(token):
        raise KeyError(token)

    with pytest.raises(KeyError):
        session.generate(1, 60, listener=refuse)
    assert 0 < session.length < 60
    with pytest.raises(RuntimeError, match="at work"):
        session.generate(1, 4, listener=lambda token: session.length)
    session.step(1)


def test_ctrl_c_ends_a_run(open_session):
    session = open_session(context=4096)
    timer = threading.Timer(0.05, signal.raise_signal, [signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        session.generate(1, 4096)
    timer.join()
    assert session.length < 4096


def test_threads_decode_side_by_side(open_session):
    expected = open_session().complete(PROMPT, 16)
    sessions = [open_session() for _ in range(4)]
    found = [[] for _ in sessions]

    def decode(index):
        found[index] = sessions[index].complete(PROMPT, 16)

    threads = [threading.Thread(target=decode, args=[i]) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 4


def test_progress_is_told(open_session, capsys):
    told = []
    open_session().generate(1, 10, progress=lambda *word: told.append(word))
    assert told == [("generating", i + 1, 10) for i in range(10)]
    open_session().generate(1, 10, progress=True)
    assert capsys.readouterr().err.startswith("generating: ")
