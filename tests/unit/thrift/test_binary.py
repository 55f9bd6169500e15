"""What is read and written by hand is what thriftpy2 would have read and written, however it arrives."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from thriftpy2.protocol import TBinaryProtocol
from thriftpy2.thrift import TMessageType
from thriftpy2.transport import TMemoryBuffer

from metaclient.model import LATEST_TIMESTAMP, Cell, CellType, Durability, Put, Result
from metaclient.wire.thrift import structs as cells
from metaclient.wire.thrift.idl import thrift1, thrift2
from metaclient_thrift.binary import NotOurs, Rows1, Rows2, read_row, read_rows
from metaclient_thrift.messages import call_head, pack_number, reply_head
from metaclient_thrift.requests import encode_get1, encode_get2, encode_put1, encode_put2

T1, T2 = thrift1(), thrift2()
SMALL = st.binary(max_size=8)
TIMES = st.integers(-(2**63), 2**63 - 1)


class Pieces:
    """A reply that arrives in pieces; the end of it is an error, as a gateway that hangs up is."""

    def __init__(self, whole: bytes, sizes: list[int]) -> None:
        self._rest, self._sizes, self._at = whole, sizes, 0
        self.data = b""
        self.head = whole[: 12 + int.from_bytes(whole[4:8], "big")]  # as of a reply to the right call

    def more(self, at: int) -> bytes:
        assert self._rest, "more was asked for than there is: a real socket would wait until the deadline"
        size = self._sizes[self._at % len(self._sizes)]
        self._at += 1
        self.data = self.data[at:] + self._rest[:size]
        self._rest = self._rest[size:]
        return self.data

    def end(self, at: int) -> None:
        if at < len(self.data):
            raise ConnectionError("the gateway sent more than one answer")

    def started(self) -> Pieces:
        """With its first piece."""
        self.more(0)
        return self


def written(method: str, kind: int, struct: Any, number: int = 0) -> bytes:
    """A whole message, as thriftpy2 writes it."""
    buffer = TMemoryBuffer()
    protocol = TBinaryProtocol(buffer)
    protocol.write_message_begin(method, kind, number)
    struct.write(protocol)
    protocol.write_message_end()
    return bytes(buffer.getvalue())


def reply(service: Any, method: str, number: int = 0, **fields: Any) -> bytes:
    struct = getattr(service, f"{method}_result")()
    for name, value in fields.items():
        setattr(struct, name, value)
    return written(method, TMessageType.REPLY, struct, number)


def request(service: Any, method: str, *args: Any) -> bytes:
    return written(method, TMessageType.CALL, getattr(service, f"{method}_args")(*args))


def called(method: str, arguments: bytes) -> bytes:
    """The whole message of a call whose arguments were written by hand."""
    return call_head(method) + pack_number(0) + arguments


SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=5)


@st.composite
def results2(draw: st.DrawFn) -> Any:
    values = [
        T2.TColumnValue(
            family=draw(st.sampled_from([b"cf", b"d"])),
            qualifier=draw(st.sampled_from([b"a", b"b", b""])),
            value=draw(SMALL),
            timestamp=draw(TIMES),
            tags=draw(st.none() | st.none() | SMALL),
            type=draw(st.sampled_from([4, 4, 4, 8, 14, None])),
        )
        for _ in range(draw(st.integers(0, 4)))
    ]
    row = draw(SMALL) if values else None
    return T2.TResult(
        row=row,
        columnValues=values,
        stale=draw(st.sampled_from([False, True, None])),
        partial=draw(st.none() | st.booleans()),
    )


@given(wires=st.lists(results2(), max_size=5), sizes=SIZES)
def test_rows_of_thrift2_are_what_thriftpy2_reads(wires: list[Any], sizes: list[int]) -> None:
    whole = reply(T2.THBaseService, "getScannerRows", success=wires)
    assert read_rows(Pieces(whole, sizes), Rows2()) == [cells.result_of(b"", one) for one in wires]


@given(wire=results2(), sizes=SIZES)
def test_row_of_thrift2_is_what_thriftpy2_reads(wire: Any, sizes: list[int]) -> None:
    whole = reply(T2.THBaseService, "get", success=wire)
    assert read_row(Pieces(whole, sizes), Rows2()) == cells.result_of(b"", wire)


@st.composite
def results1(draw: st.DrawFn) -> Any:
    columns = draw(
        st.dictionaries(
            st.sampled_from([b"cf:a", b"cf:b", b"cf:\xff", b"cf1:z", b"cf-x:", b"d:"]), st.tuples(SMALL, TIMES)
        )
    )
    made = {column: T1.TCell(value=value, timestamp=time) for column, (value, time) in columns.items()}
    sorted_columns = draw(st.none() | st.just([]))
    return T1.TRowResult(row=draw(SMALL), columns=made, sortedColumns=sorted_columns)


def in_order(wire: Any) -> list[bytes]:
    return sorted(wire.columns, key=lambda name: name.split(b":", 1))


@given(wires=st.lists(results1(), max_size=5), sizes=SIZES)
def test_rows_of_thrift1_are_what_thriftpy2_reads(wires: list[Any], sizes: list[int]) -> None:
    whole = reply(T1.Hbase, "scannerGetList", success=wires)
    expected = [
        Result(one.row, [Cell(name, one.columns[name].timestamp, one.columns[name].value) for name in in_order(one)])
        for one in wires
    ]
    assert read_rows(Pieces(whole, sizes), Rows1()) == expected


def test_columns_of_the_next_row_are_the_same_objects() -> None:
    """Ten thousand rows hold their columns' names once."""
    values = [T2.TColumnValue(family=b"cf", qualifier=b"a", value=b"v", timestamp=1, type=4)]
    wires = [T2.TResult(row=b"%d" % row, columnValues=values, stale=False, partial=False) for row in range(3)]
    rows = read_rows(Pieces(reply(T2.THBaseService, "getScannerRows", success=wires), [10_000]), Rows2())
    assert len({id(row.cells[0].column) for row in rows}) == 1


def test_errors_are_left_to_thriftpy2_with_all_their_bytes() -> None:
    whole = reply(T2.THBaseService, "get", io=T2.TIOError(message="no", canRetry=True))
    pieces = Pieces(whole, [7])
    with pytest.raises(NotOurs):
        read_row(pieces, Rows2())
    assert whole.startswith(pieces.data)


def test_announced_sizes_are_not_believed() -> None:
    """A list of two thousand million elements is waited for within the deadline, not made room for."""
    whole = reply(T2.THBaseService, "get", success=T2.TResult(columnValues=[]))
    head = whole.index(b"\x0f\0\2\x0c") + 4
    broken = whole[:head] + b"\x7f\xff\xff\xff" + whole[head + 4 :]
    with pytest.raises(AssertionError, match="more was asked for"):
        read_row(Pieces(broken, [10_000]), Rows2())


# -- requests ------------------------------------------------------------------------------------------------------

VALUES = st.lists(st.tuples(st.sampled_from([b"cf:a", b"cf:", b"d:x:y"]), SMALL), min_size=1, max_size=3)


@given(table=SMALL, row=SMALL)
def test_gets_are_what_thriftpy2_writes(table: bytes, row: bytes) -> None:
    assert called("get", encode_get2(table, row)) == request(T2.THBaseService, "get", table, T2.TGet(row))
    by_hand = called("getRowWithColumns", encode_get1(table, row))
    assert by_hand == request(T1.Hbase, "getRowWithColumns", table, row, None, {})


@given(
    row=SMALL,
    values=VALUES,
    times=st.sampled_from([1, 2**62, LATEST_TIMESTAMP]),
    durability=st.sampled_from(Durability),
)
def test_put_of_thrift2_is_what_thriftpy2_writes(
    row: bytes, values: list[tuple[bytes, bytes]], times: int, durability: Durability
) -> None:
    put = Put(row, tuple(Cell(column, times, value) for column, value in values), durability)
    assert called("put", encode_put2(b"t", put)) == request(T2.THBaseService, "put", b"t", cells.put_of(put))


@given(row=SMALL, values=VALUES, is_logged=st.booleans())
def test_put_of_thrift1_is_what_thriftpy2_writes(
    row: bytes, values: list[tuple[bytes, bytes]], is_logged: bool
) -> None:
    durability = Durability.USE_DEFAULT if is_logged else Durability.SKIP_WAL
    put = Put(row, tuple(Cell(column, LATEST_TIMESTAMP, value) for column, value in values), durability)
    mutations = [
        T1.Mutation(isDelete=False, column=column, value=value, writeToWAL=is_logged) for column, value in values
    ]
    wire = [T1.BatchMutation(row=row, mutations=mutations)]
    assert called("mutateRows", encode_put1(b"t", put)) == request(T1.Hbase, "mutateRows", b"t", wire, {})


@pytest.mark.parametrize(("service", "method"), [(T2.THBaseService, "put"), (T1.Hbase, "mutateRows")])
def test_silent_success_is_known(service: Any, method: str) -> None:
    assert reply_head(method) + pack_number(7) + b"\0" == reply(service, method, 7)


def test_raw_cells_keep_their_type() -> None:
    value = T2.TColumnValue(family=b"cf", qualifier=b"a", value=b"", timestamp=1, type=int(CellType.DELETE_COLUMN))
    wire = T2.TResult(row=b"r", columnValues=[value], stale=False, partial=False)
    row = read_row(Pieces(reply(T2.THBaseService, "get", success=wire), [64]), Rows2())
    assert row.cells[0].type is CellType.DELETE_COLUMN
