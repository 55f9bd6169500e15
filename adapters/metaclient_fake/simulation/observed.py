"""Records one client's calls from outside: the server of each, when it began and ended, and its error.

:class:`ObservedBackend` is between a client and the cluster. Checkers count hedges, retries and reads of ``hbase:meta``
here and not in the client's own statistics, which are part of what is checked. When a write is applied, it also checks
that the server still owns the region.

A server that was declared dead without noticing it cannot write any more (its log is fenced), but it still answers
reads from its memory: HBase has no lease for reads. Such answers may be old; the operations are recorded, and the
checkers ignore their values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from metaclient import keys
from metaclient.backend import Action, MetaPage, MetaScan, Outcome, ScanPage
from metaclient.errors import MetaClientError
from metaclient.model import Check, Get, MetaReplica, Mutation, RegionLocation, Result, Scan, ServerName
from metaclient_fake.backend import FakeBackend
from metaclient_fake.master.region_states import RegionState
from metaclient_fake.server.data_calls import DataCalls
from metaclient_fake.server.region_server import RegionServer
from metaclient_fake.server.scanners import ScannerHandle

if TYPE_CHECKING:
    from metaclient_fake.cluster import FakeCluster

__all__ = ["ObservedBackend", "SeenCall", "SeenMetaRead"]

_OWNS = frozenset(
    {RegionState.OPENING, RegionState.OPEN, RegionState.CLOSING, RegionState.SPLITTING, RegionState.MERGING}
)

T = TypeVar("T")
Report = Callable[[str, str], None]


class SeenCall:
    """One call for data: its server and replica, when it began and ended, and the kind of error that it ended with."""

    __slots__ = ("begun", "deadline", "ended", "error", "operation", "replica_id", "server")

    def __init__(self, operation: int, replica_id: int, server: str, begun: float, deadline: float) -> None:
        self.operation = operation
        self.replica_id = replica_id
        self.server = server
        self.begun = begun
        self.deadline = deadline
        self.ended: float | None = None
        self.error: type[MetaClientError] | None = None  # not the error itself, which holds all frames of the call

    @property
    def over_at(self) -> float:
        """The instant at which the caller stopped waiting: a call that is paused ends after its deadline."""
        return self.deadline if self.ended is None else min(self.ended, self.deadline)

    def is_running_at(self, instant: float) -> bool:
        return self.begun <= instant and (self.ended is None or self.ended > instant)


class SeenMetaRead:
    """One read of hbase:meta."""

    __slots__ = ("begun", "ended", "error", "is_table_state", "is_vague", "replica_id", "rows")

    def __init__(self, replica_id: int, begun: float, is_table_state: bool) -> None:
        self.replica_id = replica_id
        self.begun = begun
        self.is_table_state = is_table_state
        self.ended: float | None = None
        self.error: type[MetaClientError] | None = None
        self.rows = -1
        self.is_vague = False  # some row of it has no server: a region on the move


class ObservedBackend(FakeBackend):
    """A client's backend that records its calls. ``operation`` is the number of the client's current operation."""

    def __init__(self, cluster: FakeCluster, name: str, report: Report) -> None:
        super().__init__(cluster, party=f"client/{name}")
        self._report = report
        self._now = cluster.runtime.now
        self.operation = -1
        self.calls: list[SeenCall] = []
        self.meta_reads: list[SeenMetaRead] = []
        #: Operations in which a zombie took part: a server that was declared dead without noticing it.
        self.zombie_operations: set[int] = set()
        #: The instants at which some rows of a batch were refused, or a scanner was lost.
        self.troubles: list[float] = []
        #: Scanners that the client has opened and neither closed nor lost.
        self.scanners: dict[tuple[str, int], object] = {}

    # -- hbase:meta --------------------------------------------------------------------------------------------

    def read_meta(self, replica: MetaReplica, scan: MetaScan, deadline: float) -> MetaPage:
        seen = SeenMetaRead(replica.replica_id, self._now(), scan.families == (b"table",))
        self.meta_reads.append(seen)
        try:
            page = super().read_meta(replica, scan, deadline)
            seen.rows = len(page.rows)
            seen.is_vague = any(b"info:server" not in row.columns for row in page.rows)
            return page
        except MetaClientError as error:
            seen.error = type(error)
            raise
        finally:
            seen.ended = self._now()

    # -- data --------------------------------------------------------------------------------------------------

    def get(self, place: RegionLocation | None, table: bytes, get: Get, deadline: float) -> Result:
        call = super().get
        return self._seen(place, deadline, lambda: call(place, table, get, deadline))

    def mutate(self, place: RegionLocation | None, table: bytes, mutation: Mutation, deadline: float) -> Result | None:
        self._check_range(place, mutation.row)
        call = super().mutate
        return self._seen(place, deadline, lambda: call(place, table, mutation, deadline))

    def check_and_mutate(
        self, place: RegionLocation | None, table: bytes, check: Check, mutation: Mutation, deadline: float
    ) -> bool:
        self._check_range(place, mutation.row)
        call = super().check_and_mutate
        return self._seen(place, deadline, lambda: call(place, table, check, mutation, deadline))

    def batch(
        self, server: ServerName | None, table: bytes, actions: Sequence[Action], deadline: float
    ) -> Sequence[Outcome]:
        for action in actions:
            self._check_range(action.place, action.operation.row)
        call = super().batch
        place = actions[0].place if actions else None
        outcomes = self._seen(place, deadline, lambda: call(server, table, actions, deadline))
        if any(isinstance(outcome, MetaClientError) for outcome in outcomes):
            self.troubles.append(self._now())
        return outcomes

    def scan_open(self, place: RegionLocation | None, table: bytes, scan: Scan, deadline: float) -> ScanPage:
        call = super().scan_open
        page = self._seen(place, deadline, lambda: call(place, table, scan, deadline))
        if page.scanner is not None:
            self.scanners[_key_of(page.scanner)] = page.scanner
        return page

    def scan_next(self, scanner: object, rows: int, deadline: float) -> ScanPage:
        try:
            page = super().scan_next(scanner, rows, deadline)
        except MetaClientError as error:
            self.troubles.append(self._now())
            if error.loses_scanner:
                self.scanners.pop(_key_of(scanner), None)
            raise
        if page.scanner is None:
            self.scanners.pop(_key_of(scanner), None)
        return page

    def scan_close(self, scanner: object, deadline: float) -> None:
        self.scanners.pop(_key_of(scanner), None)
        super().scan_close(scanner, deadline)

    def _seen(self, place: RegionLocation | None, deadline: float, call: Callable[[], T]) -> T:
        assert place is not None, "the fake is told where to go"
        seen = SeenCall(self.operation, place.replica_id, place.server.host, self._now(), deadline)
        self.calls.append(seen)
        try:
            return call()
        except MetaClientError as error:
            seen.error = type(error)
            raise
        finally:
            seen.ended = self._now()

    # -- who owns the row --------------------------------------------------------------------------------------

    def _check_range(self, place: RegionLocation | None, row: bytes) -> None:
        if place is None or place.region.contains(row):
            return
        region = keys.printable(place.region_name, 200)
        self._report("ownership", f"{self.party} sent row {keys.printable(row)} to {region}, which does not contain it")

    def _run(  # type: ignore[override]  # any method, with whatever it takes
        self,
        name: ServerName,
        deadline: float,
        is_write: bool,
        is_meta: bool,
        method: Callable[..., Any],
        *arguments: Any,
    ) -> Any:
        if is_write:
            method = self._owned_batch if method is DataCalls.batch else self._owned(method)
        else:
            method = self._alive(method, self.operation)
        return super()._run(name, deadline, is_write, is_meta, method, *arguments)

    def _alive(self, method: Callable[..., Any], operation: int) -> Callable[..., Any]:
        """Wrap a read method so that reads at a server that was declared dead are recorded; HBase answers them."""

        def answer(calls: DataCalls, *arguments: Any, **options: Any) -> Any:
            if calls.server.name not in self.cluster.master.live:
                self.zombie_operations.add(operation)
            return method(calls, *arguments, **options)

        return answer

    def _owned(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def apply(calls: DataCalls, region_name: bytes, *arguments: Any) -> Any:
            server = calls.server
            was_owner = self._is_owner(server, region_name)
            answer = method(calls, region_name, *arguments)
            if answer is not False and not was_owner and not self._is_owner(server, region_name):
                self._not_owned(server, region_name, arguments[-1].row)
            return answer

        return apply

    def _owned_batch(self, calls: DataCalls, actions: Sequence[Action]) -> Sequence[Outcome]:
        server = calls.server
        names = [action.place.region_name if action.place is not None else b"" for action in actions]
        before = [self._is_owner(server, name) for name in names]
        outcomes = calls.batch(actions)
        for action, name, was_owner, outcome in zip(actions, names, before, outcomes, strict=True):
            if isinstance(action.operation, Get) or isinstance(outcome, MetaClientError):
                continue
            if not was_owner and not self._is_owner(server, name):
                self._not_owned(server, name, action.operation.row)
        return outcomes

    def _is_owner(self, server: RegionServer, region_name: bytes) -> bool:
        node = self.cluster.master.states.by_name.get(region_name)
        return node is not None and node.server == server.name and node.state in _OWNS

    def _not_owned(self, server: RegionServer, region_name: bytes, row: bytes) -> None:
        region = keys.printable(region_name, 200)
        self._report(
            "ownership", f"{server.name} applied a write to row {keys.printable(row)} in {region}, not its own"
        )


def _key_of(scanner: object) -> tuple[str, int]:
    assert isinstance(scanner, ScannerHandle), "a scanner of this backend"
    return str(scanner.server), scanner.scanner_id
