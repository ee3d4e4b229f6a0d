"""Owns decoding of several sequences of a model at once."""

import operator
from types import TracebackType
from typing import (Any, Callable, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple,
                    Type)

from lathe import _lathe
from lathe.arrays import addresses_of, current_device
from lathe.kernels import Device
from lathe.progress import Progress, progress_call
from lathe.sessions import Cancel, chunk_number, limit_milliseconds, session_stream

# Given the tokens of a sequence, up to so many that may follow.
Drafter = Callable[[List[int], int], Sequence[int]]


class DraftCounts(NamedTuple):
    """Of a run with drafts."""

    steps: int
    drafted: int
    accepted: int


class Batch(_lathe.Batch):
    """Sequences that join and leave as they please, on a GPU: docs/batches.md. One thread at a time."""

    def __init__(self, model: _lathe.Model, *, sequences: int = 8, rows: int = 32,
                 kv_pages: int = 0,
                 executor: _lathe.Executor = _lathe.Executor.AUTO,
                 kv_format: _lathe.KvFormat = _lathe.KvFormat.F16, context: int = 0,
                 chunk: Optional[int] = None, wait_limit: Optional[float] = None,
                 device: Optional[Device] = None, stream: Any = None,
                 weights: Optional[Mapping[str, Any]] = None, progress: Progress = None,
                 cancel: Optional[Cancel] = None, tuning: str = ""):
        """Plans, builds, loads and uploads; waits for the end.

        sequences: that can be there at once. rows: tokens of a step at most, up to 32. context:
        positions of each sequence. kv_pages: above 0, the KV cache is so many pages of 16 positions,
        which sequences get as they grow and give back. executor: EAGER, GRAPH or AUTO. The others are a
        Session's."""
        if device is None and executor != _lathe.Executor.CPU:
            device = Device(current_device())
        arrays = dict(weights or {})  # kept as they are now: the mapping may lose them meanwhile
        with progress_call(progress) as told:
            super().__init__(model, sequences, rows, kv_pages, executor, kv_format, context,
                             chunk_number(chunk), limit_milliseconds(wait_limit), device,
                             session_stream(stream), told, cancel, addresses_of(arrays, device),
                             arrays, tuning)

    def __enter__(self) -> "Batch":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()

    def join(self, temperature: float = 0.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0,
             repeat_penalty: float = 1.0, repeat_last: int = 64, seed: int = 0) -> int:
        """The number of a new sequence, whose tokens are chosen so (docs/sampling.md)."""
        return super().join(temperature, top_k, top_p, min_p, repeat_penalty, repeat_last, seed)

    def feed(self, sequence: int, tokens: Iterable[int]) -> None:
        """Takes tokens without choosing any: all of a prompt but its last."""
        super().feed(sequence, [operator.index(token) for token in tokens])

    def step(self, rows: Sequence[Tuple[int, int]]) -> List[int]:
        """Takes pairs of a sequence and its next token; what was chosen after each."""
        return super().step([(operator.index(s), operator.index(t)) for s, t in rows])

    def generate(self, sequence: int, token: int, count: int, *, most: int = 7, longest: int = 4,
                 paths: int = 1,
                 drafter: Optional[Drafter] = None) -> Tuple[List[int], DraftCounts]:
        """Decodes `token` and then, each time, the token that was chosen, with drafts: up to `most` in
        a step, from the drafter or, without one, what followed up to `longest` last tokens before.

        paths: above 1, trees of the ways that the text went on before, without a drafter; each path
        but the first takes a free sequence for the time of the call."""
        tokens, counts = self.generate_with_drafts(sequence, operator.index(token), count, most,
                                                   longest, paths, drafter)
        return tokens, DraftCounts(*counts)
