"""Keys and values, snapshots, allowed tokens, and batches where there is a GPU for them."""

import numpy
import pytest

import lathe
import tiny_model

PROMPT = [5, 17, 200]
KEYS, VALUES = lathe.KvPart.KEYS, lathe.KvPart.VALUES


def everything(session, length):
    return [session.read_kv(part, layer, 0, length)
            for layer in range(session.layers) for part in (KEYS, VALUES)]


def test_keys_and_values_go_out_and_in(open_session):
    session, other = open_session(), open_session(kv_format=lathe.KvFormat.F32)
    session.feed(PROMPT)
    other.feed([1, 2, 3])
    shape = (3, session.kv_heads, session.head_dim)
    for layer in range(session.layers):
        for part in (KEYS, VALUES):
            values = session.read_kv(part, layer, 0, 3)
            assert values.shape == shape and values.dtype == numpy.float32
            other.write_kv(part, layer, 0, values)
    assert all(map(numpy.array_equal, everything(other, 3), everything(session, 3)))
    keys, values = session.capture_kv(3, 4)
    assert keys.shape == (session.layers, 4, session.head_dim) == values.shape
    flat = session.read_kv(VALUES, 0, 0, 3).reshape(-1, session.head_dim)
    assert numpy.array_equal(values[0], flat[:4])
    for wrong in ((KEYS, session.layers, 0, 1), (KEYS, 0, 3, 1), (KEYS, 0, 0, 10**9),
                  (KEYS, 0, 0, -1)):
        with pytest.raises(lathe.Error) as raised:
            session.read_kv(*wrong)
        assert raised.value.status == lathe.Status.OUT_OF_RANGE
    for heads, dim in ((1, session.head_dim + 1), (session.head_dim, session.kv_heads),
                       (1, session.kv_heads * session.head_dim)):
        with pytest.raises(ValueError, match=f"not {heads} x {dim}"):
            session.write_kv(KEYS, 0, 0, numpy.zeros((1, heads, dim), numpy.float32))


def test_keys_and_values_may_be_sums_of_atoms(open_session):
    plain = open_session()
    width, vectors = plain.head_dim, plain.layers * 2
    axes = numpy.eye(width, dtype=numpy.float32)
    session = open_session(atoms=lathe.KvAtoms(width, 3, axes))
    assert session.kv_bytes == vectors * session.context * session.kv_heads * 3 * 4
    session.feed(PROMPT)
    for values in everything(session, 3):
        assert (values != 0).sum() == values.shape[0] * session.kv_heads * 3
    of_layers = open_session(
        atoms=lathe.KvAtoms(width, 3, numpy.tile(axes, (plain.layers, 2, 1, 1))))
    of_layers.feed(PROMPT)
    assert numpy.array_equal(of_layers.logits(), session.logits())
    assert open_session(atoms=lathe.KvAtoms(100)).kv_bytes == session.kv_bytes // 3 * 8
    more = numpy.tile(axes, (plain.layers + 1, 2, 1, 1))
    for wrong, words in ((lathe.KvAtoms(width, 3, more), "values were given"),
                         (lathe.KvAtoms(width, 3, 2 * axes), "atom 0 is 2 long")):
        with pytest.raises(lathe.Error, match=words):
            open_session(atoms=wrong)


def test_a_cache_of_atoms_has_counts_within_their_range():
    for count, terms, words in ((0, 3, "count is 1 to 65536, not 0"), (65537, 3, "count is 1 to"),
                                (-1, 3, "count is 1 to"), (64, 0, "terms is 1 to 64, not 0"),
                                (64, 65, "terms is 1 to"), (64, -1, "terms is 1 to")):
        with pytest.raises(ValueError, match=words):
            lathe.KvAtoms(count, terms)
    for count, terms, words in ((None, 3, "count is a whole number, not a NoneType"),
                                (2.0, 3, "count is a whole"), (64, None, "terms is a whole number")):
        with pytest.raises(TypeError, match=words):
            lathe.KvAtoms(count, terms)
    assert lathe.KvAtoms(65536, 64).terms == 64 and lathe.KvAtoms(numpy.int64(1), 1).count == 1


def test_atoms_of_another_kind_or_shape_are_refused(open_session):
    plain = open_session()
    width, layers = plain.head_dim, plain.layers
    axes = numpy.eye(width, dtype=numpy.float32)
    wide = numpy.zeros((width, 2 * width), numpy.float32)
    for error, words, values in (
            (TypeError, "values is no array, but a list", axes.tolist()),
            (TypeError, "values takes elements of type f4, not f8", axes.astype(numpy.float64)),
            (ValueError, "values is not contiguous", wide[:, ::2]),
            (ValueError, "values takes the shape", axes[:0]),
            (ValueError, "values takes the shape", axes[:-1]),
            (ValueError, "values takes the shape", axes.reshape(-1)),
            (ValueError, "values takes the shape", numpy.tile(axes, (2 * layers, 1, 1))),
            # As many values as those of all layers, and otherwise in order.
            (ValueError, "values takes the shape", numpy.tile(axes, (1, 2 * layers))),
            (ValueError, "values is empty", numpy.zeros((0, 2, width, width), numpy.float32))):
        with pytest.raises(error, match=words):
            open_session(atoms=lathe.KvAtoms(width, 3, values))
    for falsy in (0, (), False):
        with pytest.raises(TypeError, match="atoms takes KvAtoms, not a"):
            open_session(atoms=falsy)
    assert lathe.KvAtoms(width, 3, axes) != lathe.KvAtoms(width, 3, axes)  # by identity


def test_a_snapshot_is_returned_to(open_session):
    session = open_session()
    session.feed(PROMPT)
    snapshot = session.snapshot(2)
    assert (snapshot.tokens, snapshot.length) == (PROMPT[:2], 2) and snapshot.bytes > 0
    session.rollback(2)
    expected = session.generate(7, 8)
    session.reset()
    assert session.length == 0
    other = open_session(context=32)
    session.close()  # the snapshot is by itself
    other.restore(snapshot)
    assert other.generate(7, 8) == expected
    with pytest.raises(lathe.Error, match="KV cache in f16"):
        open_session(kv_format=lathe.KvFormat.F32).restore(snapshot)


def test_likeliest_and_allowed_tokens(open_session):
    session = open_session()
    session.feed(PROMPT)
    logits = session.logits()
    assert numpy.array_equal(session.read_logits(10, 20), logits[10:30])
    order = numpy.argsort(-logits, kind="stable")
    assert session.likeliest(5) == [(i, logits[i]) for i in order[:5]]
    some = [int(i) for i in order[9::7]]
    allowed = lathe.token_set(some, session.vocabulary)
    assert allowed.dtype == numpy.uint32 and len(allowed) == (session.vocabulary + 31) // 32
    assert [token for token, _ in session.likeliest(3, allowed)] == some[:3]
    assert session.likeliest_of(some[::-1]) == session.choose(allowed) == some[0]
    assert session.choose(None) == session.sampled
    none = lathe.token_set([], session.vocabulary)
    assert session.choose(none) == session.likeliest_of([]) == -1 and session.likeliest(3, none) == []
    with pytest.raises(ValueError, match="no words"):
        session.choose(none[:0])
    with pytest.raises(lathe.Error, match="words"):
        session.choose(none[:1])
    for other in (numpy.float32, numpy.int64, numpy.uint8):  # would be other sets
        with pytest.raises(TypeError):
            session.choose(allowed.astype(other))
        with pytest.raises(TypeError):
            session.likeliest(3, allowed.astype(other))
    with pytest.raises(lathe.Error, match="no 1000000000 logits"):
        session.read_logits(0, 10**9)
    with pytest.raises(ValueError, match="below 0"):
        session.read_logits(0, -1)
    with pytest.raises(IndexError):
        lathe.token_set([session.vocabulary], session.vocabulary)


def test_a_constraint_is_kept(open_session):
    session = open_session()
    even = lathe.token_set(range(0, session.vocabulary, 2), session.vocabulary)
    none = lathe.token_set([], session.vocabulary)
    seen = []

    def constraint(chosen):
        seen.append(list(chosen))
        return even if len(chosen) < 5 else none

    tokens = session.complete(PROMPT, 9, constraint=constraint)
    assert len(tokens) == 6 and tokens[5] == -1 and all(token % 2 == 0 for token in tokens[:5])
    assert seen == [tokens[:i] for i in range(6)]

    def refuse(chosen):
        raise KeyError(len(chosen))

    with pytest.raises(KeyError):
        session.generate(1, 4, constraint=refuse)
    with pytest.raises(ValueError, match="another size"):
        session.generate(1, 4, constraint=lambda chosen: even[:1])
    for wrong in (None, [1, 2], "set", even.astype(numpy.int64)):
        with pytest.raises(ValueError, match=r"what token_set\(\) makes"):
            session.generate(1, 4, constraint=lambda chosen, wrong=wrong: wrong)
    session.step(1)


def test_a_batch_says_what_it_needs(model_file):
    with pytest.raises(lathe.Error, match="cpu executor") as raised:
        lathe.Batch(lathe.Model(str(model_file)), executor=lathe.Executor.CPU)
    assert raised.value.status == lathe.Status.NOT_ELIGIBLE


# The tuning is looked at first, so that no GPU is needed to see it refused.
def test_a_batch_takes_a_tuning(model_file):
    for tuning, words in (("executr=graph", "'executr=graph' names no choice; nearest: executor"),
                          ("matvec.stages=no", "has no number above 0"),
                          ("executor=best", 'no executor "best"')):
        with pytest.raises(lathe.Error, match=words) as raised:
            lathe.Batch(lathe.Model(str(model_file)), executor=lathe.Executor.CPU, tuning=tuning)
        assert raised.value.status == lathe.Status.INVALID_ARGUMENT
    with pytest.raises(lathe.Error, match="no cpu executor"):
        lathe.Batch(lathe.Model(str(model_file)), executor=lathe.Executor.CPU,
                    tuning="executor=graph")


def test_a_batch_counts_its_pages(fusible_file):
    try:
        batch = lathe.Batch(lathe.Model(str(fusible_file)), sequences=2, rows=4, context=64,
                            kv_pages=3)
    except lathe.Error as error:
        if error.status not in (lathe.Status.NO_DRIVER, lathe.Status.NOT_FOUND):
            raise
        pytest.skip(error.message)
    with batch:
        a, b = batch.join(), batch.join()
        batch.feed(a, [1] * 30)
        assert (batch.kv_pages, batch.kv_pages_used) == (3, 2)
        with pytest.raises(lathe.Error, match="needs 2 more pages") as raised:
            batch.feed(b, [1] * 20)
        assert raised.value.status == lathe.Status.OUT_OF_MEMORY


def test_a_batch_decodes_what_each_would_alone(model_file, fusible_file):
    try:
        batch = lathe.Batch(lathe.Model(str(fusible_file)), sequences=2, rows=4, context=64,
                            tuning="executor=eager")
    except lathe.Error as error:
        if error.status not in (lathe.Status.NO_DRIVER, lathe.Status.NOT_FOUND):
            raise
        pytest.skip(error.message)
    with pytest.raises(lathe.Error, match="No batches") as raised:
        lathe.Batch(lathe.Model(str(model_file)))
    assert raised.value.status == lathe.Status.NOT_ELIGIBLE
    with batch:
        assert batch.choices[0] == ("executor", "eager", "as it was set")
        a, b = batch.join(), batch.join()
        batch.feed(a, PROMPT)
        batch.copy(a, b, 3)
        tokens = [7, 7]
        for _ in range(4):
            tokens = batch.step([(a, tokens[0]), (b, tokens[1])])
        assert tokens[0] == tokens[1]
        assert batch.length(a) == 7 and batch.tokens(b) == batch.tokens(a)
        snapshot = batch.snapshot(a, 3)
        batch.leave(b)
        c = batch.join()
        batch.restore(c, snapshot)
        expected = batch.tokens(a)[4:]
        found, counts = batch.generate(c, 7, len(expected))
        assert found == expected and counts.steps + counts.accepted == len(expected)
        assert batch.read_kv(c, KEYS, 0, 0, 3).shape == (3, batch.kv_heads, batch.head_dim)
        with pytest.raises(ValueError, match="sequence of tokens"):
            batch.generate(c, 1, 4, drafter=lambda tokens, most: "draft")
        for wrong in ({"count": -1}, {"count": 10**9}, {"most": 0}, {"longest": 0}):
            with pytest.raises(ValueError):
                batch.generate(c, 1, **{"count": 4, **wrong})
        with pytest.raises(ValueError, match="repeat_last"):
            batch.join(repeat_last=0)
        assert tiny_model.VOCABULARY == len(batch.logits(0))
