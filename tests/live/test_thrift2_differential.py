"""The fake's Thrift 2 gateway beside HBase's: random structures to both, every answer compared field by field."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings

import metaclient
from metaclient.runtime import Runtime
from metaclient_fake import FakeCluster
from metaclient_local_hbase import LocalHBase
from tests.live.thrift2_structures import CALLS, EVERYTHING, Call
from tests.live.two_sides import FAMILIES, Moments
from tests.unit.fake_front.gateway_client import thrift2_client

EXAMPLES = int(os.environ.get("METACLIENT_DIFFERENTIAL_EXAMPLES", "60"))
TABLE = b"structures"
READ_METHODS = frozenset({"get", "exists", "getMultiple", "existsAll", "getScannerResults"})


def prefixed(value: Any, prefix: bytes) -> Any:
    """A copy in which every row has the prefix."""
    if isinstance(value, list | tuple):
        return type(value)(prefixed(one, prefix) for one in value)
    if not hasattr(value, "thrift_spec"):
        return value
    made = copy.copy(value)
    for name in ("row", "startRow", "stopRow"):
        if getattr(made, name, None) is not None:
            setattr(made, name, prefix + getattr(made, name))
    for name in ("mutations", "put", "deleteSingle"):
        if getattr(made, name, None) is not None:
            setattr(made, name, prefixed(getattr(made, name), prefix))
    return made


def plain(value: Any) -> Any:
    """An answer as lists, so that it can be compared and printed."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    if hasattr(value, "columnValues"):
        cells = [(one.family, one.qualifier, one.timestamp, one.value, one.type) for one in value.columnValues]
        return [value.row, cells, bool(value.stale), bool(value.partial)]
    return value


class Gateways:
    """The two gateways, and when each call began."""

    def __init__(self, fake: Any, real: Any, runtime: Runtime) -> None:
        self._clients = (fake, real)
        self._moments = Moments(runtime)

    def compare(self, call: Call) -> str:
        """Send to both; they must agree. Which kind of answer it was."""
        method, arguments = call
        prefix = self._moments.prefix
        self._moments.begin()
        if method.startswith("checkAnd"):
            arguments = (prefix + arguments[0], *arguments[1:])
        answers = [
            self._moments.comparable(self._answer(client, method, prefixed(arguments, prefix)))
            for client in self._clients
        ]
        assert answers[0] == answers[1], f"{method}{arguments}\nfake: {answers[0]}\nreal: {answers[1]}"
        return "refused" if answers[1] == "refused" else "answered"

    def _answer(self, client: Any, method: str, arguments: tuple[Any, ...]) -> Any:
        try:
            return plain(getattr(client, method)(TABLE, *arguments))
        except Exception as error:
            if type(error).__name__ not in ("TIOError", "TIllegalArgument", "TApplicationException"):
                raise
            return "refused"


@pytest.fixture(scope="module")
def gateways(hbase: LocalHBase) -> Iterator[Callable[[], Gateways]]:
    with (
        FakeCluster(servers=1) as cluster,
        cluster.connect() as fake,
        metaclient.connect(hbase.thrift2_url) as real,
    ):
        cluster.serve(thrift1_port=None, thrift2_port=0, rpc_port=None)
        for connection in (fake, real):
            if TABLE not in connection.tables():
                connection.create_table(TABLE, FAMILIES)
        port = int(hbase.thrift2_url.rpartition(":")[2])
        with thrift2_client(cluster.thrift2_port) as ours, thrift2_client(port) as theirs:
            yield lambda: Gateways(ours, theirs, real._runtime)


@pytest.mark.essential
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(calls=CALLS)
def test_gateways_answer_the_same_structures_alike(gateways: Callable[[], Gateways], calls: list[Call]) -> None:
    sides = gateways()
    for call in calls:
        event(f"{call[0]}: {sides.compare(call)}")
        if call[0] not in READ_METHODS:
            sides.compare(EVERYTHING)
