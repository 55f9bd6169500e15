"""Rows of hbase:meta that no HBase would write, from any replica: an error of ours, in time, and nothing sticks."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metaclient import metarow
from metaclient.backend import Capabilities, MetaPage, MetaRow
from metaclient.errors import DeadlineExceeded, MetaClientError, RetriesExhausted, TableNotFound
from metaclient.model import RegionInfo, RegionLocation, RegionLocations, ServerName
from tests.unit.meta_rig import TABLE, Rig, rig, row_of

SPLITS = [b"g", b"m", b"t"]
TIMEOUT_S = 2.0
#: A retry may begin just before the deadline; nothing may end much after it.
SLACK_S = 0.05
COLUMNS = [b"info:regioninfo", b"info:server", b"info:serverstartcode", b"info:seqnumDuringOpen", b"info:server_0001"]

_junk = st.one_of(
    st.none(), st.integers(), st.text(max_size=3), st.binary(max_size=12), st.lists(st.none(), max_size=2)
)
_infos = st.builds(
    RegionInfo,
    st.sampled_from([TABLE, b"u", b"t,", b"hbase:meta"]),
    st.sampled_from([b"", b"a", b"g", b"m", b"zz"]),
    st.sampled_from([b"", b"a", b"g", b"m", b"\0"]),
    st.integers(0, 2**62),
    st.integers(0, 3),
    st.booleans(),
    st.booleans(),
)


@st.composite
def _plausible(draw: Any) -> MetaRow:
    """A row as HBase writes it, with some of its columns missing, cut, swapped or replaced."""
    info = draw(_infos)
    entry = RegionLocations(info.replica(0), (RegionLocation(info.replica(0), ServerName("ghost", 1, 1), 7), None))
    columns = dict(row_of(entry).columns)
    for column in draw(st.lists(st.sampled_from(COLUMNS), max_size=3)):
        how = draw(st.sampled_from(["gone", "cut", "random", "empty"]))
        value = columns.get(column, b"")
        if how == "gone":
            columns.pop(column, None)
        else:
            columns[column] = {"cut": value[: len(value) // 2], "random": draw(st.binary(max_size=20)), "empty": b""}[
                how
            ]
    name = draw(st.sampled_from([entry.region.name, b"t,", b"t,,1", b"t", b"", b"\xff"]))
    return MetaRow(name, columns)


_bytes_rows = st.builds(
    MetaRow,
    st.binary(max_size=20),
    st.dictionaries(st.sampled_from(COLUMNS) | st.binary(max_size=10), st.binary(max_size=40)),
)
_wrong_types: st.SearchStrategy[Any] = st.one_of(
    _junk,
    st.builds(MetaPage, _junk),
    st.builds(lambda rows: MetaPage(tuple(rows)), st.lists(_junk, min_size=1, max_size=2)),
    st.builds(
        lambda row, columns: MetaPage((MetaRow(row, columns),)), _junk, st.dictionaries(st.sampled_from(COLUMNS), _junk)
    ),
)
_pages: st.SearchStrategy[Any] = st.one_of(
    st.lists(_plausible() | _bytes_rows, max_size=6).map(lambda rows: MetaPage(tuple(rows))), _wrong_types
)


def _lookups(r: Rig) -> None:
    """Everything that reads hbase:meta; each ends in time with an answer or with an error of ours."""
    for work in (
        lambda: r.locate(b"h"),
        lambda: r.locate(b"h", replica_id=1),
        lambda: r.before(b""),
        lambda: r.connection.regions(TABLE),
        lambda: r.locator.table_states.check_enabled(TABLE, r.deadline(TIMEOUT_S)),
        lambda: r.connection.table(TABLE).row(b"h"),
    ):
        begun = r.runtime.now()
        with suppress(MetaClientError):
            work()
        assert r.runtime.now() - begun <= TIMEOUT_S + SLACK_S


def _is_truthful(r: Rig) -> None:
    """The garbage is over: reads find their rows, whatever the cache was told."""
    r.backend.clear_rules()
    r.runtime.run_for(61.0)
    table = r.connection.table(TABLE)
    for row in (b"", b"a", b"h", b"n", b"z"):
        if row:
            assert table.row(row) == {b"cf:q": row}
        else:
            r.connection.locate(TABLE, row, reload=True)
        truth = r.backend.region_of(TABLE, row)
        assert r.locate(row, reload=True).region == truth.region


def _with_rows(r: Rig) -> None:
    table = r.connection.table(TABLE)
    for row in (b"a", b"h", b"n", b"z"):
        table.put(row, {b"cf:q": row})
    r.locator.cache.clear()


@settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow])
@given(st.data(), st.sampled_from(["None", "LoadBalance", "HedgedRead"]), st.booleans())
def test_garbage_from_every_replica_is_bounded_and_nothing_sticks(
    data: st.DataObject, mode: str, is_warm: bool
) -> None:
    pages = data.draw(st.lists(_pages, min_size=1, max_size=4))
    with rig(splits=SPLITS, meta_mode=mode, operation_timeout_s=TIMEOUT_S) as r:
        _with_rows(r)
        if is_warm:
            r.connection.warm_up(TABLE)
        answers = iter(pages * 1_000)
        r.backend.on("read_meta").answers(lambda _: next(answers))
        r.backend.kill(ServerName("ghost", 1, 1))
        _lookups(r)
        _is_truthful(r)


@settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(_pages, min_size=1, max_size=4), st.booleans())
def test_garbage_from_secondaries_alone_costs_only_the_way_to_the_primary(pages: list[Any], is_warm: bool) -> None:
    """The primary tells the truth. A row that names a ghost plausibly may cost a try, and is then repaired."""
    with rig(splits=SPLITS, meta_mode="LoadBalance", operation_timeout_s=10.0) as r:
        _with_rows(r)
        if is_warm:
            r.connection.warm_up(TABLE)
        answers = iter(pages * 1_000)
        r.backend.on("read_meta", when=lambda call: call.replica_id != 0).answers(lambda _: next(answers))
        r.backend.kill(ServerName("ghost", 1, 1))
        table = r.connection.table(TABLE)
        for row in (b"a", b"h", b"n", b"z"):
            assert table.row(row) == {b"cf:q": row}
        _is_truthful(r)


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(_pages, min_size=1, max_size=3))
def test_garbage_with_java_s_selector_is_bounded_as_well(pages: list[Any]) -> None:
    with rig(splits=SPLITS, meta_mode="LoadBalance", meta_selector="simple", operation_timeout_s=TIMEOUT_S) as r:
        _with_rows(r)
        answers = iter(pages * 1_000)
        r.backend.on("read_meta").answers(lambda _: next(answers))
        r.backend.kill(ServerName("ghost", 1, 1))
        _lookups(r)
        _is_truthful(r)


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(_pages, min_size=1, max_size=3))
def test_garbage_on_a_backend_that_ignores_deadlines(pages: list[Any]) -> None:
    capabilities = Capabilities(filters=False, honours_deadline=False)
    options: dict[str, Any] = {"backend": {"capabilities": capabilities}, "operation_timeout_s": TIMEOUT_S}
    with rig(splits=SPLITS, meta_mode="LoadBalance", **options) as r:
        _with_rows(r)
        answers = iter(pages * 1_000)
        r.backend.on("read_meta").answers(lambda _: next(answers))
        r.backend.kill(ServerName("ghost", 1, 1))
        _lookups(r)
        _is_truthful(r)


def test_plausible_lie_about_the_whole_table_is_replaced_by_the_truth_after_one_failure() -> None:
    """A region with the highest of ids, all rows and a server that is not there."""
    ghost = RegionInfo(TABLE, b"", b"", 2**60)
    with rig(splits=SPLITS, meta_mode="LoadBalance") as r:
        _with_rows(r)
        lie = MetaPage((row_of(RegionLocations(ghost, (RegionLocation(ghost, ServerName("ghost", 1, 1), 2**60),))),))
        r.backend.kill(ServerName("ghost", 1, 1))
        r.backend.on("read_meta", times=1).answers(lie)
        assert r.locate(b"h").server.host == "ghost"
        table = r.connection.table(TABLE)
        for row in (b"a", b"h", b"n", b"z"):
            assert table.row(row) == {b"cf:q": row}
        assert r.backend.count("get", server=ServerName("ghost", 1, 1)) == 1


def test_error_after_garbage_lists_the_attempts_and_names_the_row() -> None:
    with rig(meta_mode="LoadBalance", operation_timeout_s=TIMEOUT_S) as r:
        r.backend.on("read_meta").answers(MetaPage((MetaRow(b"\xff\0", {b"info:regioninfo": b"PBUF\xff"}),)))
        with pytest.raises((RetriesExhausted, DeadlineExceeded)) as caught:
            r.locate(b"h")
        assert len(caught.value.attempts) >= 3
        assert "LocationUnknown" in caught.value.attempts[0].error


def test_rows_of_another_table_do_not_make_a_table_vanish() -> None:
    with rig(meta_mode="None", operation_timeout_s=TIMEOUT_S) as r:
        r.locate(b"h")
        other = RegionInfo(b"u", b"", b"", 1)
        r.backend.on("read_meta").answers(
            MetaPage((MetaRow(other.name, {b"info:regioninfo": metarow.encode_region_info(other)}),))
        )
        with pytest.raises(MetaClientError) as caught:
            r.locate(b"h", reload=True)
        assert not isinstance(caught.value, TableNotFound)
        assert r.locate(b"h").region.table == TABLE
