"""Recognises by the first bytes of an answer what a server speaks that is not the Thrift gateway of the url."""

from __future__ import annotations

__all__ = ["unknown_reply"]


def unknown_reply(first: bytes) -> str:
    """Return a sentence about an answer that begins so."""
    return f"the answer is no Thrift message: it begins with {first[:16]!r}"
