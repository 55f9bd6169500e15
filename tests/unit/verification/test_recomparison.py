"""Rows that differ are compared again after a pause: what was only late is forgiven. On virtual time."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from functools import partial

import pytest

from metaclient.errors import ConfigError
from metaclient.model import Cell, Result
from metaclient.runtime import SimRuntime
from metaclient.verification import recomparison
from metaclient.verification.comparison import Compared, RowVerdict, merged
from metaclient.verification.recomparison import Recompare, Recomparison


class Rows:
    """A side in memory: row -> value."""

    def __init__(self) -> None:
        self.values = {b"r%d" % number: b"1" for number in range(10)}
        self.gets: list[int] = []

    def scan(self, start: bytes, stop: bytes) -> Generator[Result, None, None]:
        yield from map(self._result, sorted(self.values))

    def get(self, rows: Sequence[bytes]) -> list[Result]:
        self.gets.append(len(rows))
        return [self._result(row) for row in rows]

    def _result(self, row: bytes) -> Result:
        return Result(row, [Cell(b"cf:a", 5, self.values[row])]) if row in self.values else Result(row)


class World:
    def __init__(self, runtime: SimRuntime) -> None:
        self.runtime = runtime
        self.source, self.peer = Rows(), Rows()

    def compare(self, recompare: Recompare | None) -> tuple[list[Compared], Recomparison]:
        again = Recomparison(self.source, self.peer, recompare, self.runtime.sleep)
        found = list(again.final(merged(self.source.scan(b"", b""), self.peer.scan(b"", b""))))
        return [one for one in found if one.verdict is not RowVerdict.GOODROWS], again

    def after(self, seconds: float, change: partial[object]) -> None:
        def run() -> None:
            self.runtime.sleep(seconds)
            change()

        self.runtime.start(run, name="change")


@pytest.fixture
def world() -> Iterator[World]:
    with SimRuntime(seed=3) as runtime:
        yield World(runtime)


def test_a_row_that_arrives_during_the_pause_is_good(world: World) -> None:
    world.source.values |= {b"r5": b"2", b"x": b"2"}
    world.after(5.0, partial(world.peer.values.__setitem__, b"r5", b"2"))
    bad, again = world.compare(Recompare(10.0))
    assert bad == [Compared(RowVerdict.ONLY_IN_SOURCE, b"x")]
    assert (world.runtime.now(), again.recompares, again.failed) == (10.0, 2, 1)


def test_a_row_that_needs_three_comparisons_is_good_at_the_third(world: World) -> None:
    world.source.values[b"r5"] = b"2"
    world.after(25.0, partial(world.peer.values.__setitem__, b"r5", b"2"))
    bad, again = world.compare(Recompare(10.0, tries=5))
    assert (bad, again.recompares, again.failed, world.runtime.now()) == ([], 3, 2, 30.0)


def test_pauses_grow_by_powers_of_two_and_not_by_exclusive_or(world: World) -> None:
    world.source.values[b"x"] = b"2"
    bad, again = world.compare(Recompare(1.0, tries=3, backoff_exponent=2))
    assert (len(bad), again.recompares, again.failed, world.runtime.now()) == (1, 3, 3, 1.0 + 4.0 + 16.0)


def test_only_rows_that_still_differ_are_read_again(world: World) -> None:
    world.source.values |= {b"x%d" % number: b"2" for number in range(4)}
    world.after(5.0, partial(world.peer.values.update, {b"x%d" % number: b"2" for number in range(3)}))
    world.compare(Recompare(10.0, tries=2, rows_per_get=3))
    assert world.peer.gets == [3, 1, 1]


def test_the_verdict_is_that_of_the_last_comparison(world: World) -> None:
    world.source.values[b"x"] = b"2"
    world.after(5.0, partial(world.peer.values.__setitem__, b"x", b"3"))
    bad, _ = world.compare(Recompare(10.0))
    assert bad == [Compared(RowVerdict.CONTENT_DIFFERENT, b"x", "cf:a at 5 has another value in the peer")]


def test_a_row_that_is_gone_on_both_sides_is_good(world: World) -> None:
    world.source.values[b"x"] = b"2"
    world.after(5.0, partial(world.source.values.pop, b"x"))
    assert world.compare(Recompare(10.0))[0] == []


def test_without_a_pause_the_first_comparison_counts(world: World) -> None:
    world.peer.values[b"r3"] = b"other"
    bad, again = world.compare(None)
    assert [one.row for one in bad] == [b"r3"]
    assert (again.recompares, world.peer.gets) == (0, [])


def test_rows_that_wait_in_memory_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recomparison, "RECOMPARED_AT_ONCE", 3)
    world.peer.values = dict.fromkeys(world.peer.values, b"other")
    bad, _ = world.compare(Recompare(2.0))
    assert len(bad) == 10
    assert (world.peer.gets, world.runtime.now()) == ([3, 3, 3, 1], 4 * 2.0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((0.0, 1, 0), "recompare_s must be more than 0"),
        ((float("nan"), 1, 0), "recompare_s must be more than 0"),
        ((1.0, 0, 0), "recompare_tries must be from 1"),
        ((1.0, 101, 0), "recompare_tries must be from 1 to 100"),
        ((1.0, 2, 11), "recompare_backoff_exponent"),
        ((1.0, 100, 1), "a last pause of more than 86400 seconds"),
        ((None, 2, 0), "need recompare_s"),
        ((None, 1, 1), "need recompare_s"),
    ],
)
def test_numbers_that_would_never_end_are_refused(given: tuple[float | None, int, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Recompare.of(*given)
