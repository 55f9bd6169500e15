"""Many gets in one message, written by hand and read by pages: the same as what thriftpy2 writes and reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from thriftpy2.protocol import TBinaryProtocol
from thriftpy2.transport import TMemoryBuffer

from metaclient.errors import BackendFault
from metaclient.many_gets import FoundRows, GetActions
from metaclient.model import Get, RegionInfo, RegionLocation, Result, ServerName
from metaclient.wire.thrift.idl import thrift2
from metaclient.wire.thrift.structs import get_of
from metaclient_thrift.binary import Rows2
from metaclient_thrift.thrift2 import Thrift2Backend
from tests.unit.thrift.test_binary import Pieces, reply
from tests.unit.thrift.test_row_pages import row, value

T = thrift2()
OPTIONS: list[dict[str, Any]] = [
    {},
    {"columns": (b"f:q", b"g")},
    {"max_versions": 3},
    {"max_timestamp": 9},
    {"min_timestamp": 2, "filter": b"KeyOnlyFilter(false)"},
]


class OneLink:
    """A channel whose link answers each call with these rows, and keeps the arguments of the last call."""

    def __init__(self, wires: list[Any], *, reads_rows: bool = True) -> None:
        self.rows = Rows2() if reads_rows else None
        self.wires = wires
        self.sent: Any = None

    def __call__(self, method: str, *arguments: Any) -> Any:
        self.sent = arguments
        return self.wires

    call = __call__

    def ask(self, method: str, request: Any, read: Callable[..., Any]) -> Any:
        self.sent = request
        return read(Pieces(reply(T.THBaseService, method, success=self.wires), [1 << 20]), self.rows)


class OneChannel:
    def __init__(self, link: OneLink) -> None:
        self.link = link

    def ask(self, ask: Callable[[Any], Any], method: str, deadline: float, table: bytes, **_: Any) -> tuple[Any, None]:
        return ask(self.link), None


def backend_with(link: OneLink) -> Thrift2Backend:
    made = object.__new__(Thrift2Backend)
    made._channel = OneChannel(link)  # type: ignore[assignment]  # all that these calls need of a channel
    return made


def actions_of(rows: list[bytes], place: RegionLocation | None = None, **options: Any) -> GetActions:
    return GetActions(rows, Get(b"", **options), [(place, len(rows))])


@given(rows=st.lists(st.binary(min_size=1, max_size=5), max_size=9), options=st.sampled_from(OPTIONS))
def test_gets_written_by_hand_are_read_as_thriftpy2_writes_them(rows: list[bytes], options: dict[str, Any]) -> None:
    link = OneLink([row(each, []) for each in rows])
    backend_with(link).batch(None, b"ns:t", actions_of(rows, **options), 1.0)
    protocol = TBinaryProtocol(TMemoryBuffer(link.sent), decode_response=False)
    read = T.THBaseService.getMultiple_args()
    read.read(protocol)
    assert protocol.trans.read(1) == b""
    gets = [get_of(Get(each, **options), None) for each in rows]
    for get in gets:
        if isinstance(get.filterString, str):
            get.filterString = get.filterString.encode()
    assert read == T.THBaseService.getMultiple_args(b"ns:t", gets)


@given(there=st.lists(st.integers(0, 2), max_size=40), reads_rows=st.booleans())
def test_pages_have_the_results_that_single_rows_have(there: list[int], reads_rows: bool) -> None:
    names = [b"r%03d" % number for number in range(len(there))]
    wires = [
        row(name, [value(b"f", b"q%d" % at, name, 7) for at in range(count)]) if count else row(None, [])  # type: ignore[arg-type]  # gateways do not set the row of a missing row
        for name, count in zip(names, there, strict=True)
    ]
    backend = backend_with(OneLink(wires, reads_rows=reads_rows))
    found = backend.batch(None, b"t", actions_of(names), 1.0)
    assert isinstance(found, FoundRows)
    assert found == backend.batch(None, b"t", list(actions_of(names)), 1.0)
    assert [(one.row, len(one.cells)) for one in found] == list(zip(names, there, strict=True))
    assert [[(cell.column, cell.value, cell.timestamp) for cell in one.cells] for one in found] == [
        [(b"f:q%d" % at, name, 7) for at in range(count)] for name, count in zip(names, there, strict=True)
    ]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_gateway_that_answers_more_or_fewer_rows_is_refused(count: int) -> None:
    backend = backend_with(OneLink([row(b"a", [value(b"f", b"q", b"v")])] * count))
    with pytest.raises(BackendFault):
        backend.batch(None, b"t", actions_of([b"a", b"b"]), 1.0)


@pytest.mark.parametrize("replica_id", [0, 1])
def test_rows_of_a_secondary_are_not_read_by_a_call_that_ignores_replicas(replica_id: int) -> None:
    place = RegionLocation(RegionInfo(b"t", region_id=1, replica_id=replica_id), ServerName("rs1", 16020, 1), 1)
    asked: list[Any] = []
    backend = backend_with(OneLink([row(b"a", [value(b"f", b"q", b"v")])]))
    backend.get = lambda at, table, get, deadline: asked.append(at) or Result(get.row)  # type: ignore[assignment, method-assign, func-returns-value, return-value]  # records the call
    backend.batch(None, b"t", actions_of([b"a"], place), 1.0)
    assert asked == ([place] if replica_id else [])
