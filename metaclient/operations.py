"""Carries out what tables ask for: locate, plan, call, learn from the answer, and again if it failed.

``Table`` checks and converts what users give; from here on everything is bytes and values. One operation has one
deadline. Behind a gateway a STRONG call has no place and costs no lookup; a backend that addresses servers is told
where to go each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from metaclient import keys
from metaclient.backend import Action, Addressing, Answer, Backend, BatchSemantics, Outcome
from metaclient.config import Config
from metaclient.errors import (
    ConnectionClosed,
    DeadlineExceeded,
    Disposition,
    MetaClientError,
    RegionMoved,
    RequestRefused,
    Unsupported,
    translated,
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
    Result,
    RowMutations,
    ServerName,
)
from metaclient.reads import Executor, HedgeBudget, HedgeDelay, Leg, all_at_once, staged
from metaclient.retry import Retrier
from metaclient.runtime import Pending, Runtime
from metaclient.telemetry import Telemetry

__all__ = ["Operations"]

T = TypeVar("T")
Placed = tuple[Result, RegionLocation | None]
Operation = Get | Put | Delete | Increment | Append | RowMutations


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
        self._outcome_per_row = capabilities.batch is BatchSemantics.PER_ROW
        # Bound once: the STRONG path is a few microseconds, and attribute chains are some of them.
        self._now = runtime.now
        self._cached_tables = locator.cache.tables
        self._on_success = retrier.budget.on_success
        self._operation_timeout_s = config.operation_timeout_s
        self._read_timeout_s = min(config.rpc_read_timeout_s, config.operation_timeout_s)
        self._is_direct = capabilities.honours_deadline and not capabilities.is_pipelined
        self._backend_get = backend.get
        self.hedge_budget = HedgeBudget(ratio=config.hedge_budget, burst=config.hedge_budget_burst)
        self._delays = {
            "get": self._delay(config.hedge_delay_get_s),
            "scan": self._delay(config.hedge_delay_scan_s),
            "rows": self._delay(config.hedge_delay_multiget_s),
        }
        self._turn = 0

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
        attempt = self._timeline_attempt(table, get, replica_id, deadline)
        return self._retried(attempt, deadline, table, "get", get.row)

    def _get_strong(self, table: bytes, get: Get) -> Placed:
        now = self._now()
        place: RegionLocation | None = None
        try:
            if not self.by_gateway:
                known = self._cached_tables.get(table)
                entry = known.snapshot.covering(get.row) if known is not None else None
                place = entry.replicas[0] if entry is not None else None
                if place is None:
                    place = self.locator.locate(table, get.row, deadline=now + self._operation_timeout_s)
            if self._is_direct:
                answer = self._backend_get(place, table, get, now + self._read_timeout_s)
                result = answer if not isinstance(answer, Pending) else self._wait(answer, now)
            else:
                result = self.executor.call(self._backend_get, place, table, get, deadline=now + self._read_timeout_s)
        except Exception as raised:
            return self._get_again(table, get, place, translated(raised), now + self._operation_timeout_s)
        self._on_success()
        if place is not None and place.is_hint:
            self.locator.cache.confirm(place)
        return result, place

    def _wait(self, pending: Pending[T], begun: float) -> T:
        return pending.result(begun + self._read_timeout_s)

    def _get_again(
        self, table: bytes, get: Get, place: RegionLocation | None, error: MetaClientError, deadline: float
    ) -> Placed:
        error.place = place

        def attempt() -> Placed:
            at = self._place(table, get.row, deadline)
            return self._at(at, self.backend.get, at, table, get, deadline=deadline), at

        return self.retrier.resume(
            error,
            attempt,
            deadline=deadline,
            what=lambda: _describe("get", table, get.row),
            on_failure=self._learner(table, deadline),
        )

    def _place(self, table: bytes, row: bytes, deadline: float, replica_id: int = 0) -> RegionLocation | None:
        if self.by_gateway and replica_id == 0:
            return None
        return self.locator.locate(table, row, deadline=deadline, replica_id=replica_id)

    def _at(
        self,
        place: RegionLocation | None,
        function: Callable[..., Answer[T]],
        *args: object,
        deadline: float,
        is_write: bool = False,
    ) -> T:
        """One attempt at a place; the error knows where it happened."""
        timeout_s = self.config.rpc_write_timeout_s if is_write else self._read_timeout_s
        until = min(deadline, self._now() + timeout_s)
        try:
            value = self.executor.call(function, *args, deadline=until, is_write=is_write)
        except MetaClientError as error:
            error.place = place
            raise
        if place is not None and place.is_hint:
            self.locator.cache.confirm(place)
        return value

    def _retried(
        self,
        attempt: Callable[[], T],
        deadline: float,
        table: bytes,
        what: str,
        row: bytes | None,
        *,
        is_repeatable: bool = True,
    ) -> T:
        return self.retrier.call(
            attempt,
            deadline=deadline,
            what=lambda: _describe(what, table, row),
            is_repeatable=is_repeatable,
            on_failure=self._learner(table, deadline),
        )

    def _learner(self, table: bytes, deadline: float) -> Callable[[MetaClientError, int], None]:
        """What a failure teaches: about its location at once, about the table's state from the second one on."""

        def learn(error: MetaClientError, failures: int) -> None:
            if error.place is not None:
                self.locator.on_error(error.place, error)
            is_lost = error.disposition is Disposition.RELOCATE and not isinstance(error, RegionMoved)
            if is_lost and failures >= 2 and not self.by_gateway:
                self.locator.check_enabled(table, deadline)

        return learn

    # -- TIMELINE ----------------------------------------------------------------------------------------------

    def _timeline_attempt(
        self, table: bytes, get: Get, replica_id: int | None, deadline: float
    ) -> Callable[[], Placed]:
        if replica_id is not None:

            def attempt() -> Placed:
                place = self.locator.locate(table, get.row, deadline=deadline, replica_id=replica_id)
                return self._at(place, self.backend.get, place, table, get, deadline=deadline), place

            return attempt

        def hedged() -> Placed:
            return self.race(
                table,
                get.row,
                "get",
                lambda place, until: self.backend.get(place, table, get, until),
                deadline=deadline,
            )

        return hedged

    def race(
        self,
        table: bytes,
        row: bytes,
        kind: str,
        call: Callable[[RegionLocation, float], Answer[T]],
        *,
        deadline: float,
        before: bool = False,
        discard: Callable[[T], None] | None = None,
    ) -> tuple[T, RegionLocation]:
        """Ask the region's replicas as the plan says; the first success and where it came from."""
        begun = self._now()
        places = self._places(table, row, deadline, before)
        legs = self._legs(places, kind, spent_s=self._now() - begun)
        self.hedge_budget.on_call()
        won = self.executor.race(
            legs,
            call,
            deadline=deadline,
            observer=_Observer(self, kind),
            allow_hedge=self._allow_hedge,
            discard=discard,
        )
        if won.leg.is_hedge:
            self.telemetry.count("metaclient.hedges.won")
        return won.value, won.leg.place

    def _places(self, table: bytes, row: bytes, deadline: float, before: bool) -> list[RegionLocation]:
        """The primary, then the secondaries from a place that moves on with each read."""
        try:
            entry = self.locator.locate_region(table, row, deadline=deadline, before=before)
        except MetaClientError as error:
            # The primary cannot be placed now: whoever is known can still answer a TIMELINE read.
            known = None if before else self.locator.cache.cached_region(table, row)
            if known is None or not known.placed() or error.disposition is Disposition.FATAL:
                raise
            entry = known
        placed = entry.placed()
        primary = [place for place in placed if place.replica_id == 0]
        others = [place for place in placed if place.replica_id != 0]
        self._turn += 1
        start = self._turn % len(others) if others else 0
        return [*primary, *others[start:], *others[:start]]

    def _legs(self, places: Sequence[RegionLocation], kind: str, spent_s: float) -> Sequence[Leg[RegionLocation]]:
        """Time spent on locating counts towards the delay, as in HBase."""
        delay_s = self._delays[kind].delay_s()
        make = staged if self.config.hedge_plan == "staged" else all_at_once
        legs = make(places, delay_s=delay_s, timeout_s=self._read_timeout_s)
        return [Leg(leg.place, max(0.0, leg.after_s - spent_s), leg.timeout_s, leg.is_hedge) for leg in legs]

    def _allow_hedge(self) -> bool:
        if not self.hedge_budget.take():
            return False
        self.telemetry.count("metaclient.hedges")
        self.telemetry.emit("hedge_started")
        return True

    # -- writes --------------------------------------------------------------------------------------------------

    def mutate(self, table: bytes, mutation: Mutation) -> Result | None:
        deadline = self._now() + self._operation_timeout_s

        def attempt() -> Result | None:
            place = self._place(table, mutation.row, deadline)
            return self._at(place, self.backend.mutate, place, table, mutation, deadline=deadline, is_write=True)

        repeatable = not isinstance(mutation, Increment | Append)
        return self._retried(attempt, deadline, table, "mutate", mutation.row, is_repeatable=repeatable)

    def check_and_mutate(self, table: bytes, check: Check, mutation: Mutation) -> bool:
        deadline = self._now() + self._operation_timeout_s

        def attempt() -> bool:
            place = self._place(table, check.row, deadline)
            return self._at(
                place, self.backend.check_and_mutate, place, table, check, mutation, deadline=deadline, is_write=True
            )

        # Repeating one that was applied would answer False for a True.
        return self._retried(attempt, deadline, table, "check_and_mutate", check.row, is_repeatable=False)

    # -- many rows -------------------------------------------------------------------------------------------------

    def batch(self, table: bytes, operations: Sequence[Operation]) -> list[Outcome]:
        """Run many operations at their primaries; an outcome for each. Raises only when the connection is unusable."""
        run = _Batch(self, table, operations, self._now() + self._operation_timeout_s)
        return run.outcomes()

    def get_many(
        self, table: bytes, gets: Sequence[Get], consistency: Consistency, replica_id: int | None
    ) -> list[tuple[Result, RegionLocation | None]]:
        """Read many rows, in the order asked for; the first failed row's error is raised."""
        if consistency is Consistency.TIMELINE and not self._can_choose_replica:
            raise self.no_replicas()
        run = _Batch(self, table, gets, self._now() + self._operation_timeout_s)
        if consistency is Consistency.TIMELINE:
            run.replica_id = replica_id
            run.is_timeline = True
        results: list[tuple[Result, RegionLocation | None]] = []
        for get, outcome, place in zip(gets, run.outcomes(), run.places, strict=True):
            if isinstance(outcome, MetaClientError):
                raise outcome
            results.append((outcome or Result(get.row), place))
        return results


class _Observer:
    """Feeds what legs of a race tell into the delay and the cache."""

    __slots__ = ("_kind", "_operations")

    def __init__(self, operations: Operations, kind: str) -> None:
        self._operations = operations
        self._kind = kind

    def leg_succeeded(self, place: RegionLocation, latency_s: float) -> None:
        if place.replica_id == 0:
            self._operations._delays[self._kind].window.add(latency_s)
        if place.is_hint:
            self._operations.locator.cache.confirm(place)

    def leg_failed(self, place: RegionLocation, error: MetaClientError, latency_s: float) -> None:
        if error.place is None:
            error.place = place
        if place.replica_id != 0 or error.disposition is not Disposition.FATAL:
            self._operations.locator.on_error(place, error)


class _Batch:
    """One batch: the actions that are not done yet are grouped by server and sent again, until none is left.

    TIMELINE reads are hedged group by group: what the primaries' servers have not answered after the delay is grouped
    again by the servers of the next replica; the first answer for a row wins.
    """

    def __init__(self, operations: Operations, table: bytes, actions: Sequence[Operation], deadline: float) -> None:
        self._operations = operations
        self._table = table
        self._actions = actions
        self._deadline = deadline
        self._outcomes: list[Outcome] = [None] * len(actions)
        self._open: list[int] = list(range(len(actions)))  # indexes without a final outcome
        self._done: set[int] = set()  # indexes that were answered
        self._maybe_applied: set[int] = set()
        self.places: list[RegionLocation | None] = [None] * len(actions)
        self.is_timeline = False
        self.replica_id: int | None = None

    def outcomes(self) -> list[Outcome]:
        if not self._actions:
            return []
        try:
            self._operations.retrier.call(
                self._attempt,
                deadline=self._deadline,
                what=lambda: f"batch of {len(self._actions)} on {keys.printable(self._table)!r}",
                on_failure=self._learn,
            )
        except ConnectionClosed:
            raise
        except MetaClientError as error:
            for index in self._open:
                self._outcomes[index] = self._final(index, error)
        return self._outcomes

    def _final(self, index: int, error: MetaClientError) -> MetaClientError:
        """What ran out is the batch's, what was wrong is the row's own."""
        own = self._outcomes[index]
        if isinstance(own, MetaClientError) and own.disposition is Disposition.FATAL:
            return own
        made = (
            type(error)(str(error))
            if type(error).__init__ is MetaClientError.__init__
            else DeadlineExceeded(str(error))
        )
        made.may_have_applied = index in self._maybe_applied or error.may_have_applied
        made.attempts = error.attempts
        made.__cause__ = own if isinstance(own, MetaClientError) else error
        return made

    def _learn(self, error: MetaClientError, failures: int) -> None:
        if failures >= 2 and error.disposition is Disposition.RELOCATE and not self._operations.by_gateway:
            self._operations.locator.check_enabled(self._table, self._deadline)

    # -- one round -----------------------------------------------------------------------------------------------

    def _attempt(self) -> None:
        stages = self._stages()
        running: list[tuple[Pending[Sequence[Outcome]], list[int], list[RegionLocation | None]]] = []
        for number, stage in enumerate(stages):
            indexes = [index for index in self._open if not self._is_done(index)]
            if not indexes or (number and not self._operations._allow_hedge()):
                break
            groups = self._groups(indexes, stage)
            if len(stages) == 1 and len(groups) == 1:
                self._run_group(*groups[0])
                break
            running += [self._start_group(*group) for group in groups]
            delay_s = self._operations._delays["rows"].delay_s() if number + 1 < len(stages) else None
            running = self._collect(running, delay_s)
        self._close_round()

    def _stages(self) -> list[int]:
        """Replica ids in the order in which they are asked."""
        if not self.is_timeline:
            return [0]
        if self.replica_id is not None:
            return [self.replica_id]
        self._operations.hedge_budget.on_call()
        count = 1
        for index in self._open:
            entry = self._operations.locator.cache.cached_region(self._table, self._actions[index].row)
            count = max(count, len(entry.replicas) if entry is not None else 2)
        return list(range(count))

    def _groups(
        self, indexes: Iterable[int], replica_id: int
    ) -> list[tuple[ServerName | None, list[int], list[RegionLocation | None]]]:
        """Actions by server; one that cannot be located keeps its error and waits for the next round."""
        grouped: dict[ServerName | None, tuple[list[int], list[RegionLocation | None]]] = {}
        for index in indexes:
            try:
                place = self._operations._place(self._table, self._actions[index].row, self._deadline, replica_id)
            except ConnectionClosed:
                raise
            except MetaClientError as error:
                if replica_id == 0 or self.replica_id is not None:
                    self._outcomes[index] = error
                continue
            rows, places = grouped.setdefault(place.server if place is not None else None, ([], []))
            rows.append(index)
            places.append(place)
        return [(server, *group) for server, group in grouped.items()]

    def _is_write(self) -> bool:
        return any(not isinstance(action, Get) for action in self._actions)

    def _run_group(self, server: ServerName | None, indexes: list[int], places: list[RegionLocation | None]) -> None:
        try:
            outcomes = self._call(server, indexes, places)
        except MetaClientError as error:
            outcomes = [error] * len(indexes)
        self._take(indexes, places, outcomes)

    def _call(
        self, server: ServerName | None, indexes: list[int], places: list[RegionLocation | None]
    ) -> Sequence[Outcome]:
        actions = [Action(place, self._actions[index]) for index, place in zip(indexes, places, strict=True)]
        operations = self._operations
        is_write = self._is_write()
        timeout_s = operations.config.rpc_write_timeout_s if is_write else operations._read_timeout_s
        until = min(self._deadline, operations._now() + timeout_s)
        outcomes = operations.executor.call(
            operations.backend.batch, server, self._table, actions, deadline=until, is_write=is_write
        )
        if len(outcomes) != len(actions):
            raise RequestRefused(f"the backend answered {len(outcomes)} outcomes for {len(actions)} actions")
        return outcomes

    def _start_group(
        self, server: ServerName | None, indexes: list[int], places: list[RegionLocation | None]
    ) -> tuple[Pending[Sequence[Outcome]], list[int], list[RegionLocation | None]]:
        return self._operations.runtime.start(self._call, server, indexes, places, name="batch"), indexes, places

    def _collect(
        self,
        running: list[tuple[Pending[Sequence[Outcome]], list[int], list[RegionLocation | None]]],
        delay_s: float | None,
    ) -> list[tuple[Pending[Sequence[Outcome]], list[int], list[RegionLocation | None]]]:
        """Take what arrives until all rows are done, the delay is over, or time is up."""
        runtime = self._operations.runtime
        until = self._deadline if delay_s is None else min(self._deadline, runtime.now() + delay_s)
        while running and any(not self._is_done(index) for index in self._open):
            if runtime.wait_first([pending for pending, _, _ in running], until) is None:
                return running
            for group in [group for group in running if group[0].is_done]:
                running.remove(group)
                error = group[0].error()
                if error is not None:
                    outcomes: Sequence[Outcome] = [translated(error, is_write=self._is_write())] * len(group[1])
                else:
                    outcomes = group[0].result()
                self._take(group[1], group[2], outcomes)
        return running

    def _take(self, indexes: list[int], places: list[RegionLocation | None], outcomes: Sequence[Outcome]) -> None:
        blamed: set[int] = set()
        for index, place, outcome in zip(indexes, places, outcomes, strict=True):
            if self._is_done(index):
                continue
            if isinstance(outcome, MetaClientError):
                if outcome.may_have_applied:
                    self._maybe_applied.add(index)
                if place is not None and id(place) not in blamed:
                    blamed.add(id(place))
                    self._operations.locator.on_error(place, outcome)
                if isinstance(self._outcomes[index], MetaClientError) and place is not None and place.replica_id:
                    continue  # the primary's error counts
            else:
                self.places[index] = place
                self._done.add(index)
            self._outcomes[index] = outcome

    def _is_done(self, index: int) -> bool:
        return index in self._done

    def _close_round(self) -> None:
        """Keep what may be tried again; raise one of its errors so that the retrier decides about another round."""
        still_open: list[int] = []
        for index in self._open:
            outcome = self._outcomes[index]
            if self._is_done(index):
                continue
            if isinstance(outcome, MetaClientError) and not self._may_repeat(index, outcome):
                continue
            still_open.append(index)
        self._open = still_open
        if not still_open:
            return
        worst = self._outcomes[still_open[0]]
        raise worst if isinstance(worst, MetaClientError) else DeadlineExceeded("some rows were not answered in time")

    def _may_repeat(self, index: int, error: MetaClientError) -> bool:
        if error.disposition is Disposition.FATAL:
            return False
        return not (isinstance(self._actions[index], Increment | Append) and index in self._maybe_applied)


def _describe(what: str, table: bytes, row: bytes | None) -> str:
    where = f" of row {keys.printable(row)!r}" if row is not None else ""
    return f"{what}{where} in table {keys.printable(table)!r}"
