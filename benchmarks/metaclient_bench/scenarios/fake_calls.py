"""F2, F3: the cost of puts, gets and scans through the client and the fake, compared with plain dictionaries.

F2: the same puts and gets on a bare sorted dictionary with versions: sortedcontainers' SortedDict, keyed by row, column
and timestamp, each put with the time of its call. The goals (5 times the bare cost, about 20,000 calls per second)
assume such a structure, whose call takes about 10 microseconds. F3: building the same rows as dictionaries from cells
of family, qualifier, timestamp and value (goal: 4 times the bare cost, about 0.5 million cells per second).

Smaller baselines are shown for information: a dictionary of rows with a sorted list of keys that keeps one version, and
a comprehension over columns that are already joined.

F2a puts new rows; the cost of a second version is shown with it. All functions alternate in short slices, and the best
slice of each counts, because noise only adds time. Times are CPU times of the calling thread, which does all the work.
"""

from __future__ import annotations

import time
from bisect import insort
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import metaclient
from metaclient.errors import ExtraMissing
from metaclient_bench.figure import Bars, Figure, Outcome
from metaclient_bench.scenario import Scenario

ROUNDS = 5
CELLS = 10
#: Rows that exist before the measurement.
ROWS_THERE = 10_000
#: Calls of one slice: some milliseconds, so that many slices meet no noise.
SLICE = 250


class SortedVersions:
    """A sorted dictionary with versions: (row, column, -timestamp) -> value; the newest version comes first."""

    def __init__(self) -> None:
        self._cells = _sorted_dict()

    def put(self, row: bytes, data: Mapping[bytes, bytes]) -> None:
        now = int(time.time() * 1000)
        for column, value in data.items():
            self._cells[row, column, -now] = value

    def row(self, row: bytes) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        for key in self._cells.irange((row,), (row + b"\x00",), inclusive=(True, False)):
            if key[1] not in found:
                found[key[1]] = self._cells[key]
        return found


def _sorted_dict() -> Any:
    try:
        from sortedcontainers import SortedDict
    except ImportError as error:
        raise ExtraMissing.of("this benchmark", error.name, extra="bench") from error
    return SortedDict()


class LeanRows:
    """The smallest sorted structure: rows in a dictionary, their keys in a sorted list, one version per column."""

    def __init__(self) -> None:
        self._rows: dict[bytes, dict[bytes, tuple[int, bytes]]] = {}
        self._order: list[bytes] = []

    def put(self, row: bytes, data: Mapping[bytes, bytes]) -> None:
        columns = self._rows.get(row)
        if columns is None:
            columns = self._rows[row] = {}
            insort(self._order, row)
        now = int(time.time() * 1000)
        for column, value in data.items():
            columns[column] = (now, value)

    def row(self, row: bytes) -> dict[bytes, bytes]:
        return {column: value for column, (_, value) in self._rows.get(row, {}).items()}


def run(quick: bool) -> Outcome:
    calls = _calls(turns=20 if quick else 80)
    scan = _scan(10_000 if quick else 100_000)
    figures = (
        Figure.of(
            "F2a",
            "put of a new row through client and fake, times a bare sorted dictionary",
            calls["put"]["ratio"],
            "<= 5",
            **_rates(calls["put"]),
            of_a_second_version=calls["put again"]["ratio"],
        ),
        Figure.of(
            "F2b",
            "row through client and fake, times a bare sorted dictionary",
            calls["row"]["ratio"],
            "<= 5",
            **_rates(calls["row"]),
        ),
        Figure.of(
            "F3",
            f"scan of rows of {CELLS} cells, times building the same rows as dictionaries",
            scan["ratio"],
            "<= 4",
            cells_per_second=scan["cells_per_second"],
            times_the_leanest=scan["times_lean"],
        ),
    )
    values = {figure.what.split(" ")[0]: figure.value for figure in figures}
    chart = Bars("cost through the whole client and the fake, bare structure = 1", "times", values)
    return Outcome(figures, {**calls, "scan": scan}, (chart,))


def _rates(seconds: dict[str, float]) -> dict[str, float]:
    return {"ours_per_second": 1 / seconds["ours"], "times_the_leanest": seconds["times_lean"]}


def _calls(turns: int) -> dict[str, dict[str, float]]:
    best: dict[tuple[str, str], float] = {}
    with metaclient.connect("fake:?servers=3") as connection:
        connection.create_table("t", {"cf": {}}, splits=[b"row-002000", b"row-006000"])
        table, bare, lean = connection.table("t"), SortedVersions(), LeanRows()
        data = {b"cf:a": b"x" * 100}
        works: dict[tuple[str, str], Callable[[bytes], object]] = {}
        for what in ("put", "put again"):
            works[what, "ours"] = lambda row: table.put(row, data)
            works[what, "bare"] = lambda row: bare.put(row, data)
            works[what, "lean"] = lambda row: lean.put(row, data)
        for number in range(ROWS_THERE):
            for work in list(works.values())[:3]:
                work(b"row-%06d" % number)
        works |= {("row", "ours"): table.row, ("row", "bare"): bare.row, ("row", "lean"): lean.row}
        for turn in range(turns):
            rows = [b"row-%06d-%d" % (number * 7919 % 10_000, turn) for number in range(SLICE)]
            for name, work in works.items():
                best[name] = min(best.get(name, float("inf")), _seconds(work, rows))
    return {
        what: _compared(best[what, "ours"], best[what, "bare"], best[what, "lean"])
        for what in ("put", "put again", "row")
    }


def _compared(ours: float, bare: float, lean: float) -> dict[str, float]:
    return {"ours": ours, "bare": bare, "ratio": ours / bare, "times_lean": ours / lean}


def _seconds(work: Callable[[bytes], object], rows: Sequence[bytes]) -> float:
    """Return the seconds of one call."""
    began = time.thread_time()
    for row in rows:
        work(row)
    return (time.thread_time() - began) / len(rows)


def _built(cells: list[tuple[bytes, bytes, int, bytes]]) -> dict[bytes, bytes]:
    row: dict[bytes, bytes] = {}
    for family, qualifier, _, value in cells:
        row[family + b":" + qualifier] = value
    return row


def _comprehended(cells: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    return {column: value for column, value in cells}  # noqa: C416 - what a scan does with each row, not dict()


def _scan(rows: int) -> dict[str, float]:
    with metaclient.connect("fake:?servers=3") as connection:
        connection.create_table("t", {"cf": {}})
        table = connection.table("t")
        columns = [b"cf:c%02d" % number for number in range(CELLS)]
        data = dict.fromkeys(columns, b"v" * 20)
        with table.batch(batch_size=10_000) as batch:
            for number in range(rows):
                batch.put(b"row-%08d" % number, data)
        cells = [(b"cf", b"c%02d" % number, 0, b"v" * 20) for number in range(CELLS)]
        joined = [(family + b":" + qualifier, value) for family, qualifier, _, value in cells]
        ours = bare = lean = float("inf")
        for _ in range(ROUNDS):
            began = time.thread_time()
            found = sum(1 for _ in table.scan(batch_size=5_000))
            ours = min(ours, time.thread_time() - began)
            assert found == rows, f"the scan lost rows: {found} of {rows}"
            began = time.thread_time()
            for _ in range(rows):
                _built(cells)
            bare = min(bare, time.thread_time() - began)
            began = time.thread_time()
            for _ in range(rows):
                _comprehended(joined)
            lean = min(lean, time.thread_time() - began)
    return {**_compared(ours, bare, lean), "cells_per_second": rows * CELLS / ours}


SCENARIO = Scenario("fake-calls", ("F2a", "F2b", "F3"), "the fake is fast enough to test with", run, backend="fake")
