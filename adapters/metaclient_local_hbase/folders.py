"""The folder of a local cluster: private to its user, emptied only if a marker file shows that this package made it.

A user may name any folder. What is in it may be deleted only if this package put it there, so :func:`claim_folder`
writes a marker into a folder that is new or empty, and refuses every other folder that has none.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from metaclient.errors import ConfigError

__all__ = ["MARKER", "claim_folder", "is_claimed", "remove_below"]

MARKER = ".metaclient-local-hbase"
_PRIVATE = 0o700
_TEXT = "This folder belongs to a local HBase that metaclient started. Everything in it may be deleted.\n"


def claim_folder(folder: Path) -> None:
    """Make the folder private to this user and write the marker; ConfigError if it holds other files."""
    folder.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise ConfigError(f"cannot start a local HBase in {folder}: it belongs to another user; name another folder")
    if not is_claimed(folder) and any(folder.iterdir()):
        raise ConfigError(
            f"cannot start a local HBase in {folder}: it holds files that no local HBase wrote, and starting one "
            "deletes data there; name a new or empty folder"
        )
    folder.chmod(_PRIVATE)
    (folder / MARKER).write_text(_TEXT, encoding="utf-8")


def is_claimed(folder: Path) -> bool:
    """True if :func:`claim_folder` marked this folder."""
    return (folder / MARKER).is_file()


def remove_below(folder: Path, name: str) -> None:
    """Delete ``folder/name`` with its content, if the folder has the marker; do nothing otherwise."""
    if is_claimed(folder):
        shutil.rmtree(folder / name, ignore_errors=True)
