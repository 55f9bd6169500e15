"""A serial source whose check fails: nothing passes unchecked, and nothing is given up (HBASE-29501)."""

from collections.abc import Callable

import pytest

from metaclient.errors import RegionUnavailable
from metaclient.runtime import SimRuntime
from tests.unit.fake_replication.shipping_rig import ShippingRig

MakeRig = Callable[..., ShippingRig]


@pytest.fixture
def make_rig(runtime: SimRuntime) -> MakeRig:
    def make(**options: object) -> ShippingRig:
        made = ShippingRig(runtime, **options)  # type: ignore[arg-type]  # tests
        made.change(serial=True)
        return made

    return make


@pytest.fixture
def rig(make_rig: MakeRig) -> ShippingRig:
    return make_rig()


def test_entry_whose_check_fails_is_checked_again_with_growing_pauses(rig: ShippingRig) -> None:
    """An error of hbase:meta neither ends the server nor lets the entry pass (HBASE-29501)."""
    rig.order_errors = {1: [RegionUnavailable("hbase:meta is on no server") for _ in range(3)]}
    rig.blocked = {1}
    rig.put(2)
    source = rig.source()
    rig.run_for(5.9)  # asked after 0, 1, 1 + 2 s
    assert rig.asked == [1, 1, 1]
    (blocked,) = source.load().blocked
    assert blocked.waits_for == "hbase:meta to be read: RegionUnavailable: hbase:meta is on no server"
    rig.run_for(1.0)
    assert rig.asked == [1, 1, 1, 1]
    assert [one.waits_for for one in source.load().blocked] == ["the test"]
    assert rig.peer.numbers == []
    rig.blocked = set()
    rig.run_for(11.0)
    assert rig.peer.numbers == [1, 2]


@pytest.mark.parametrize(("version", "expected"), [("2.6.1", [1, 2]), ("2.6.4", [1, 2]), ("2.6.5", [])])
def test_entry_whose_check_fails_is_pushed_unchecked_by_hbase(
    make_rig: MakeRig, version: str, expected: list[int]
) -> None:
    """HBASE-29501, repaired in 2.6.5: after one error and a pause of 1 s, the entry goes although it must wait."""
    rig = make_rig(serial_bugs_of=version)
    rig.order_errors = {1: [RegionUnavailable("hbase:meta is on no server")]}
    rig.blocked = {1}
    rig.put(2)
    rig.source()
    rig.run_for(30.0)
    assert rig.peer.numbers == expected


@pytest.mark.parametrize("version", ["", "2.6.1"])
def test_entry_whose_check_fails_in_the_middle_ends_the_batch(make_rig: MakeRig, version: str) -> None:
    """HBase has a hole at the beginning of a batch only: here the entry is checked again, at once."""
    rig = make_rig(serial_bugs_of=version)
    rig.put(2)
    rig.order_errors = {2: [RegionUnavailable("hbase:meta is on no server")]}
    rig.source()
    rig.run_for(0.5)
    assert [call.numbers for call in rig.peer.arrived] == [[1], [2]]
    assert rig.asked == [1, 2, 2]
