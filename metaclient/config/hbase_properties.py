"""Decides from the name of a property whether it is known to HBase, misspelt, or the property of another program.

``hbase_properties.txt`` holds the names that HBase itself reads. ``metaclient.config`` and the backends apply the table
below to every name that has no effect on them; docs/configuration.md has the same table for users.

======================================================  ======================  =====================
a name without an effect                                given in a mapping      read from a file
======================================================  ======================  =====================
``metaclient.*``                                        refused                 refused
``hbase.client.*`` and the like, unknown to HBase       refused                 warning, then ignored
any other, unknown to HBase and near a known one        refused                 warning, then ignored
a client property of HBase                              warning                 warning
a server property of HBase that the backend ignores     warning                 DEBUG
``hbase.*`` or ``zookeeper.*``, near nothing known      warning                 DEBUG
any other: the property of another program              DEBUG                   DEBUG
======================================================  ======================  =====================

A refusal is a ``ConfigError`` with the nearest known name. A warning is a Python warning of the category
``ConfigWarning``, attributed to the line that called this product: Python's default filter shows it once per line and
name, and ``warnings.simplefilter("error", metaclient.ConfigWarning)`` makes it an exception.
"""

from __future__ import annotations

import difflib
import enum
import inspect
import logging
import re
import warnings
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from metaclient.config.refusals import cut
from metaclient.errors import ConfigError, ConfigWarning

__all__ = [
    "CLIENT_PREFIXES",
    "MAPPING",
    "NameKind",
    "Properties",
    "Property",
    "hbase_names",
    "is_from_file",
    "kind_of",
    "nearest_name",
    "refuse_or_warn",
    "source_of",
    "warn",
    "warn_unread",
]

_LOGGER = logging.getLogger(__name__)
#: The source of a property that was given in Python; any other source is a file and a line.
MAPPING: Final = "mapping"
#: The prefixes of HBase's client properties and of metaclient's. Other names belong to servers, tools, other programs.
CLIENT_PREFIXES: Final = ("hbase.client.", "hbase.locator.", "hbase.rpc.", "hbase.ipc.client.", "metaclient.")
_OUR_PACKAGES: Final = re.compile(r"(metaclient(_\w+)?|spark_connector)(\.|$)")
_FIRST_WORDS: Final = ("hbase", "zookeeper", "metaclient")
#: The least ``difflib`` ratio at which a name counts as misspelt. 0.85 finds two wrong letters in the shortest name
#: (hbase.masters), and does not match names that share two words and differ in the last one.
LIKENESS: Final = 0.85
_LIKENESS_OF_FIRST_WORD: Final = 0.6
#: Only this many characters of a name are compared: the time of ``difflib`` grows with the square of the length.
_NAME_CHARS_MAX: Final = 200
_NAMES_FILE: Final = Path(__file__).with_name("hbase_properties.txt")
#: From the design of HBASE-18070, early patches and guides. No release of HBase reads them; metaclient does.
_NEVER_RELEASED: Final = (
    "hbase.client.primaryCallTimeout.scan",
    "hbase.meta.replicas.mode",
    "hbase.region.meta.replica.replication.enabled",
)


class NameKind(enum.Enum):
    """The kind of a property name, whether it has an effect here or not."""

    HBASE = "known to HBase"
    MISSPELT = "unknown, and near a known name"
    STRANGE = "starts like a name of HBase, and is near none of them"
    FOREIGN = "of another program"


class Property(NamedTuple):
    """One property: its name, its text and its source."""

    name: str
    text: str
    source: str  # file:line, or MAPPING


class Properties(Mapping[str, str]):
    """The properties that ``Config`` has checked, as text, with the source of each; can be pickled and hashed.

    Two of them are equal if names and texts are equal, whatever their sources.
    """

    __slots__ = ("_items", "_sources")

    def __init__(self, items: Mapping[str, str], sources: Mapping[str, str] | None = None) -> None:
        self._items = dict(items)
        self._sources = dict(sources or {})

    def __getitem__(self, name: str) -> str:
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))

    def __repr__(self) -> str:
        return f"<{len(self)} properties>"  # site files hold passwords, and a repr may be logged

    def source(self, name: str) -> str:
        """Return the source of a property: ``file:line``, or ``mapping``."""
        return self._sources.get(name, MAPPING)


def source_of(properties: Mapping[str, object], name: str) -> str:
    """Return the source of a property: ``file:line``, or ``mapping`` if it was given in Python."""
    return properties.source(name) if isinstance(properties, Properties) else MAPPING


def is_from_file(source: str) -> bool:
    """Return True unless the source is a mapping that was given in Python."""
    return source != MAPPING


@cache
def hbase_names() -> frozenset[str]:
    """Return the names that HBase reads, without the prefixes after which any name may follow."""
    return frozenset(name for name in _lines() if not name.endswith(".")) | frozenset(_NEVER_RELEASED)


@cache
def _prefixes() -> tuple[str, ...]:
    return tuple(name for name in _lines() if name.endswith("."))


def _lines() -> list[str]:
    lines = _NAMES_FILE.read_text(encoding="ascii").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def kind_of(name: str) -> tuple[NameKind, str | None]:
    """Return the kind of a name, and the nearest known name if it is misspelt.

    >>> kind_of("hbase.regionserver.handler.count")[0], kind_of("dfs.replication")[0]
    (<NameKind.HBASE: 'known to HBase'>, <NameKind.FOREIGN: 'of another program'>)
    >>> kind_of("hbase.meta.replica.cuont")[1]
    'hbase.meta.replica.count'
    """
    if name in hbase_names():
        return NameKind.HBASE, None
    first = name[:_NAME_CHARS_MAX].partition(".")[0]
    if not difflib.get_close_matches(first, _FIRST_WORDS, n=1, cutoff=_LIKENESS_OF_FIRST_WORD):
        return NameKind.FOREIGN, None
    for prefix in _prefixes():
        if name.startswith(prefix) and name != prefix:
            return _kind_below(prefix, name)
    near = nearest_name(name, hbase_names(), LIKENESS)
    return (NameKind.MISSPELT, near) if near else (NameKind.STRANGE, None)


def _kind_below(prefix: str, name: str) -> tuple[NameKind, str | None]:
    """Return the kind of a name under a prefix, which any name may follow unless it is near a name that HBase reads."""
    known = [each.removeprefix(prefix) for each in hbase_names() if each.startswith(prefix)]
    near = nearest_name(name.removeprefix(prefix), known, LIKENESS)
    return (NameKind.MISSPELT, prefix + near) if near else (NameKind.HBASE, None)


def nearest_name(name: str, known: Collection[str], likeness: float = 0.6) -> str | None:
    """Return the known name that is most similar to this name, or None if no known name is similar."""
    near = difflib.get_close_matches(name[:_NAME_CHARS_MAX], known, n=1, cutoff=likeness)
    return near[0] if near else None


def refuse_or_warn(name: str, source: str, near: str | None) -> None:
    """Raise ``ConfigError`` for an unknown name in a mapping; warn if it is in a file, which other programs share."""
    advice = f"did you mean {near}?" if near else "nothing known is near; remove it"
    message = f"{cut(name)} ({source}): no such property; {advice}"
    if not is_from_file(source):
        raise ConfigError(message)
    warn(f"{message} It is ignored", ConfigWarning)


def warn_unread(properties: Mapping[str, str], reads: Collection[str], reader: str) -> None:
    """Warn of each server property that was given in Python and that ``reader``, the backend, does not read.

    ``Config`` has checked the client properties already. A file is shared with servers, so it gives no warning.
    """
    for name in properties:
        if name in reads or name.startswith(CLIENT_PREFIXES) or kind_of(name)[0] is not NameKind.HBASE:
            continue
        if is_from_file(source_of(properties, name)):
            _LOGGER.debug("%s (%s) has no effect on %s", name, source_of(properties, name), reader)
        else:
            warn(f"{name} ({MAPPING}) has no effect: {reader} does not read it", ConfigWarning)


def warn(message: str, category: type[Warning]) -> None:
    """Warn at the line that called metaclient: Python hides a DeprecationWarning that is attributed to a library."""
    frame, level = inspect.currentframe(), 1
    while frame and _OUR_PACKAGES.match(frame.f_globals.get("__name__", "")):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
