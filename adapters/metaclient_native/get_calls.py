"""Many gets that differ only in their rows, in one Multi call: encoded and decoded without an object per row.

The request is the one that a :class:`~metaclient_native.batches.MultiCall` of these gets has. A response that holds
nothing but the number of cells of each row is decoded by pages. A ``MultiCall`` decodes all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain, repeat

from metaclient.backend import Outcome
from metaclient.many_gets import FoundRows, GetActions
from metaclient.protobuf import varint
from metaclient.wire.rpc.framing import Response
from metaclient.wire.rpc.messages import ACTION, GET, MULTI_REQUEST, REGION_ACTION
from metaclient.wire.rpc.row_layout import decode_page
from metaclient_native.batches import MultiCall, decode_counts, encode_options, explain_missing_place
from metaclient_native.calls import encode_region

__all__ = ["GetCall"]

_REGION_ACTION, _ACTION = MULTI_REQUEST.tag("regionAction"), REGION_ACTION.tag("action")
_INDEX, _GET, _ROW = ACTION.tag("index"), ACTION.tag("get"), GET.tag("row")
#: The heads of so many gets are kept: about a megabyte.
_HEADS_MAX = 1 << 14


class GetCall:
    """One Multi call of gets that differ only in their rows.

    ``places`` of the actions must be of different regions: the response has one result per region.
    """

    def __init__(self, actions: GetActions) -> None:
        self._actions = actions
        options = encode_options(actions.like)
        parts: list[bytes] = []
        begin = 0
        for place, count in actions.places:
            if place is None:
                raise explain_missing_place()
            name, gets = encode_region(place.region_name), _encode_gets(actions.rows[begin : begin + count], options)
            parts += (_REGION_ACTION, varint(len(name) + len(gets)), name, gets)
            begin += count
        self.param = b"".join(parts)

    def decode_outcomes(self, response: Response) -> Sequence[Outcome]:
        """Return the outcome of each get, in the order in which they were given."""
        counts = decode_counts(response, [count for _, count in self._actions.places])
        if counts is None:
            return MultiCall(self._actions, nonce_group=0).decode_outcomes(response)
        data, end = response.data, response.end
        if 0 not in counts:
            return FoundRows(self._actions.rows, decode_page(data, end, len(data), counts))
        there = [index for index, count in enumerate(counts) if count]
        runs = decode_page(data, end, len(data), [count for count in counts if count])
        return FoundRows(self._actions.rows, runs, there)


def _encode_gets(rows: Sequence[bytes], options: bytes) -> bytes:
    """Return an encoded Action per row, counted from 0."""
    if len(rows) <= _HEADS_MAX and len(set(map(len, rows))) == 1:
        heads = _list_heads(len(rows[0]), len(options), len(rows).bit_length())
        return b"".join(chain.from_iterable(zip(heads, rows, repeat(options))))  # the shortest ends it
    return b"".join(
        [part for index, row in enumerate(rows) for part in (_encode_head(index, len(row), len(options)), row, options)]
    )


@lru_cache(maxsize=16)
def _list_heads(row_bytes: int, options_bytes: int, bits: int) -> tuple[bytes, ...]:
    """Return what is before the row in the first Actions of a region; at least 2**bits - 1."""
    return tuple(_encode_head(index, row_bytes, options_bytes) for index in range(1 << bits))


def _encode_head(index: int, row_bytes: int, options_bytes: int) -> bytes:
    row_head = _ROW + varint(row_bytes)
    head = _INDEX + varint(index) + _GET + varint(len(row_head) + row_bytes + options_bytes) + row_head
    return _ACTION + varint(len(head) + row_bytes + options_bytes) + head
