"""Many puts in one message, written by hand: to thriftpy2 the same as what it would have written itself."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs the extra 'spark'")

from hypothesis import given
from hypothesis import strategies as st
from thriftpy2.protocol import TBinaryProtocol
from thriftpy2.transport import TMemoryBuffer

from metaclient.backend import PutPage
from metaclient.model import LATEST_TIMESTAMP, Cell, Durability, Put, PutCells
from metaclient.wire.thrift.idl import thrift2
from metaclient.wire.thrift.structs import put_of
from metaclient_thrift.requests import encode_put_page2, encode_puts2
from tests.unit.pages import put_pages

T = thrift2()
cells = st.builds(
    Cell,
    st.sampled_from([b"cf:a", b"cf:", b"d:b:c", b"cf:\xff\x00", b"cf:100%b"]),
    st.sampled_from([0, 1, 0x25252525, 1_700_000_000_000, LATEST_TIMESTAMP]),
    st.binary(max_size=20),
)
#: Rows of one table: the same columns, and mostly the same time, in the same objects.
COLUMNS = [(b"cf:a", b"cf:100%b", b"d:"), (b"cf:a",), tuple(b"cf:%d" % number for number in range(0x25))]
TIMES = {columns: [(LATEST_TIMESTAMP,) * len(columns), tuple(range(len(columns)))] for columns in COLUMNS}
by_columns = st.sampled_from(COLUMNS).flatmap(
    lambda columns: st.builds(
        PutCells,
        st.just(columns),
        st.sampled_from(TIMES[columns]),
        st.lists(st.binary(max_size=3), min_size=len(columns), max_size=len(columns)).map(tuple),
    )
)
puts = st.lists(
    st.builds(
        Put,
        st.binary(min_size=1, max_size=5),
        st.lists(cells, min_size=1, max_size=4).map(tuple) | by_columns,
        st.sampled_from(Durability),
        st.sampled_from([None, 1, 86_400_000]),
    ),
    max_size=5,
)


def read_back(arguments: bytes) -> Any:
    protocol = TBinaryProtocol(TMemoryBuffer(arguments), decode_response=False)
    read = T.THBaseService.putMultiple_args()
    read.read(protocol)
    assert protocol.trans.read(1) == b""
    return read


@given(puts)
def test_puts_written_by_hand_are_read_as_thriftpy2_writes_them(given_puts: list[Put]) -> None:
    expected = T.THBaseService.putMultiple_args(b"ns:t", [put_of(put) for put in given_puts])
    assert read_back(encode_puts2(b"ns:t", given_puts)) == expected


@given(put_pages())
def test_page_is_read_as_its_puts_with_one_timestamp_each(page: PutPage) -> None:
    expected = [put_of(put) for put in page.puts()]
    for wire, stamp in zip(expected, page.timestamps.to_pylist(), strict=True):
        wire.timestamp = stamp
        for cell in wire.columnValues:
            cell.timestamp = None
    assert read_back(encode_put_page2(b"ns:t", page)) == T.THBaseService.putMultiple_args(b"ns:t", expected)
