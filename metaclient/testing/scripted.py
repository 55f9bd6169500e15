"""A backend of one's own making: a small honest cluster, and rules that make it lie, hang, lag or fail.

The cluster is truthful by default: regions on servers, hbase:meta rows in HBase's format, errors where HBase has
them. Rules are matched in order, the first that fits a call decides::

    backend = ScriptedBackend(meta_replicas=3)
    backend.on("read_meta", replica=1).hangs()                             # silent until the deadline
    backend.on("get", server=backend.servers[0], times=2).raises(NotServingRegion("gone"))
    backend.on("read_meta", replica=2).answers(MetaPage(()))               # "no rows, no error"
    backend.on("get").delays(0.25)

Every call is recorded in ``calls``. Time comes from the runtime, so that nothing here ever really sleeps on virtual
time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from metaclient import keys, metarow
from metaclient.backend import Action, Capabilities, MetaPage, MetaRow, MetaScan, Outcome, ScanPage
from metaclient.config.hbase_properties import warn_unread
from metaclient.errors import (
    CallTimeout,
    ConfigError,
    ConnectionClosed,
    MetaClientError,
    NotServingRegion,
    RequestRefused,
    ScannerLost,
    ServerUnreachable,
    TableDisabled,
    TableExists,
    TableNotDisabled,
    TableNotFound,
    WrongRegion,
)
from metaclient.model import (
    Check,
    FamilyDescriptor,
    Get,
    MetaReplica,
    Mutation,
    RegionInfo,
    RegionLocation,
    RegionLocations,
    Result,
    Scan,
    ServerName,
    TableDescriptor,
    TableState,
)
from metaclient.runtime import Runtime, ThreadRuntime, inherited_error
from metaclient.testing.rows import TableRows

__all__ = ["Call", "Rule", "ScriptedBackend", "backend_factory"]

#: Calls that are remembered; a test that needs more is about something else.
CALLS_MAX = 200_000
#: Versions that families of :meth:`ScriptedBackend.add_table` keep: the default of happybase and the Thrift gateway.
VERSIONS_MAX = 3


@dataclass(frozen=True, slots=True)
class Call:
    """One recorded call."""

    method: str
    at_s: float
    replica_id: int | None
    server: ServerName | None
    table: bytes | None
    argument: object


class Rule:
    """What happens to calls that fit; made by :meth:`ScriptedBackend.on`."""

    def __init__(
        self,
        method: str,
        replica: int | None,
        server: ServerName | None,
        table: bytes | None,
        times: int | None,
        when: Callable[[Call], bool] | None,
    ) -> None:
        self._method = method
        self._replica = replica
        self._server = server
        self._table = table
        self._when = when
        self.times = times
        self.used = 0
        self._delay_s = 0.0
        self._hangs = False
        self._error: BaseException | Callable[[], BaseException] | None = None
        self._value: object = None
        self._has_value = False

    def raises(self, error: BaseException | Callable[[], BaseException]) -> Rule:
        self._error = error
        return self

    def hangs(self) -> Rule:
        """Silent until the deadline; for ever on a backend that does not honour deadlines."""
        self._hangs = True
        return self

    def delays(self, seconds: float) -> Rule:
        """Takes that long, then goes on as the rest of the rule says, or truthfully."""
        self._delay_s = seconds
        return self

    def answers(self, value: object) -> Rule:
        """Answers this value, or what the function makes of the call."""
        self._value = value
        self._has_value = True
        return self

    def fits(self, call: Call) -> bool:
        return (
            self._method in (call.method, "*")
            and (self.times is None or self.used < self.times)
            and (self._replica is None or self._replica == call.replica_id)
            and (self._server is None or self._server == call.server)
            and (self._table is None or self._table == call.table)
            and (self._when is None or self._when(call))
        )


@dataclass(slots=True)
class _Table:
    descriptor: TableDescriptor
    regions: list[RegionLocations]
    rows: TableRows
    state: TableState = TableState.ENABLED


@dataclass(frozen=True, slots=True)
class _Meta:
    """All rows of hbase:meta in its own order, and the keys that they are sorted by; never changed once made."""

    rows: list[MetaRow]
    order: list[tuple[bytes, bool, bytes, bytes]]


@dataclass(slots=True)
class _Scanner:
    place: RegionLocation | None
    table: bytes
    rows: deque[Result]
    bytes_max: int


class ScriptedBackend:
    """See the module's docstring.

    >>> backend = ScriptedBackend(meta_replicas=2)
    >>> backend.add_table("t", splits=[b"m"])
    >>> [replica.replica_id for replica in backend.meta_replicas(deadline=1.0)]
    [0, 1]
    """

    name = "scripted"

    def __init__(
        self,
        runtime: Runtime | None = None,
        *,
        servers: int = 3,
        meta_replicas: int = 1,
        capabilities: Capabilities | None = None,
        latency_s: float = 0.0,
    ) -> None:
        self.runtime: Runtime = runtime or ThreadRuntime()
        self.capabilities = capabilities or Capabilities(filters=False)
        self.latency_s = latency_s
        self.servers = [ServerName(f"rs{number}.example.com", 16020, 1000 + number) for number in range(servers)]
        self.registry = [MetaReplica(number, self.servers[number % servers]) for number in range(meta_replicas)]
        self.calls: deque[Call] = deque(maxlen=CALLS_MAX)
        self.is_closed = False
        self._rules: list[Rule] = []
        self._lock = self.runtime.lock()
        self._closing = self.runtime.condition(self._lock)
        self._closed_error = ConnectionClosed("the scripted backend is closed")
        self.runtime.on_fork(self._leave_to_parent)
        # Guarded by the lock:
        self._tables: dict[bytes, _Table] = {}
        self._meta: _Meta | None = None  # None = to be made again
        self._frozen: dict[int, _Meta] = {}
        self._parents: list[MetaRow] = []
        self._scanners: dict[int, _Scanner] = {}
        self._next_id = 1_600_000_000_000
        self._last_write_ms = 0
        self._dead: set[ServerName] = set()

    # -- the script ------------------------------------------------------------------------------------------

    def on(
        self,
        method: str,
        *,
        replica: int | None = None,
        server: ServerName | None = None,
        table: bytes | None = None,
        times: int | None = None,
        when: Callable[[Call], bool] | None = None,
    ) -> Rule:
        """A rule for calls of this method (``"*"``: any); earlier rules come first."""
        rule = Rule(method, replica, server, table, times, when)
        self._rules.append(rule)
        return rule

    def clear_rules(self) -> None:
        self._rules.clear()

    def count(self, method: str, **match: object) -> int:
        """How many recorded calls of this method have these fields."""
        return sum(
            call.method == method and all(getattr(call, name) == value for name, value in match.items())
            for call in list(self.calls)
        )

    def open_scanners(self) -> int:
        return len(self._scanners)

    def freeze_meta(self, replica_id: int) -> None:
        """From now on this meta replica shows meta as it is at this moment: it lags."""
        with self._lock:
            self._frozen[replica_id] = self._meta_rows()

    def thaw_meta(self, replica_id: int) -> None:
        with self._lock:
            self._frozen.pop(replica_id, None)

    # -- the small cluster -------------------------------------------------------------------------------------

    def add_table(
        self,
        name: bytes | str,
        families: Iterable[bytes] = (b"cf",),
        *,
        splits: Sequence[bytes] = (),
        region_replication: int = 1,
    ) -> None:
        """Make a table without going through the SPI; its families keep some versions."""
        table = keys.table_name(name)
        made = tuple(FamilyDescriptor(family, VERSIONS_MAX) for family in families)
        self._create(TableDescriptor(table, made, region_replication), splits)

    def _create(self, descriptor: TableDescriptor, splits: Sequence[bytes]) -> None:
        with self._lock:
            if descriptor.name in self._tables:
                raise TableExists(f"table {keys.printable(descriptor.name)!r} already exists")
            bounds = [b"", *sorted(set(splits)), b""]
            self._next_id += 1
            region_id = self._next_id
            regions = [
                self._placed(RegionInfo(descriptor.name, start, end, region_id), number, descriptor.region_replication)
                for number, (start, end) in enumerate(pairwise(bounds))
            ]
            self._tables[descriptor.name] = _Table(descriptor, regions, TableRows(descriptor))
            self._meta = None

    def _placed(self, info: RegionInfo, number: int, replicas: int) -> RegionLocations:
        return RegionLocations(
            info,
            tuple(
                RegionLocation(info.replica(replica), self.servers[(number + replica) % len(self.servers)], 2)
                for replica in range(replicas)
            ),
        )

    def region_of(self, table: bytes, row: bytes) -> RegionLocations:
        with self._lock:
            return self._region_of(self._table(table), row)

    def move(self, table: bytes, row: bytes, server: ServerName, *, replica_id: int = 0) -> RegionLocation:
        """Move a region replica; meta knows at once, clients do not."""
        with self._lock:
            known = self._table(table)
            entry = self._region_of(known, row)
            at = entry.replicas[replica_id]
            seqnum = at.seqnum + 10 if at is not None else 10
            moved = RegionLocation(entry.region.replica(replica_id), server, seqnum)
            replicas = tuple(moved if index == replica_id else old for index, old in enumerate(entry.replicas))
            known.regions[known.regions.index(entry)] = RegionLocations(entry.region, replicas)
            self._meta = None
            return moved

    def unplace(self, table: bytes, row: bytes, *, replica_id: int = 0) -> None:
        """Take a region replica off its server: meta knows the region and no place for it."""
        with self._lock:
            known = self._table(table)
            entry = self._region_of(known, row)
            replicas = tuple(None if index == replica_id else old for index, old in enumerate(entry.replicas))
            known.regions[known.regions.index(entry)] = RegionLocations(entry.region, replicas)
            self._meta = None

    def split(self, table: bytes, at: bytes, *, keeps_parent: bool = False) -> None:
        """Split the region of ``at`` there; the parent's row goes at once, or stays as until the catalog janitor."""
        with self._lock:
            known = self._table(table)
            entry = self._region_of(known, at)
            index = known.regions.index(entry)
            self._next_id += 1
            bounds = ((entry.region.start_key, at), (at, entry.region.end_key))
            if keeps_parent:
                parent = RegionLocations(replace(entry.region, is_offline=True, is_split_parent=True), entry.replicas)
                self._parents.append(MetaRow(entry.region.name, metarow.region_columns(parent, "CLOSED")))
            known.regions[index : index + 1] = [
                self._placed(RegionInfo(table, start, end, self._next_id), index + number, len(entry.replicas))
                for number, (start, end) in enumerate(bounds)
            ]
            self._meta = None

    def merge(self, table: bytes, first_row: bytes, last_row: bytes) -> None:
        """Merge the regions from the one of ``first_row`` to the one of ``last_row``."""
        with self._lock:
            known = self._table(table)
            first = known.regions.index(self._region_of(known, first_row))
            last = known.regions.index(self._region_of(known, last_row))
            self._next_id += 1
            bounds = known.regions[first].region.start_key, known.regions[last].region.end_key
            info = RegionInfo(table, *bounds, region_id=self._next_id)
            known.regions[first : last + 1] = [self._placed(info, first, len(known.regions[first].replicas))]
            self._meta = None

    def kill(self, server: ServerName) -> None:
        """Connections to this server are refused from now on; its regions stay where meta says."""
        self._dead.add(server)

    def revive(self, server: ServerName) -> None:
        self._dead.discard(server)

    # -- the SPI: life -----------------------------------------------------------------------------------------

    def open(self, deadline: float) -> None:
        self._called("open", deadline)

    def close(self) -> None:
        with self._lock:
            self.is_closed = True
            self._closing.notify_all()

    def _leave_to_parent(self) -> None:
        """In a child process: refuse everything; what is written to this copy nobody else would ever see."""
        self._lock = self.runtime.lock()
        self._closing = self.runtime.condition(self._lock)
        self._closed_error = inherited_error("the scripted backend", "make a new one in this process")
        self.is_closed = True

    def _called(
        self,
        method: str,
        deadline: float,
        *,
        replica_id: int | None = None,
        server: ServerName | None = None,
        table: bytes | None = None,
        argument: object = None,
    ) -> Rule | None:
        """Record the call and let the first rule that fits act; the rule comes back when it has an answer."""
        call = Call(method, self.runtime.now(), replica_id, server, table, argument)
        self.calls.append(call)
        if self.is_closed:
            raise ConnectionClosed(str(self._closed_error))
        if server is not None and server in self._dead:
            raise ServerUnreachable(f"connection to {server.address} refused")
        if self.latency_s:
            self._pass(self.latency_s, deadline)
        if not self._rules:
            return None
        rule = next((rule for rule in self._rules if rule.fits(call)), None)
        if rule is None:
            return None
        rule.used += 1
        if rule._delay_s:
            self._pass(rule._delay_s, deadline)
        if rule._hangs:
            self._hang(deadline)
        if rule._error is not None:
            raise rule._error() if callable(rule._error) else rule._error
        return rule if rule._has_value else None

    def _pass(self, seconds: float, deadline: float) -> None:
        """Let time pass, but not beyond the deadline when deadlines are honoured."""
        if self.capabilities.honours_deadline and self.runtime.now() + seconds > deadline:
            self._hang(deadline)
        self.runtime.sleep(seconds)

    def _hang(self, deadline: float) -> None:
        until = deadline if self.capabilities.honours_deadline else None
        with self._lock:
            while not self.is_closed:
                if until is not None and self.runtime.now() >= until:
                    raise CallTimeout("the scripted backend hangs")
                self._closing.wait(until)
        raise ConnectionClosed("the scripted backend was closed")

    def _scripted(self, rule: Rule, argument: object) -> Any:
        return rule._value(argument) if callable(rule._value) else rule._value

    # -- the SPI: hbase:meta -------------------------------------------------------------------------------------

    def meta_replicas(self, deadline: float) -> Sequence[MetaReplica]:
        rule = self._called("meta_replicas", deadline)
        if rule is not None:
            return self._scripted(rule, None)  # type: ignore[no-any-return]  # a script may answer anything
        return list(self.registry)

    def read_meta(self, replica: MetaReplica, scan: MetaScan, deadline: float) -> MetaPage:
        rule = self._called("read_meta", deadline, replica_id=replica.replica_id, server=replica.server, argument=scan)
        if rule is not None:
            return self._scripted(rule, scan)  # type: ignore[no-any-return]  # a script may answer anything
        if replica.replica_id not in {known.replica_id for known in self.registry}:
            raise NotServingRegion(f"hbase:meta,,1_{replica.replica_id:04X} is not online here")
        with self._lock:
            frozen = self._frozen.get(replica.replica_id)
            rows = self._meta_rows() if frozen is None else frozen
            return MetaPage(tuple(_page_of(rows, scan)), is_stale=replica.replica_id != 0)

    def true_page(self, scan: MetaScan) -> MetaPage:
        """What the primary would answer: for rules that answer something like it."""
        with self._lock:
            return MetaPage(tuple(_page_of(self._meta_rows(), scan)))

    def _meta_rows(self) -> _Meta:
        if self._meta is None:
            rows = [
                MetaRow(entry.region.name, metarow.region_columns(entry))
                for table in self._tables.values()
                for entry in table.regions
            ]
            rows += self._parents
            rows += [
                MetaRow(name, {b"table:state": metarow.encode_table_state(table.state)})
                for name, table in self._tables.items()
            ]
            rows.sort(key=lambda row: keys.meta_sort_key(row.row))
            self._meta = _Meta(rows, [keys.meta_sort_key(row.row) for row in rows])
        return self._meta

    # -- the SPI: data -------------------------------------------------------------------------------------------

    def get(self, place: RegionLocation | None, table: bytes, get: Get, deadline: float) -> Result:
        rule = self._at("get", place, table, get, deadline)
        if rule is not None:
            return self._scripted(rule, get)  # type: ignore[no-any-return]  # a script may answer anything
        with self._lock:
            known = self._served(place, table, get.row)
            return self._read(known, get, place)

    def mutate(self, place: RegionLocation | None, table: bytes, mutation: Mutation, deadline: float) -> Result | None:
        rule = self._at("mutate", place, table, mutation, deadline)
        if rule is not None:
            return self._scripted(rule, mutation)  # type: ignore[no-any-return]  # a script may answer anything
        with self._lock:
            known = self._served(place, table, mutation.row, is_write=True)
            return self._write(known, mutation)

    def check_and_mutate(
        self, place: RegionLocation | None, table: bytes, check: Check, mutation: Mutation, deadline: float
    ) -> bool:
        rule = self._at("check_and_mutate", place, table, (check, mutation), deadline)
        if rule is not None:
            return self._scripted(rule, check)  # type: ignore[no-any-return]  # a script may answer anything
        with self._lock:
            known = self._served(place, table, check.row, is_write=True)
            return known.rows.check_and_mutate(check, mutation, self._write_ms())

    def batch(
        self, server: ServerName | None, table: bytes, actions: Sequence[Action], deadline: float
    ) -> Sequence[Outcome]:
        rule = self._called("batch", deadline, server=server, table=table, argument=actions)
        if rule is not None:
            return self._scripted(rule, actions)  # type: ignore[no-any-return]  # a script may answer anything
        return [self._outcome(table, action) for action in actions]

    def _outcome(self, table: bytes, action: Action) -> Outcome:
        operation = action.operation
        try:
            with self._lock:
                known = self._served(action.place, table, operation.row, is_write=not isinstance(operation, Get))
                if isinstance(operation, Get):
                    return self._read(known, operation, action.place)
                return self._write(known, operation)
        except MetaClientError as error:
            return error

    def scan_open(self, place: RegionLocation | None, table: bytes, scan: Scan, deadline: float) -> ScanPage:
        rule = self._at("scan_open", place, table, scan, deadline)
        if rule is not None:
            return self._scripted(rule, scan)  # type: ignore[no-any-return]  # a script may answer anything
        with self._lock:
            known = self._table_at(place, table)
            if place is not None:
                self._check_place(known, place, scan.start_row if place.region.contains(scan.start_row) else None)
            region = place.region if place is not None else None
            rows = known.rows.scan(scan, self.runtime.time_ms(), region=region, is_stale=_is_stale(place))
            self._next_id += 1
            self._scanners[self._next_id] = _Scanner(place, table, deque(rows), scan.max_result_bytes)
            return self._page(self._next_id, scan.caching)

    def scan_next(self, scanner: object, rows: int, deadline: float) -> ScanPage:
        open_one = self._scanners.get(scanner) if isinstance(scanner, int) else None
        place = open_one.place if open_one is not None else None
        rule = self._at("scan_next", place, open_one.table if open_one is not None else b"", scanner, deadline)
        if rule is not None:
            return self._scripted(rule, scanner)  # type: ignore[no-any-return]  # a script may answer anything
        with self._lock:
            if not isinstance(scanner, int) or scanner not in self._scanners:
                raise ScannerLost(f"unknown scanner {scanner!r}")
            if place is not None:
                self._check_place(self._table_at(place, self._scanners[scanner].table), place, None)
            return self._page(scanner, rows)

    def _page(self, scanner: int, count: int) -> ScanPage:
        waiting = self._scanners[scanner]
        rows: list[Result] = []
        left = waiting.bytes_max
        while waiting.rows and len(rows) < count and left > 0:
            rows.append(row := waiting.rows.popleft())
            left -= sum(len(row.row) + len(cell.column) + len(cell.value) for cell in row.cells)
        is_end = not waiting.rows
        if is_end:
            del self._scanners[scanner]
        return ScanPage(rows, None if is_end else scanner, is_end, _is_stale(waiting.place))

    def scan_close(self, scanner: object, deadline: float) -> None:
        self._called("scan_close", deadline, argument=scanner)
        with self._lock:
            if isinstance(scanner, int):
                self._scanners.pop(scanner, None)

    def _at(
        self, method: str, place: RegionLocation | None, table: bytes, argument: object, deadline: float
    ) -> Rule | None:
        return self._called(
            method,
            deadline,
            replica_id=place.replica_id if place is not None else None,
            server=place.server if place is not None else None,
            table=table,
            argument=argument,
        )

    # -- inside, under the lock ------------------------------------------------------------------------------------

    def _table(self, name: bytes) -> _Table:
        known = self._tables.get(name)
        if known is None:
            raise TableNotFound(f"table {keys.printable(name)!r} does not exist")
        return known

    def _table_at(self, place: RegionLocation | None, name: bytes) -> _Table:
        """A region server does not know which tables there are: to it, a region of none is one that it has not."""
        if place is not None and name not in self._tables:
            raise NotServingRegion(f"{keys.printable(place.region_name)} is not online on {place.server}")
        return self._table(name)

    def _region_of(self, known: _Table, row: bytes) -> RegionLocations:
        return known.regions[bisect_right(known.regions, row, key=lambda entry: entry.region.start_key) - 1]

    def _served(self, place: RegionLocation | None, table: bytes, row: bytes, is_write: bool = False) -> _Table:
        known = self._table_at(place, table)
        if place is None:
            if known.state is not TableState.ENABLED:
                raise TableDisabled(f"table {keys.printable(table)!r} is disabled")
            return known
        self._check_place(known, place, row)
        if is_write and place.replica_id != 0:
            raise RequestRefused("region is read only: it is a secondary")
        return known

    def _check_place(self, known: _Table, place: RegionLocation, row: bytes | None) -> None:
        entry = self._region_of(known, place.region.start_key)
        at = entry.at(place.replica_id)
        is_here = at is not None and at.server == place.server and entry.region.region_id == place.region.region_id
        if not is_here or known.state is not TableState.ENABLED:
            raise NotServingRegion(f"{keys.printable(place.region_name)} is not online on {place.server}")
        if row is not None and not place.region.contains(row):
            raise WrongRegion(f"row {keys.printable(row)!r} is not in {keys.printable(place.region_name)}")

    def _read(self, known: _Table, get: Get, place: RegionLocation | None) -> Result:
        return known.rows.get(get, self.runtime.time_ms(), is_stale=_is_stale(place))

    def _write(self, known: _Table, mutation: Mutation) -> Result | None:
        return known.rows.mutate(mutation, self._write_ms())

    def _write_ms(self) -> int:
        """The servers' time, which moves on with each write.

        Virtual time stands still between calls. Deletes and counters would then hide each put that comes after them.
        """
        self._last_write_ms = max(self.runtime.time_ms(), self._last_write_ms + 1)
        return self._last_write_ms

    # -- the SPI: admin --------------------------------------------------------------------------------------------

    def table_names(self, deadline: float) -> Sequence[bytes]:
        self._called("table_names", deadline)
        return sorted(self._tables)

    def describe_table(self, table: bytes, deadline: float) -> TableDescriptor:
        self._called("describe_table", deadline, table=table)
        return self._table(table).descriptor

    def create_table(self, descriptor: TableDescriptor, splits: Sequence[bytes], deadline: float) -> None:
        self._called("create_table", deadline, table=descriptor.name)
        self._create(descriptor, splits)

    def delete_table(self, table: bytes, deadline: float) -> None:
        self._called("delete_table", deadline, table=table)
        with self._lock:
            if self._table(table).state is not TableState.DISABLED:
                raise TableNotDisabled(f"table {keys.printable(table)!r} must be disabled before it is deleted")
            del self._tables[table]
            self._parents = [row for row in self._parents if not row.row.startswith(table + b",")]
            self._meta = None

    def enable_table(self, table: bytes, deadline: float) -> None:
        self._called("enable_table", deadline, table=table)
        self._set_state(table, TableState.ENABLED)

    def disable_table(self, table: bytes, deadline: float) -> None:
        self._called("disable_table", deadline, table=table)
        self._set_state(table, TableState.DISABLED)

    def _set_state(self, table: bytes, state: TableState) -> None:
        with self._lock:
            if self._table(table).state is state:
                kind = TableNotDisabled if state is TableState.ENABLED else TableDisabled
                raise kind(f"table {keys.printable(table)!r} is {state.name} already")
            self._table(table).state = state
            self._meta = None

    def is_table_enabled(self, table: bytes, deadline: float) -> bool:
        self._called("is_table_enabled", deadline, table=table)
        return self._table(table).state is TableState.ENABLED

    def compact_table(self, table: bytes, major: bool, deadline: float) -> None:
        self._called("compact_table", deadline, table=table, argument=major)
        self._table(table)


def _page_of(meta: _Meta, scan: MetaScan) -> Iterable[MetaRow]:
    """The rows between both ends, in the scan's direction, at most ``limit``, with the families asked for."""
    low, high = (scan.stop_row, scan.start_row) if scan.is_reversed else (scan.start_row, scan.stop_row)
    rows = meta.rows
    first = bisect_left(meta.order, keys.meta_sort_key(low)) if low else 0
    last = bisect_right(meta.order, keys.meta_sort_key(high)) if high else len(rows)
    chosen = range(first, last)
    found = 0
    for index in reversed(chosen) if scan.is_reversed else chosen:
        if found == scan.limit:
            return
        columns = {
            name: value for name, value in rows[index].columns.items() if name.partition(b":")[0] in scan.families
        }
        if columns:
            found += 1
            yield MetaRow(rows[index].row, columns)


def _is_stale(place: RegionLocation | None) -> bool:
    return place is not None and place.replica_id != 0


def backend_factory(url: str, *, runtime: Runtime, properties: Mapping[str, str]) -> ScriptedBackend:
    """``scripted:?servers=3&meta_replicas=3``: a small honest cluster of its own."""
    warn_unread(properties, (), "scripted:")
    options: dict[str, int] = {}
    for name, value in parse_qsl(urlsplit(url).query, keep_blank_values=True):
        if name not in ("servers", "meta_replicas"):
            raise ConfigError(f"scripted: has no option {name!r}; it knows servers and meta_replicas")
        if name in options:
            raise ConfigError(f"scripted: has the option {name!r} twice")
        if not value.isdigit() or int(value) < 1:
            raise ConfigError(f"scripted: option {name} must be a number from 1 on, got {value!r}")
        options[name] = int(value)
    return ScriptedBackend(runtime, **options)  # type: ignore[arg-type]  # names were checked above
