"""Carries out the operations of tables: locate, plan, call, update cache and health, and retry after a failure.

``Table`` checks and converts the arguments of users; this module has only bytes and values. One operation has one
deadline. Behind a gateway a STRONG call has no location and costs no lookup; a backend that addresses servers is given
a location each time. An answer of a wrong type raises BackendFault.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from metaclient import keys
from metaclient.attempts import Executor, ReadGuard, told
from metaclient.attempts.retry import Retrier
from metaclient.backend import (
    Addressing,
    Answer,
    Backend,
    BatchSemantics,
    Direct,
    DirectBackend,
    SendingBackend,
    StartingBackend,
)
from metaclient.calls.answers import expect
from metaclient.calls.hedging import Hedging
from metaclient.calls.staleness import StalenessLimit
from metaclient.config import Config
from metaclient.errors import (
    Disposition,
    MetaClientError,
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
    Result,
    RowMutations,
)
from metaclient.runtime import Pending, Runtime
from metaclient.telemetry import Telemetry

__all__ = ["Operation", "Operations", "Placed", "describe"]

T = TypeVar("T")
Placed = tuple[Result, RegionLocation | None]
Operation = Get | Put | Delete | Increment | Append | RowMutations
#: Mutations that depend on the stored value and return cells. A retry of one that was applied would apply it twice.
CHANGES = (Increment, Append)
#: The namespace of HBase's own tables: hbase.client.meta.operation.timeout applies to them.
SYSTEM_TABLES = b"hbase:"


class Operations:
    """The data calls of one connection."""

    def __init__(
        self,
        backend: Backend,
        runtime: Runtime,
        config: Config,
        *,
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
        direct = _direct(backend, runtime)
        self._direct_get = None if direct is None else direct.get
        self._direct_mutate = None if direct is None else direct.mutate
        is_on_loop = not runtime.callers_help
        self.start = backend.start_get if is_on_loop and isinstance(backend, StartingBackend) else None
        self.sending = backend if isinstance(backend, SendingBackend) else None
        self._write_timeout_s = min(config.rpc_write_timeout_s, config.operation_timeout_s)
        self.hedging = Hedging(backend, runtime, config, executor=executor, locator=locator, telemetry=telemetry)
        self._hedged_get = self.hedging.get
        self._staleness = self.hedging.staleness
        self._slow = self.hedging.slow

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

    def get(
        self,
        table: bytes,
        get: Get,
        consistency: Consistency,
        replica_id: int | None,
        max_staleness_s: float | None = None,
        *,
        guard: ReadGuard | None = None,
    ) -> Placed:
        """Read a row; return the result and its location (None if a gateway chose it).

        ``max_staleness_s`` and ``guard`` limit the replicas of a TIMELINE read that names none.
        """
        if consistency is Consistency.STRONG:
            return self.get_strong(table, get)
        if not self._can_choose_replica:
            raise self.no_replicas()
        begun = self._now()
        deadline = begun + self.timeout_s(table)
        limit = self._staleness.limit(max_staleness_s)
        try:
            if replica_id is None:
                placed: Placed = self._hedged_get(table, get, deadline, limit, guard)
            else:
                placed = self._get_at(table, get, deadline, replica_id, limit)
        except MetaClientError as error:
            attempt: Callable[[], Placed]  # a partial, so that neither a retry nor a race calls back into this module
            if replica_id is None:
                attempt = partial(self._hedged_get, table, get, deadline, limit, guard)
            else:
                attempt = partial(self._get_at, table, get, deadline, replica_id, limit)
            placed = self.retrier.resume(
                error,
                attempt,
                begun=begun,
                deadline=deadline,
                what=lambda: describe("get", table, get.row),
                on_failure=self.learner(table, deadline, knows_place=replica_id is None),
            )
        else:
            self._on_success()
        if limit is None:
            return placed
        result, place = placed
        return limit.marked(result, place), place

    def get_strong(self, table: bytes, get: Get) -> Placed:
        """Read a row at its primary: usually a cached location and one call."""
        begun = self._now()
        until = begun + self.read_timeout_s
        place: RegionLocation | None = None
        try:
            if not self.by_gateway:
                known = self._cached_tables.get(table)
                place = known.cached_primary(get.row) if known is not None else None
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
            return self.get_again(table, get, place, told(raised), begun)
        self.learn_from_strong(place, begun)
        return answer, place

    def learn_from_strong(self, place: RegionLocation | None, begun: float) -> None:
        """Record the success of a STRONG read that began at this instant, at its first attempt."""
        self._on_success()
        if place is not None:
            if self.hedging.has_avoided:
                self._learn_from_slow(place, self._now() - begun)
            if place.is_hint:  # saves a call
                self.locator.confirm(place)

    def _learn_from_slow(self, place: RegionLocation, latency_s: float) -> None:
        """Record a STRONG read: its server is not silent, and if it is slow, it may have recovered."""
        self.hedging.answered(place.server)
        if not self._slow.contains(place.server):
            return
        entry = self.locator.cache.cached_region(place.region.table, place.region.start_key)
        self._slow.add("get", place, latency_s, entry.replicas if entry is not None else ())

    def _result(self, answer: object, until: float) -> Result:
        if isinstance(answer, Pending):  # a backend may return a Pending although it does not declare is_pipelined
            answer = self.executor.awaited(answer, until)
        return expect(Result, answer)

    def get_again(
        self, table: bytes, get: Get, place: RegionLocation | None, error: MetaClientError, begun: float
    ) -> Placed:
        """Retry a STRONG read whose first attempt, which began at this instant, has failed."""
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

    def _get_at(
        self, table: bytes, get: Get, deadline: float, replica_id: int = 0, limit: StalenessLimit | None = None
    ) -> Placed:
        place = self.place(table, get.row, deadline, replica_id)
        if limit is not None:
            limit.admit((place,))
        result = self.at(place, Result, self._backend_get, place, table, get, deadline=deadline)
        if limit is not None:
            limit.refuse(place, result)  # a read of one replica has no limit, but its lag is recorded
        return result, place

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
        """Make one attempt at a location; the answer must be a ``kind``. A raised error carries the location."""
        timeout_s = self.config.rpc_write_timeout_s if is_write else self.read_timeout_s
        until = min(deadline, self._now() + timeout_s)
        try:
            answer = self.executor.call(function, *args, deadline=until, is_write=is_write, discard=discard)
            value = expect(kind, answer, is_write=is_write)
        except MetaClientError as error:
            error.place = place
            raise
        self.locator.confirm(place)
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

        ``knows_place``: the locator has been notified already. A second notification would count a timeout twice.
        """

        def learn(error: MetaClientError, failures: int) -> None:
            if error.place is not None and not knows_place:
                self.hedging.on_error(error.place, error)
            is_lost = error.disposition is Disposition.RELOCATE and not error.names_target
            if is_lost and failures >= 2 and not self.by_gateway:
                self.locator.table_states.check_enabled(table, deadline)

        return learn

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
                known = self._cached_tables.get(table)
                place = known.cached_primary(mutation.row) if known is not None else None
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
                if isinstance(answer, Pending):  # also from a backend that does not declare is_pipelined
                    answer = self.executor.awaited(answer, until, is_write=True)
                if type(mutation) in CHANGES:
                    answer = expect(Result, answer, is_write=True)
        except Exception as raised:
            return self._mutate_again(table, mutation, place, told(raised, is_write=True), begun)
        self._on_success()
        if place is not None and place.is_hint:  # saves a call
            self.locator.confirm(place)
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

    def check_and_mutate(self, table: bytes, check: Check, mutation: Mutation) -> bool:
        deadline = self.deadline(table)

        def attempt() -> bool:
            place = self.place(table, check.row, deadline)
            call = self.backend.check_and_mutate
            return self.at(place, bool, call, place, table, check, mutation, deadline=deadline, is_write=True)

        # Repeating a check that was applied would return False instead of True.
        return self.retried(attempt, deadline, table, "check_and_mutate", check.row, is_repeatable=False)


def _direct(backend: Backend, runtime: Runtime) -> Direct | Backend | None:
    """Return the calls of the backend that run in the user's own thread, without a task or a Pending, or None."""
    capabilities = backend.capabilities
    if capabilities.direct and isinstance(backend, DirectBackend):
        return backend.direct
    if not runtime.callers_help:
        return None  # the executor records that a cancelled write may have been applied
    return backend if capabilities.honours_deadline and not capabilities.is_pipelined else None


class _Once:
    """Ensures that an increment or append is applied at most once: only the server that has its nonce gets a retry.

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
                return  # raised again by ``check``: the locator has been notified already
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


def describe(what: str, table: bytes, row: bytes | None) -> str:
    where = f" of row '{keys.printable(row)}'" if row is not None else ""
    return f"{what}{where} in table '{keys.printable(table)}'"
