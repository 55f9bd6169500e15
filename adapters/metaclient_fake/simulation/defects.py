"""Plants bugs of the kind that real systems had, one per run, to prove that the checkers report them.

A defect replaces methods of the real classes during a run; production code does not refer to defects. Each defect
names the checkers that should report it; ``tests/simulation/test_defects.py`` has a test for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, SupportsIndex
from unittest.mock import patch

from metaclient.attempts.budget import CallBudget, HedgeBudget
from metaclient.attempts.contest import FirstAnswer
from metaclient.attempts.executor import _Race, told
from metaclient.attempts.retry import _FailedOperation
from metaclient.calls.hedging import Hedging
from metaclient.calls.staleness import StalenessLimit
from metaclient.errors import ConfigError, Disposition, MetaClientError
from metaclient.freshness.canary import CanaryReadings
from metaclient.freshness.session_state import SessionState
from metaclient.lookup.locator import Locator
from metaclient.meta.reading import Reading
from metaclient.meta.selector import RoundRobin
from metaclient.model import Increment
from metaclient.scanner import TableScanner
from metaclient_fake.master import region_procedures
from metaclient_fake.master.master import Master
from metaclient_fake.master.region_states import RegionGroup
from metaclient_fake.region_replication.read_gate import ReadGate
from metaclient_fake.region_replication.secondaries import Secondaries
from metaclient_fake.region_replication.sink import Sink
from metaclient_fake.server.data_calls import DataCalls
from metaclient_fake.server.scanners import Scanners
from metaclient_fake.storage.filesystem import FileSystem
from metaclient_fake.storage.mutations import is_met
from metaclient_fake.storage.region import Region
from metaclient_fake.storage.replica import Follower
from metaclient_fake.storage.wal import Wal

__all__ = ["DEFECTS", "Defect", "planted", "registered"]

#: Returns the broken method for a correct one.
Breaker = Callable[[Callable[..., Any]], Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class Defect:
    """One bug: its story, the checkers that should report it, and the method that it replaces.

    ``race_in`` names the group of modules (``lines.py``) that must be preempted between statements for the bug to show.
    """

    name: str
    story: str
    caught_by: tuple[str, ...]
    owner: Any
    method: str
    broken: Breaker
    race_in: str = ""


DEFECTS: dict[str, Defect] = {}


@contextmanager
def planted(name: str, among: Mapping[str, Defect] = DEFECTS) -> Iterator[None]:
    """Plant the defect until the end of the block; an empty name plants none."""
    if not name:
        yield
        return
    defect = among.get(name)
    if defect is None:
        raise ConfigError(f"there is no defect {name!r}; known are {', '.join(sorted(among))}")
    with patch.object(defect.owner, defect.method, defect.broken(getattr(defect.owner, defect.method))):
        yield


def registered(
    defects: dict[str, Defect], owner: Any, method: str, *, caught_by: Sequence[str], race_in: str = ""
) -> Callable[[Breaker], None]:
    """Register a function that returns the broken method for a correct one; its docstring is the story."""

    def register(broken: Breaker) -> None:
        name, story = broken.__name__, (broken.__doc__ or "").strip()
        defects[name] = Defect(name, story, tuple(caught_by), owner, method, broken, race_in)

    return register


_defect = partial(registered, DEFECTS)


# -- region replication ------------------------------------------------------------------------------------------------


@_defect(Sink, "_settle", caught_by=("convergence", "timeline"))
def sink_forgets_failed_batch(right: Callable[..., Any]) -> Callable[..., Any]:
    """A batch that failed counts as delivered: the replica misses its edits, and no flush is requested."""

    def settle(self: Sink, queue: Any, batch: Any, error: BaseException | None) -> None:
        right(self, queue, batch, None)

    return settle


@_defect(ReadGate, "__init__", caught_by=("timeline", "scans", "cycle", "linearizability"))
def replica_opens_before_flush(right: Callable[..., Any]) -> Callable[..., Any]:
    """A replica is readable as soon as it is open, before it has the edits of its primary's memstore."""

    def init(self: ReadGate, families: frozenset[bytes], *, is_open: bool = False) -> None:
        right(self, families, is_open=True)

    return init


@_defect(Secondaries, "complete_as_of", caught_by=("lag",))
def lag_counts_from_the_last_batch(right: Callable[..., Any]) -> Callable[..., Any]:
    """A replica computes its lag from the last batch of its primary, although it may have missed earlier edits."""

    def complete_as_of(self: Secondaries, name: bytes, known: Any) -> float | None:
        secondary = self._find(name)
        return None if secondary is None else secondary.refreshed_at

    return complete_as_of


@_defect(Sink, "acknowledged", caught_by=("lag",))
def lag_leaves_out_what_is_on_its_way(right: Callable[..., Any]) -> Callable[..., Any]:
    """A primary counts edits in flight as applied when it computes the lag of a replica."""

    def acknowledged(self: Sink, *arguments: Any) -> Any:
        known = right(self, *arguments)
        return known and known._replace(as_of=self._runtime.now())

    return acknowledged


@_defect(DataCalls, "_get", caught_by=("lag", "staleness"))
def lag_is_read_after_the_row(right: Callable[..., Any]) -> Callable[..., Any]:
    """A replica measures its lag after it has read the row: edits that arrive in between count as seen."""

    def get(self: DataCalls, region_name: bytes, hosted: Any, get: Any) -> Any:
        if hosted.is_primary:
            return right(self, region_name, hosted, get)
        result = hosted.get(get)
        self._runtime.sleep(0.4)  # a pause of the server, in which the missing edits arrive
        return result._replace(lag_s=self.lag_s(self._complete_as_of(region_name, hosted, get.columns)))

    return get


@_defect(Region, "apply_replayed", caught_by=("cycle", "convergence", "timeline"))
def half_row_reaches_replica(right: Callable[..., Any]) -> Callable[..., Any]:
    """Of an edit that touches two families a replica applies only the first."""

    def apply_replayed(self: Region, entry: Any, covered: Any = None) -> None:
        is_whole = self.is_primary or len(entry.rows) < 2
        right(self, entry if is_whole else entry._replace(rows=entry.rows[:1]), covered)

    return apply_replayed


@_defect(Follower, "refresh", caught_by=("timeline", "convergence", "cycle"))
def refresh_drops_newest(right: Callable[..., Any]) -> Callable[..., Any]:
    """A replica that lists new files drops its whole memstore, even edits that are newer than those files."""

    def refresh(self: Follower) -> bool:
        freed: bool = right(self)
        for store in self._region.stores:
            store.memstore.drop_active()
        self._region.publish()
        return freed

    return refresh


@_defect(region_procedures, "_open_daughters", caught_by=("convergence",))
def split_loses_queue(right: Callable[..., Any]) -> Callable[..., Any]:
    """The daughters of a split have a sink, but no queue for any replica."""

    def open_daughters(master: Master, groups: list[RegionGroup], server: Any) -> None:
        right(master, groups, server)
        for group in groups if len(groups) == 2 else ():
            host = master.live_server_of(group.primary)
            sink = host.replication.sinks.get(group.primary.name) if host is not None else None
            if sink is not None:
                sink.source = replace(sink.source, replica_count=lambda: 1)

    return open_daughters


# -- storage and recovery ----------------------------------------------------------------------------------------------


@_defect(Master, "_take_edits", caught_by=("durability", "linearizability", "counters", "scans", "cycle"))
def log_is_not_replayed(right: Callable[..., Any]) -> Callable[..., Any]:
    """The log of a dead server is fenced and not replayed."""

    def take_edits(self: Master, server: Any) -> None:
        server.wal.fence()
        server.meta_wal.fence()

    return take_edits


@_defect(Wal, "_is_flushed", caught_by=("durability", "linearizability", "counters", "scans", "cycle"))
def log_is_archived_too_early(right: Callable[..., Any]) -> Callable[..., Any]:
    """A rolled log file goes to the archive though regions still need it."""

    def is_flushed(self: Wal, file: Any) -> bool:
        return True

    return is_flushed


@_defect(Wal, "fence", caught_by=("ownership", "durability", "linearizability"))
def zombie_is_not_fenced(right: Callable[..., Any]) -> Callable[..., Any]:
    """A server that was declared dead without noticing it continues to write to its log."""

    def fence(self: Wal) -> int:
        return 0

    return fence


@_defect(FileSystem, "split", caught_by=("durability", "linearizability", "scans", "counters", "cycle"))
def split_loses_a_file(right: Callable[..., Any]) -> Callable[..., Any]:
    """The upper daughter of a split gets no reference to the parent's newest file."""

    def split(self: FileSystem, parent: Any, left: Any, lower: Any, at: bytes) -> None:
        right(self, parent, left, lower, at)
        directory = self.region(lower)
        for family in directory.families():
            files = directory.files(family)
            if files:
                directory.replace(family, files[-1:], (), 0.0)

    return split


@_defect(Region, "check_and_mutate", caught_by=("linearizability", "cycle"))
def check_and_put_is_two_steps(right: Callable[..., Any]) -> Callable[..., Any]:
    """Other clients may write between the check and the put of a check-and-put."""

    def check_and_mutate(self: Region, check: Any, mutation: Any) -> bool:
        with self.update_lock:
            self.check_writable(check.row)
            if not is_met(check, self._writer._newest(check.row, check.column, 1)):
                return False
        self.runtime.sleep(0.3)
        with self.update_lock:
            self._writer.mutate(mutation)
        return True

    return check_and_mutate


@_defect(Region, "mutate", caught_by=("counters", "linearizability"), race_in="storage")
def increment_takes_no_lock(right: Callable[..., Any]) -> Callable[..., Any]:
    """An increment reads and writes its counter without the region's lock: two at once may count as one."""

    def mutate(self: Region, mutation: Any, *, nonce_group: int = 0, is_repetition: bool = False) -> Any:
        if not isinstance(mutation, Increment):
            return right(self, mutation, nonce_group=nonce_group, is_repetition=is_repetition)
        return self._writer.mutate(mutation, nonce_group, is_repetition)

    return mutate


@_defect(Wal, "__init__", caught_by=("durability", "linearizability", "counters", "scans", "cycle"), race_in="log")
def log_rolls_take_no_turns(right: Callable[..., Any]) -> Callable[..., Any]:
    """Two regions may roll their server's log at once: one of the two new files is lost with its entries."""

    def init(self: Wal, name: str, *, roll_bytes: int, time_ms: Callable[[], int]) -> None:
        right(self, name, roll_bytes=0, time_ms=time_ms)  # each write rolls: a seed has few others
        self._roll_turns = _AlwaysTheirTurn([None])

    return init


class _AlwaysTheirTurn(list[None]):
    """A list of tokens whose ``pop`` always succeeds."""

    def pop(self, index: SupportsIndex = -1) -> None:
        return None

    def append(self, turn: None) -> None:
        pass


@_defect(Scanners, "expire", caught_by=("leaks",))
def lease_never_ends(right: Callable[..., Any]) -> Callable[..., Any]:
    """A server does not close the scanners of clients that have disconnected."""

    def expire(self: Scanners) -> int:
        return 0

    return expire


# -- the client --------------------------------------------------------------------------------------------------------


@_defect(Hedging, "_race", caught_by=("timeline", "answers"))
def stale_flag_of_wrong_replica(right: Callable[..., Any]) -> Callable[..., Any]:
    """The result of a hedged read names the primary, even if a secondary answered."""

    def race(self: Any, read: Any, table: bytes, before: bool) -> Any:
        value, place = right(self, read, table, before)
        known = self._locator.cache.cached_region(table, read.row)
        return value, (known.primary if known is not None and known.primary is not None else place)

    return race


@_defect(SessionState, "accepted", caught_by=("sessions",))
def pin_moves_back_too_early(right: Callable[..., Any]) -> Callable[..., Any]:
    """A session accepts the answer of each replica that states its lag, however large the lag is."""

    def accepted(self: SessionState, *arguments: Any, since: float, **options: Any) -> Any:
        is_accepted, as_of = right(self, *arguments, since=since, **options)
        return (True, since) if as_of is not None else (is_accepted, as_of)

    return accepted


@_defect(StalenessLimit, "__init__", caught_by=("staleness",))
def limit_counts_in_milliseconds(right: Callable[..., Any]) -> Callable[..., Any]:
    """A read takes its limit of staleness for milliseconds: older answers are returned, with their true age."""

    def init(self: StalenessLimit, staleness: Any, max_s: float | None, runtime: Any) -> None:
        right(self, staleness, None if max_s is None else 1000.0 * max_s, runtime)

    return init


@_defect(CanaryReadings, "complete_as_of", caught_by=("lag", "staleness"))
def canary_counts_to_its_last_sight(right: Callable[..., Any]) -> Callable[..., Any]:
    """A replica that shows the cell of its primary counts as complete up to the read of it, not up to its write."""

    def complete_as_of(self: CanaryReadings, shown: int) -> Any:
        return right(self, shown + 1)

    return complete_as_of


@_defect(Locator, "_lost", caught_by=("liveness",))
def cache_keeps_dead_parent(right: Callable[..., Any]) -> Callable[..., Any]:
    """A location that proved wrong stays in the cache."""

    def lost(self: Locator, location: Any, error: MetaClientError, *, mark: bool) -> bool:
        return False

    return lost


@_defect(_Race, "_failed", caught_by=("budgets",))
def hedge_returns_first_error(right: Callable[..., Any]) -> Callable[..., Any]:
    """The first failed leg of a race ends the race, although another leg is in flight."""

    def failed(self: Any, call: Any, error: BaseException) -> None:
        right(self, call, error)
        if self._running and isinstance(self._contest, FirstAnswer):
            raise told(error)

    return failed


@_defect(_FailedOperation, "_may_retry", caught_by=("counters", "linearizability"))
def retry_repeats_increment(right: Callable[..., Any]) -> Callable[..., Any]:
    """A write that may have been applied, and is not safe to repeat, is repeated."""

    def may_retry(self: Any, error: BaseException) -> bool:
        return isinstance(error, MetaClientError) and error.disposition is not Disposition.FATAL

    return may_retry


@_defect(_FailedOperation, "_left_s", caught_by=("deadlines",))
def retry_restarts_the_clock(right: Callable[..., Any]) -> Callable[..., Any]:
    """Each attempt gets the whole timeout of the operation."""

    def left_s(self: Any) -> float:
        return float(self._config.operation_timeout_s)

    return left_s


@_defect(CallBudget, "take", caught_by=("budgets",))
def retry_ignores_budget(right: Callable[..., Any]) -> Callable[..., Any]:
    """Retries are never refused."""

    def take(self: CallBudget, now: float) -> bool:
        return True

    return take


@_defect(HedgeBudget, "take", caught_by=("budgets",))
def hedge_ignores_budget(right: Callable[..., Any]) -> Callable[..., Any]:
    """Hedges are never refused."""

    def take(self: HedgeBudget, calls: int = 1) -> bool:
        return True

    return take


@_defect(Reading, "accept", caught_by=("errors", "tables", "liveness"))
def lookup_believes_secondary(right: Callable[..., Any]) -> Callable[..., Any]:
    """A client trusts a secondary of hbase:meta that does not have the rows of a table."""

    def accept(self: Any, replica: Any, page: Any) -> MetaClientError | None:
        refusal: MetaClientError | None = right(self, replica, page)
        meaning = getattr(refusal, "meaning", None)
        if meaning is None:
            return refusal
        self._primary_said = meaning
        self._primary_failed = True
        return meaning  # type: ignore[no-any-return]  # a MetaClientError

    return accept


@_defect(RoundRobin, "select", caught_by=("meta_load",))
def balancing_reads_the_primary(right: Callable[..., Any]) -> Callable[..., Any]:
    """LoadBalance asks the primary first."""

    def select(self: RoundRobin, lookup: Any, view: Any) -> Sequence[int]:
        return [0, *right(self, lookup, view)]

    return select


@_defect(TableScanner, "_resume", caught_by=("scans",))
def scan_repeats_a_row(right: Callable[..., Any]) -> Callable[..., Any]:
    """A scanner that was lost is opened again at the last row that was returned, not after it."""

    def resume(self: TableScanner) -> None:
        right(self)
        self._at_inclusive = True

    return resume


@_defect(TableScanner, "_move_on", caught_by=("scans",))
def scan_skips_first_row_of_region(right: Callable[..., Any]) -> Callable[..., Any]:
    """A scan continues after the start key of the next region, and skips the row with that key."""

    def move_on(self: TableScanner) -> bool:
        goes_on: bool = right(self)
        self._at_inclusive = False
        return goes_on

    return move_on


@_defect(TableScanner, "_discard", caught_by=("leaks",))
def loser_keeps_its_scanner(right: Callable[..., Any]) -> Callable[..., Any]:
    """The scanner of a leg that lost a race is never closed."""

    def discard(self: TableScanner, page: object) -> None:
        pass

    return discard
