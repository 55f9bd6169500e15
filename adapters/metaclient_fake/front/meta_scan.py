"""A scan of hbase:meta in two steps: which rows (their order is meta's own), then each row as the scan wants it."""

from __future__ import annotations

from collections.abc import Callable

from metaclient.model import Get, Scan

__all__ = ["families_of", "row_getter"]

_FAMILIES = (b"info", b"ns", b"rep_barrier", b"table")


def families_of(scan: Scan) -> tuple[bytes, ...]:
    """The families that a scan reads, in the order of their first mention; all of meta's when it names none.

    >>> families_of(Scan(columns=(b"info:server", b"ns", b"info")))
    (b'info', b'ns')
    """
    return tuple(dict.fromkeys(column.partition(b":")[0] for column in scan.columns)) or _FAMILIES


def row_getter(scan: Scan) -> Callable[[bytes], Get]:
    """What reads one row as the scan would."""

    def get(row: bytes) -> Get:
        return Get(row, scan.columns, scan.max_versions, scan.min_timestamp, scan.max_timestamp, scan.filter)

    return get
