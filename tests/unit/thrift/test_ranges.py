"""Ranges in Thrift's words, against the plain meaning of a scan."""

from hypothesis import given
from hypothesis import strategies as st

from metaclient.model import RegionInfo, Scan
from metaclient_thrift.ranges import wire_range

ALPHABET = st.sampled_from([b"\x00", b"\x01", b"a", b"b", b"\xfe", b"\xff"])
ROWS = st.lists(ALPHABET, max_size=3).map(b"".join)
KEYS = ROWS.filter(bool)


def meant(rows: list[bytes], scan: Scan, region: RegionInfo | None) -> list[bytes]:
    def is_in(row: bytes) -> bool:
        low, high = (scan.stop_row, scan.start_row) if scan.is_reversed else (scan.start_row, scan.stop_row)
        low_in, high_in = (
            (scan.include_stop, scan.include_start) if scan.is_reversed else (scan.include_start, scan.include_stop)
        )
        is_over = not low or row > low or (row == low and low_in)
        is_under = not high or row < high or (row == high and high_in)
        return is_over and is_under and (region is None or region.contains(row))

    return [row for row in sorted(rows, reverse=scan.is_reversed) if is_in(row)]


def sent(rows: list[bytes], scan: Scan, region: RegionInfo | None) -> list[bytes]:
    """What a gateway answers to the range, and what is kept of it."""
    wire = wire_range(b"t", scan, region)
    if wire.is_empty:
        return []
    kept: list[bytes] = []
    for row in sorted(rows, reverse=scan.is_reversed):
        low, high = (wire.stop, wire.start) if scan.is_reversed else (wire.start, wire.stop)
        if scan.is_reversed:
            answered = (not high or row <= high) and (not low or row > low)
        else:
            answered = row >= low and (not high or row < high)
        if answered and row != wire.dropped and not wire.is_beyond(row):
            kept.append(row)
    return kept


@given(
    rows=st.sets(KEYS, max_size=12),
    start=ROWS,
    stop=ROWS,
    flags=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    bounds=st.none() | st.tuples(ROWS, ROWS).filter(lambda pair: not pair[1] or pair[0] < pair[1]),
)
def test_the_rows_that_are_kept_are_the_rows_that_are_meant(
    rows: set[bytes], start: bytes, stop: bytes, flags: tuple[bool, bool, bool], bounds: tuple[bytes, bytes] | None
) -> None:
    scan = Scan(start, stop, include_start=flags[0], include_stop=flags[1], is_reversed=flags[2])
    region = None if bounds is None else RegionInfo(b"t", *bounds)
    if start or flags[0]:  # leaving out the empty row leaves out nothing
        assert sent(list(rows), scan, region) == meant(list(rows), scan, region)
