"""Connections: happybase's shape, closed ones, bad urls and options, threads, and backends that hang."""

from __future__ import annotations

import copy
import inspect
import json
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import happybase
import pytest

import metaclient
from metaclient.backend import Addressing, Capabilities
from metaclient.connection import Connection, connect_to
from metaclient.errors import (
    CallTimeout,
    ConfigError,
    ConnectionClosed,
    DeadlineExceeded,
    MetaClientError,
    Overloaded,
    RetriesExhausted,
    ServerUnreachable,
    TableExists,
    TableNotDisabled,
    TableNotFound,
    Unsupported,
)
from metaclient.model import Get, RegionLocation, Result
from metaclient.runtime import SimRuntime, ThreadRuntime
from metaclient.testing import ScriptedBackend


@pytest.fixture
def runtime() -> Iterator[SimRuntime]:
    with SimRuntime(seed=1) as made:
        yield made


@pytest.fixture
def backend(runtime: SimRuntime) -> ScriptedBackend:
    made = ScriptedBackend(runtime, meta_replicas=3)
    made.add_table("t", splits=[b"g", b"p"])
    return made


@pytest.fixture
def connection(backend: ScriptedBackend) -> Connection:
    return connect_to(backend, runtime=backend.runtime)


# -- happybase's shape -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [name for name in vars(happybase.Connection) if not name.startswith("_")] + ["__init__"]
)
def test_every_method_takes_happybases_arguments(name: str) -> None:
    theirs = list(inspect.signature(getattr(happybase.Connection, name)).parameters.values())
    ours = list(inspect.signature(getattr(Connection, name)).parameters.values())
    assert [(p.name, p.default) for p in ours[: len(theirs)]] == [(p.name, p.default) for p in theirs]


def test_tables_are_made_listed_and_deleted(connection: Connection) -> None:
    connection.create_table("new", {"cf": {"max_versions": 3}, b"cf2:": None}, splits=[b"m", "a"])
    assert connection.tables() == [b"new", b"t"]
    families = connection.table("new").families()
    assert (families[b"cf"]["max_versions"], set(families)) == (3, {b"cf", b"cf2"})
    assert [entry.region.start_key for entry in connection.regions("new")] == [b"", b"a", b"m"]
    with pytest.raises(TableExists):
        connection.create_table("new", {"cf": {}})
    with pytest.raises(TableNotDisabled, match=r"it is not disabled; call disable_table\(\) first, or .*disable=True"):
        connection.delete_table("new")
    assert connection.is_table_enabled("new")
    connection.delete_table("new", disable=True)
    assert connection.tables() == [b"t"]
    with pytest.raises(TableNotFound):
        connection.delete_table("new")


def test_enable_disable_and_compact(connection: Connection, backend: ScriptedBackend) -> None:
    connection.disable_table("t")
    assert not connection.is_table_enabled("t")
    connection.enable_table(b"t")
    assert connection.is_table_enabled("t")
    connection.compact_table("t", major=True)
    assert [call.argument for call in backend.calls if call.method == "compact_table"] == [True]


def test_table_prefix_is_put_before_and_taken_off(backend: ScriptedBackend) -> None:
    connection = connect_to(backend, runtime=backend.runtime, table_prefix="app")
    connection.create_table("x", {"cf": {}})
    assert connection.tables() == [b"x"]
    assert connection.table("x").name == b"app_x"
    assert connection.table("t", use_prefix=False).name == b"t"
    connection.table("x").put(b"a", {b"cf:a": b"1"})
    assert connection.locate("x", b"a").region.table == b"app_x"


def test_admin_call_that_may_have_been_applied_is_not_repeated(
    connection: Connection, backend: ScriptedBackend
) -> None:
    backend.on("create_table").raises(ConnectionResetError("reset"))
    with pytest.raises(MetaClientError) as caught:
        connection.create_table("new", {"cf": {}})
    assert caught.value.may_have_applied
    assert backend.count("create_table") == 1
    backend.on("table_names", times=2).raises(lambda: ConnectionResetError("reset"))
    assert connection.tables() == [b"t"]


# -- bad input -------------------------------------------------------------------------------------------------

BAD: list[tuple[str, Callable[[Connection], object], type[Exception], str]] = [
    ("table of a wrong type", lambda c: c.table(5), TypeError, "name"),
    ("table without a name", lambda c: c.table(""), ValueError, "table"),
    ("table with a bad name", lambda c: c.table("a b"), ValueError, "table"),
    ("no families", lambda c: c.create_table("n", {}), ValueError, "no column families"),
    ("families as a list", lambda c: c.create_table("n", ["cf"]), TypeError, "'families'"),
    ("family option", lambda c: c.create_table("n", {"cf": {"max_version": 1}}), ConfigError, "max_versions"),
    ("family with a bad name", lambda c: c.create_table("n", {"c\x00f": {}}), ValueError, "families"),
    ("family without a name", lambda c: c.create_table("n", {"": {}}), ValueError, "families"),
    ("splits as one key", lambda c: c.create_table("n", {"cf": {}}, splits=b"m"), TypeError, "'splits'"),
    ("empty split", lambda c: c.create_table("n", {"cf": {}}, splits=[b""]), ValueError, "splits"),
    ("split twice", lambda c: c.create_table("n", {"cf": {}}, splits=[b"m", "m"]), ValueError, "'splits'"),
    ("split of a wrong type", lambda c: c.create_table("n", {"cf": {}}, splits=[5]), TypeError, "splits"),
    ("replication", lambda c: c.create_table("n", {"cf": {}}, region_replication=0), ValueError, "region_replication"),
    ("replica", lambda c: c.locate("t", b"a", replica_id=-1), ValueError, "'replica_id'"),
    ("row of locate", lambda c: c.locate("t", 5), TypeError, "'row'"),
    ("listener", lambda c: c.on_event(5), TypeError, "on_event"),
    ("locations", lambda c: c.import_locations(b"nonsense"), ConfigError, "exported locations"),
]


@pytest.mark.parametrize(("call", "error", "named"), [bad[1:] for bad in BAD], ids=[bad[0] for bad in BAD])
def test_mistake_is_an_error_at_the_call_that_names_it(
    connection: Connection, backend: ScriptedBackend, call: Callable[[Any], object], error: type[Exception], named: str
) -> None:
    with pytest.raises(error, match=named):
        call(connection)
    assert not [each for each in backend.calls if each.method not in ("open", "meta_replicas")]


@pytest.mark.parametrize(
    ("options", "error", "named"),
    [
        ({"url": "scriptd:"}, ConfigError, "did you mean scripted:"),
        ({"url": "nosuch://x"}, ConfigError, "no backend"),
        ({"url": "plain"}, ConfigError, "no backend"),
        ({"url": 5}, ConfigError, "'url'"),
        ({"url": "scripted:?server=2"}, ConfigError, "server"),
        ({"url": "scripted:?servers=0"}, ConfigError, "servers"),
        ({"meta_mode": "Balanced"}, ConfigError, "meta_mode"),
        ({"retrys": 3}, ConfigError, "did you mean retries"),
        ({"retries": -1}, ConfigError, "retries"),
        ({"operation_timeout_s": 0}, ConfigError, "operation_timeout_s"),
        ({"config": {"hbase.client.retries.numbr": 3}}, ConfigError, "hbase.client.retries.number"),
        ({"config": "/no/such/hbase-site.xml"}, ConfigError, "hbase-site.xml"),
    ],
)
def test_bad_url_mode_or_option_is_named(options: dict[str, Any], error: type[Exception], named: str) -> None:
    with pytest.raises(error, match=named):
        metaclient.connect(**{"url": "scripted:", **options})


@pytest.mark.parametrize(
    ("options", "named"),
    [({"transport": "x"}, "transport"), ({"protocol": "x"}, "protocol"), ({"compat": "9"}, "compat")],
)
def test_happybases_options_are_checked_as_there(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        Connection(url="scripted:", **options)
    with pytest.raises(TypeError, match="table_prefix"):
        Connection(url="scripted:", table_prefix=5)  # type: ignore[arg-type]


def test_backend_that_cannot_create_with_splits_or_replicas_refuses(runtime: SimRuntime) -> None:
    backend = ScriptedBackend(runtime, capabilities=Capabilities(create_with_splits=False, region_replication=False))
    connection = connect_to(backend, runtime=runtime)
    with pytest.raises(Unsupported, match="splits"):
        connection.create_table("n", {"cf": {}}, splits=[b"m"])
    with pytest.raises(Unsupported, match="region_replication"):
        connection.create_table("n", {"cf": {}}, region_replication=2)


# -- life ------------------------------------------------------------------------------------------------------

METHODS: dict[str, Callable[[Connection], object]] = {
    "table": lambda c: c.table("t"),
    "tables": lambda c: c.tables(),
    "create_table": lambda c: c.create_table("n", {"cf": {}}),
    "delete_table": lambda c: c.delete_table("t"),
    "enable_table": lambda c: c.enable_table("t"),
    "disable_table": lambda c: c.disable_table("t"),
    "is_table_enabled": lambda c: c.is_table_enabled("t"),
    "compact_table": lambda c: c.compact_table("t"),
    "open": lambda c: c.open(),
    "locate": lambda c: c.locate("t", b"a"),
    "locate bytes": lambda c: c.locate(b"t", b"a"),
    "regions": lambda c: c.regions("t"),
    "warm_up": lambda c: c.warm_up("t"),
    "export_locations": lambda c: c.export_locations(),
    "import_locations": lambda c: c.import_locations(b"{}"),
    "meta_replicas": lambda c: c.meta_replicas(),
}


@pytest.mark.parametrize("name", METHODS)
def test_closed_connection_refuses(backend: ScriptedBackend, name: str) -> None:
    connection = connect_to(backend, runtime=backend.runtime, owns_backend=False)
    connection.warm_up("t")
    connection.close()
    backend.calls.clear()
    with pytest.raises(ConnectionClosed, match="make a new one"):
        METHODS[name](connection)
    assert not backend.calls


def test_what_is_left_of_a_closed_connection(connection: Connection) -> None:
    connection.close()
    connection.close()
    assert json.dumps(connection.stats())
    assert "closed" in repr(connection)
    assert connection.capabilities is not None


def test_context_manager_opens_and_closes(backend: ScriptedBackend) -> None:
    with connect_to(backend, runtime=backend.runtime, autoconnect=False) as connection:
        assert backend.count("open") == 1
        connection.open()
        assert backend.count("open") == 1
    assert backend.is_closed


def test_close_ends_calls_in_progress(backend: ScriptedBackend, connection: Connection, runtime: SimRuntime) -> None:
    table = connection.table("t")
    table.row(b"a")
    backend.on("*").hangs()
    tasks = [
        runtime.start(call)
        for call in (
            lambda: table.row(b"a"),
            lambda: table.row(b"h"),
            lambda: table.rows([b"a", b"q"]),
            lambda: list(table.scan()),
            lambda: table.put(b"a", {b"cf:a": b"1"}),
            lambda: connection.locate("other", b"a"),
        )
    ]
    runtime.run_for(1.0)
    connection.close()
    runtime.run_for(1.0)
    assert [type(task.error()) for task in tasks] == [ConnectionClosed] * len(tasks)


def test_stats_are_json_and_count_hits(connection: Connection) -> None:
    table = connection.table("t")
    for _ in range(5):
        table.row(b"a")
    stats = json.loads(json.dumps(connection.stats()))
    assert stats["cache"]["misses"] == 1
    assert stats["cache"]["hits"] == 4
    assert sum(stats["meta"]["reads_by_replica"].values()) == 1


# -- threads ---------------------------------------------------------------------------------------------------


def test_many_threads_share_one_connection() -> None:
    runtime = ThreadRuntime()
    backend = ScriptedBackend(runtime, meta_replicas=3)
    backend.add_table("t", splits=[b"%02d" % number for number in range(10, 90, 10)], region_replication=2)
    errors: list[BaseException] = []
    with connect_to(backend, runtime=runtime, owns_runtime=True) as connection:

        def use(number: int) -> None:
            try:
                table = connection.table("t")
                for turn in range(30):
                    key = b"%02d-%d" % (number * 5 % 100, turn)
                    table.put(key, {b"cf:a": key})
                    assert table.row(key) == {b"cf:a": key}
                    assert table.row(key, consistency="TIMELINE") == {b"cf:a": key}
                    assert dict(table.rows([key, b"zz"])) == {key: {b"cf:a": key}}
                    table.counter_inc(b"counter", b"cf:n")
                assert len(list(table.scan(row_prefix=key[:3]))) >= 30
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=use, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        for turn in range(5):
            backend.move(b"t", b"%02d" % (turn * 10), backend.servers[turn % 3])
        for thread in threads:
            thread.join(300)
        assert errors == []
        assert connection.table("t").counter_get(b"counter", b"cf:n") == 16 * 30
        assert backend.open_scanners() == 0


# -- backends that hang ----------------------------------------------------------------------------------------

HANGS = Capabilities(honours_deadline=False)
#: Far below what a hung call takes, far above what a busy machine adds.
PATIENCE_S = 60.0


class Hung(ScriptedBackend):
    """Every data call hangs in the calling thread and honours no deadline; ``stubborn`` ones ignore close(), too."""

    def __init__(self, runtime: ThreadRuntime, *, stubborn: bool = False) -> None:
        super().__init__(runtime, capabilities=Capabilities(honours_deadline=False, addressing=Addressing.GATEWAY))
        self.gate = threading.Event()
        self.stubborn = stubborn

    def get(self, place: RegionLocation | None, table: bytes, get: Get, deadline: float) -> Result:
        self.gate.wait(600)
        raise ConnectionClosed("the gate was opened")

    def close(self) -> None:
        super().close()
        if not self.stubborn:
            self.gate.set()


def test_two_thousand_calls_on_a_hung_backend_hold_a_bounded_number_of_threads() -> None:
    """A backend that hangs: bounded wait, clear error with attempts, bounded threads, and close() ends them.

    That close() takes less than a second is benchmark C6b's to say, on a machine that does nothing else.
    """
    runtime = ThreadRuntime(max_tasks=64)
    backend = Hung(runtime)
    before = threading.active_count()
    connection = connect_to(
        backend,
        runtime=runtime,
        owns_runtime=True,
        operation_timeout_s=0.01,
        rpc_timeout_s=0.002,
        abandoned_calls_max=32,
        pause_s=0.001,
    )
    outcomes: list[MetaClientError] = []

    def call_often() -> None:
        table = connection.table("t")
        for _ in range(250):
            try:
                table.row(b"a")
            except MetaClientError as error:
                outcomes.append(error)

    callers = [threading.Thread(target=call_often) for _ in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(300)
    assert len(outcomes) == 2000
    assert all(isinstance(error, DeadlineExceeded | RetriesExhausted) for error in outcomes)
    assert all(error.attempts for error in outcomes)
    assert {type(error.__cause__) for error in outcomes} <= {CallTimeout, DeadlineExceeded} | set(
        Overloaded.__subclasses__()
    )
    stats = connection.stats()
    assert stats["calls"]["abandoned"] <= 32 + len(callers)
    assert stats["runtime"]["peak"] <= 64
    begun = runtime.now()
    connection.close()
    assert runtime.now() - begun < PATIENCE_S
    deadline = runtime.now() + PATIENCE_S
    while threading.active_count() > before and runtime.now() < deadline:
        threading.Event().wait(0.01)
    assert threading.active_count() <= before


def test_close_does_not_wait_for_a_backend_that_ignores_it() -> None:
    runtime = ThreadRuntime()
    backend = Hung(runtime, stubborn=True)
    connection = connect_to(backend, runtime=runtime, owns_runtime=True, operation_timeout_s=0.05, rpc_timeout_s=0.02)
    with pytest.raises(DeadlineExceeded):
        connection.table("t").row(b"a")
    begun = runtime.now()
    connection.close()
    assert runtime.now() - begun < PATIENCE_S
    backend.gate.set()


@pytest.mark.parametrize("method", ["read_meta", "get", "mutate", "scan_open", "batch", "table_names"])
def test_every_kind_of_call_is_bounded_on_a_hung_backend(runtime: SimRuntime, method: str) -> None:
    """A bounded wait and a clear error with the list of attempts, whatever hangs; then it recovers."""
    backend = ScriptedBackend(runtime, capabilities=HANGS)
    backend.add_table("t", splits=[b"m"])
    connection = connect_to(backend, runtime=runtime, operation_timeout_s=5.0, rpc_timeout_s=1.0)
    table = connection.table("t")
    calls: dict[str, Callable[[], object]] = {
        "read_meta": lambda: connection.locate("t", b"a"),
        "get": lambda: table.row(b"a"),
        "mutate": lambda: table.put(b"a", {b"cf:a": b"1"}),
        "scan_open": lambda: list(table.scan()),
        "batch": lambda: table.rows([b"a", b"q"]),
        "table_names": lambda: connection.tables(),
    }
    rule = backend.on(method)
    rule.hangs()
    begun = runtime.now()
    with pytest.raises(MetaClientError) as caught:
        calls[method]()
    assert runtime.now() - begun <= 5.01
    assert caught.value.attempts
    if method != "table_names":
        assert caught.value.may_have_applied is (method == "mutate")
    backend.clear_rules()
    calls[method]()


@pytest.mark.parametrize("method", ["locate", "regions", "row", "put", "rows", "scan"])
def test_meta_operation_timeout_bounds_questions_to_meta_and_calls_on_system_tables(
    runtime: SimRuntime, method: str
) -> None:
    """hbase.client.meta.operation.timeout; a user's own tables keep operation_timeout_s."""
    backend = ScriptedBackend(runtime)
    for name in ("t", "hbase:acl"):
        backend.add_table(name)
    connection = connect_to(
        backend, runtime=runtime, meta_operation_timeout_s=3.0, operation_timeout_s=30.0, scanner_timeout_s=30.0
    )
    for name in ("t", "hbase:acl"):
        connection.locate(name, b"a")
    for each in ("read_meta", "get", "mutate", "batch", "scan_open"):
        backend.on(each).hangs()
    calls: dict[str, Callable[[str], object]] = {
        "locate": lambda name: connection.locate(name, b"a", reload=True),
        "regions": lambda name: connection.regions(name),
        "row": lambda name: connection.table(name).row(b"a"),
        "put": lambda name: connection.table(name).put(b"a", {b"cf:a": b"1"}),
        "rows": lambda name: connection.table(name).rows([b"a", b"q"]),
        "scan": lambda name: list(connection.table(name).scan()),
    }
    is_data = method in ("row", "put", "rows", "scan")
    for name, limit_s in (("hbase:acl", 3.0), ("t", 30.0 if is_data else 3.0)):
        begun = runtime.now()
        with pytest.raises(MetaClientError):
            calls[method](name)
        assert limit_s - 0.5 <= runtime.now() - begun <= limit_s + 0.01


def test_late_answers_of_abandoned_calls_change_nothing(runtime: SimRuntime) -> None:
    """A hung server wakes up and answers calls that are 90 s old: nobody hears them."""
    backend = ScriptedBackend(runtime, capabilities=HANGS)
    backend.add_table("t")
    connection = connect_to(backend, runtime=runtime, rpc_timeout_s=1.0)
    table = connection.table("t")
    table.put(b"a", {b"cf:a": b"1"})
    cached = connection.locate("t", b"a")
    backend.on("get", times=1).delays(90.0).answers(lambda get: Result(b"wrong"))
    backend.on("get", times=1).delays(90.0).raises(lambda: CallTimeout("late"))
    assert table.row(b"a") == {b"cf:a": b"1"}
    assert connection.stats()["calls"]["abandoned"] == 2
    runtime.run_for(200.0)
    assert connection.locate("t", b"a") is cached
    assert table.row(b"a") == {b"cf:a": b"1"}
    assert connection.stats()["calls"]["abandoned"] == 0


def test_connection_that_cannot_open_closes_what_it_has_made() -> None:
    """The caller gets an error and no connection, so that nobody else could."""
    with SimRuntime(seed=1) as runtime:
        backend = ScriptedBackend(runtime)
        backend.on("open").raises(ServerUnreachable("refused"))
        with pytest.raises(ServerUnreachable):
            connect_to(backend, runtime=runtime)
        assert backend.is_closed


# -- what a stranger reads -------------------------------------------------------------------------------------


@pytest.mark.parametrize("take", [lambda c: c, lambda c: c.table("t"), lambda c: c.table("t").batch()])
def test_pickling_a_connection_says_what_to_send_instead(
    connection: Connection, take: Callable[[Connection], object]
) -> None:
    with pytest.raises(TypeError, match=r"cannot be pickled.*Send its url and config"):
        pickle.dumps(take(connection))


def test_pickling_a_pool_says_what_to_send_instead() -> None:
    pool = metaclient.ConnectionPool(1, url="scripted:")
    with pytest.raises(TypeError, match=r"pool cannot be pickled.*same arguments"):
        pickle.dumps(pool)
    pool.close()


def test_a_table_can_still_be_copied(connection: Connection) -> None:
    assert copy.copy(connection.table("t")).connection is connection


# -- the first contact -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "after_s"), [({}, 15.0), ({"open_timeout_s": 3}, 3.0), ({"operation_timeout_s": 2}, 2.0)]
)
def test_a_first_contact_that_hangs_fails_within_15_s(
    backend: ScriptedBackend, options: dict[str, Any], after_s: float
) -> None:
    backend.on("open").hangs()
    with pytest.raises(CallTimeout, match=rf"did not answer within {after_s:g} s.*open_timeout_s"):
        connect_to(backend, runtime=backend.runtime, **options)
    assert backend.runtime.now() == pytest.approx(after_s, abs=1.0)


def test_after_the_first_contact_an_operation_has_its_own_time(backend: ScriptedBackend) -> None:
    connection = connect_to(backend, runtime=backend.runtime)
    backend.on("get").hangs()
    with pytest.raises(DeadlineExceeded):
        connection.table("t").row(b"a")
    assert backend.runtime.now() == pytest.approx(120.0, abs=1.0)


@pytest.mark.parametrize("given", [{"host": "gw"}, {"port": 1}, {"transport": "framed"}, {"protocol": "compact"}])
def test_happybase_argument_beside_a_url_is_not_ignored(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="has no effect beside a url"):
        Connection(url="thrift2://gateway", autoconnect=False, **given)


def test_timeout_beside_rpc_timeout_is_not_ignored() -> None:
    with pytest.raises(ConfigError, match="rpc_timeout_s, which is given, too"):
        Connection(timeout=1000, rpc_timeout_s=5.0, autoconnect=False)


@pytest.mark.parametrize("call", ["get", "mutate"])
def test_slow_lookup_leaves_the_call_only_the_time_that_remains(backend: ScriptedBackend, call: str) -> None:
    """One operation has one deadline: a lookup of 4 s leaves 2 of 6 s, though a call may take 5."""
    options = {"operation_timeout_s": 6.0, "rpc_timeout_s": 5.0, "retries": 0, "meta_mode": "None"}
    connection = connect_to(backend, runtime=backend.runtime, **options)
    backend.on("read_meta").delays(4.0)
    backend.on(call).hangs()
    begun = backend.runtime.now()
    with pytest.raises(metaclient.MetaClientError):
        if call == "get":
            connection.table("t").row(b"a")
        else:
            connection.table("t").counter_inc(b"a", b"cf:n")
    assert backend.runtime.now() - begun == pytest.approx(6.0, abs=0.2)
