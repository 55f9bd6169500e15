"""Carries out the operations of tables: locate, plan, call, update cache and health, and retry after a failure.

``Table`` checks and converts the arguments of users; this module has only bytes and values. One operation has one
deadline. Behind a gateway a STRONG call has no location and costs no lookup; a backend that addresses servers is given
a location each time. An answer of a wrong type raises BackendFault.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from metaclient import keys
from metaclient.attempts import Executor, HedgeBudget, HedgeDelay, Leg, SilentServers, all_at_once, staged, told
from metaclient.attempts.retry import Retrier
from metaclient.backend import Addressing, Answer, Backend, BatchSemantics, Direct, DirectBackend
from metaclient.config import Config
from metaclient.errors import (
    BackendFault,
    ConnectionClosed,
    Disposition,
    MetaClientError,
    RegionMoved,
    Unsupported,
)
from metaclient.lookup.locator import Locator
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
from metaclient.runtime import Pending, Runtime
from metaclient.telemetry import Telemetry

__all__ = ["NEVER", "STALLED_S", "Leave", "Operation", "Operations", "Placed", "describe", "expect", "wrong"]

T = TypeVar("T")
Placed = tuple[Result, RegionLocation | None]
Operation = Get | Put | Delete | Increment | Append | RowMutations
NEVER = float("inf")
#: They depend on the stored value, so that repeating one that was applied would apply it twice; they return cells.
CHANGES = (Increment, Append)
#: The namespace of HBase's own tables: hbase.client.meta.operation.timeout is theirs.
SYSTEM_TABLES = b"hbase:"
#: A server is silent when a response is overdue by more than SILENT_S and by more than SILENT_DELAYS hedge delays.
SILENT_S = 0.05
SILENT_DELAYS = 5
#: After this time, and twice as many delays, a read whose hedge was refused may call another replica without budget.
STALLED_S = 0.25


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
        self._has_nonces = capabilities.nonces and config.nonces
        self.outcome_per_row = capabilities.batch is BatchSemantics.PER_ROW
        # Bound once: attribute lookups are a measurable part of the few microseconds of a STRONG call.
        self._now = runtime.now
        self._cached_tables = locator.cache.tables
        self._on_success = retrier.budget.on_success
        self._operation_timeout_s = config.operation_timeout_s
        self._meta_operation_timeout_s = config.meta_operation_timeout_s
        self.read_timeout_s = min(config.rpc_read_timeout_s, config.operation_timeout_s)
        self._backend_get = backend.get
        self._backend_mutate = backend.mutate
        direct = _direct(backend)
        self._direct_get = None if direct is None else direct.get
        self._direct_mutate = None if direct is None else direct.mutate
        self._write_timeout_s = min(config.rpc_write_timeout_s, config.operation_timeout_s)
        self.hedge_budget = HedgeBudget(ratio=config.hedge_budget, burst=config.hedge_budget_burst)
        self.delays = {
            "get": self._delay(config.hedge_delay_get_s),
            "scan": self._delay(config.hedge_delay_scan_s),
            "rows": self._delay(config.hedge_delay_multiget_s),
        }
        self._begin()
        runtime.on_fork(self._begin)
        self._turn = 0  # races between threads only make two reads start at the same replica

    def _begin(self) -> None:
        """Start without silent servers: at first, and in a child process, where the parent's calls never end."""
        self._silent = SilentServers()

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

    def timeout_s(self, table: bytes) -> float:
        """Return the timeout of an operation on this table, over all its attempts."""
        return self._meta_operation_timeout_s if table.startswith(SYSTEM_TABLES) else self._operation_timeout_s

    def deadline(self, table: bytes) -> float:
        """Return the deadline of an operation that starts now."""
        return self._now() + self.timeout_s(table)

    def no_replicas(self) -> Unsupported:
        return Unsupported(
            f"the backend {self.backend.name!r} cannot read region replicas: TIMELINE needs thrift2:, hbase: or fake:"
        )

    # -- one row ---------------------------------------------------------------------------------------------

    def get(self, table: bytes, get: Get, consistency: Consistency, replica_id: int | None) -> Placed:
        """Read a row; return the result and its location (None if a gateway chose it)."""
        if consistency is Consistency.STRONG:
            return self.get_strong(table, get)
        if not self._can_choose_replica:
            raise self.no_replicas()
        deadline = self.deadline(table)
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

    def get_strong(self, table: bytes, get: Get) -> Placed:
        """Read a row at its primary: usually a cached location and one call."""
        begun = self._now()
        until = begun + self.read_timeout_s
        place: RegionLocation | None = None
        try:
            if not self.by_gateway:
                place = self._cached_place(table, get.row)
                if place is None:
                    deadline = begun + self.timeout_s(table)
                    place = self.locator.locate(table, get.row, deadline=deadline)
                    until = min(self._now() + self.read_timeout_s, deadline)
            if table.startswith(SYSTEM_TABLES):
                until = min(until, begun + self._meta_operation_timeout_s)
            if self._direct_get is not None:
                answer = self._direct_get(place, table, get, until)
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
        return expect(Result, answer)

    def _get_again(
        self, table: bytes, get: Get, place: RegionLocation | None, error: MetaClientError, begun: float
    ) -> Placed:
        error.place = place
        deadline = begun + self.timeout_s(table)
        return self.retrier.resume(
            error,
            lambda: self._get_at(table, get, deadline),
            begun=begun,
            deadline=deadline,
            what=lambda: describe("get", table, get.row),
            on_failure=self.learner(table, deadline),
        )

    def _get_at(self, table: bytes, get: Get, deadline: float, replica_id: int = 0) -> Placed:
        place = self.place(table, get.row, deadline, replica_id)
        return self.at(place, Result, self._backend_get, place, table, get, deadline=deadline), place

    def place(self, table: bytes, row: bytes, deadline: float, replica_id: int = 0) -> RegionLocation | None:
        """Return the location of a row; None behind a gateway, which finds the primary by itself."""
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
        """Make one attempt at a location, which must answer a ``kind``; an error carries the location."""
        timeout_s = self.config.rpc_write_timeout_s if is_write else self.read_timeout_s
        until = min(deadline, self._now() + timeout_s)
        try:
            answer = self.executor.call(function, *args, deadline=until, is_write=is_write, discard=discard)
            value = expect(kind, answer, is_write=is_write)
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
            what=lambda: describe(what, table, row),
            is_repeatable=is_repeatable,
            on_failure=self.learner(table, deadline, knows_place=knows_place),
        )

    def learner(
        self, table: bytes, deadline: float, *, knows_place: bool = False
    ) -> Callable[[MetaClientError, int], None]:
        """Return a callback that corrects the cache after a failure, and checks the table's state after the second one.

        ``knows_place``: the locator has been notified already; a second time would count a timeout twice.
        """

        def learn(error: MetaClientError, failures: int) -> None:
            if error.place is not None and not knows_place:
                self.locator.on_error(error.place, error)
            is_lost = error.disposition is Disposition.RELOCATE and not isinstance(error, RegionMoved)
            if is_lost and failures >= 2 and not self.by_gateway:
                self.locator.table_states.check_enabled(table, deadline)

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
        """Call the region's replicas according to the plan; return the first success and its location."""
        begun = self._now()
        places, unplaced = self._places(table, row, kind, deadline, before)
        sent = self._now()
        self.hedge_budget.on_call()
        try:
            won = self.executor.race(
                self._legs(places, kind, spent_s=sent - begun),
                call,
                deadline=deadline,
                observer=_Observer(self, kind),
                accept=lambda place, value: None if isinstance(value, answer) else wrong(answer, value),
                allow_hedge=Leave(self, kind, places[:1]),
                discard=discard,
                watch=partial(self.is_witness, kind),
                ask_again_s=STALLED_S,
            )
        except MetaClientError as error:
            if unplaced is None or isinstance(error, ConnectionClosed):
                raise
            raise unplaced from error  # the primary's error counts, and it has no place
        self.answered(won.leg.place.server)
        if any(place.replica_id == 0 for place in won.outran):
            # The primary takes at least that long; without this sample the delay would only reflect its fast responses.
            self.delays[kind].window.add(self._now() - sent)
        if won.leg.is_hedge:
            self.telemetry.count("metaclient.hedges.won" if won.hedges else "metaclient.failovers")
        return won.value, won.leg.place

    def _places(
        self, table: bytes, row: bytes, kind: str, deadline: float, before: bool
    ) -> tuple[list[RegionLocation], MetaClientError | None]:
        """Return the primary, then the secondaries in rotating order; and the error if there is no primary.

        Replicas on silent servers come last.
        """
        unplaced: MetaClientError | None = None
        try:
            entry = self.locator.locate_region(table, row, deadline=deadline, before=before)
        except MetaClientError as error:
            # The primary has no location now: the known secondaries can still answer a TIMELINE read.
            known = None if before else self.locator.cache.cached_region(table, row)
            if known is None or not known.placed() or error.disposition is Disposition.FATAL:
                raise
            entry, unplaced = known, error
        places = [place for at in self.replica_order(entry) if (place := entry.at(at)) is not None]
        if self.has_silent:
            places.sort(key=lambda place: self.is_silent(kind, place))
        return places, unplaced

    @property
    def has_silent(self) -> bool:
        """Return True if any server may be silent; usually False, which saves further checks."""
        return bool(self._silent)

    def is_silent(self, kind: str, place: RegionLocation) -> bool:
        """Return True if reads should try another replica before this server."""
        normal_s = max(SILENT_S, SILENT_DELAYS * self.delays[kind].delay_s())
        return self._silent.waiting_s(place.server, self._now()) >= normal_s

    def answered(self, server: ServerName) -> None:
        """Record that the server answered: it is not silent."""
        if self._silent:
            self._silent.answered(server)

    def is_witness(self, kind: str, place: RegionLocation, call: Pending[Any], since: float) -> bool:
        """Return True if an outrun call continues as a witness; HBase's own plan (all at once) needs none."""
        is_late = self._now() - since >= self.delays[kind].delay_s()  # otherwise the call has only just been made
        until = since + self.read_timeout_s
        return is_late and self.config.hedge_plan == "staged" and self._silent.outran(place.server, call, since, until)

    def turn_away(self, kind: str, places: Sequence[RegionLocation], calls: int) -> bool:
        """Return True if a read that waits for these locations may call another one, whatever the hedge budget is.

        This is for reads in flight when a server stopped answering; later reads call another replica first. The extra
        call is deducted from the budget later.
        """
        stalled_s = max(STALLED_S, 2 * SILENT_DELAYS * self.delays[kind].delay_s())
        now = self._now()
        if not any(self._silent.waiting_s(place.server, now) >= stalled_s for place in places):
            return False
        self.hedge_budget.owe(calls)
        self._count_hedges(calls)
        return True

    def replica_order(self, entry: RegionLocations) -> list[int]:
        """Return the primary first, then the other replicas in rotating order."""
        others = list(range(1, len(entry.replicas)))
        self._turn += 1
        start = self._turn % len(others) if others else 0
        return [0, *others[start:], *others[:start]]

    def _legs(self, places: Sequence[RegionLocation], kind: str, spent_s: float) -> Sequence[Leg[RegionLocation]]:
        """Return the plan of a read; time spent on locating counts towards the hedge delay, as in HBase."""
        delay_s = self.delays[kind].delay_s()
        make = staged if self.config.hedge_plan == "staged" else all_at_once
        legs = make(places, delay_s=delay_s, timeout_s=self.read_timeout_s)
        return [Leg(leg.place, max(0.0, leg.after_s - spent_s), leg.timeout_s, leg.is_hedge) for leg in legs]

    def allow_hedge(self, calls: int = 1) -> bool:
        if not self.hedge_budget.take(calls):
            return False
        self._count_hedges(calls)
        return True

    def _count_hedges(self, calls: int) -> None:
        self.telemetry.count("metaclient.hedges", calls)
        self.telemetry.emit("hedge_started", calls=calls)

    # -- writes --------------------------------------------------------------------------------------------------

    def mutate(self, table: bytes, mutation: Mutation) -> Result | None:
        """Write one row: usually a cached location and one call, as ``get_strong``."""
        begun = self._now()
        until = begun + self._write_timeout_s
        if self._has_nonces and isinstance(mutation, CHANGES) and mutation.nonce is None:
            mutation = replace(mutation, nonce=self.runtime.rng.getrandbits(63))
        place: RegionLocation | None = None
        try:
            if not self.by_gateway:
                place = self._cached_place(table, mutation.row)
                if place is None:
                    deadline = begun + self.timeout_s(table)
                    place = self.locator.locate(table, mutation.row, deadline=deadline)
                    until = min(self._now() + self._write_timeout_s, deadline)
            if table.startswith(SYSTEM_TABLES):
                until = min(until, begun + self._meta_operation_timeout_s)
            if self._direct_mutate is not None:
                answer = self._direct_mutate(place, table, mutation, until)
            else:
                answer = self.executor.call(self._backend_mutate, place, table, mutation, deadline=until, is_write=True)
            if answer is not None or type(mutation) in CHANGES:
                if isinstance(answer, Pending):  # a backend may answer so even though it does not say is_pipelined
                    answer = self.executor.awaited(answer, until, is_write=True)
                if type(mutation) in CHANGES:
                    answer = expect(Result, answer, is_write=True)
        except Exception as raised:
            return self._mutate_again(table, mutation, place, told(raised, is_write=True), begun)
        self._on_success()
        if place is not None and place.is_hint:
            self.locator.cache.confirm(place)
        return answer

    def _mutate_again(
        self, table: bytes, mutation: Mutation, place: RegionLocation | None, error: MetaClientError, begun: float
    ) -> Result | None:
        error.place = place
        deadline = begun + self.timeout_s(table)
        is_change = type(mutation) in CHANGES
        kind: type[Result | None] = Result if is_change else object  # type: ignore[assignment]  # others: unused
        once = _Once() if is_change else None
        learn = self.learner(table, deadline)

        def attempt() -> Result | None:
            at = self.place(table, mutation.row, deadline)
            if once is not None:
                once.check(at)
            return self.at(at, kind, self._backend_mutate, at, table, mutation, deadline=deadline, is_write=True)

        return self.retrier.resume(
            error,
            attempt,
            begun=begun,
            deadline=deadline,
            what=lambda: describe("mutate", table, mutation.row),
            is_repeatable=True if once is None else self._has_nonces and once.is_repeatable,
            on_failure=learn if once is None else once.and_then(learn),
        )

    def _cached_place(self, table: bytes, row: bytes) -> RegionLocation | None:
        known = self._cached_tables.get(table)
        return known.cached_primary(row) if known is not None else None

    def check_and_mutate(self, table: bytes, check: Check, mutation: Mutation) -> bool:
        deadline = self.deadline(table)

        def attempt() -> bool:
            place = self.place(table, check.row, deadline)
            call = self.backend.check_and_mutate
            return self.at(place, bool, call, place, table, check, mutation, deadline=deadline, is_write=True)

        # Repeating a check that was applied would return False instead of True.
        return self.retried(attempt, deadline, table, "check_and_mutate", check.row, is_repeatable=False)


def _direct(backend: Backend) -> Direct | None:
    """Return the calls of the backend that run in the user's own thread, without a task or a Pending; None without."""
    capabilities = backend.capabilities
    if capabilities.direct and isinstance(backend, DirectBackend):
        return backend.direct
    return backend if capabilities.honours_deadline and not capabilities.is_pipelined else None


class Leave:
    """Decides whether one read may start another hedge.

    Hedges are started while the budget allows. After the first refusal, only a server that has stopped answering may
    trigger one more. ``places`` are the locations that were called first.
    """

    __slots__ = ("_has_turned", "_kind", "_operations", "_places", "_was_refused")

    def __init__(self, operations: Operations, kind: str, places: Sequence[RegionLocation]) -> None:
        self._operations = operations
        self._kind = kind
        self._places = places
        self._was_refused = False
        self._has_turned = False

    def __call__(self, calls: int = 1) -> bool:
        if not self._was_refused and self._operations.allow_hedge(calls):
            return True
        self._was_refused = True
        if self._has_turned:
            return False
        self._has_turned = self._operations.turn_away(self._kind, self._places, calls)
        return self._has_turned


class _Observer:
    """Updates the hedge delay and the location cache with the outcome of each leg of a race."""

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


def expect(kind: type[T], value: object, *, is_write: bool = False) -> T:
    if isinstance(value, kind):
        return value
    raise wrong(kind, value, is_write=is_write)


class _Once:
    """Ensures that an increment or append is applied at most once: only the server that knows its nonce gets it again.

    A server that recovers the region of a dead server reads nonces from the log, but a region that is moved normally
    loses them, and the client cannot distinguish the two cases.
    """

    def __init__(self) -> None:
        self._unsure: MetaClientError | None = None
        self._is_over = False

    def is_repeatable(self) -> bool:
        """Return True if the operation may be retried."""
        return not self._is_over

    def and_then(self, learn: Callable[[MetaClientError, int], None]) -> Callable[[MetaClientError, int], None]:
        """Return a callback that records a failure that may have been applied, then calls ``learn``."""

        def noted(error: MetaClientError, failures: int) -> None:
            if self._is_over:
                return  # raised once more by ``check``: its place has been blamed for it already
            if error.may_have_applied and self._unsure is None:
                self._unsure = error
            learn(error, failures)

        return noted

    def check(self, at: RegionLocation | None) -> None:
        """Raise the earlier failure if the operation may have been applied by a server other than this one."""
        unsure = self._unsure
        if unsure is None:
            return
        if at is None or unsure.place is None or at.server != unsure.place.server:
            self._is_over = True
            unsure.add_note(f"it is not sent again: its region is at {at.server if at else 'another place'} now")
            raise unsure


def wrong(kind: type, value: object, *, is_write: bool = False) -> BackendFault:
    text = f"the backend answered {type(value).__name__} where {kind.__name__} belongs"
    return BackendFault(text, may_have_applied=is_write)


def describe(what: str, table: bytes, row: bytes | None) -> str:
    where = f" of row '{keys.printable(row)}'" if row is not None else ""
    return f"{what}{where} in table '{keys.printable(table)}'"
