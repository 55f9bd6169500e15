"""The functions of the shell, with the names that they have in HBase's shell.

Names, rows and values are text, which is encoded as UTF-8, or bytes. Values that are read are bytes. A function that
changes something prints what it did and returns None; the others return a value that Python code can use, and the
shell shows it as a table.
"""

from __future__ import annotations

import builtins
import inspect
import pydoc
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import click

from metaclient import __version__, filters
from metaclient.arguments import FilterLike
from metaclient.cli.session import to_text
from metaclient.connection import Connection
from metaclient.keys import printable
from metaclient.meta.health_tracker import MetaReplicaStatus
from metaclient.model import RegionLocation, Row, TableDescriptor
from metaclient.wording import counted

__all__ = ["Names", "ShownScan", "Verbs"]

Text = bytes | str
#: The rows of a scan without a limit that the shell shows; iterating over the scan returns all rows.
ROWS_SHOWN = 100


class Names(builtins.list[str]):
    """A list of names that the shell shows as a table with one column."""

    def __init__(self, names: Sequence[str], column: str) -> None:
        super().__init__(names)
        self.column = column


class ShownScan:
    """The rows of a scan: an iterable of (row key, row), which reads the cluster each time that it is iterated."""

    def __init__(
        self, read: Callable[[int | None], Iterator[tuple[bytes, Row[Any]]]], table: str, limit: int | None
    ) -> None:
        self._read = read
        self.table = table
        self.limit = limit

    def __iter__(self) -> Iterator[tuple[bytes, Row[Any]]]:
        return self._read(self.limit)

    def shown(self) -> tuple[builtins.list[tuple[bytes, Row[Any]]], bool]:
        """Return the rows that the shell shows, and whether there are more."""
        if self.limit is not None:
            return builtins.list(self), False
        rows = builtins.list(self._read(ROWS_SHOWN + 1))
        return rows[:ROWS_SHOWN], len(rows) > ROWS_SHOWN


class Verbs:
    """The functions of one shell. Each public method is one; a trailing underscore of its name is not part of it.

    It has more than 30 methods because each verb of HBase's shell is one, most of them of a few lines.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def _table_names(self) -> builtins.list[str]:
        return [to_text(name) for name in self._connection.tables()]

    # -- the cluster

    def status(self) -> builtins.list[MetaReplicaStatus]:
        """Return the replicas of hbase:meta with their servers, states and lookups."""
        return self._connection.meta_replicas()

    def version(self) -> str:
        """Return the versions of HBase, if the backend reports it, and of this client."""
        hbase = self._connection.hbase_version()
        return f"HBase {hbase or '(not reported by this backend)'}, metaclient {__version__}"

    def whoami(self) -> str:
        """Return the user that the cluster takes this client for, and how it was authenticated."""
        identity = self._connection.whoami()
        return f"{identity.username} ({identity.method})"

    # -- tables

    def list_(self, pattern: object = "") -> Any:
        """Return the names of the tables that match a regular expression; ``list([1, 2])`` is Python's own list."""
        if not isinstance(pattern, str):
            return builtins.list(pattern)  # type: ignore[call-overload]  # Python's list raises TypeError
        return Names([name for name in self._table_names() if re.search(pattern, name)], "table")

    def create(
        self,
        table: Text,
        *families: Text | Mapping[str, Mapping[str, Any]],
        splits: Sequence[Text] = (),
        replicas: int = 1,
    ) -> None:
        """Create a table: ``create("t", "cf")``, ``create("t", {"cf": {"max_versions": 5}}, splits=["g", "p"])``."""
        made: dict[str, Mapping[str, Any]] = {}
        for family in families:
            made |= family if isinstance(family, Mapping) else {_text(family): {}}
        self._connection.create_table(table, made, splits=splits or None, region_replication=replicas)
        _say(f"{_text(table)} created with {counted(len(splits) + 1, 'region')}")

    def describe(self, table: Text) -> TableDescriptor:
        """Return the settings of a table and of its families."""
        return self._connection.describe_table(table)

    def alter(
        self,
        table: Text,
        families: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        drop: Sequence[Text] = (),
        replicas: int | None = None,
    ) -> None:
        """Change settings of a table: ``alter("t", {"cf": {"max_versions": 5}})``, ``alter("t", replicas=3)``."""
        self._connection.alter_table(table, families, drop_families=drop, region_replication=replicas)
        _say(f"{_text(table)} altered")

    def exists(self, table: Text) -> bool:
        """Return True if there is such a table."""
        return _text(table) in self._table_names()

    def is_enabled(self, table: Text) -> bool:
        """Return True if the table is enabled."""
        return self._connection.is_table_enabled(table)

    def is_disabled(self, table: Text) -> bool:
        """Return True if the table is disabled."""
        return not self._connection.is_table_enabled(table)

    def enable(self, table: Text) -> None:
        """Enable a table."""
        self._connection.enable_table(table)
        _say(f"{_text(table)} enabled")

    def disable(self, table: Text) -> None:
        """Disable a table, which closes its regions."""
        self._connection.disable_table(table)
        _say(f"{_text(table)} disabled")

    def drop(self, table: Text) -> None:
        """Delete a table with its data; it must be disabled."""
        self._connection.delete_table(table)
        _say(f"{_text(table)} dropped")

    def truncate(self, table: Text, *, preserve_splits: bool = True) -> None:
        """Delete all rows of a table; its settings stay."""
        self._connection.truncate_table(table, preserve_splits=preserve_splits)
        _say(f"{_text(table)} truncated")

    def list_regions(self, table: Text) -> builtins.list[RegionLocation]:
        """Return the regions of a table and their replicas, with their servers."""
        return [location for entry in self._connection.regions(table) for location in entry.placed()]

    def locate_region(self, table: Text, row: Text) -> RegionLocation:
        """Return the region of a row, and its server."""
        return self._connection.locate(table, row)

    def get_splits(self, table: Text) -> builtins.list[bytes]:
        """Return the row keys at which the regions of a table begin, without the first."""
        return [one.region.start_key for one in self.list_regions(table) if one.replica_id == 0][1:]

    # -- namespaces

    def list_namespace(self) -> Names:
        """Return the names of the namespaces."""
        return Names(self._connection.namespaces(), "namespace")

    def list_namespace_tables(self, namespace: str) -> Names:
        """Return the tables of a namespace."""
        names = [name if ":" in name else f"default:{name}" for name in self._table_names()]
        return Names([name.partition(":")[2] for name in names if name.startswith(f"{namespace}:")], "table")

    def create_namespace(self, namespace: str) -> None:
        """Create a namespace."""
        self._connection.create_namespace(namespace)
        _say(f"namespace {namespace} created")

    def drop_namespace(self, namespace: str) -> None:
        """Delete a namespace, which must have no tables."""
        self._connection.delete_namespace(namespace)
        _say(f"namespace {namespace} dropped")

    # -- rows

    def put(
        self,
        table: Text,
        row: Text,
        column: Text | Mapping[Text, Text],
        value: Text | None = None,
        timestamp: int | None = None,
    ) -> None:
        """Write a cell, ``put("t", "row", "cf:a", "1")``, or several, ``put("t", "row", {"cf:a": "1"})``."""
        if isinstance(column, Mapping) is (value is not None):
            raise TypeError('put() takes a column and a value, or a dict of them: put("t", "row", "cf:a", "1")')
        cells: Mapping[Any, Any] = column if isinstance(column, Mapping) else {column: value}
        self._connection.table(table).put(row, cells, timestamp=timestamp)
        _say(f"{counted(len(cells), 'cell')} written")

    def get(
        self,
        table: Text,
        row: Text,
        *columns: Text,
        timestamps: bool = False,
        consistency: str | None = None,
        replica_id: int | None = None,
    ) -> Row:
        """Return a row, or some columns of it: ``get("t", "row")``, ``get("t", "row", "cf:a", timestamps=True)``."""
        return self._connection.table(table).row(
            row,
            columns or None,
            include_timestamp=timestamps,
            consistency=consistency,
            replica_id=replica_id,
        )

    def scan(
        self,
        table: Text,
        start: Text | None = None,
        stop: Text | None = None,
        *,
        prefix: Text | None = None,
        columns: Sequence[Text] | None = None,
        filter: FilterLike = None,
        limit: int | None = None,
        reverse: bool = False,
        timestamps: bool = False,
        consistency: str | None = None,
    ) -> ShownScan:
        """Return rows: ``scan("t", prefix="a", columns=["cf:a"], limit=10)``; ``for key, row in scan("t"): ...``."""
        found = self._connection.table(table)

        def read(most: int | None) -> Iterator[tuple[bytes, Row[Any]]]:
            rows = found.scan(
                start,
                stop,
                row_prefix=prefix,
                columns=columns,
                filter=filter,
                limit=most,
                reverse=reverse,
                include_timestamp=timestamps,
                consistency=consistency,
            )
            return cast("Iterator[tuple[bytes, Row[Any]]]", rows)

        return ShownScan(read, _text(table), limit)

    def count(
        self, table: Text, start: Text | None = None, stop: Text | None = None, *, prefix: Text | None = None
    ) -> int:
        """Return the number of rows; each is read without its values."""
        only_keys = filters.first_cell() & filters.keys_only()
        return sum(1 for _ in self._connection.table(table).scan(start, stop, row_prefix=prefix, filter=only_keys))

    def delete(self, table: Text, row: Text, column: Text, timestamp: int | None = None) -> None:
        """Delete all versions of one cell, or those up to a timestamp."""
        self._connection.table(table).delete(row, [column], timestamp=timestamp)
        _say("deleted")

    def deleteall(self, table: Text, row: Text, *columns: Text) -> None:
        """Delete a row, or some columns of it."""
        self._connection.table(table).delete(row, columns or None)
        _say("deleted")

    def incr(self, table: Text, row: Text, column: Text, by: int = 1) -> int:
        """Add to a counter and return its new value."""
        return self._connection.table(table).counter_inc(row, column, by)

    def append(self, table: Text, row: Text, column: Text, value: Text) -> Row:
        """Append bytes to a cell and return the cell."""
        return self._connection.table(table).append(row, {column: value})

    # -- the shell

    def help(self, subject: object = None) -> None:
        """List the functions; ``help(scan)`` shows one of them."""
        if subject is None:
            for name, verb in self.by_name().items():
                _say(f"{name:<22} {_documentation(verb)}")
            _say(
                '\nget "t", "row" is short for get("t", "row"). `connection` is the connection, `filters` the filters.'
            )
        elif subject in builtins.list(self.by_name().values()) and callable(subject):
            name = subject.__name__.rstrip("_")
            _say(f"{name}{_signature(subject)}\n\n    {_documentation(subject)}")
        else:
            _say(pydoc.render_doc(subject, renderer=pydoc.plaintext))  # type: ignore[attr-defined]  # not in typeshed

    def exit(self) -> None:
        """End the shell; so does Ctrl-D."""
        raise SystemExit(0)

    quit = exit

    @classmethod
    def names(cls) -> builtins.list[str]:
        """Return the names of the functions, in the order of this class."""
        return [
            name.rstrip("_")
            for name in vars(cls)
            if not name.startswith("_") and name not in ("names", "by_name", "namespace")
        ]

    def by_name(self) -> dict[str, Callable[..., Any]]:
        """Return the functions by their names."""
        return {name: getattr(self, "list_" if name == "list" else name) for name in self.names()}

    def namespace(self) -> dict[str, Any]:
        """Return the names that code in the shell starts with."""
        return {"__name__": "__console__", "connection": self._connection, "filters": filters, **self.by_name()}


def _documentation(verb: Callable[..., Any]) -> str:
    """Return the docstring without the marks of code, which nothing renders here."""
    return (inspect.getdoc(verb) or "").replace("``", "")


def _signature(verb: Callable[..., Any]) -> str:
    """Return the parameters without their types, which would hide the names."""
    signature = inspect.signature(verb)
    plain = [one.replace(annotation=inspect.Parameter.empty) for one in signature.parameters.values()]
    return str(signature.replace(parameters=plain, return_annotation=inspect.Signature.empty))


def _text(name: Text) -> str:
    return printable(name) if isinstance(name, bytes) else name


def _say(text: str) -> None:
    click.echo(text)
