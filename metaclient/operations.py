"""Carries out what tables ask for: locate, plan, call, learn from the answer, and again if it failed.

``Table`` checks and converts what users give; from here on everything is bytes and values. One operation has one
deadline. Behind a gateway a STRONG call has no place and costs no lookup; a backend that addresses servers is told
where to go each time. An answer of a wrong type is a fault of the backend, never an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from metaclient import keys
from metaclient.backend import Action, Addressing, Answer, Backend, BatchSemantics, Outcome
from metaclient.config import Config
from metaclient.errors import (
    BackendFault,
    CallTimeout,
    ConnectionClosed,
    Disposition,
    LocationUnknown,
    MetaClientError,
    Overloaded,
    RegionMoved,
    RegionOffline,
    ServerUnreachable,
    Unsupported,
)
from metaclient.locator import Locator
from metaclient.model import (
    Append,
    Check,
    Consistency,
    Delete,
    Get,
    Increment,
    Mutation,
    Put,
    RegionLocation,
    RegionLocations,
    Result,
    RowMutations,
    ServerName,
)
from metaclient.reads import Executor, HedgeBudget, HedgeDelay, Leg, all_at_once, staged, told
from metaclient.retry import Retrier
from metaclient.runtime import Pending, Runtime
from metaclient.telemetry import Telemetry

__all__ = ["Operations"]

T = TypeVar("T")
Placed = tuple[Result, RegionLocation | None]
Operation = Get | Put | Delete | Increment | Append | RowMutations
NEVER = float("inf")


class Operations:
    """The data calls of one connection."""

    def __init__(
        self,
        backend: Backend,
        runtime: Runtime,
        config: Config,
        executor: Executor,
        locator: Locator,
        retrier: Retrier,
        telemetry: Telemetry,
    ) -> None:
        self.backend = backend
        self.runtime = runtime
        self.config = config
        self.executor = executor
        self.locator = locator
        self.retrier = retrier
        self.telemetry = telemetry
        capabilities = backend.capabilities
        self.by_gateway = capabilities.addressing is Addressing.GATEWAY
        self._can_choose_replica = capabilities.region_replicas
        self.outcome_per_row = capabilities.batch is BatchSemantics.PER_ROW
        # Bound once: the STRONG path is a few microseconds, and attribute chains are some of them.
        self._now = runtime.now
        self._cached_tables = locator.cache.tables
        self._on_success = retrier.budget.on_success
        self._operation_timeout_s = config.operation_timeout_s
        self.read_timeout_s = min(config.rpc_read_timeout_s, config.operation_timeout_s)
        self._is_direct = capabilities.honours_deadline and not capabilities.is_pipelined
        self._backend_get = backend.get
        self.hedge_budget = HedgeBudget(ratio=config.hedge_budget, burst=config.hedge_budget_burst)
        self.delays = {
            "get": self._delay(config.hedge_delay_get_s),
            "scan": self._delay(config.hedge_delay_scan_s),
            "rows": self._delay(config.hedge_delay_multiget_s),
        }
        self._turn = 0  # races between threads only make two reads start at the same replica

    def _delay(self, fixed_s: float) -> HedgeDelay:
        config = self.config
        return HedgeDelay(
            fixed_s=fixed_s,
            adaptive=config.hedge_delay == "adaptive",
            quantile=config.hedge_quantile,
            min_s=config.hedge_delay_min_s,
            max_s=config.hedge_delay_max_s,
            samples_min=config.hedge_samples_min,
        )

    def no_replicas(self) -> Unsupported:
        return Unsupported(
            f"the backend {self.backend.name!r} cannot read region replicas: TIMELINE needs thrift2:, hbase: or fake:"
        )

    # -- one row ---------------------------------------------------------------------------------------------

    def get(self, table: bytes, get: Get, consistency: Consistency, replica_id: int | None) -> Placed:
        """Read a row; the result and the place that it came from (None: a gateway's own choice)."""
        if consistency is Consistency.STRONG:
            return self._get_strong(table, get)
        if not self._can_choose_replica:
            raise self.no_replicas()
        deadline = self._now() + self._operation_timeout_s
        if replica_id is not None:
            return self.retried(lambda: self._get_at(table, get, deadline, replica_id), deadline, table, "get", get.row)
        return self.retried(
            lambda: self.race(
                table,
                get.row,
                "get",
                lambda place, until: self._backend_get(place, table, get, until),
                Result,
                deadline=deadline,
            ),
            deadline,
            table,
            "get",
            get.row,
            knows_place=True,
        )

    def _get_strong(self, table: bytes, get: Get) -> Placed:
        """The path that most reads take: a cached place, one call, nothing else."""
        begun = now = self._now()
        place: RegionLocation | None = None
        try:
            if not self.by_gateway:
                known = self._cached_tables.get(table)
                entry = known.snapshot.covering(get.row) if known is not None else None
                place = entry.replicas[0] if entry is not None else None
                if place is None:
                    place = self.locator.locate(table, get.row, deadline=begun + self._operation_timeout_s)
                    now = self._now()
                elif known is not None:
                    known.hits += 1
            until = now + self.read_timeout_s
            if self._is_direct:
                answer = self._backend_get(place, table, get, until)
            else:
                answer = self.executor.call(self._backend_get, place, table, get, deadline=until)
            if type(answer) is not Result:
                answer = self._result(answer, until)
        except Exception as raised:
            return self._get_again(table, get, place, told(raised), begun)
        self._on_success()
        if place is not None and place.is_hint:
            self.locator.cache.confirm(place)
        return answer, place

    def _result(self, answer: object, until: float) -> Result:
        if isinstance(answer, Pending):  # a backend may answer so even though it does not say is_pipelined
            answer = self.executor.awaited(answer, until)
        return _expect(Result, answer)

    def _get_again(
        self, table: bytes, get: Get, place: RegionLocation | None, error: MetaClientError, begun: float
    ) -> Placed:
        error.place = place
        deadline = begun + self._operation_timeout_s
        return self.retrier.resume(
            error,
            lambda: self._get_at(table, get, deadline),
            begun=begun,
            deadline=deadline,
            what=lambda: _describe("get", table, get.row),
            on_failure=self.learner(table, deadline),
        )

    def _get_at(self, table: bytes, get: Get, deadline: float, replica_id: int = 0) -> Placed:
        place = self.place(table, get.row, deadline, replica_id)
        return self.at(place, Result, self._backend_get, place, table, get, deadline=deadline), place

    def place(self, table: bytes, row: bytes, deadline: float, replica_id: int = 0) -> RegionLocation | None:
        """Where to go for a row; None behind a gateway, which finds the primary by itself."""
        if self.by_gateway and replica_id == 0:
            return None
        return self.locator.locate(table, row, deadline=deadline, replica_id=replica_id)

    def at(
        self,
        place: RegionLocation | None,
        kind: type[T],
        function: Callable[..., Answer[Any]],
        *args: object,
        deadline: float,
        is_write: bool = False,
        discard: Callable[[Any], None] | None = None,
    ) -> T:
        """One attempt at a place, which must answer a ``kind``; the error knows where it happened."""
        timeout_s = self.config.rpc_write_timeout_s if is_write else self.read_timeout_s
        until = min(deadline, self._now() + timeout_s)
        try:
            answer = self.executor.call(function, *args, deadline=until, is_write=is_write, discard=discard)
            value = _expect(kind, answer, is_write=is_write)
        except MetaClientError as error:
            error.place = place
            raise
        if place is not None and place.is_hint:
            self.locator.cache.confirm(place)
        return value

    def retried(
        self,
        attempt: Callable[[], T],
        deadline: float,
        table: bytes,
        what: str,
        row: bytes | None,
        *,
        is_repeatable: bool = True,
        knows_place: bool = False,
    ) -> T:
        return self.retrier.call(
            attempt,
            deadline=deadline,
            what=lambda: _describe(what, table, row),
            is_repeatable=is_repeatable,
            on_failure=self.learner(table, deadline, knows_place=knows_place),
        )

    def learner(
        self, table: bytes, deadline: float, *, knows_place: bool = False
    ) -> Callable[[MetaClientError, int], None]:
        """What a failure teaches: about its location at once, about the table's state from the second one on.

        ``knows_place``: whoever made the call has told the locator already; twice would count a time-out twice.
        """

        def learn(error: MetaClientError, failures: int) -> None:
            if error.place is not None and not knows_place:
                self.locator.on_error(error.place, error)
            is_lost = error.disposition is Disposition.RELOCATE and not isinstance(error, RegionMoved)
            if is_lost and failures >= 2 and not self.by_gateway:
                self.locator.check_enabled(table, deadline)

        return learn

    # -- TIMELINE ----------------------------------------------------------------------------------------------

    def race(
        self,
        table: bytes,
        row: bytes,
        kind: str,
        call: Callable[[RegionLocation, float], Answer[Any]],
        answer: type[T],
        *,
        deadline: float,
        before: bool = False,
        discard: Callable[[T], None] | None = None,
    ) -> tuple[T, RegionLocation]:
        """Ask the region's replicas as the plan says; the first success and where it came from."""
        begun = self._now()
        places, unplaced = self._places(table, row, deadline, before)
        sent = self._now()
        self.hedge_budget.on_call()
        try:
            won = self.executor.race(
                self._legs(places, kind, spent_s=sent - begun),
                call,
                deadline=deadline,
                observer=_Observer(self, kind),
                accept=lambda place, value: None if isinstance(value, answer) else _wrong(answer, value),
                allow_hedge=self.allow_hedge,
                discard=discard,
            )
        except MetaClientError as error:
            if unplaced is None or isinstance(error, ConnectionClosed):
                raise
            raise unplaced from error  # the primary's error counts, and it has no place
        if any(place.replica_id == 0 for place in won.outran):
            # It takes at least that long; without this the delay would be learnt from the primary's good moments.
            self.delays[kind].window.add(self._now() - sent)
        if won.leg.is_hedge:
            self.telemetry.count("metaclient.hedges.won" if won.hedges else "metaclient.failovers")
        return won.value, won.leg.place

    def _places(
        self, table: bytes, row: bytes, deadline: float, before: bool
    ) -> tuple[list[RegionLocation], MetaClientError | None]:
        """The primary, then the secondaries from one that changes with each read; why there is no primary, if so."""
        unplaced: MetaClientError | None = None
        try:
            entry = self.locator.locate_region(table, row, deadline=deadline, before=before)
        except MetaClientError as error:
            # The primary cannot be placed now: whoever is known can still answer a TIMELINE read.
            known = None if before else self.locator.cache.cached_region(table, row)
            if known is None or not known.placed() or error.disposition is Disposition.FATAL:
                raise
            entry, unplaced = known, error
        return [place for at in self.replica_order(entry) if (place := entry.at(at)) is not None], unplaced

    def replica_order(self, entry: RegionLocations) -> list[int]:
        """The primary first, then the others from one that changes with each read."""
        others = list(range(1, len(entry.replicas)))
        self._turn += 1
        start = self._turn % len(others) if others else 0
        return [0, *others[start:], *others[:start]]

    def _legs(self, places: Sequence[RegionLocation], kind: str, spent_s: float) -> Sequence[Leg[RegionLocation]]:
        """Time spent on locating counts towards the delay, as in HBase."""
        delay_s = self.delays[kind].delay_s()
        make = staged if self.config.hedge_plan == "staged" else all_at_once
        legs = make(places, delay_s=delay_s, timeout_s=self.read_timeout_s)
        return [Leg(leg.place, max(0.0, leg.after_s - spent_s), leg.timeout_s, leg.is_hedge) for leg in legs]

    def allow_hedge(self, calls: int = 1) -> bool:
        if not self.hedge_budget.take(calls):
            return False
        self.telemetry.count("metaclient.hedges", calls)
        self.telemetry.emit("hedge_started", calls=calls)
        return True

    # -- writes --------------------------------------------------------------------------------------------------

    def mutate(self, table: bytes, mutation: Mutation) -> Result | None:
        deadline = self._now() + self._operation_timeout_s
        is_change = isinstance(mutation, Increment | Append)
        kind: type[Result | None] = Result if is_change else object  # type: ignore[assignment]  # others: unused

        def attempt() -> Result | None:
            place = self.place(table, mutation.row, deadline)
            return self.at(place, kind, self.backend.mutate, place, table, mutation, deadline=deadline, is_write=True)

        return self.retried(attempt, deadline, table, "mutate", mutation.row, is_repeatable=not is_change)

    def check_and_mutate(self, table: bytes, check: Check, mutation: Mutation) -> bool:
        deadline = self._now() + self._operation_timeout_s

        def attempt() -> bool:
            place = self.place(table, check.row, deadline)
            call = self.backend.check_and_mutate
            return self.at(place, bool, call, place, table, check, mutation, deadline=deadline, is_write=True)

        # Repeating one that was applied would answer False for a True.
        return self.retried(attempt, deadline, table, "check_and_mutate", check.row, is_repeatable=False)

    # -- many rows -------------------------------------------------------------------------------------------------

    def batch(self, table: bytes, operations: Sequence[Operation]) -> list[Outcome]:
        """Run many operations at their primaries; an outcome for each. Raises only when the connection is unusable."""
        return _Multi(self, table, operations, self._now() + self._operation_timeout_s).run()

    def get_many(
        self, table: bytes, gets: Sequence[Get], consistency: Consistency, replica_id: int | None
    ) -> list[Placed]:
        """Read many rows, in the order asked for; the first failed row's error is raised."""
        is_timeline = consistency is Consistency.TIMELINE
        if is_timeline and not self._can_choose_replica:
            raise self.no_replicas()
        multi = _Multi(self, table, gets, self._now() + self._operation_timeout_s)
        multi.is_hedged = is_timeline and replica_id is None
        multi.replica_id = (replica_id or 0) if is_timeline else 0
        results: list[Placed] = []
        for outcome, place in zip(multi.run(), multi.places, strict=True):
            if isinstance(outcome, MetaClientError):
                raise outcome
            results.append((_expect(Result, outcome), place))
        return results


class _Observer:
    """Feeds what legs of a race tell into the delay and the cache."""

    __slots__ = ("_kind", "_operations")

    def __init__(self, operations: Operations, kind: str) -> None:
        self._operations = operations
        self._kind = kind

    def leg_succeeded(self, place: RegionLocation, latency_s: float) -> None:
        if place.replica_id == 0:
            self._operations.delays[self._kind].window.add(latency_s)
        if place.is_hint:
            self._operations.locator.cache.confirm(place)

    def leg_failed(self, place: RegionLocation, error: MetaClientError, latency_s: float) -> None:
        error.place = place
        self._operations.locator.on_error(place, error)


@dataclass(slots=True, eq=False)
class _Group:
    """The actions of one call: which of the batch, where each goes, and the call itself once it is made."""

    server: ServerName | None
    indexes: list[int]
    places: list[RegionLocation | None]
    begun: float = 0.0
    until: float = 0.0
    is_hedge: bool = False
    pending: Pending[Sequence[Outcome]] | None = None


class _Multi:
    """One batch, in rounds; each action that is not settled is grouped by server and sent again.

    1. A round sends one call a server, side by side. Outcomes are judged action by action: an answer settles it, and
       so does a FATAL error, or a doubtful one of an action that is not safe to repeat.
    2. TIMELINE reads are hedged within the round: what the primaries have not answered after the delay is grouped again
       by the servers of the next replica, if the budget allows it; what they have failed goes there at once. The first
       answer of a row wins; when all fail, the primary's error counts.
    3. A round that got on, and left only actions that the server asks to send again (a response that was full), is
       followed by the next at once and costs no try (HBase's RetryImmediately). Else the retrier decides.
    """

    def __init__(self, operations: Operations, table: bytes, actions: Sequence[Operation], deadline: float) -> None:
        self._operations = operations
        self._table = table
        self._actions = actions
        self._deadline = deadline
        self._is_write = any(not isinstance(action, Get) for action in actions)
        self._outcomes: list[Outcome] = [None] * len(actions)
        self._open: dict[int, None] = dict.fromkeys(range(len(actions)))  # without a final outcome, in order
        self._errors: dict[int, MetaClientError] = {}  # of those, the error that counts
        self._maybe_applied: set[int] = set()
        self.places: list[RegionLocation | None] = [None] * len(actions)
        self.is_hedged = False
        self.replica_id = 0

    def run(self) -> list[Outcome]:
        if not self._actions:
            return []
        operations = self._operations
        try:
            operations.retrier.call(
                self._attempt,
                deadline=self._deadline,
                what=lambda: f"batch of {len(self._actions)} on table '{keys.printable(self._table)}'",
                on_failure=operations.learner(self._table, self._deadline, knows_place=True),
            )
        except ConnectionClosed as error:
            error.may_have_applied = error.may_have_applied or bool(self._maybe_applied)
            raise
        except MetaClientError as error:
            for index in list(self._open):
                self._settle(index, _copied(error, cause=self._errors.get(index)))
        return self._outcomes

    def _settle(self, index: int, outcome: Outcome) -> None:
        if isinstance(outcome, MetaClientError) and (index in self._maybe_applied) != outcome.may_have_applied:
            outcome = _copied(outcome, cause=outcome.__cause__)
            outcome.may_have_applied = index in self._maybe_applied
        self._outcomes[index] = outcome
        self._open.pop(index, None)

    def _attempt(self) -> None:
        while self._open:
            before = len(self._open)
            self._errors.clear()
            self._round()
            left = [self._errors.get(index) or CallTimeout("it was not answered in time") for index in self._open]
            if not left:
                return
            got_on = len(left) < before and self._operations.runtime.now() < self._deadline
            if not (got_on and all(error.disposition is Disposition.BACKOFF and not _wait_s(error) for error in left)):
                raise max(left, key=_wait_s)

    # -- one round -----------------------------------------------------------------------------------------------

    def _round(self) -> None:
        """Ask one replica after the other, as the plan says, until nothing is open or nobody is left to ask."""
        operations, runtime = self._operations, self._operations.runtime
        begun = runtime.now()
        delay_s = operations.delays["rows"].delay_s()
        is_staged = operations.config.hedge_plan == "staged"
        first = self._groups(self.replica_id, cached=False)
        order = self._secondaries() if self.is_hedged else []
        if len(first) == 1 and not order:
            self._run_here(first[0])
            return
        running = self._send(first)
        due = begun + delay_s
        try:
            while self._open:
                if order and (not running or runtime.now() >= due):
                    groups = self._groups(order[0], cached=True)
                    if groups and running and not operations.allow_hedge(len(groups)):
                        due = NEVER  # only a failure of all that are running can start it now
                        continue
                    order.pop(0)
                    due += delay_s if is_staged else 0.0
                    running += self._send(groups, is_hedge=bool(running))
                elif running:
                    running = self._collect(running, due if order else NEVER)
                else:
                    return
        finally:
            self._drop(running)

    def _secondaries(self) -> list[int]:
        """Replica ids of the further stages: those of the open row whose region has most of them."""
        cache = self._operations.locator.cache
        entries = [cache.cached_region(self._table, self._actions[index].row) for index in self._open]
        known = [entry for entry in entries if entry is not None]
        if not known:
            return []
        return self._operations.replica_order(max(known, key=lambda entry: len(entry.replicas)))[1:]

    def _groups(self, replica_id: int, *, cached: bool) -> list[_Group]:
        """Open actions by server, in the order given; a hedge costs no lookup."""
        places = self._cached(replica_id) if cached else self._located(replica_id)
        grouped: dict[ServerName | None, _Group] = {}
        for index in [index for index in self._open if index in places]:
            place = places[index]
            server = place.server if place is not None and not self._operations.by_gateway else None
            group = grouped.setdefault(server, _Group(server, [], []))
            group.indexes.append(index)
            group.places.append(place)
        return list(grouped.values())

    def _cached(self, replica_id: int) -> dict[int, RegionLocation | None]:
        cache = self._operations.locator.cache
        found = {index: cache.cached(self._table, self._actions[index].row, replica_id) for index in self._open}
        return {index: place for index, place in found.items() if place is not None}

    def _located(self, replica_id: int) -> dict[int, RegionLocation | None]:
        """Where the open actions go. One that cannot be located keeps its error.

        From the highest row down: a lookup brings the regions below its own for free.
        """
        places: dict[int, RegionLocation | None] = {}
        unable: MetaClientError | None = None  # why hbase:meta is not asked again in this round
        for index in sorted(self._open, key=lambda index: self._actions[index].row, reverse=True):
            try:
                places[index] = self._locate(index, replica_id, unable)
            except ConnectionClosed:
                raise
            except MetaClientError as error:
                self._failed(index, None, error)
                if not isinstance(error, RegionOffline | LocationUnknown):
                    unable = error
        return places

    def _locate(self, index: int, replica_id: int, unable: MetaClientError | None) -> RegionLocation | None:
        row = self._actions[index].row
        if unable is not None:
            place = self._operations.locator.cache.cached(self._table, row, replica_id)
            if place is None:
                raise unable
            return place
        if self.is_hedged:  # also behind a gateway: the legs need to know which replicas there are
            return self._operations.locator.locate(self._table, row, deadline=self._deadline)
        return self._operations.place(self._table, row, self._deadline, replica_id)

    def _arguments(self, group: _Group) -> tuple[ServerName | None, bytes, list[Action]]:
        pairs = zip(group.indexes, group.places, strict=True)
        return group.server, self._table, [Action(place, self._actions[index]) for index, place in pairs]

    def _timed(self, group: _Group) -> None:
        operations = self._operations
        timeout_s = operations.config.rpc_write_timeout_s if self._is_write else operations.read_timeout_s
        group.begun = operations.runtime.now()
        group.until = min(self._deadline, group.begun + timeout_s)

    def _run_here(self, group: _Group) -> None:
        """Nothing else to do meanwhile: in the caller's own thread."""
        operations = self._operations
        self._timed(group)
        try:
            answer = operations.executor.call(
                operations.backend.batch, *self._arguments(group), deadline=group.until, is_write=self._is_write
            )
        except MetaClientError as error:
            self._take_error(group, error)
        else:
            self._take(group, answer)

    def _send(self, groups: list[_Group], *, is_hedge: bool = False) -> list[_Group]:
        operations = self._operations
        sent: list[_Group] = []
        for group in groups:
            group.is_hedge = is_hedge
            self._timed(group)
            if self.is_hedged and not is_hedge:
                operations.hedge_budget.on_call()
            try:
                group.pending = operations.executor.begin(
                    operations.backend.batch, *self._arguments(group), group.until
                )
            except Exception as error:
                self._take_error(group, told(error, is_write=self._is_write))
            else:
                sent.append(group)
        return sent

    def _collect(self, running: list[_Group], due: float) -> list[_Group]:
        """Wait until a call ends, its time is over, or another is due; those that are still running."""
        runtime = self._operations.runtime
        until = min(due, *(group.until for group in running))
        runtime.wait_first([group.pending for group in running if group.pending is not None], until)
        left: list[_Group] = []
        for group in running:
            pending = group.pending
            assert pending is not None
            if pending.is_done:
                error = pending.error()
                if error is not None:
                    self._take_error(group, told(error, is_write=self._is_write))
                else:
                    self._take(group, pending.result())
            elif runtime.now() >= group.until:
                self._operations.executor.abandon(pending)
                self._take_error(group, told(CallTimeout("no answer within its time"), is_write=self._is_write))
            else:
                left.append(group)
        return left

    def _drop(self, running: list[_Group]) -> None:
        """All is answered, or this is the end: nobody waits for these."""
        operations = self._operations
        for group in running:
            assert group.pending is not None
            if not group.is_hedge:
                operations.delays["rows"].window.add(operations.runtime.now() - group.begun)
            operations.executor.abandon(group.pending)

    # -- outcomes ------------------------------------------------------------------------------------------------

    def _take(self, group: _Group, answer: object) -> None:
        if not isinstance(answer, Sequence) or len(answer) != len(group.indexes):
            said = f"{len(answer)} outcomes" if isinstance(answer, Sequence) else type(answer).__name__
            text = f"the backend answered {said} for {len(group.indexes)} actions"
            self._take_error(group, BackendFault(text, may_have_applied=self._is_write))
            return
        operations = self._operations
        if self.is_hedged and not group.is_hedge:
            operations.delays["rows"].window.add(operations.runtime.now() - group.begun)
        blamed: set[int] = set()
        won = False
        for index, place, outcome in zip(group.indexes, group.places, answer, strict=True):
            if index not in self._open:
                continue
            checked = self._checked(index, outcome)
            if isinstance(checked, MetaClientError):
                self._blame(place, checked, blamed)
                self._failed(index, place, checked)
                continue
            if place is not None and place.is_hint:
                operations.locator.cache.confirm(place)
            self.places[index] = place
            self._settle(index, checked)
            won = True
        if won and self.is_hedged and any(place is not None and place.replica_id for place in group.places):
            operations.telemetry.count("metaclient.hedges.won" if group.is_hedge else "metaclient.failovers")

    def _checked(self, index: int, outcome: object) -> Outcome:
        """An outcome of the type that the action has, else the backend's fault."""
        if isinstance(outcome, MetaClientError):
            return told(outcome, is_write=self._is_write)
        if isinstance(self._actions[index], Get | Increment | Append):
            return outcome if isinstance(outcome, Result) else _wrong(Result, outcome, is_write=self._is_write)
        return None

    def _take_error(self, group: _Group, error: MetaClientError) -> None:
        """The whole call failed: every action of it has this error."""
        if isinstance(error, ConnectionClosed):
            raise error
        # One error for all of them, and the server got it (ALL_OR_ERROR): any of them may have been applied.
        is_vague = self._is_write and not self._operations.outcome_per_row and len(group.indexes) > 1
        is_vague = is_vague and not isinstance(error, ServerUnreachable | Overloaded)
        blamed: set[int] = set()
        for index, place in zip(group.indexes, group.places, strict=True):
            if index not in self._open:
                continue
            if is_vague:
                self._maybe_applied.add(index)
            self._blame(place, error, blamed)
            self._failed(index, place, error)

    def _blame(self, place: RegionLocation | None, error: MetaClientError, blamed: set[int]) -> None:
        if place is not None and id(place) not in blamed:
            blamed.add(id(place))
            if error.place is None:
                error.place = place
            self._operations.locator.on_error(place, error)

    def _failed(self, index: int, place: RegionLocation | None, error: MetaClientError) -> None:
        is_secondary = self.is_hedged and place is not None and place.replica_id != 0
        if error.may_have_applied:
            self._maybe_applied.add(index)
        if not is_secondary or index not in self._errors:
            self._errors[index] = error
        is_unsafe = isinstance(self._actions[index], Increment | Append) and index in self._maybe_applied
        if is_unsafe or (error.disposition is Disposition.FATAL and not is_secondary):
            self._settle(index, error)


def _wait_s(error: MetaClientError) -> float:
    return float(getattr(error, "wait_s", 0.0))


def _expect(kind: type[T], value: object, *, is_write: bool = False) -> T:
    if isinstance(value, kind):
        return value
    raise _wrong(kind, value, is_write=is_write)


def _wrong(kind: type, value: object, *, is_write: bool = False) -> BackendFault:
    text = f"the backend answered {type(value).__name__} where {kind.__name__} belongs"
    return BackendFault(text, may_have_applied=is_write)


def _copied(error: MetaClientError, *, cause: BaseException | None) -> MetaClientError:
    """The same error for another row: what is said about one must not change what is said about the others."""
    made = type(error).__new__(type(error))
    made.args = error.args
    made.__dict__.update(error.__dict__)
    made.__cause__ = cause
    return made


def _describe(what: str, table: bytes, row: bytes | None) -> str:
    where = f" of row '{keys.printable(row)}'" if row is not None else ""
    return f"{what}{where} in table '{keys.printable(table)}'"
