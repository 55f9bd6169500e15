"""A gateway's scanners: numbers, leases on virtual time, and what was lost is never taken for the end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from metaclient.errors import Overloaded
from metaclient.model import Result
from metaclient.runtime import SimRuntime
from metaclient_fake.front.scanners import GatewayScanners

LEASE_S = 60.0


class Rows:
    """Rows that tell whether they were closed."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.is_closed = False

    def __iter__(self) -> Rows:
        return self

    def __next__(self) -> Result:
        if not self.left:
            raise StopIteration
        self.left -= 1
        return Result(b"r")

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def runtime() -> Iterator[SimRuntime]:
    with SimRuntime(seed=1) as made:
        yield made


def test_lease_is_renewed_by_every_call_and_then_ends(runtime: SimRuntime) -> None:
    scanners: GatewayScanners[str] = GatewayScanners(runtime, lease_s=LEASE_S)
    rows = Rows(10)
    number = scanners.add(rows, "options")
    for _ in range(3):
        runtime.sleep(LEASE_S - 1)
        scanner = scanners.take(number)
        assert scanner is not None
        assert len(scanner.next(2)) == 2
    runtime.sleep(LEASE_S)
    assert scanners.take(number) is None
    assert (rows.is_closed, len(scanners)) == (True, 0)


def test_sweep_closes_what_nobody_asks_for(runtime: SimRuntime) -> None:
    scanners: GatewayScanners[None] = GatewayScanners(runtime, lease_s=LEASE_S)
    old = Rows(1)
    scanners.add(old, None)
    runtime.sleep(LEASE_S / 2)
    young = scanners.add(Rows(1), None)
    runtime.sleep(LEASE_S / 2)
    assert scanners.expire() == 1
    assert old.is_closed
    assert scanners.take(young) is not None


def test_numbers_begin_at_zero_and_are_not_given_twice(runtime: SimRuntime) -> None:
    scanners: GatewayScanners[None] = GatewayScanners(runtime)
    assert [scanners.add(Rows(1), None) for _ in range(3)] == [0, 1, 2]
    assert scanners.remove(1) is True
    assert scanners.remove(1) is False
    assert scanners.add(Rows(1), None) == 3


def test_number_of_scanners_is_bounded_and_old_ones_make_room(runtime: SimRuntime) -> None:
    scanners: GatewayScanners[None] = GatewayScanners(runtime, lease_s=LEASE_S, scanners_max=1)
    scanners.add(Rows(1), None)
    with pytest.raises(Overloaded, match="which is its limit"):
        scanners.add(Rows(1), None)
    runtime.sleep(LEASE_S)
    scanners.add(Rows(1), None)


def test_end_stays_the_end(runtime: SimRuntime) -> None:
    scanners: GatewayScanners[None] = GatewayScanners(runtime)
    scanner = scanners.take(scanners.add(Rows(3), None))
    assert scanner is not None
    assert [len(scanner.next(2)) for _ in range(4)] == [2, 1, 0, 0]


def test_scanner_that_failed_is_forgotten(runtime: SimRuntime) -> None:
    scanners: GatewayScanners[None] = GatewayScanners(runtime)
    number = scanners.add(Rows(1), None)
    scanners.drop(number)
    assert scanners.take(number) is None
