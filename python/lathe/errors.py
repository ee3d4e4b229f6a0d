"""Owns the exception that every refused or failed call raises."""

import enum
from typing import Dict, Optional


class Status(enum.IntEnum):
    """What kind of failure it was; the numbers are lathe_status's."""

    OK = 0
    INVALID_ARGUMENT = 1
    UNSUPPORTED = 2
    NOT_FOUND = 3
    CORRUPT_FILE = 4
    IO = 5
    NO_DRIVER = 6
    DRIVER = 7
    COMPILE = 8
    OUT_OF_MEMORY = 9
    OUT_OF_RANGE = 10
    NOT_ELIGIBLE = 11
    INTERNAL = 12
    CANCELLED = 13


class Error(Exception):
    """One sentence that names the thing at fault, and what is known beside it."""

    def __init__(self, message: str, status: Status = Status.INTERNAL, driver_status: int = 0,
                 details: Optional[Dict[str, str]] = None):
        super().__init__(message, status, driver_status, details or {})
        self.message = message
        self.status = status
        self.driver_status = driver_status  # the driver's CUresult, where a driver call failed
        self.details = details or {}  # "key", "target", "log", "hint" ...

    @property
    def key(self) -> Optional[str]:
        """The kernel at fault."""
        return self.details.get("key")

    @property
    def hint(self) -> Optional[str]:
        """What would help."""
        return self.details.get("hint")

    def __str__(self) -> str:
        return "\n".join([self.message, *(f"  {name}: {text}" for name, text in self.details.items())])
