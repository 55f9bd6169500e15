"""Checks the answers of a backend: an answer of a wrong type is a BackendFault."""

from __future__ import annotations

from typing import TypeVar

from metaclient.errors import BackendFault

__all__ = ["expect", "wrong"]

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
