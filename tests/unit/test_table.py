"""happybase's Table: arguments, return values and errors; and what we add to it."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError, astuple, fields, replace
from typing import Any

import happybase
import pytest

import metaclient
from metaclient.backend import Capabilities
from metaclient.connection import Connection, connect_to
from metaclient.errors import ConfigError, ConnectionClosed, NoSuchFamily, RequestRefused, Unsupported
from metaclient.model import CompareOp, Consistency, Get, Row
from metaclient.runtime import SimRuntime
from metaclient.table import Table
from metaclient.testing import ScriptedBackend


@pytest.fixture
def backend() -> Iterator[ScriptedBackend]:
    with SimRuntime(seed=1) as runtime:
        made = ScriptedBackend(runtime)
        made.add_table("t", families=[b"cf", b"dg"], splits=[b"m"])
        yield made


@pytest.fixture
def connection(backend: ScriptedBackend) -> Connection:
    return connect_to(backend, runtime=backend.runtime)


@pytest.fixture
def table(connection: Connection) -> Table:
    made = connection.table("t")
    made.put(b"r1", {b"cf:a": b"1", b"cf:b": b"2", b"dg:c": b"3"}, timestamp=10)
    made.put(b"r1", {b"cf:a": b"1new"}, timestamp=20)
    made.put(b"a1", {b"cf:a": b"0"}, timestamp=10)
    return made


# -- parity ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in vars(happybase.Table) if not name.startswith("_")])
def test_every_method_takes_happybases_arguments(name: str) -> None:
    """`import metaclient as happybase` is the whole port: same names, same order, same defaults; ours come after."""
    theirs = list(inspect.signature(getattr(happybase.Table, name)).parameters.values())
    ours = list(inspect.signature(getattr(Table, name)).parameters.values())
    assert [(p.name, p.default) for p in ours[: len(theirs)]] == [(p.name, p.default) for p in theirs]
    assert all(p.kind is inspect.Parameter.KEYWORD_ONLY for p in ours[len(theirs) :])


@pytest.mark.parametrize("name", [name for name in vars(happybase.Batch) if not name.startswith("_")])
def test_every_method_of_a_batch_takes_happybases_arguments(name: str) -> None:
    theirs = inspect.signature(getattr(happybase.Batch, name)).parameters.values()
    ours = inspect.signature(getattr(metaclient.Batch, name)).parameters.values()
    assert [(p.name, p.default) for p in ours] == [(p.name, p.default) for p in theirs]


def test_row_is_a_dict_that_knows_where_it_came_from(table: Table, backend: ScriptedBackend) -> None:
    row = table.row(b"r1")
    assert row == {b"cf:a": b"1new", b"cf:b": b"2", b"dg:c": b"3"}
    assert isinstance(row, dict)
    assert isinstance(row, Row)
    assert (row.stale, row.replica_id, row.server) == (False, 0, backend.servers[1])
    assert row.region.start_key == b"m"


def test_row_narrows_by_columns_and_timestamp(table: Table) -> None:
    assert table.row("r1", ["cf:a"]) == {b"cf:a": b"1new"}
    assert table.row(b"r1", (b"dg",)) == {b"dg:c": b"3"}
    assert table.row(b"r1", [b"cf:a", b"dg"]) == {b"cf:a": b"1new", b"dg:c": b"3"}
    assert table.row(b"r1", timestamp=20)[b"cf:a"] == b"1"  # the bound is exclusive
    assert table.row(b"r1", [b"cf:a"], include_timestamp=True) == {b"cf:a": (b"1new", 20)}
    assert table.row(b"nope") == {}


def test_rows_leaves_out_what_does_not_exist(table: Table) -> None:
    assert table.rows([b"r1", b"nope", "a1"], [b"cf:a"]) == [(b"r1", {b"cf:a": b"1new"}), (b"a1", {b"cf:a": b"0"})]
    assert table.rows([b"r1"], [b"cf:a"], 20, True) == [(b"r1", {b"cf:a": (b"1", 10)})]
    assert table.rows([]) == {}  # as happybase
    assert table.rows(iter([b"a1"])) == [(b"a1", {b"cf:a": b"0"})]


def test_cells_are_versions_newest_first(table: Table) -> None:
    assert table.cells(b"r1", b"cf:a") == [b"1new", b"1"]
    assert table.cells(b"r1", b"cf:a", versions=1) == [b"1new"]
    assert table.cells(b"r1", b"cf:a", timestamp=20, include_timestamp=True) == [(b"1", 10)]
    assert table.cells(b"nope", b"cf:a") == []


def test_scan_takes_happybases_arguments(table: Table) -> None:
    assert list(table.scan(columns=[b"cf:a"], include_timestamp=True)) == [
        (b"a1", {b"cf:a": (b"0", 10)}),
        (b"r1", {b"cf:a": (b"1new", 20)}),
    ]
    ((_, row),) = table.scan(row_prefix="r", sorted_columns=True)
    assert isinstance(row, OrderedDict)
    assert list(row) == [b"cf:a", b"cf:b", b"dg:c"]
    assert [key for key, _ in table.scan(timestamp=5)] == []


def test_delete_takes_columns_families_and_whole_rows(table: Table) -> None:
    table.delete(b"r1", [b"cf:a"])
    assert table.row(b"r1") == {b"cf:b": b"2", b"dg:c": b"3"}
    table.delete("r1", ["dg"])
    assert table.row(b"r1") == {b"cf:b": b"2"}
    table.delete(b"r1")
    assert table.row(b"r1") == {}


def test_counters(table: Table) -> None:
    assert table.counter_get(b"c", b"cf:n") == 0
    assert table.counter_inc(b"c", b"cf:n") == 1
    assert table.counter_inc(b"c", b"cf:n", 10) == 11
    assert table.counter_dec(b"c", "cf:n", 20) == -9
    table.counter_set(b"c", b"cf:n", 2**63 - 1)
    assert table.counter_inc(b"c", b"cf:n", 1) == -(2**63)
    assert table.row(b"c")[b"cf:n"] == b"\x80" + bytes(7)
    with pytest.raises(RequestRefused, match="8"):
        table.counter_inc(b"r1", b"cf:a")


def test_families_and_regions_have_happybases_names(table: Table) -> None:
    families = table.families()
    assert set(families) == {b"cf", b"dg"}
    assert set(families[b"cf"]) == {
        "name",
        "max_versions",
        "compression",
        "in_memory",
        "bloom_filter_type",
        "bloom_filter_vector_size",
        "bloom_filter_nb_hashes",
        "block_cache_enabled",
        "time_to_live",
        "replication_scope",  # ours; a happybase program does not look at it
    }
    regions = table.regions()
    assert [(region["start_key"], region["end_key"]) for region in regions] == [(b"", b"m"), (b"m", b"")]
    assert set(regions[0]) == {"start_key", "end_key", "id", "name", "version", "server_name", "port"}


def test_repr_names_the_table(table: Table) -> None:
    assert repr(table) == "<metaclient.table.Table name=b't'>"


# -- ours ------------------------------------------------------------------------------------------------------


def test_append_and_mutate_row_and_exists(table: Table) -> None:
    assert table.append(b"r1", {b"cf:b": b"+"}) == {b"cf:b": b"2+"}
    table.mutate_row(b"r1", {b"cf:new": b"n"}, [b"cf:a"])
    assert table.row(b"r1", [b"cf"]) == {b"cf:b": b"2+", b"cf:new": b"n"}
    table.mutate_row(b"r1", delete=[b"cf:new"])
    assert table.exists(b"r1")
    assert table.exists(b"r1", [b"cf:b"])
    assert not table.exists(b"r1", [b"cf:new"])
    assert not table.exists(b"nope")


def test_check_and_put_compares_what_is_stored(table: Table) -> None:
    assert not table.check_and_put(b"r1", b"cf:b", b"3", {b"cf:b": b"x"})
    assert table.check_and_put(b"r1", b"cf:b", b"3", {b"cf:b": b"0"}, op="<")
    assert table.check_and_put(b"r1", "cf:z", None, {b"cf:z": b"new"})
    assert not table.check_and_put(b"r1", b"cf:z", None, {b"cf:z": b"again"})
    assert table.check_and_delete(b"r1", b"cf:z", b"new", [b"cf:z"], op=CompareOp.EQUAL)
    assert table.row(b"r1", [b"cf:z"]) == {}


def test_a_row_that_is_put_again_keeps_its_old_columns(table: Table) -> None:
    table.put(b"r1", {"cf:text": "text is encoded"})
    assert table.row(b"r1")[b"cf:text"] == b"text is encoded"
    assert len(table.row(b"r1")) == 4


# -- bad input -------------------------------------------------------------------------------------------------

BAD: list[tuple[str, Callable[[Table], object], type[Exception], str]] = [
    ("row of a wrong type", lambda t: t.row(5), TypeError, "row"),
    ("row None", lambda t: t.row(None), TypeError, "row"),
    ("empty row", lambda t: t.row(b""), ValueError, "row must not be empty"),
    ("empty row to put", lambda t: t.put("", {b"cf:a": b"1"}), ValueError, "row must not be empty"),
    ("row too long", lambda t: t.row(b"x" * 40_000), ValueError, "32767"),
    ("one key for rows", lambda t: t.rows(b"abc"), TypeError, "did you mean row"),
    ("rows None", lambda t: t.rows(None), TypeError, "'rows'"),
    ("rows with None", lambda t: t.rows([b"a", None]), TypeError, "rows"),
    ("columns as text", lambda t: t.row(b"r", "cf:a"), TypeError, "'columns'"),
    ("columns as bytes", lambda t: t.rows([b"r"], b"cf:a"), TypeError, "'columns'"),
    ("columns as a set", lambda t: t.row(b"r", {b"cf:a"}), TypeError, "'columns'"),
    ("column of a wrong type", lambda t: t.row(b"r", [5]), TypeError, "columns"),
    ("family without a name", lambda t: t.row(b"r", [b":a"]), ValueError, "columns"),
    ("timestamp as text", lambda t: t.row(b"r", timestamp="now"), TypeError, "'timestamp'"),
    ("timestamp as float", lambda t: t.put(b"r", {b"cf:a": b"1"}, timestamp=1.5), TypeError, "'timestamp'"),
    ("negative timestamp", lambda t: t.row(b"r", timestamp=-1), ValueError, "'timestamp'"),
    ("timestamp out of range", lambda t: t.put(b"r", {b"cf:a": b"1"}, timestamp=2**63), ValueError, "'timestamp'"),
    ("consistency", lambda t: t.row(b"r", consistency="EVENTUAL"), ConfigError, "'STRONG' or 'TIMELINE'"),
    ("consistency of a scan", lambda t: t.scan(consistency=1), ConfigError, "'STRONG' or 'TIMELINE'"),
    ("replica", lambda t: t.row(b"r", replica_id=-1), ValueError, "'replica_id'"),
    ("replica as text", lambda t: t.rows([b"r"], replica_id="1"), ValueError, "'replica_id'"),
    ("replica as bool", lambda t: t.row(b"r", replica_id=True), ValueError, "'replica_id'"),
    ("value None", lambda t: t.put(b"r", {b"cf:a": None}), TypeError, "leave the column out"),
    ("value of a wrong type", lambda t: t.put(b"r", {b"cf:a": 5}), TypeError, "encode it first"),
    ("column without qualifier", lambda t: t.put(b"r", {b"cf": b"1"}), ValueError, "qualifier"),
    ("data as a list", lambda t: t.put(b"r", [b"cf:a"]), TypeError, "'data'"),
    ("no data", lambda t: t.append(b"r", {}), ValueError, "'data'"),
    ("delete of no columns", lambda t: t.delete(b"r", []), ValueError, "'columns' is empty"),
    ("delete of one column", lambda t: t.delete(b"r", b"cf:a"), TypeError, "'columns'"),
    ("delete of a number", lambda t: t.delete(b"r", 5), TypeError, "'columns'"),
    ("versions", lambda t: t.cells(b"r", b"cf:a", versions=0), ValueError, "'versions'"),
    ("versions as text", lambda t: t.cells(b"r", b"cf:a", versions="2"), TypeError, "'versions'"),
    ("column of cells", lambda t: t.cells(b"r", None), TypeError, "column"),
    ("batch_size", lambda t: t.scan(batch_size=0), ValueError, "'batch_size'"),
    ("batch_size None", lambda t: t.scan(batch_size=None), TypeError, "'batch_size'"),
    ("limit", lambda t: t.scan(limit=0), ValueError, "'limit'"),
    ("limit as text", lambda t: t.scan(limit="5"), TypeError, "'limit'"),
    ("scan_batching", lambda t: t.scan(scan_batching=-2), ValueError, "'scan_batching'"),
    ("prefix and start", lambda t: t.scan(row_prefix=b"a", row_stop=b"b"), TypeError, "'row_prefix'"),
    ("start of a wrong type", lambda t: t.scan(row_start=5), TypeError, "'row_start'"),
    ("filter of a wrong type", lambda t: t.scan(filter=5), TypeError, "'filter'"),
    ("amount as text", lambda t: t.counter_inc(b"r", b"cf:n", "1"), TypeError, "'value'"),
    ("amount to subtract", lambda t: t.counter_dec(b"r", b"cf:n", None), TypeError, "'value'"),
    ("amount too large", lambda t: t.counter_set(b"r", b"cf:n", 2**63), ValueError, "'value'"),
    ("counter without qualifier", lambda t: t.counter_inc(b"r", b"cf"), ValueError, "qualifier"),
    ("op", lambda t: t.check_and_put(b"r", b"cf:a", b"1", {b"cf:a": b"2"}, op="~"), ValueError, "'op'"),
    ("check of a family", lambda t: t.check_and_delete(b"r", b"cf", b"1"), ValueError, "qualifier"),
    ("nothing to mutate", lambda t: t.mutate_row(b"r"), ValueError, "'put', 'delete'"),
    ("append of None", lambda t: t.append(b"r", {b"cf:a": None}), TypeError, "leave the column out"),
]


@pytest.mark.parametrize(("call", "error", "named"), [bad[1:] for bad in BAD], ids=[bad[0] for bad in BAD])
def test_mistake_is_an_error_at_the_call_that_names_it(
    connection: Connection, backend: ScriptedBackend, call: Callable[[Any], object], error: type[Exception], named: str
) -> None:
    """Wrong type of row or column, unknown consistency, an empty row, a value of None: named, with the fix."""
    with pytest.raises(error, match=named):
        call(connection.table("t"))
    assert not [each for each in backend.calls if each.method not in ("open", "meta_replicas")]


def test_unknown_family_is_the_servers_word(table: Table) -> None:
    for call in (lambda: table.row(b"r1", [b"nope"]), lambda: table.put(b"r1", {b"nope:a": b"1"})):
        with pytest.raises(NoSuchFamily, match="nope"):
            call()


def test_consistency_is_taken_as_enum_or_word(table: Table) -> None:
    for level in (Consistency.TIMELINE, "timeline", "TIMELINE"):
        assert table.row(b"a1", consistency=level) == {b"cf:a": b"0"}


METHODS: dict[str, Callable[[Table], object]] = {
    "row": lambda t: t.row(b"a1"),
    "row timeline": lambda t: t.row(b"a1", consistency="TIMELINE"),
    "rows": lambda t: t.rows([b"a1"]),
    "rows of nothing": lambda t: t.rows([]),
    "cells": lambda t: t.cells(b"a1", b"cf:a"),
    "exists": lambda t: t.exists(b"a1"),
    "scan": lambda t: t.scan(),
    "put": lambda t: t.put(b"a1", {b"cf:a": b"1"}),
    "delete": lambda t: t.delete(b"a1"),
    "batch": lambda t: t.batch(),
    "append": lambda t: t.append(b"a1", {b"cf:a": b"1"}),
    "mutate_row": lambda t: t.mutate_row(b"a1", {b"cf:a": b"1"}),
    "check_and_put": lambda t: t.check_and_put(b"a1", b"cf:a", None, {b"cf:a": b"1"}),
    "check_and_delete": lambda t: t.check_and_delete(b"a1", b"cf:a", None),
    "counter_get": lambda t: t.counter_get(b"a1", b"cf:n"),
    "counter_set": lambda t: t.counter_set(b"a1", b"cf:n"),
    "counter_inc": lambda t: t.counter_inc(b"a1", b"cf:n"),
    "counter_dec": lambda t: t.counter_dec(b"a1", b"cf:n"),
    "families": lambda t: t.families(),
    "regions": lambda t: t.regions(),
}


@pytest.mark.parametrize("name", METHODS)
def test_table_of_a_closed_connection_refuses(backend: ScriptedBackend, name: str) -> None:
    """Also when the backend belongs to somebody else and still works."""
    connection = connect_to(backend, runtime=backend.runtime, owns_backend=False)
    table = connection.table("t")
    table.row(b"a1")
    connection.close()
    backend.calls.clear()
    with pytest.raises(ConnectionClosed, match="closed"):
        METHODS[name](table)
    assert not backend.calls


@pytest.mark.parametrize(
    ("capability", "call"),
    [
        ("append", METHODS["append"]),
        ("row_mutations", METHODS["mutate_row"]),
        ("check_and_mutate", METHODS["check_and_put"]),
        ("check_and_mutate", METHODS["check_and_delete"]),
        ("reversed_scan", lambda t: t.scan(reverse=True)),
        ("filters", lambda t: t.scan(filter="KeyOnlyFilter()")),
        ("filters", lambda t: t.row(b"a", filter=b"KeyOnlyFilter()")),
    ],
)
def test_what_the_backend_cannot_do_is_refused_and_not_ignored(
    capability: str, call: Callable[[Table], object]
) -> None:
    with SimRuntime(seed=1) as runtime:
        backend = ScriptedBackend(runtime, capabilities=Capabilities(**{capability: False}))
        backend.add_table("t")
        with pytest.raises(Unsupported, match="scripted"):
            call(connect_to(backend, runtime=runtime).table("t"))


def test_get_is_made_as_its_fields_say() -> None:
    """Its constructor is written by hand, for speed: it must not differ from what dataclass would have written."""
    parameters = list(inspect.signature(Get).parameters.values())
    assert [one.name for one in parameters] == [field.name for field in fields(Get)]
    assert [one.default for one in parameters[1:]] == [field.default for field in fields(Get)[1:]]
    given = Get(b"r", (b"cf",), 2, 3, 4, b"PrefixFilter('a')", True)
    assert astuple(given) == (b"r", (b"cf",), 2, 3, 4, b"PrefixFilter('a')", True)
    assert replace(Get(b"other"), **{field.name: getattr(given, field.name) for field in fields(Get)}) == given
    with pytest.raises(FrozenInstanceError):
        given.row = b"x"  # type: ignore[misc]  # that is the test
