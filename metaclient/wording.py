"""Words for messages: a number with its noun, in the singular or the plural."""

from __future__ import annotations

__all__ = ["counted"]


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return the count with its noun; ``plural`` is for nouns whose plural is not formed with an s.

    >>> counted(1, "row"), counted(0, "row"), counted(2, "copy", "copies")
    ('1 row', '0 rows', '2 copies')
    """
    return f"{count} {noun if count == 1 else plural or noun + 's'}"
