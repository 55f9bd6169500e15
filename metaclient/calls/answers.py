"""Checks the answers of a backend: an answer of a wrong type is a BackendFault. Returns the age that they state."""

from __future__ import annotations

from typing import TypeVar

from metaclient.backend import CellPage, ScanPage
from metaclient.errors import BackendFault
from metaclient.model import Result

__all__ = ["expect", "lag_of", "wrong"]

T = TypeVar("T")


def expect(kind: type[T], value: object, *, is_write: bool = False) -> T:
    """Return the value if it is a ``kind``; raise BackendFault otherwise."""
    if isinstance(value, kind):
        return value
    raise wrong(kind, value, is_write=is_write)


def wrong(kind: type, value: object, *, is_write: bool = False) -> BackendFault:
    """Return the error of an answer that is not a ``kind``."""
    text = f"the backend answered {type(value).__name__} where {kind.__name__} belongs"
    return BackendFault(text, may_have_applied=is_write)


def lag_of(answer: object) -> float | None:
    """Return the upper bound of the age of a replica's answer (see ``Row.lag_s``); None if it states none."""
    return answer.lag_s if isinstance(answer, Result | ScanPage | CellPage) else None
