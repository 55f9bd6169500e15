"""A backend for tests: a small correct cluster, and rules that make it hang, lag, fail or return wrong answers.

Without rules the cluster behaves as HBase: regions on servers, hbase:meta rows in HBase's format, HBase's errors. Rules
are matched in order; the first rule that matches a call applies::

    backend = ScriptedBackend(meta_replicas=3)
    backend.on("read_meta", replica=1).hangs()                             # no response until the deadline
    backend.on("get", server=backend.servers[0], times=2).raises(NotServingRegion("gone"))
    backend.on("read_meta", replica=2).answers(MetaPage(()))               # "no rows, no error"
    backend.on("get").delays(0.25)

Every call is recorded in ``calls``. Time comes from the runtime, so on virtual time no delay takes real time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl

from metaclient.backend import Action, Capabilities, MetaPage, MetaScan, Outcome, ScanPage
from metaclient.config.hbase_properties import warn_unread
from metaclient.config.url_secrets import refuse_credentials
from metaclient.errors import (
    CallTimeout,
    ConfigError,
    ConnectionClosed,
    NotServingRegion,
    ScannerLost,
    ServerUnreachable,
)
from metaclient.model import (
    Check,
    Get,
    MetaReplica,
    Mutation,
    RegionLocation,
    Result,
    Scan,
    ServerName,
    TableDescriptor,
    TableState,
)
from metaclient.runtime import Runtime, ThreadRuntime, inherited_error
from metaclient.testing.script import Call, Rule
from metaclient.testing.scripted_cluster import ScriptedCluster, is_stale

__all__ = ["Call", "Rule", "ScriptedBackend", "backend_factory"]

#: The largest number of recorded calls, which bounds the memory. No test reads more.
CALLS_MAX = 200_000


@dataclass(slots=True)
class _Scanner:
    place: RegionLocation | None
    table: bytes
    rows: deque[Result]
    bytes_max: int


class ScriptedBackend(ScriptedCluster):
    """A backend with a small cluster of its own, whose calls are recorded and decided by rules.

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
        super().__init__(runtime or ThreadRuntime(), servers=servers, meta_replicas=meta_replicas)
        self.capabilities = capabilities or Capabilities(filters=False)
        self.latency_s = latency_s
        self.calls: deque[Call] = deque(maxlen=CALLS_MAX)
        self.is_closed = False
        self._rules: list[Rule] = []
        self._closing = self.runtime.condition(self._lock)
        self._closed_error = ConnectionClosed("the scripted backend is closed")
        self.runtime.on_fork(self._leave_to_parent)
        self._scanners: dict[int, _Scanner] = {}  # guarded by the lock

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
        """Add and return a rule for calls of this method (``"*"``: any); earlier rules take precedence."""
        rule = Rule(method, replica, server, table, times, when)
        self._rules.append(rule)
        return rule

    def clear_rules(self) -> None:
        self._rules.clear()

    def count(self, method: str, **match: object) -> int:
        """Return how many recorded calls of this method have these fields."""
        return sum(
            call.method == method and all(getattr(call, name) == value for name, value in match.items())
            for call in list(self.calls)
        )

    def open_scanners(self) -> int:
        return len(self._scanners)

    # -- the SPI: open and close --------------------------------------------------------------------------------------

    def open(self, deadline: float) -> None:
        self._called("open", deadline)

    def close(self) -> None:
        with self._lock:
            self.is_closed = True
            self._closing.notify_all()

    def _leave_to_parent(self) -> None:
        """Refuse all calls in a child process, because no other process would see the writes to this copy."""
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
        """Record the call and apply the first rule that matches; return the rule if it has an answer."""
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
        """Sleep, but not beyond the deadline if deadlines are honoured."""
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

    # -- the SPI: hbase:meta -------------------------------------------------------------------------------------

    def meta_replicas(self, deadline: float) -> Sequence[MetaReplica]:
        rule = self._called("meta_replicas", deadline)
        if rule is not None:
            return rule.answer(None)  # type: ignore[no-any-return]  # a script may answer anything
        return list(self.registry)

    def read_meta(self, replica: MetaReplica, scan: MetaScan, deadline: float) -> MetaPage:
        rule = self._called("read_meta", deadline, replica_id=replica.replica_id, server=replica.server, argument=scan)
        if rule is not None:
            return rule.answer(scan)  # type: ignore[no-any-return]  # a script may answer anything
        if replica.replica_id not in {known.replica_id for known in self.registry}:
            raise NotServingRegion(f"hbase:meta,,1_{replica.replica_id:04X} is not online here")
        return self._meta_page(replica, scan)

    # -- the SPI: data -------------------------------------------------------------------------------------------

    def get(self, place: RegionLocation | None, table: bytes, get: Get, deadline: float) -> Result:
        rule = self._at("get", place, table, get, deadline)
        if rule is not None:
            return rule.answer(get)  # type: ignore[no-any-return]  # a script may answer anything
        with self._lock:
            known = self._served(place, table, get.row)
            return self._read(known, get, place)

    def mutate(self, place: RegionLocation | None, table: bytes, mutation: Mutation, deadline: float) -> Result | None:
        rule = self._at("mutate", place, table, mutation, deadline)
        if rule is not None:
            return rule.answer(mutation)  # type: ignore[no-any-return]  # a script may answer anything
        with self._lock:
            known = self._served(place, table, mutation.row, is_write=True)
            return self._write(known, mutation)

    def check_and_mutate(
        self, place: RegionLocation | None, table: bytes, check: Check, mutation: Mutation, deadline: float
    ) -> bool:
        rule = self._at("check_and_mutate", place, table, (check, mutation), deadline)
        if rule is not None:
            return rule.answer(check)  # type: ignore[no-any-return]  # a script may answer anything
        with self._lock:
            known = self._served(place, table, check.row, is_write=True)
            return known.rows.check_and_mutate(check, mutation, self._write_ms())

    def batch(
        self, server: ServerName | None, table: bytes, actions: Sequence[Action], deadline: float
    ) -> Sequence[Outcome]:
        rule = self._called("batch", deadline, server=server, table=table, argument=actions)
        if rule is not None:
            return rule.answer(actions)  # type: ignore[no-any-return]  # a script may answer anything
        return [self._outcome(table, action) for action in actions]

    def scan_open(self, place: RegionLocation | None, table: bytes, scan: Scan, deadline: float) -> ScanPage:
        rule = self._at("scan_open", place, table, scan, deadline)
        if rule is not None:
            return rule.answer(scan)  # type: ignore[no-any-return]  # a script may answer anything
        with self._lock:
            known = self._table_at(place, table)
            if place is not None:
                self._check_place(known, place, scan.start_row if place.region.contains(scan.start_row) else None)
            region = place.region if place is not None else None
            rows = known.rows.scan(scan, self.runtime.time_ms(), region=region, is_stale=is_stale(place))
            self._next_id += 1
            self._scanners[self._next_id] = _Scanner(place, table, deque(rows), scan.max_result_bytes)
            return self._page(self._next_id, scan.caching)

    def scan_next(self, scanner: object, rows: int, deadline: float) -> ScanPage:
        open_one = self._scanners.get(scanner) if isinstance(scanner, int) else None
        place = open_one.place if open_one is not None else None
        rule = self._at("scan_next", place, open_one.table if open_one is not None else b"", scanner, deadline)
        if rule is not None:
            return rule.answer(scanner)  # type: ignore[no-any-return]  # a script may answer anything
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
        return ScanPage(rows, None if is_end else scanner, is_end, is_stale(waiting.place))

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
        self._delete(table)

    def enable_table(self, table: bytes, deadline: float) -> None:
        self._called("enable_table", deadline, table=table)
        self._set_state(table, TableState.ENABLED)

    def disable_table(self, table: bytes, deadline: float) -> None:
        self._called("disable_table", deadline, table=table)
        self._set_state(table, TableState.DISABLED)

    def is_table_enabled(self, table: bytes, deadline: float) -> bool:
        self._called("is_table_enabled", deadline, table=table)
        return self._table(table).state is TableState.ENABLED

    def compact_table(self, table: bytes, major: bool, deadline: float) -> None:
        self._called("compact_table", deadline, table=table, argument=major)
        self._table(table)


def backend_factory(url: str, *, runtime: Runtime, properties: Mapping[str, str]) -> ScriptedBackend:
    """Return a backend for a url such as ``scripted:?servers=3&meta_replicas=3``; ConfigError for a bad option."""
    warn_unread(properties, (), "scripted:")
    refuse_credentials(url, "scripted:")
    options: dict[str, int] = {}
    for name, value in parse_qsl(url.partition("?")[2], keep_blank_values=True):
        if name not in ("servers", "meta_replicas"):
            raise ConfigError(f"scripted: has no option {name!r}; allowed are servers and meta_replicas")
        if name in options:
            raise ConfigError(f"scripted: has the option {name!r} twice")
        if not value.isdigit() or int(value) < 1:
            raise ConfigError(f"scripted: option {name} must be a number from 1 on, got {value!r}")
        options[name] = int(value)
    return ScriptedBackend(runtime, **options)  # type: ignore[arg-type]  # names were checked above
