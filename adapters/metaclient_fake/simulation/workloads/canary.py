"""Readers with ``max_staleness`` on a cluster that reports no lag: a canary (``watch_freshness``) measures it.

Some of these clients write canary rows, the others only read them. The bound of a canary is proven under two
conditions (:mod:`metaclient.freshness.canary`), which the cluster does not always keep, as HBase 3 does not. Reads
without them are recorded, and the checkers leave these reads out (:meth:`Canary.has_unproven_lag`):

1. The replica has applied all earlier edits. A primary that could not reach a replica drops edits, and sends later
   ones before the files of a flush have filled the gap.
2. The primary's answer to the canary's read is its current state. A server that was declared dead without noticing it
   still answers reads.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from metaclient.backend import Action, Outcome, ScanPage
from metaclient.errors import MetaClientError
from metaclient.freshness.canary import CANARY
from metaclient.many_gets import GetActions
from metaclient.model import Get, RegionLocation, Result, Scan, ServerName
from metaclient_fake.backend import FakeBackend
from metaclient_fake.cluster.replication import sink_of
from metaclient_fake.server.data_calls import DataCalls
from metaclient_fake.server.scanners import ScannerHandle
from metaclient_fake.simulation.history import Operation
from metaclient_fake.simulation.observed import ObservedBackend
from metaclient_fake.simulation.spec import ClientSpec
from metaclient_fake.simulation.workloads.bounded import Bounded
from metaclient_fake.simulation.workloads.registers import TABLE

if TYPE_CHECKING:
    from metaclient_fake.simulation.world import World

__all__ = ["Canary", "SilentBackend"]

#: Intervals of watchers in seconds: below, among and above the shorter limits of the reads.
INTERVALS_S = (0.1, 0.5, 2.0)
_ROUNDING_S = 1e-6


class SilentBackend(ObservedBackend):
    """A backend that reports no lag, as HBase's; it records the reads for which a canary proves nothing."""

    capabilities = dataclasses.replace(FakeBackend.capabilities, replica_lag=False)

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        #: The operations with an answer of a replica that may lack dropped edits.
        self.gap_operations: set[int] = set()
        #: The instants at which a primary that was declared dead answered the canary.
        self.misled_at: list[float] = []

    def get(self, place: RegionLocation | None, table: bytes, get: Get, deadline: float) -> Result:
        return super().get(place, table, get, deadline)._replace(lag_s=None)

    def batch(
        self, server: ServerName | None, table: bytes, actions: Sequence[Action], deadline: float
    ) -> Sequence[Outcome]:
        call = self._canary_batch if _is_canary(actions) else super().batch
        outcomes = call(server, table, actions, deadline)
        return [each._replace(lag_s=None) if isinstance(each, Result) else each for each in outcomes]

    def _canary_batch(
        self, server: ServerName | None, table: bytes, actions: Sequence[Action], deadline: float
    ) -> Sequence[Outcome]:
        """Make a call of the watcher: it belongs to no operation of the client, and only its errors are recorded."""
        outcomes: Sequence[Outcome] | None = None
        try:
            outcomes = FakeBackend.batch(self, server, table, actions, deadline)
            return outcomes
        finally:
            if outcomes is None or any(isinstance(outcome, MetaClientError) for outcome in outcomes):
                self.troubles.append(self._now())

    def scan_open(self, place: RegionLocation | None, table: bytes, scan: Scan, deadline: float) -> ScanPage:
        return _silent(super().scan_open(place, table, scan, deadline))

    def scan_next(self, scanner: object, rows: int, deadline: float) -> ScanPage:
        return _silent(super().scan_next(scanner, rows, deadline))

    def _alive(self, method: Callable[..., Any], operation: int) -> Callable[..., Any]:
        answer = super()._alive(method, operation)

        def noted(calls: DataCalls, subject: object, *arguments: Any) -> Any:
            if isinstance(subject, list | tuple | GetActions) and _is_canary(subject):
                if calls.server.name not in self.cluster.master.live:
                    self.misled_at.append(self._now())
                return answer(calls, subject, *arguments)
            names = _regions_of(subject)
            has_gap = any(map(self._has_gap, names))
            found = answer(calls, subject, *arguments)
            if has_gap or any(map(self._has_gap, names)):
                self.gap_operations.add(operation)
            return found

        return noted

    def _has_gap(self, name: bytes) -> bool:
        """Return True if this copy may have edits of its primary without all earlier ones."""
        master = self.cluster.master
        node = master.states.by_name.get(name)
        if node is None:
            return True
        if not node.info.replica_id or not self.cluster.config.replication.pushes_user_tables:
            return False  # files of a flush have all edits before it
        sink = sink_of(master, master.states.group_of(node).primary)
        return (
            sink is None
            or not sink.has_everything_before(node.info.replica_id, 0)
            or not sink.acknowledged(node.info.replica_id)
        )


class Canary(Bounded):
    """Reads registers at any replica that a canary has shown to be fresh enough."""

    kind = "canary"
    backend: SilentBackend

    def __init__(self, world: World, spec: ClientSpec) -> None:
        super().__init__(world, spec)
        self._interval_s = self.dice.choice(INTERVALS_S)
        self._is_read_only = self.dice.random() < 0.4

    def made_backend(self) -> SilentBackend:
        return SilentBackend(self.world.cluster, self.name, self.world.report)

    def run(self) -> None:
        watch = self.connection.watch_freshness
        with watch(TABLE, family="f", interval=self._interval_s, read_only=self._is_read_only):
            super().run()

    def has_unproven_lag(self, operation: Operation) -> bool:
        lag_s = operation.max_staleness_s if operation.lag_s is None else operation.lag_s
        since = operation.called_at - (lag_s or 0.0) - _ROUNDING_S
        is_misled = any(since <= instant <= operation.returned_at for instant in self.backend.misled_at)
        return is_misled or operation.group in self.backend.gap_operations


def _is_canary(actions: Sequence[Action]) -> bool:
    return all(action.operation.row.endswith(CANARY) for action in actions)


def _regions_of(subject: object) -> Sequence[bytes]:
    """Return the names of the regions that a call reads; its first argument is one, a scanner, or actions."""
    if isinstance(subject, ScannerHandle):
        return [subject.region_name]
    if isinstance(subject, bytes):
        return [subject]
    if isinstance(subject, list | tuple | GetActions):
        return [action.place.region_name for action in subject if action.place is not None]
    return []  # a read of hbase:meta


def _silent(page: ScanPage) -> ScanPage:
    return dataclasses.replace(page, rows=[row._replace(lag_s=None) for row in page.rows], lag_s=None)
