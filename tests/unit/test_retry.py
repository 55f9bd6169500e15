"""Whether, when and how often a failed operation is tried again; what an outage costs; what writes may promise."""

from __future__ import annotations

import itertools
import logging
import random
from collections.abc import Iterator
from typing import Any

import pytest

from metaclient.attempts.retry import BACKOFF, Retrier, pause_s
from metaclient.backend import Addressing, BatchSemantics, Capabilities
from metaclient.config import Config
from metaclient.connection import Connection, connect_to
from metaclient.errors import (
    BackendFault,
    BatchError,
    CallQueueTooBig,
    CallTimeout,
    DeadlineExceeded,
    MetaClientError,
    NoSuchFamily,
    NotServingRegion,
    RegionMoved,
    RegionTooBusy,
    RequestRefused,
    RetriesExhausted,
    ServerUnreachable,
    TableDisabled,
    TableNotFound,
    Throttled,
)
from metaclient.model import Result
from metaclient.runtime import SimRuntime
from metaclient.telemetry import Telemetry
from metaclient.testing import ScriptedBackend

PLENTY = {"retry_budget_burst": 1000}


@pytest.fixture
def runtime() -> Iterator[SimRuntime]:
    with SimRuntime(seed=1) as made:
        yield made


def cluster(runtime: SimRuntime, *, capabilities: Capabilities | None = None, **options: Any) -> ScriptedBackend:
    backend = ScriptedBackend(runtime, capabilities=capabilities)
    backend.add_table("t", splits=[b"g", b"p"], **options)
    return backend


def connected(backend: ScriptedBackend, **options: Any) -> Connection:
    return connect_to(backend, runtime=backend.runtime, **options)


def attempts_of(runtime: SimRuntime, errors: list[BaseException], **options: Any) -> tuple[list[float], Any]:
    """Run an operation that fails with these errors, then works: the instants of its attempts, and its end."""
    deadline_s = options.pop("deadline_s", 1000.0)
    config = Config.of(**{"retry_jitter": 0.0, **PLENTY, **options})
    retrier = Retrier(runtime, config, Telemetry(runtime, "test"))
    instants: list[float] = []
    left = iter(errors)

    def attempt() -> str:
        instants.append(runtime.now())
        error = next(left, None)
        if error is not None:
            raise error
        return "done"

    try:
        end: Any = retrier.call(attempt, deadline=runtime.now() + deadline_s, what=lambda: "a test")
    except MetaClientError as error:
        end = error
    return instants, end


def pauses(instants: list[float]) -> list[float]:
    return [round(later - earlier, 6) for earlier, later in itertools.pairwise(instants)]


# -- pauses ----------------------------------------------------------------------------------------------------


def test_pauses_follow_hbases_table() -> None:
    """Exact pauses; cumulative 128.1 s for the 15 pauses of 16 attempts."""
    table = [pause_s(failures, unit_s=0.1) for failures in range(1, 16)]
    assert table == [0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 4.0, 10.0, 10.0, 10.0, 10.0, 20.0, 20.0, 20.0, 20.0]
    assert sum(table) == pytest.approx(128.1)
    assert len(BACKOFF) == 13


def test_jitter_stays_within_its_bounds_and_uses_them() -> None:
    """10,000 draws within +-50 %, mean within 2 % of the unit."""
    chance = random.Random(1)
    drawn = [pause_s(1, unit_s=1.0, jitter=0.5, chance=chance.random()) for _ in range(10_000)]
    assert 0.5 <= min(drawn) < 0.51
    assert 1.49 < max(drawn) < 1.5
    assert sum(drawn) / len(drawn) == pytest.approx(1.0, rel=0.02)


def test_attempts_come_at_the_instants_of_the_table(runtime: SimRuntime) -> None:
    instants, end = attempts_of(runtime, [RegionTooBusy("busy") for _ in range(4)])
    assert end == "done"
    assert pauses(instants) == [0.1, 0.2, 0.3, 0.5]


def test_pause_is_cut_to_what_is_left_less_a_millisecond(runtime: SimRuntime) -> None:
    """Cap by remaining - 1 ms, give up when none is left."""
    instants, end = attempts_of(runtime, [CallTimeout("slow") for _ in range(9)], deadline_s=0.5)
    assert pauses(instants) == [0.1, 0.2, 0.199]
    assert isinstance(end, DeadlineExceeded)
    assert runtime.now() == pytest.approx(0.499)
    assert len(end.attempts) == 4


def test_throttled_call_waits_exactly_as_long_as_asked(runtime: SimRuntime) -> None:
    """Exactly the server's wait, no growth, no jitter (TestHBaseServerExceptionPauseManager)."""
    instants, end = attempts_of(runtime, [Throttled("quota", wait_s=3.25) for _ in range(3)], retry_jitter=0.5)
    assert end == "done"
    assert pauses(instants) == [3.25, 3.25, 3.25]


def test_throttled_beyond_the_deadline_fails_now(runtime: SimRuntime) -> None:
    """Too long -> fail, without waiting for the deadline (TestHBaseServerExceptionPauseManager)."""
    _, end = attempts_of(runtime, [Throttled("quota", wait_s=60.0)], deadline_s=30.0)
    assert isinstance(end, DeadlineExceeded)
    assert runtime.now() == 0.0
    assert "asks for 60 s" in str(end)


def test_throttled_without_a_wait_backs_off_as_usual(runtime: SimRuntime) -> None:
    instants, _ = attempts_of(runtime, [Throttled("quota"), Throttled("quota")])
    assert pauses(instants) == [0.1, 0.2]


def test_overloaded_server_gets_the_larger_unit(runtime: SimRuntime) -> None:
    """The larger unit for an overloaded server, the normal one for others (TestHBaseServerExceptionPauseManager)."""
    errors = [CallQueueTooBig("full"), NotServingRegion("gone"), CallQueueTooBig("full")]
    instants, _ = attempts_of(runtime, errors, pause_overloaded_s=1.0)
    assert pauses(instants) == [1.0, 0.2, 3.0]


def test_smaller_overloaded_pause_is_lifted_and_the_old_key_honoured() -> None:
    """A smaller setting is raised to the normal pause; the old key works and warns."""
    with pytest.warns(UserWarning, match="raised to"):
        assert Config(pause_s=0.2, pause_overloaded_s=0.1).pause_overloaded_s == 0.2
    with pytest.warns(DeprecationWarning, match="cqtbe"):
        assert Config.of({"hbase.client.pause.cqtbe": 700}).pause_overloaded_s == 0.7


# -- attempts and time -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("retries", [0, 1, 2, 15])
def test_attempts_are_retries_plus_one(runtime: SimRuntime, retries: int) -> None:
    """Max attempts -> exhausted, every attempt listed (TestAsyncSingleRequestRpcRetryingCaller)."""
    instants, end = attempts_of(runtime, [RegionTooBusy(f"busy {n}") for n in range(50)], retries=retries)
    assert len(instants) == retries + 1
    assert isinstance(end, RetriesExhausted)
    assert [attempt.number for attempt in end.attempts] == list(range(1, retries + 2))
    assert end.attempts[-1].error == f"RegionTooBusy: busy {retries}"
    assert isinstance(end.__cause__, RegionTooBusy)


def test_operation_timeout_bounds_all_attempts_together(runtime: SimRuntime) -> None:
    """A limit of 1 s ends in [1, 2) s, also on a server that hangs (TestAsyncSingleRequestRpcRetryingCaller)."""
    backend = cluster(runtime)
    connection = connected(backend, operation_timeout_s=1.0, rpc_timeout_s=0.3)
    table = connection.table("t")
    table.put(b"a", {b"cf:a": b"1"})
    backend.on("get").hangs()
    begun = runtime.now()
    with pytest.raises(DeadlineExceeded) as caught:
        table.row(b"a")
    assert 0.99 <= runtime.now() - begun < 2.0
    assert len(caught.value.attempts) >= 2
    assert caught.value.attempts[0].elapsed_s == pytest.approx(0.3)
    assert not caught.value.may_have_applied


def test_failure_to_locate_is_retried(runtime: SimRuntime) -> None:
    """The first locate error is retried like any other (TestAsyncSingleRequestRpcRetryingCaller)."""
    backend = cluster(runtime)
    connection = connected(backend)
    backend.on("read_meta", times=2).raises(lambda: ServerUnreachable("meta is down"))
    assert connection.table("t").row(b"a") == {}


def test_lookup_out_of_its_own_time_is_not_the_operations_end(runtime: SimRuntime) -> None:
    """A DeadlineExceeded inside an attempt is one attempt's end while the operation has time left."""
    instants, end = attempts_of(runtime, [DeadlineExceeded("the lookup's own")], deadline_s=10.0)
    assert (len(instants), end) == (2, "done")


def test_slow_lookup_leaves_the_call_its_full_time(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    backend.on("read_meta").delays(4.0)
    backend.on("get").delays(4.0)
    connection = connected(backend, rpc_timeout_s=5.0)
    assert connection.table("t").row(b"a") == {}
    assert backend.count("get") == 1


def test_do_not_retry_error_costs_one_attempt_and_no_location(runtime: SimRuntime) -> None:
    """One attempt, cache kept, for single calls and in a batch."""
    backend = cluster(runtime)
    connection = connected(backend)
    table = connection.table("t")
    table.row(b"a")
    lookups = backend.count("read_meta")
    with pytest.raises(NoSuchFamily) as caught:
        table.put(b"a", {b"nope:a": b"1"})
    assert len(caught.value.attempts) == 1
    with pytest.raises(BatchError) as failed, table.batch() as batch:
        batch.put(b"a", {b"nope:a": b"1"})
        batch.put(b"b", {b"cf:a": b"1"})
    assert isinstance(failed.value.failed[b"a"], NoSuchFamily)
    assert (backend.count("mutate"), backend.count("batch")) == (1, 1)
    table.row(b"b")
    assert backend.count("read_meta") == lookups


def test_missing_table_is_told_at_once(runtime: SimRuntime) -> None:
    connection = connected(cluster(runtime))
    for call in (lambda t: t.row(b"a"), lambda t: t.rows([b"a", b"b"]), lambda t: list(t.scan())):
        with pytest.raises(TableNotFound):
            call(connection.table("nope"))
    assert runtime.now() == 0.0


def test_disabled_table_is_told_after_the_second_failure(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    connection = connected(backend)
    table = connection.table("t")
    table.put(b"a", {b"cf:a": b"1"})
    connection.disable_table("t")
    for call in (lambda: table.row(b"a"), lambda: table.rows([b"a"]), lambda: table.put(b"a", {b"cf:a": b"2"})):
        with pytest.raises(TableDisabled):
            call()
    assert runtime.now() < 1.0


def test_warnings_start_at_the_sixth_failure(runtime: SimRuntime, caplog: pytest.LogCaptureFixture) -> None:
    """5 failures are quiet, the 6th warns; neither names the row."""
    caplog.set_level(logging.DEBUG, logger="metaclient.attempts.retry")
    attempts_of(runtime, [RegionTooBusy("row-secret") for _ in range(7)])
    levels = [record.levelno for record in caplog.records if record.name == "metaclient.attempts.retry"]
    assert levels == [logging.DEBUG] * 5 + [logging.WARNING] * 2
    assert not any("secret" in record.getMessage() for record in caplog.records if record.levelno >= logging.INFO)


def test_each_retry_is_an_event_and_a_count(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    connection = connected(backend)
    events: list[Any] = []
    connection.on_event(events.append)
    backend.on("get", times=2).raises(lambda: CallQueueTooBig("full"))
    connection.table("t").row(b"a")
    assert [event.details["error"] for event in events if event.kind == "retry"] == ["CallQueueTooBig"] * 2
    assert connection.stats()["retries"] == 2


def test_error_names_operation_table_row_and_what_to_do(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    connection = connected(backend, retries=1)
    backend.on("get").raises(lambda: CallQueueTooBig("full"))
    with pytest.raises(RetriesExhausted) as caught:
        connection.table("t").row(b"a\x00")
    message = str(caught.value)
    for part in ("get", "'t'", r"a\x00", "2 attempts in", "CallQueueTooBig: full", "raise retries"):
        assert part in message, part
    assert "\n" not in message
    assert caught.value.attempts[0].server == str(backend.servers[0])


# -- the budget ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("threads", "each"), [(1000, 1), (100, 10)])
def test_total_outage_costs_at_most_a_fifth_more_calls(threads: int, each: int) -> None:
    """Every server answers nothing but errors: 1000 operations make at most 1200 calls, however they are spread."""
    with SimRuntime(seed=2) as runtime:
        backend = cluster(runtime)
        connection = connected(backend, operation_timeout_s=30.0)
        connection.warm_up("t")
        backend.on("get").raises(lambda: CallQueueTooBig("full"))

        def work(number: int) -> int:
            failed = 0
            for _ in range(each):
                try:
                    connection.table("t").row(b"%06d" % number)
                except (RetriesExhausted, DeadlineExceeded):
                    failed += 1
            return failed

        tasks = [runtime.start(work, number) for number in range(threads)]
        assert sum(task.result() for task in tasks) == 1000
        assert backend.count("get") <= 1200


def test_end_of_an_outage_is_noticed_while_everybody_waits() -> None:
    """No tokens, no new operations: a canary finds out that the cluster is back, and all are served."""
    with SimRuntime(seed=2) as runtime:
        backend = cluster(runtime)
        connection = connected(backend, retries=1000)
        connection.warm_up("t")
        backend.on("get").raises(lambda: CallQueueTooBig("full"))
        tasks = [runtime.start(connection.table("t").row, b"%03d" % number) for number in range(50)]
        runtime.run_for(40.0)
        spent = backend.count("get")
        backend.clear_rules()
        begun = runtime.now()
        assert all(task.result() == {} for task in tasks)
        assert runtime.now() - begun < 60.0
        assert spent <= 50 + 20 + 8


def test_retries_do_not_starve_while_most_of_the_cluster_is_well() -> None:
    """A third of the operations fails at first: successes pay for their retries, and all of them succeed."""
    with SimRuntime(seed=2) as runtime:
        backend = cluster(runtime, capabilities=Capabilities())
        connection = connected(backend)
        connection.warm_up("t")
        chance = random.Random(5)
        backend.on("get", when=lambda call: chance.random() < 0.33).raises(lambda: CallQueueTooBig("full"))
        begun = runtime.now()

        def work() -> None:
            for number in range(100):
                connection.table("t").row(b"%03d" % number)

        for task in [runtime.start(work) for _ in range(10)]:
            task.result()
        assert runtime.now() - begun < 60.0
        assert backend.count("get") < 1000 / 0.67 * 1.15


# -- writes ----------------------------------------------------------------------------------------------------

WRITES = {
    "counter_inc": lambda table: table.counter_inc(b"a", b"cf:n"),
    "append": lambda table: table.append(b"a", {b"cf:a": b"x"}),
    "check_and_put": lambda table: table.check_and_put(b"a", b"cf:a", None, {b"cf:a": b"1"}),
    "check_and_delete": lambda table: table.check_and_delete(b"a", b"cf:a", None),
}
REPEATABLE = {
    "put": lambda table: table.put(b"a", {b"cf:a": b"1"}),
    "delete": lambda table: table.delete(b"a"),
    "mutate_row": lambda table: table.mutate_row(b"a", {b"cf:a": b"1"}, [b"cf:b"]),
}


def _method(name: str) -> str:
    return "check_and_mutate" if name.startswith("check") else "mutate"


@pytest.mark.parametrize("name", WRITES)
def test_what_may_have_been_applied_is_never_repeated(runtime: SimRuntime, name: str) -> None:
    """Increments, appends and check-and-mutate after a time-out: one call, may_have_applied, the attempt listed."""
    backend = cluster(runtime)
    table = connected(backend, rpc_timeout_s=1.0).table("t")
    backend.on(_method(name)).hangs()
    with pytest.raises(CallTimeout) as caught:
        WRITES[name](table)
    assert caught.value.may_have_applied
    assert len(caught.value.attempts) == 1
    assert backend.count(_method(name)) == 1


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("error", [ConnectionResetError("reset"), KeyError("odd"), SystemError("odd")])
def test_unknown_failure_of_a_change_is_never_repeated(runtime: SimRuntime, name: str, error: Exception) -> None:
    backend = cluster(runtime)
    backend.on(_method(name)).raises(error)
    with pytest.raises((ServerUnreachable, BackendFault)) as caught:
        WRITES[name](connected(backend).table("t"))
    assert caught.value.may_have_applied
    assert backend.count(_method(name)) == 1


@pytest.mark.parametrize("name", WRITES)
def test_change_that_was_surely_not_applied_is_repeated(runtime: SimRuntime, name: str) -> None:
    backend = cluster(runtime)
    backend.on(_method(name), times=3).raises(lambda: CallQueueTooBig("full"))
    WRITES[name](connected(backend).table("t"))
    assert backend.count(_method(name)) == 4


NONCES = Capabilities(nonces=True)


@pytest.mark.parametrize("name", ["counter_inc", "append"])
def test_with_nonces_a_change_is_sent_again_to_the_server_that_may_have_applied_it(
    runtime: SimRuntime, name: str
) -> None:
    backend = cluster(runtime, capabilities=NONCES)
    table = connected(backend, rpc_timeout_s=1.0).table("t")
    backend.on("mutate", times=1).hangs()
    backend.on("mutate", times=1).raises(lambda: ConnectionResetError("reset"))
    WRITES[name](table)
    WRITES[name](table)
    first, *again, other = (call.argument.nonce for call in backend.calls if call.method == "mutate")  # type: ignore[attr-defined]
    assert first is not None
    assert again == [first, first]  # the server knows it again
    assert other not in (None, first)


@pytest.mark.parametrize("name", ["counter_inc", "append"])
def test_change_whose_region_has_moved_meanwhile_is_not_sent_again(runtime: SimRuntime, name: str) -> None:
    """A region that moves in order leaves its nonces behind: there it would count twice."""
    backend = cluster(runtime, capabilities=NONCES)
    table = connected(backend).table("t")
    table.row(b"a")

    def move_and_break() -> Exception:
        backend.move(b"t", b"a", backend.servers[2])
        return ConnectionResetError("reset")

    backend.on("mutate", times=1).raises(move_and_break)
    with pytest.raises(ServerUnreachable) as caught:
        WRITES[name](table)
    assert caught.value.may_have_applied
    assert "not sent again" in "".join(caught.value.__notes__)
    assert backend.count("mutate") == 1


def test_without_nonces_a_change_is_not_sent_again(runtime: SimRuntime) -> None:
    """Who draws unique numbers from a counter had rather hear that one is lost."""
    backend = cluster(runtime, capabilities=NONCES)
    backend.on("mutate", times=1).raises(lambda: ConnectionResetError("reset"))
    with pytest.raises(ServerUnreachable) as caught:
        connected(backend, nonces=False).table("t").counter_inc(b"a", b"cf:n")
    assert caught.value.may_have_applied
    assert backend.calls[-1].argument.nonce is None  # type: ignore[attr-defined]


def test_change_that_was_refused_goes_to_the_regions_new_place(runtime: SimRuntime) -> None:
    backend = cluster(runtime, capabilities=NONCES)
    table = connected(backend).table("t")
    table.row(b"a")
    backend.move(b"t", b"a", backend.servers[2])
    assert table.counter_inc(b"a", b"cf:n") == 1


@pytest.mark.parametrize("name", REPEATABLE)
def test_write_that_is_safe_to_repeat_is_repeated(runtime: SimRuntime, name: str) -> None:
    backend = cluster(runtime)
    backend.on("mutate", times=2).raises(lambda: ConnectionResetError("reset"))
    REPEATABLE[name](connected(backend).table("t"))
    assert backend.count("mutate") == 3


def test_doubt_of_an_early_attempt_stays_in_the_final_error(runtime: SimRuntime) -> None:
    """The first attempt timed out, the second was refused: the write may have been applied all the same."""
    backend = cluster(runtime)
    table = connected(backend, rpc_timeout_s=1.0).table("t")
    backend.on("mutate", times=1).hangs()
    backend.on("mutate").raises(lambda: RequestRefused("read only now"))
    with pytest.raises(RequestRefused) as caught:
        table.put(b"a", {b"cf:a": b"1"})
    assert caught.value.may_have_applied
    assert len(caught.value.attempts) == 2


def test_refused_write_was_not_applied(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    table = connected(backend, retries=2).table("t")
    backend.on("mutate").raises(lambda: ConnectionRefusedError("nobody there"))
    with pytest.raises(RetriesExhausted) as caught:
        table.put(b"a", {b"cf:a": b"1"})
    assert not caught.value.may_have_applied


def test_batch_row_says_itself_whether_it_may_have_been_applied(runtime: SimRuntime) -> None:
    """may_have_applied is right on every write error: row by row in a batch."""
    backend = cluster(runtime)
    table = connected(backend, retries=1, rpc_timeout_s=0.5).table("t")
    backend.on("batch", server=backend.servers[0]).hangs()
    backend.on("batch", server=backend.servers[1]).raises(lambda: ConnectionRefusedError("nobody there"))
    with pytest.raises(BatchError) as caught, table.batch() as batch:
        for row in (b"a", b"h", b"q"):
            batch.put(row, {b"cf:a": b"1"})
    failed = caught.value.failed
    assert set(failed) == {b"a", b"h"}
    assert (failed[b"a"].may_have_applied, failed[b"h"].may_have_applied) == (True, False)
    assert caught.value.may_have_applied
    assert len(failed[b"a"].attempts) == 2


def test_gateway_that_says_one_error_for_all_leaves_doubt_about_each_row(runtime: SimRuntime) -> None:
    gateway = Capabilities(addressing=Addressing.GATEWAY, batch=BatchSemantics.ALL_OR_ERROR)
    backend = cluster(runtime, capabilities=gateway)
    table = connected(backend).table("t")
    backend.on("batch").raises(lambda: NoSuchFamily("one of them"))
    with pytest.raises(BatchError) as caught, table.batch() as batch:
        batch.put(b"a", {b"cf:a": b"1"})
        batch.put(b"h", {b"nope:a": b"1"})
    assert all(error.may_have_applied for error in caught.value.failed.values())


def test_region_moved_is_followed_without_a_lookup(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    table = connected(backend).table("t")
    table.put(b"a", {b"cf:a": b"1"})
    lookups = backend.count("read_meta")
    moved = backend.move(b"t", b"a", backend.servers[2])
    backend.on("get", server=backend.servers[0], times=1).raises(
        lambda: RegionMoved("moved", server=moved.server, seqnum=moved.seqnum)
    )
    assert table.row(b"a").server == backend.servers[2]
    assert backend.count("read_meta") == lookups


# -- backends on bad days --------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [KeyError("x"), SystemError("x"), ZeroDivisionError(), UnicodeError("x")])
def test_unknown_exception_becomes_a_clear_error_with_attempts(runtime: SimRuntime, error: Exception) -> None:
    backend = cluster(runtime)
    backend.on("get").raises(error)
    with pytest.raises(RetriesExhausted, match=type(error).__name__) as caught:
        connected(backend, retries=3).table("t").row(b"a")
    assert len(caught.value.attempts) == 4
    assert isinstance(caught.value.__cause__, BackendFault)
    assert caught.value.__cause__.__cause__ is error


@pytest.mark.parametrize("answer", [None, 7, "row", {}, (b"a", ())])
def test_get_that_answers_a_wrong_type_is_the_backends_fault(runtime: SimRuntime, answer: object) -> None:
    backend = cluster(runtime)
    table = connected(backend, retries=2).table("t")
    backend.on("get").answers(lambda _: answer)
    for read in (lambda: table.row(b"a"), lambda: table.row(b"a", consistency="TIMELINE"), lambda: table.exists(b"a")):
        with pytest.raises(RetriesExhausted, match="where Result belongs"):
            read()


@pytest.mark.parametrize("cells", [None, 7, [None], [()], ["x"]])
def test_row_whose_cells_are_no_cells_is_the_backends_fault(runtime: SimRuntime, cells: Any) -> None:
    backend = cluster(runtime)
    backend.on("get").answers(lambda get: Result(get.row, cells))
    with pytest.raises(BackendFault):
        connected(backend).table("t").row(b"a")


@pytest.mark.parametrize("answer", [None, "yes", 1])
def test_check_that_answers_no_bool_may_have_been_applied(runtime: SimRuntime, answer: object) -> None:
    backend = cluster(runtime)
    backend.on("check_and_mutate").answers(lambda _: answer)
    with pytest.raises(BackendFault) as caught:
        connected(backend).table("t").check_and_put(b"a", b"cf:a", None, {b"cf:a": b"1"})
    assert caught.value.may_have_applied
    assert backend.count("check_and_mutate") == 1


@pytest.mark.parametrize("answer", [None, 5, Result(b"a"), Result(b"a", None), Result(b"a", [(b"cf:n", 1, b"short")])])
def test_increment_without_a_number_may_have_been_applied(runtime: SimRuntime, answer: object) -> None:
    backend = cluster(runtime)
    backend.on("mutate").answers(lambda _: answer)
    with pytest.raises(BackendFault) as caught:
        connected(backend).table("t").counter_inc(b"a", b"cf:n")
    assert caught.value.may_have_applied
    assert backend.count("mutate") == 1


def test_lying_backend_does_not_poison_the_cache(runtime: SimRuntime) -> None:
    backend = cluster(runtime)
    connection = connected(backend, retries=1)
    table = connection.table("t")
    table.put(b"a", {b"cf:a": b"1"})
    cached = connection.locate("t", b"a")
    backend.on("get", times=2).answers(lambda _: None)
    with pytest.raises(RetriesExhausted):
        table.row(b"a")
    assert connection.locate("t", b"a") is cached
    assert table.row(b"a") == {b"cf:a": b"1"}


def test_write_given_up_behind_a_gateway_says_how_long_the_gateway_may_go_on(runtime: SimRuntime) -> None:
    gateway = Capabilities(addressing=Addressing.GATEWAY, retries_inside_s=128.0)
    backend = cluster(runtime, capabilities=gateway)
    table = connected(backend, operation_timeout_s=5.0).table("t")
    backend.on("mutate").hangs()
    backend.on("get").hangs()
    for write in (lambda: table.put(b"a", {b"cf:a": b"1"}), lambda: table.counter_inc(b"a", b"cf:n")):
        with pytest.raises(MetaClientError) as caught:
            write()
        assert caught.value.may_have_applied
        assert ["128 s" in note for note in caught.value.__notes__] == [True]
    with pytest.raises(MetaClientError) as caught:
        table.row(b"a")
    assert not hasattr(caught.value, "__notes__")
