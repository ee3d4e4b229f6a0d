"""Owns the progress of long operations: a bar on stderr, or a function of the caller's."""

import contextlib
import sys
import time
from typing import Callable, Iterator, Optional, TextIO, Union

Told = Callable[[str, int, int], object]
# True: a bar on stderr. A function is told (what, done, total). None, False: nothing.
Progress = Union[None, bool, Told]

WIDTH = 30
BETWEEN_DRAWINGS = 0.1  # seconds


class ProgressBar:
    """One line that is drawn over and over on a terminal, and once per operation elsewhere."""

    def __init__(self, file: Optional[TextIO] = None):
        self._file = sys.stderr if file is None else file
        self._live = self._file.isatty()
        self._what = ""
        self._begin = self._drawn = 0.0

    def __call__(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if what != self._what:
            self.close()
            self._what, self._begin, self._drawn = what, now, 0.0
        if self._live and (done >= total or now - self._drawn >= BETWEEN_DRAWINGS):
            self._drawn = now
            share = done / total if total > 0 else 1.0
            full = round(WIDTH * share)
            self._file.write(f"\r{what} [{'#' * full}{' ' * (WIDTH - full)}] {share:4.0%}")
            self._file.flush()

    def close(self) -> None:
        """Ends the line, with the time that the operation took."""
        if self._what:
            seconds = time.monotonic() - self._begin
            start = "\r\033[K" if self._live else ""
            self._file.write(f"{start}{self._what}: {seconds:.1f} s\n")
            self._file.flush()
            self._what = ""


@contextlib.contextmanager
def progress_call(progress: Progress) -> Iterator[Optional[Told]]:
    """What to tell, of what the caller asked for."""
    if progress is True:
        bar = ProgressBar()
        try:
            yield bar
        finally:
            bar.close()
    else:
        yield progress or None
