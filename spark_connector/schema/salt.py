r"""The ranges of salted row keys, which have one byte before the key (:mod:`metaclient.columns.salt`).

>>> salted_ranges([KeyRange(b"a", b"c")], 2)
(KeyRange(start=b'\x00a', stop=b'\x00c'), KeyRange(start=b'\x01a', stop=b'\x01c'))
"""

from __future__ import annotations

from collections.abc import Iterable

from metaclient.columns.salt import BUCKETS_MAX
from spark_connector.schema.ranges import EVERYTHING, KeyRange, union

__all__ = ["salted_ranges"]


def salted_ranges(ranges: Iterable[KeyRange], buckets: int) -> tuple[KeyRange, ...]:
    """Return the ranges of the salted rows of these ranges of keys: one per bucket; all rows for all keys."""
    found = union(ranges)
    if not buckets or found == EVERYTHING:
        return found
    return union(_in_bucket(where, bucket) for where in found for bucket in range(buckets))


def _in_bucket(where: KeyRange, bucket: int) -> KeyRange:
    start = bytes((bucket,))
    following = bytes((bucket + 1,)) if bucket + 1 < BUCKETS_MAX else b""
    return KeyRange(start + where.start, start + where.stop if where.stop else following)
