"""New tokens for new connections: a function of the application, and the file of HADOOP_TOKEN_FILE_LOCATION."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from metaclient.config import Config
from metaclient.config.security import SecuritySettings
from metaclient.config.tokens import Token, encode_identifier
from metaclient.errors import AuthenticationFailed, ConfigError, KdcUnreachable, MetaClientError
from metaclient.runtime import SimRuntime, ThreadRuntime
from metaclient_native.connections import Connections
from metaclient_native.security import Security
from metaclient_native.token_supply import TokenSupply
from tests.unit.native.peer import Caller, serving
from tests.unit.native.test_authentication import ask, echoing
from tests.unit.test_security_settings import SERVERS, hbase_entry, settings, token, token_file

DAY_MS = 86_400_000
LIFE_MS = 7 * DAY_MS


def issued(at_ms: int, password: bytes = b"p" * 20, life_ms: int = LIFE_MS) -> Token:
    return Token(encode_identifier("alice", issued_ms=at_ms, expires_ms=at_ms + life_ms), password, "c1")


def supply_of(fetch: Callable[[], Token]) -> TokenSupply:
    return TokenSupply(settings(SERVERS, token=fetch))


def test_function_is_called_again_after_80_percent_of_the_life_on_virtual_time() -> None:
    """Four weeks with a connection per hour: a token is fetched when it is needed, and never expired."""
    with SimRuntime(1) as runtime:
        fetched: list[Token] = []

        def fetch() -> Token:
            fetched.append(issued(runtime.time_ms()))
            return fetched[-1]

        supply = supply_of(fetch)
        begun = runtime.time_ms()
        while runtime.time_ms() < begun + 4 * LIFE_MS:
            (current,) = supply.tokens(runtime.time_ms())
            assert current is fetched[-1]
            assert runtime.time_ms() < current.expires_ms
            runtime.sleep(3600.0)
        assert [(one.issued_ms - begun) // DAY_MS for one in fetched] == [0, 5, 11, 16, 22]


@pytest.mark.parametrize("error", [KdcUnreachable("no KDC"), OSError("vault secret=hunter2")])
def test_failed_renewal_keeps_the_old_token_until_it_expires(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    answers: list[Token | Exception] = [issued(0), error, error, issued(LIFE_MS)]

    def fetch() -> Token:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    supply = supply_of(fetch)
    first = supply.tokens(0)
    assert supply.tokens(LIFE_MS - DAY_MS) == first
    assert "is used until it expires" in caplog.text
    expected = KdcUnreachable if isinstance(error, MetaClientError) else AuthenticationFailed
    with pytest.raises(expected) as caught:
        supply.tokens(LIFE_MS)
    assert "hunter2" not in f"{caught.value} {caplog.text}"
    assert supply.tokens(LIFE_MS) == (issued(LIFE_MS),)


def test_one_of_several_connections_fetches_while_the_others_use_the_old_token() -> None:
    with SimRuntime(3) as runtime:
        calls: list[float] = []

        def fetch() -> Token:
            calls.append(runtime.now())
            runtime.sleep(5.0)
            return issued(runtime.time_ms() if len(calls) > 1 else begun)

        begun = runtime.time_ms()
        supply = supply_of(fetch)
        supply.tokens(begun)
        later = begun + LIFE_MS - DAY_MS
        tasks = [runtime.start(supply.tokens, later) for _ in range(10)]
        runtime.run_for(10.0)
        assert len(calls) == 2
        assert sum(task.result() == (issued(begun),) for task in tasks) == 9


def test_function_that_returns_something_else_is_named() -> None:
    with pytest.raises(AuthenticationFailed, match=r"token= returned a str, not a metaclient\.Token"):
        supply_of(lambda: "a secret").tokens(0)  # type: ignore[arg-type, return-value]


def test_arguments_of_the_function_are_in_no_repr() -> None:
    def fetch(password: str) -> Token:
        return issued(0)

    made = Config.of(SERVERS, token=functools.partial(fetch, "hunter2"))
    assert "hunter2" not in repr(made)
    assert "hunter2" not in repr(SecuritySettings.of(made))


def test_function_contradicts_what_a_token_contradicts() -> None:
    with pytest.raises(ConfigError, match="token contradicts keytab"):
        settings(SERVERS, token=lambda: issued(0), keytab="/k", principal="me@R")
    with pytest.raises(ConfigError, match="do_as='bob' needs Kerberos, and a token is used"):
        settings(SERVERS, token=lambda: issued(0), do_as="bob")


@pytest.fixture
def closing() -> Iterator[list[Connections]]:
    made: list[Connections] = []
    yield made
    for one in made:
        one.close()


def test_next_connection_uses_the_new_token_and_the_open_one_goes_on(
    runtime: ThreadRuntime, closing: list[Connections]
) -> None:
    """The first token is due for renewal at once; the server accepts the first token once, then the second only."""
    now = runtime.time_ms()
    both = [issued(now - LIFE_MS + DAY_MS, b"1" * 20), issued(now, b"2" * 20)]
    left, headers = list(both), []  # type: list[Token], list[dict[str, object]]
    connections = Connections(runtime, Security.of(config=Config.of(SERVERS, token=lambda: left.pop(0))))
    closing.append(connections)

    def script(caller: Caller) -> None:
        echoing(both[len(headers)], headers)(caller)

    with serving(runtime, script, is_raw=True) as peer:
        assert [ask(connections, peer, runtime) for _ in range(3)] == [b"hello"] * 3
        assert len(left) == 1  # the open connection needs no new token
        for one in list(connections._open.values()):
            one.close()
        assert ask(connections, peer, runtime) == b"hello"
    assert (left, len(headers)) == ([], 2)


def test_file_is_read_again_when_it_has_changed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "tokens"
    environment = {"HADOOP_TOKEN_FILE_LOCATION": str(path)}
    path.write_bytes(token_file(hbase_entry(b"c1")))
    supply = TokenSupply(settings(SERVERS, environment=environment))
    assert supply.tokens(0) == (token("c1"),)

    def replace_file(data: bytes) -> None:
        new = tmp_path / "new"
        new.write_bytes(data)
        os.replace(new, path)

    replace_file(token_file(hbase_entry(b"c2")))
    assert supply.tokens(0) == (token("c2"),)
    replace_file(b"HDTS")  # cut: it is being written
    assert supply.tokens(0) == (token("c2"),)
    assert "the tokens that were read before are used" in caplog.text
    path.unlink()
    assert supply.tokens(0) == (token("c2"),)
    replace_file(token_file(hbase_entry(b"c3")))
    assert supply.tokens(0) == (token("c3"),)
