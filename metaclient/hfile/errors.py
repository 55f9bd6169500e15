"""The error of a store file that is malformed, and the refusal of features that this package cannot read."""

from __future__ import annotations

from metaclient.errors import BackendFault, Unsupported

__all__ = ["CorruptFile", "FileMissing", "refuse"]


class CorruptFile(BackendFault):
    """A file that is no HFile, a torn one, or a manifest that cannot be read; the text has the path and the offset."""


class FileMissing(BackendFault):
    """A file that is needed is in none of the places where HBase may keep it."""


def refuse(where: str, feature: str, advice: str) -> Unsupported:
    """Return the error of a file with a feature that cannot be read here.

    >>> str(refuse("file x", "is encrypted", "read the table through its servers"))
    'file x is encrypted, which is not supported: read the table through its servers'
    """
    return Unsupported(f"{where} {feature}, which is not supported: {advice}")
