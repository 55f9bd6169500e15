"""Carries out many operations at once: grouped by server, sent in parallel, with an outcome per operation.

``batch`` is for writes (and gets) at their primaries, ``get_many`` for reads of many rows, STRONG or TIMELINE.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import chain

from metaclient import keys
from metaclient.attempts import Leg, ReadGuard, explained, told
from metaclient.attempts.contest import RaceCall
from metaclient.backend import Action, Outcome
from metaclient.calls.answers import wrong
from metaclient.calls.hedging import ASK_AGAIN_S, HedgePermit
from metaclient.calls.operations import Operation, Operations, Placed
from metaclient.calls.staleness import StalenessLimit, refusal_of
from metaclient.errors import (
    BackendFault,
    CallTimeout,
    Disposition,
    MetaClientError,
)
from metaclient.many_gets import FoundRows, GetActions, Gets, PlacedRows
from metaclient.model import (
    Append,
    Consistency,
    Get,
    Increment,
    RegionLocation,
    Result,
    ServerName,
)

__all__ = ["batch", "get_each", "get_many"]


def batch(
    operations: Operations, table: bytes, actions: Sequence[Operation], deadline: float | None = None
) -> list[Outcome]:
    """Run many operations at their primaries; return an outcome per operation. Raise if the connection is unusable."""
    multi = _Multi(operations, table, actions, operations.deadline(table) if deadline is None else deadline)
    multi.carry_out()
    return multi.outcomes()


def get_many(
    operations: Operations,
    table: bytes,
    gets: Sequence[Get],
    consistency: Consistency,
    replica_id: int | None,
    max_staleness_s: float | None = None,
    *,
    guard: ReadGuard | None = None,
) -> Sequence[Placed]:
    """Read many rows; return them in the order of the request, or raise the error of the first failed row.

    ``max_staleness_s`` and ``guard`` limit the replicas of a TIMELINE read that names none. The answer is
    :class:`~metaclient.many_gets.PlacedRows` if ``gets`` are :class:`~metaclient.many_gets.Gets`, the backend answered
    all of them at once, and no answer needs a check of its own.
    """
    is_timeline = consistency is Consistency.TIMELINE
    if is_timeline and not operations.backend.capabilities.region_replicas:
        raise operations.no_replicas()
    multi = _Multi(operations, table, gets, operations.deadline(table))
    multi.is_hedged = is_timeline and replica_id is None
    multi.replica_id = (replica_id or 0) if is_timeline else 0
    multi.is_timeline = is_timeline
    multi.max_staleness_s = max_staleness_s
    multi.guard = guard if multi.is_hedged else None
    multi.carry_out()
    if multi.is_all_found:
        return PlacedRows(len(gets), multi.found)
    results: list[Placed] = []
    for outcome, place in zip(multi.outcomes(), multi.places, strict=True):
        if not isinstance(outcome, Result):
            raise outcome if isinstance(outcome, MetaClientError) else wrong(Result, outcome)
        results.append((outcome, place))
    return results


def get_each(
    operations: Operations, table: bytes, gets: Sequence[Get], replica_id: int, deadline: float
) -> list[tuple[Outcome, RegionLocation | None]]:
    """Read rows at one replica id; return an outcome and a location per row. Raise if the connection is unusable."""
    multi = _Multi(operations, table, gets, deadline)
    multi.replica_id = replica_id
    multi.carry_out()
    return list(zip(multi.outcomes(), multi.places, strict=True))


def _is_result(outcome: object) -> bool:
    return type(outcome) is Result


@dataclass(slots=True, eq=False)
class _Group(RaceCall[int, Sequence[Outcome]]):
    """The actions of one call: their indexes in the batch, and their locations."""

    server: ServerName | None = None
    indexes: list[int] = field(default_factory=list)
    places: list[RegionLocation | None] = field(default_factory=list)
    runs: list[tuple[RegionLocation | None, int]] = field(default_factory=list)  # the places by number of actions
    is_hedge: bool = False
    limit: StalenessLimit | None = None

    @property
    def is_first(self) -> bool:
        """True if the group belongs to the first leg of its round."""
        return not self.leg.is_hedge


class _Multi:
    """One batch, in rounds; each action that is not settled is grouped by server and sent again.

    1. A round sends one call per server, in parallel. An action is settled by an answer, by a FATAL error, or, if the
       action is not idempotent, by an error with ``may_have_applied``.
    2. A round is a contest of the executor, and a leg of its plan is a replica id. Only TIMELINE reads have more than
       one leg. Rows that the primaries have not answered after the delay are grouped again by the servers of the next
       replica and sent there, if the budget allows it. Rows that failed at the primaries are sent there at once. The
       first answer of a row wins; when all replicas fail, the error of the primary counts. As with single reads, a
       primary on a silent or slow server changes places with a replica on another server, and a call that was outrun
       may become the witness of its server.
    3. If a round made progress, and only actions are left that the server asks to send again (a full response), the
       next round follows at once and does not count as an attempt (HBase's RetryImmediately). Else the retrier decides.

    It has more than 30 methods because each step of a round needs the state of the actions.
    """

    def __init__(self, operations: Operations, table: bytes, actions: Sequence[Operation], deadline: float) -> None:
        self._operations = operations
        self._hedging = operations.hedging
        self._table = table
        self._actions = actions
        self._deadline = deadline
        self._gets = actions if type(actions) is Gets else None
        kinds = set(map(type, actions)) if self._gets is None else {Get}
        self._rows = [action.row for action in actions] if self._gets is None else self._gets.rows
        self.is_write = bool(kinds - {Get})
        self.discard: Callable[[object], None] | None = None
        self._is_silent = not kinds & {Get, Increment, Append}  # the other actions return no result
        self._outcomes: list[Outcome] = [None] * len(actions)
        self._open: dict[int, None] = dict.fromkeys(range(len(actions)))  # without a final outcome, in order
        self._errors: dict[int, MetaClientError] = {}  # of the open actions: the error that counts
        self._maybe_applied: set[int] = set()
        self.places: list[RegionLocation | None] = [None] * len(actions)
        #: Per call that answered all its rows at once: the indexes, the locations and the results of its gets.
        self.found: list[tuple[list[int], list[RegionLocation | None], FoundRows]] = []
        self.is_hedged = False
        self.is_timeline = False
        self.replica_id = 0
        self.max_staleness_s: float | None = None
        self.guard: ReadGuard | None = None
        self._round_began = 0.0
        self._first_groups: list[_Group] = []
        self.allow_hedge: Callable[[int], bool] = self._hedging.allow_hedge
        self._spared: dict[int, int] = {}  # the replica that was called first instead of a silent or slow primary

    @property
    def is_all_found(self) -> bool:
        """True if ``found`` has the results of all actions."""
        return bool(self.found) and sum(len(rows) for _, _, rows in self.found) == len(self._actions)

    def outcomes(self) -> list[Outcome]:
        """Return an outcome per action; their locations are in ``places``."""
        while self.found:
            for index, place, result in zip(*self.found.pop(), strict=True):
                self._outcomes[index] = result
                self.places[index] = place
        return self._outcomes

    def carry_out(self) -> None:
        """Run the batch until each action has an outcome."""
        if not self._actions:
            return
        operations = self._operations
        try:
            operations.retrier.call(
                self._attempt,
                deadline=self._deadline,
                what=lambda: f"batch of {len(self._actions)} on table '{keys.printable(self._table)}'",
                on_failure=operations.learner(self._table, self._deadline, knows_place=True),
            )
        except MetaClientError as error:
            if error.ends_connection:
                error.may_have_applied = error.may_have_applied or bool(self._maybe_applied)
                raise
            for index in list(self._open):
                of_row = copy(error)  # a change of one row's error must not affect the others
                of_row.__cause__ = self._errors.get(index)
                self._settle(index, of_row)

    def _settle(self, index: int, outcome: Outcome) -> None:
        if isinstance(outcome, MetaClientError) and (index in self._maybe_applied) != outcome.may_have_applied:
            cause, outcome = outcome.__cause__, copy(outcome)
            outcome.__cause__ = cause
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
            if not (got_on and all(error.disposition is Disposition.BACKOFF and not error.wait_s for error in left)):
                raise max(left, key=lambda error: error.wait_s)

    # -- one round -----------------------------------------------------------------------------------------------

    def _round(self) -> None:
        """Call one replica after the other, according to the plan, until no action is open or no replica is left."""
        operations, now = self._operations, self._operations.runtime.now
        begun = self._round_began = now()
        timeout_s = operations.config.rpc_write_timeout_s if self.is_write else operations.read_timeout_s
        first = Leg(self.replica_id, 0.0, timeout_s)
        self._first_groups = self._groups(first, cached=False)
        order = self._secondaries() if self.is_hedged else []
        if len(self._first_groups) == 1 and not order:
            self._run_here(self._first_groups[0])
            return
        places = [place for group in self._first_groups for place, _ in group.runs if place is not None]
        self.allow_hedge = HedgePermit(self._hedging, "rows", places, since=now())
        legs = self._hedging.legs((self.replica_id, *order), "rows", spent_s=now() - begun, timeout_s=timeout_s)
        operations.executor.run_contest(legs, self, deadline=self._deadline, ask_again_s=ASK_AGAIN_S)

    @property
    def is_over(self) -> bool:
        return not self._open

    def calls_of(self, leg: Leg[int], *, is_hedge: bool) -> list[_Group]:
        groups = self._groups(leg, cached=True) if leg.is_hedge else self._first_groups
        for group in groups:
            group.is_hedge = is_hedge
            if self.is_hedged and not is_hedge:
                self._hedging.budget.on_call()
        return groups

    def succeeded(
        self, call: _Group, value: object, waiting: list[Leg[int]], running: Sequence[_Group]
    ) -> list[Leg[int]]:
        self._take(call, value)
        return waiting

    def failed(self, call: _Group, error: MetaClientError, waiting: list[Leg[int]]) -> list[Leg[int]]:
        self._take_error(call, error)
        return waiting

    def ran_out_of_time(self, leg: Leg[int]) -> None:
        """Do nothing: the open actions get a CallTimeout, or keep the error that they have."""

    def outran(self, call: _Group) -> bool:
        """Record a call whose answer is no longer needed; return True if it continues as a witness."""
        self._learn(call, is_outrun=self.is_over)
        place, pending = call.places[0], call.pending
        if not self.is_hedged or call.server is None or place is None or pending is None:
            return False  # behind a gateway one call is for many servers
        if pending.is_done:
            self._hedging.answered(call.server)
            return False
        return self.is_over and self._hedging.is_witness("rows", place, pending, call.started)

    def _learn(self, group: _Group, *, is_outrun: bool) -> None:
        """Record how long a first call of TIMELINE reads took, and whether replicas answered all its rows before it."""
        place, slow = group.places[0], self._hedging.slow
        if not self.is_hedged or group.is_hedge or place is None:
            return
        slow.add_first("rows", place, self._operations.runtime.now() - group.started)
        if group.server is None:  # behind a gateway one call is for many servers
            return
        slow.add_outrun("rows", place) if is_outrun else slow.add("rows", place, 0.0)

    def _secondaries(self) -> list[int]:
        """Return the replica ids of the further stages: those of the open row whose region has the most replicas."""
        cache = self._operations.locator.cache
        entries = [cache.cached_region(self._table, self._rows[index]) for index in self._open]
        known = [entry for entry in entries if entry is not None]
        if not known:
            return []
        return self._hedging.replica_order(max(known, key=lambda entry: len(entry.replicas)))[1:]

    def _groups(self, leg: Leg[int], *, cached: bool) -> list[_Group]:
        """Group the open actions by server, and those of a server by region; a hedge makes no lookup.

        Servers, regions, and the actions of a region are in the order in which they are first given.
        """
        by_gateway, replica_id = self._operations.by_gateway, leg.place
        if by_gateway and replica_id == 0 and not self.is_hedged:
            return [self._group(leg, None, [(None, list(self._open))])]
        by_region = None if cached or replica_id or self.is_hedged else self._at_known_primaries()
        if by_region is None:
            by_region = self._by_region(
                self._cached(replica_id) if cached else self._sparing(self._located(replica_id))
            )
        grouped: dict[ServerName | None, list[tuple[RegionLocation | None, list[int]]]] = {}
        for place, indexes in by_region:
            server = place.server if place is not None and not by_gateway else None
            grouped.setdefault(server, []).append((place, indexes))
        return [self._group(leg, server, parts) for server, parts in grouped.items()]

    def _by_region(self, places: dict[int, RegionLocation | None]) -> list[tuple[RegionLocation | None, list[int]]]:
        """Return the open actions that have a place, by their places."""
        found: dict[int, tuple[RegionLocation | None, list[int]]] = {}
        for index in self._open:
            if index in places:
                place = places[index]
                found.setdefault(id(place), (place, []))[1].append(index)
        return list(found.values())

    def _at_known_primaries(self) -> list[tuple[RegionLocation | None, list[int]]] | None:
        """Return the open actions by their primaries, if the cache has all of them; else None.

        One search per action in the same snapshot of the cache; each region counts as one hit, as in ``_located``.
        """
        known = self._operations.locator.cache.tables.get(self._table)
        if known is None:
            return None
        snapshot = known.snapshot
        starts, ends, rows = snapshot.starts, snapshot.ends, self._rows
        by_number: dict[int, list[int]] = {}
        for index in self._open:
            number = bisect_right(starts, rows[index])
            if number in by_number:
                by_number[number].append(index)
            else:
                by_number[number] = [index]
        if 0 in by_number:  # before the first known region
            return None
        found: list[tuple[RegionLocation | None, list[int]]] = []
        for number, indexes in by_number.items():
            place, end = snapshot.primaries[number - 1], ends[number - 1]
            is_followed = number < len(starts) and starts[number] == end  # all rows before the next start are in it
            if place is None or not (is_followed or keys.contains(b"", end, max([rows[index] for index in indexes]))):
                return None
            found.append((place, indexes))
        known.hits += len(found)
        return found

    def _group(
        self, leg: Leg[int], server: ServerName | None, parts: Sequence[tuple[RegionLocation | None, list[int]]]
    ) -> _Group:
        indexes = parts[0][1] if len(parts) == 1 else list(chain.from_iterable([some for _, some in parts]))
        runs = [(place, len(some)) for place, some in parts]
        places = list(chain.from_iterable([[place] * count for place, count in runs]))
        actions: Sequence[Action]
        if self._gets is None:
            actions = [Action(place, self._actions[index]) for index, place in zip(indexes, places, strict=True)]
        else:
            rows = self._rows
            actions = GetActions([rows[index] for index in indexes], self._gets.like, runs)
        batch = self._operations.backend.batch
        limit = self._hedging.staleness.limit(self.max_staleness_s) if self.is_timeline else None
        if limit is not None:
            limit.admit(places)
        arguments = (server, self._table, actions)
        return _Group(leg, batch, arguments, server=server, indexes=indexes, places=places, runs=runs, limit=limit)

    def _cached(self, replica_id: int) -> dict[int, RegionLocation | None]:
        cache, spared = self._operations.locator.cache, self._spared
        found: dict[int, RegionLocation | None] = {}
        fresh: dict[bytes, bool] = {}
        for index in self._open:
            at = 0 if spared.get(index) == replica_id else replica_id  # the two have changed places
            place = cache.cached(self._table, self._rows[index], at)
            if place is not None and self._may_call(index, place, fresh):
                found[index] = place
        return found

    def _may_call(self, index: int, place: RegionLocation, fresh: dict[bytes, bool]) -> bool:
        """Return True if the replica may be called for this row: both the limit and the guard permit it."""
        if not place.replica_id:
            return True
        if not self._is_fresh(place, fresh):
            return False
        return self.guard is None or self.guard.may_call(place, self._rows[index])

    def _is_fresh(self, place: RegionLocation, known: dict[bytes, bool]) -> bool:
        """Return True if the replica is not known to be too far behind; decided once per replica and leg."""
        if self.max_staleness_s is None:
            return True
        if place.region_name not in known:
            limit = self._hedging.staleness.limit(self.max_staleness_s)
            known[place.region_name] = limit is None or bool(limit.admit((place,)))
        return known[place.region_name]

    def _sparing(self, places: dict[int, RegionLocation | None]) -> dict[int, RegionLocation | None]:
        """Return the locations; one on a silent or slow server is replaced by another replica if possible."""
        self._spared.clear()
        if not self.is_hedged or not self._hedging.has_avoided:
            return places
        fresh: dict[bytes, bool] = {}
        avoided: dict[ServerName, bool] = {}  # decided once per round: a probe is one call, not one row
        for index, place in places.items():
            if place is None:
                continue
            if place.server not in avoided:
                avoided[place.server] = self._hedging.is_avoided("rows", place)
            if avoided[place.server]:
                other = self._instead(index, fresh)
                if other is not None:
                    places[index] = other
                    self._spared[index] = other.replica_id
        return places

    def _instead(self, index: int, fresh: dict[bytes, bool]) -> RegionLocation | None:
        """Return a secondary of the action's region that is on a server that is neither silent nor slow."""
        operations = self._operations
        entry = operations.locator.cache.cached_region(self._table, self._rows[index])
        if entry is None:
            return None
        for at in self._hedging.replica_order(entry)[1:]:
            one = entry.at(at)
            if one is not None and not self._hedging.is_avoided("rows", one) and self._may_call(index, one, fresh):
                return one
        return None

    def _located(self, replica_id: int) -> dict[int, RegionLocation | None]:
        """Return the locations of the open actions. An action that cannot be located keeps its error.

        Rows are located in descending order, because a lookup also returns the regions below its own.
        """
        rows = self._rows
        places: dict[int, RegionLocation | None] = {}
        place: RegionLocation | None = None  # of the row above
        unable: MetaClientError | None = None  # why hbase:meta is not asked again in this round
        for index in sorted(self._open, key=rows.__getitem__, reverse=True):
            if place is not None and rows[index] >= place.region.start_key:
                places[index] = place
                continue
            try:
                place = places[index] = self._locate(index, replica_id, unable)
            except MetaClientError as error:
                if error.ends_connection:
                    raise
                place = None
                self._failed(index, None, error)
                if not error.is_about_row:
                    unable = error
        return places

    def _locate(self, index: int, replica_id: int, unable: MetaClientError | None) -> RegionLocation | None:
        row = self._rows[index]
        if unable is not None:
            place = self._operations.locator.cache.cached(self._table, row, replica_id)
            if place is None:
                raise unable
            return place
        if self.is_hedged:  # also behind a gateway: the legs need to know which replicas there are
            return self._operations.locator.locate(self._table, row, deadline=self._deadline)
        return self._operations.place(self._table, row, self._deadline, replica_id)

    def _run_here(self, group: _Group) -> None:
        """Run a single call in the caller's own thread."""
        operations = self._operations
        group.started = operations.runtime.now()
        group.deadline = min(self._deadline, group.started + group.leg.timeout_s)
        try:
            answer = operations.executor.call(
                group.function, *group.args, deadline=group.deadline, is_write=self.is_write
            )
        except MetaClientError as error:
            self._take_error(group, error)
        else:
            self._take(group, answer)

    # -- outcomes ------------------------------------------------------------------------------------------------

    def _take(self, group: _Group, answer: object) -> None:
        if not isinstance(answer, Sequence) or len(answer) != len(group.indexes):
            said = f"{len(answer)} outcomes" if isinstance(answer, Sequence) else type(answer).__name__
            text = f"the backend answered {said} for {len(group.indexes)} actions"
            self._take_error(group, BackendFault(text, may_have_applied=self.is_write))
            return
        operations = self._operations
        if group.server is not None:
            self._hedging.answered(group.server)
        self._learn(group, is_outrun=not any(index in self._open for index in group.indexes))
        is_limited = self.is_hedged or group.limit is not None or self.guard is not None
        if self._is_silent and not any(answer):
            self._take_done(group, None)
            return
        is_whole = type(answer) is FoundRows  # all of them are results
        if not self.is_write and not is_limited and (is_whole or all(map(_is_result, answer))):
            self._take_done(group, answer)
            return
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
            operations.locator.confirm(place)
            if isinstance(checked, Result):
                row, limit, since = self._rows[index], group.limit, self._round_began
                refusal = refusal_of(place, checked, limit=limit, guard=self.guard, row=row, since=since)
                if refusal is not None:
                    refusal.place = place
                    self._failed(index, place, refusal)
                    continue
                if limit is not None:
                    checked = limit.marked(checked, place)
            self.places[index] = self._explained(group, place)
            self._settle(index, checked)
            won = True
        if (
            won
            and self.is_hedged
            and not group.is_first
            and any(place is not None and place.replica_id for place in group.places)
        ):
            self._hedging.count_win(is_hedge=group.is_hedge)

    def _explained(self, group: _Group, place: RegionLocation | None) -> RegionLocation | None:
        """Return the location with the reason why it answered; a location that the caller named needs none."""
        if place is None or not self.is_hedged:
            return place
        return explained(place, is_first=group.is_first, hedges=int(group.is_hedge))

    def _take_done(self, group: _Group, results: Sequence[Outcome] | None) -> None:
        """Settle a group whose actions all succeeded, without a check per action; ``results`` are those of reads."""
        for place, _ in group.runs:
            if place is not None and place.is_hint:
                self._operations.locator.confirm(place)
        if len(group.indexes) == len(self._open):
            self._open.clear()
        else:
            for index in group.indexes:
                self._open.pop(index, None)
        if isinstance(results, FoundRows):
            self.found.append((group.indexes, group.places, results))
        elif results is not None:
            outcomes, places = self._outcomes, self.places
            for index, at, result in zip(group.indexes, group.places, results, strict=True):
                outcomes[index] = result
                places[index] = at

    def _checked(self, index: int, outcome: object) -> Outcome:
        """Return the outcome if its type fits the action, else BackendFault."""
        if isinstance(outcome, MetaClientError):
            return told(outcome, is_write=self.is_write)
        if self._gets is not None or isinstance(self._actions[index], Get | Increment | Append):
            return outcome if isinstance(outcome, Result) else wrong(Result, outcome, is_write=self.is_write)
        return None

    def _take_error(self, group: _Group, error: MetaClientError) -> None:
        """Record the error of a failed call for each of its actions."""
        if error.ends_connection:
            raise error
        # The call has one error for all actions, and the server received it (ALL_OR_ERROR): any action may have been
        # applied.
        is_vague = self.is_write and not self._operations.outcome_per_row and len(group.indexes) > 1
        is_vague = is_vague and not error.precedes_execution
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
            self._hedging.on_error(place, error)

    def _failed(self, index: int, place: RegionLocation | None, error: MetaClientError) -> None:
        is_secondary = self.is_hedged and place is not None and place.replica_id != 0
        if error.may_have_applied:
            self._maybe_applied.add(index)
        if not is_secondary or index not in self._errors:
            self._errors[index] = error
        is_unsafe = index in self._maybe_applied and isinstance(self._actions[index], Increment | Append)
        if is_unsafe or (error.disposition is Disposition.FATAL and not is_secondary):
            self._settle(index, error)
