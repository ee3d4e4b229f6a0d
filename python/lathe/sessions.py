"""Owns decoding: a model on a device, one token after the other."""

import dataclasses
import math
import numbers
import operator
from types import TracebackType
from typing import Any, Callable, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, Type

from lathe import _lathe
from lathe.arrays import addresses_of, current_device, current_stream, host_floats, stream_handle
from lathe.kernels import Device
from lathe.progress import Progress, progress_call

# Given the tokens that a run has chosen so far, those that may come next: what token_set() makes.
Constraint = Callable[[List[int]], object]

# Whether to end early: asked again and again.
Cancel = Callable[[], object]

LEGACY_STREAM = 1  # CU_STREAM_LEGACY, for 0 would be a stream of the session's own
TOKENS_AT_ONCE = 8  # of stream(): what is decoded ahead of the caller
# Of a KV cache of atoms, as lathe/c/engine.h has them.
MOST_ATOMS, MOST_TERMS = 65536, 64


@dataclasses.dataclass(frozen=True, eq=False)
class KvAtoms:
    """A KV cache that keeps each key and each value of a head as a sum of atoms (docs/services.md).

    count: of a table, 1 to 65536. terms: atoms of a sum, 1 to 64. values: atoms that are 1 long, a
    contiguous array of f32 on the host, of the shape (count, head_dim), or (layers, 2, count, head_dim):
    those of each layer's keys and values. It is read while a session is opened. None is the axes, then
    random directions, which know nothing of the model."""

    count: int
    terms: int = 8
    values: Any = None

    def __post_init__(self) -> None:
        for name, number, most in (("count", self.count, MOST_ATOMS), ("terms", self.terms, MOST_TERMS)):
            if not isinstance(number, numbers.Integral):
                raise TypeError(f"{name} is a whole number, not a {type(number).__name__}.")
            if not 1 <= number <= most:
                raise ValueError(f"{name} is 1 to {most}, not {number}.")


class Session(_lathe.Session):
    """One sequence at batch 1. One thread at a time; different sessions are independent."""

    def __init__(self, model: _lathe.Model, *, executor: _lathe.Executor = _lathe.Executor.AUTO,
                 fusion: _lathe.Fusion = _lathe.Fusion.AUTOMATIC,
                 kv_format: _lathe.KvFormat = _lathe.KvFormat.F16, context: int = 0,
                 attention_splits: int = 0, threads: int = 0, chunk: Optional[int] = None,
                 wait_limit: Optional[float] = None, device: Optional[Device] = None,
                 stream: Any = None, weights: Optional[Mapping[str, Any]] = None,
                 part: Optional[_lathe.Part] = None, parity: float = 0.0, time_steps: bool = False,
                 progress: Progress = None, cancel: Optional[Cancel] = None, tuning: str = "",
                 atoms: Optional[KvAtoms] = None):
        """Plans, builds, loads and uploads; waits for the end.

        context: positions of the KV cache; 0 is the model's, at most 4096. threads: of the cpu
        executor; 0 is all cores. device: whose kernels it shares; None is a device of its own in the
        primary context. stream: None is a stream of its own; "current" the one that PyTorch or CuPy
        use now. progress: True for a bar on stderr, or a function. cancel: asked after each kernel and
        each weight; yes ends the opening with Status.CANCELLED.

        chunk: tokens of a prompt read at once, None is 512, 0 one by one. wait_limit: seconds that the
        GPU may choose no token before it counts as hung; None is LATHE_WAIT_LIMIT or five minutes.
        weights: by tensor, arrays on the device that have its bytes as the file does: nothing is
        uploaded for them (docs/embedding.md).

        part: None is the whole model (docs/parts.md). parity: above 0 the least cosine of what comes
        out of it and of the cpu executor for a few tokens; else it is refused. time_steps:
        step_times() has times, of the executors EAGER and CPU. tuning: what is set in place of a
        choice, as "executor=graph,gemv.warps=4" (docs/tuning.md); choices says what was taken.
        atoms: in place of kv_format, of the executors EAGER, GRAPH and CPU."""
        handle = session_stream(stream)
        if device is None and executor != _lathe.Executor.CPU:
            device = Device(current_device())
        arrays = dict(weights or {})  # kept as they are now: the mapping may lose them meanwhile
        with progress_call(progress) as told:
            super().__init__(model, executor, fusion, kv_format, context, attention_splits, threads,
                             chunk_number(chunk), limit_milliseconds(wait_limit), device, handle,
                             part, parity, time_steps, told, cancel,
                             addresses_of(arrays, device), arrays, tuning,
                             None if atoms is None else atoms_given(atoms, model.head_dim))

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()

    def feed(self, tokens: Iterable[int]) -> None:
        """Steps through the tokens of a prompt. All are checked before the first is decoded."""
        super().feed([operator.index(token) for token in tokens])

    def generate(self, token: int, count: int, stops: Sequence[int] = (),
                 listener: Optional[Callable[[int], object]] = None, progress: Progress = None, *,
                 constraint: Optional[Constraint] = None,
                 cancel: Optional[Cancel] = None) -> List[int]:
        """Decodes `token` and then, each time, the token that was chosen: up to `count`, or the first
        of `stops`. `listener` is told of each as it comes, and ends the run by returning False.
        Ctrl-C, and what the listener raises, end it too.

        constraint: asked before each choice for the tokens that are allowed (docs/services.md). A -1
        is the last token: nothing was. cancel: asked every few tokens; after a yes no more are decoded,
        and those that were chosen are the run."""
        with progress_call(progress) as told:
            return super().generate(operator.index(token), count, [*map(operator.index, stops)],
                                    _listener(listener, told, count), constraint=constraint,
                                    cancel=cancel)

    def stream(self, token: int, count: int, stops: Sequence[int] = ()) -> Iterator[int]:
        """The same, token by token. Left early, the session is where the last token came from: that
        token is the next to be decoded."""
        _check_count(count)
        left = count
        while left > 0:
            begin = self.length
            tokens = self.generate(token, min(left, TOKENS_AT_ONCE), stops)
            for number, token in enumerate(tokens, 1):
                try:
                    yield token
                except GeneratorExit:
                    if not self.closed:
                        self.rollback(begin + number)
                    raise
            if self.length != begin + len(tokens):
                raise RuntimeError("The session was used while its stream was being read.")
            left -= len(tokens)
            if not tokens or token in stops:
                return

    def complete(self, prompt: Sequence[int], count: int, stops: Sequence[int] = (),
                 listener: Optional[Callable[[int], object]] = None, progress: Progress = None, *,
                 constraint: Optional[Constraint] = None,
                 cancel: Optional[Cancel] = None) -> List[int]:
        """Feeds a prompt of at least one token, and generates what follows it."""
        if len(prompt) == 0:
            raise ValueError("The prompt is empty.")
        _check_count(count)
        self.feed(prompt[:-1])
        return self.generate(prompt[-1], count, stops, listener, progress, constraint=constraint,
                             cancel=cancel)

    def set_sampling(self, temperature: float = 0.0, top_k: int = 0, top_p: float = 1.0,
                     min_p: float = 0.0, repeat_penalty: float = 1.0, repeat_last: int = 64,
                     seed: int = 0) -> None:
        """How the steps from the next one on choose a token: docs/sampling.md. Temperature 0 without
        a penalty is the likeliest one."""
        super().set_sampling(temperature, top_k, top_p, min_p, repeat_penalty, repeat_last, seed)


def session_stream(stream: Any) -> int:
    """What the library takes for it; 0 is a stream of its own."""
    if stream is None:
        return 0
    return (current_stream() if stream == "current" else stream_handle(stream)) or LEGACY_STREAM


def chunk_number(chunk: Optional[int]) -> int:
    """What the library takes for it: 0 is what is usual, -1 one by one."""
    if chunk is not None and chunk < 0:
        raise ValueError("A chunk cannot have fewer than 0 tokens.")
    return 0 if chunk is None else chunk or -1


def limit_milliseconds(seconds: Optional[float]) -> int:
    """What the library takes for it: 0 is what is usual, -1 for ever."""
    if seconds is None:
        return 0
    if not seconds > 0:
        raise ValueError("A wait limit is above 0; math.inf is for ever.")
    return -1 if math.isinf(seconds) else max(1, round(1000 * seconds))


def atoms_given(atoms: KvAtoms, head_dim: int) -> Tuple[int, int, int, int]:
    """What the library takes for it: count, terms, and of the values the address and how many there are.
    How many layers there are is checked by the library, which knows the part."""
    if not isinstance(atoms, KvAtoms):
        raise TypeError(f"atoms takes KvAtoms, not a {type(atoms).__name__}.")
    count, terms = operator.index(atoms.count), operator.index(atoms.terms)
    if atoms.values is None:
        return count, terms, 0, 0
    seen = host_floats(atoms.values, "values")
    table = count, head_dim
    if seen.shape != table and (len(seen.shape) != 4 or seen.shape[1:] != (2, *table)):
        raise ValueError(f"values takes the shape {table} or (layers, {', '.join(map(str, (2, *table)))}), "
                         f"not {seen.shape}.")
    if seen.bytes == 0:  # which the library would take for no values
        raise ValueError("values is empty.")
    return count, terms, seen.address, seen.bytes // 4


def _check_count(count: int) -> None:
    if count < 0:
        raise ValueError("A count cannot be below 0.")


def _listener(listener: Optional[Callable[[int], object]], told: Any,
              count: int) -> Optional[Callable[[int], object]]:
    """Both in one; None where there is neither."""
    if told is None:
        return listener
    done = 0

    def tell(token: int) -> Any:
        nonlocal done
        done += 1
        told("generating", done, count)
        return listener(token) if listener else None

    return tell
