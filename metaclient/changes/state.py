"""Stores what a subscription has committed, over restarts: in a file, or in a store of the caller.

The data is JSON: ``{"version": 1, "name": NAME, "regions": {REGION: [[FIRST, LAST], ...]}}``. It is saved at most once
per second, before an answer to HBase, and when the feed is closed. Changes that were committed after the last save may
be delivered again after a crash.
"""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from metaclient.changes.repeats import Repeats
from metaclient.changes.spool.disk import replace_file
from metaclient.errors import ConfigError

__all__ = ["FileState", "StateLike", "StateStore", "dump_state", "load_state", "store_of"]

_VERSION = 1


class StateStore(Protocol):
    """Keeps the state of one worker of one subscription, for example in the caller's database."""

    def load(self) -> bytes | None:
        """Return what was saved last; None at first."""
        ...

    def save(self, data: bytes) -> None:
        """Replace what was saved, atomically. An error ends the iteration of the feed."""
        ...


StateLike: TypeAlias = StateStore | str | PathLike[str] | None


class FileState:
    """A file, which is replaced as a whole: after a crash it has the old or the new content."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self._path = Path(path)

    def __repr__(self) -> str:
        return f"FileState({str(self._path)!r})"

    def load(self) -> bytes | None:
        try:
            return self._path.read_bytes()
        except FileNotFoundError as error:
            if self._path.parent.is_dir():
                return None
            raise ConfigError(
                f"the state file {self._path} cannot be written: there is no folder {self._path.parent}; make it first"
            ) from error
        except OSError as error:
            raise ConfigError(f"the state file {self._path} cannot be read: {error}") from error

    def save(self, data: bytes) -> None:
        try:
            replace_file(self._path, data)
        except OSError as error:
            raise ConfigError(
                f"the state file {self._path} cannot be written: {error}; state= is a file in a folder that exists"
            ) from error


def store_of(state: StateLike) -> StateStore | None:
    """Return the store for the argument ``state``; a path is a file."""
    if state is None or (hasattr(state, "load") and hasattr(state, "save")):
        return state  # type: ignore[return-value]  # its two methods were looked for
    if isinstance(state, str | PathLike):
        return FileState(state)
    raise TypeError(f"'state' must be the path of a file, or an object with load() and save(), got {state!r}")


def dump_state(name: str, repeats: Repeats) -> bytes:
    document = {"version": _VERSION, "name": name, "regions": repeats.dump()}
    return json.dumps(document, separators=(",", ":")).encode()


def load_state(name: str, data: bytes | None, repeats: Repeats) -> None:
    """Fill ``repeats`` from saved data; ConfigError if it is not the state of this subscription."""
    if not data:
        return
    try:
        document: Any = json.loads(data)
        if document["version"] != _VERSION:
            raise ValueError(f"its version is {document['version']!r}, and this program reads {_VERSION}")
        if document["name"] != name:
            raise ValueError(f"it belongs to the subscription {document['name']!r}")
        repeats.load(document["regions"].items())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"the saved state is not that of the subscription {name!r}: {error}; give each subscription and each "
            "worker a state of its own, or remove this one (changes may then be delivered again)"
        ) from error
