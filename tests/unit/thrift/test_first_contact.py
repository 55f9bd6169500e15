"""The first contact with a Thrift 1 gateway: somebody must answer, and speak Thrift 1."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from metaclient.errors import CallTimeout, ConfigError
from metaclient.runtime import ThreadRuntime
from metaclient_thrift import Thrift1Backend
from tests.unit.thrift.conftest import Gateway, T

LONG_S = 10.0
SHORT_S = 0.2


def test_a_silent_thrift1_gateway_is_noticed_when_the_connection_is_opened(runtime: ThreadRuntime) -> None:
    """A hung gateway still accepts connections: only an answer shows that somebody is there."""
    silent = socket.create_server(("127.0.0.1", 0))
    backend = Thrift1Backend(f"thrift1://127.0.0.1:{silent.getsockname()[1]}", runtime=runtime)
    with pytest.raises(CallTimeout, match="transport=framed"):
        backend.open(runtime.now() + SHORT_S)
    backend.close()
    silent.close()


def test_a_thrift2_gateway_is_recognised_by_thrift1(runtime: ThreadRuntime, serve: Callable[..., Gateway]) -> None:
    gateway = serve()
    backend = Thrift1Backend(f"thrift1://{gateway.address}", runtime=runtime)
    with pytest.raises(ConfigError, match="write thrift2:"):
        backend.open(runtime.now() + LONG_S)
    assert gateway.calls["getThriftServerType"] == 1
    backend.close()


def test_a_gateway_that_is_too_old_for_the_question_is_good_enough(
    runtime: ThreadRuntime, serve: Callable[..., Gateway], monkeypatch: pytest.MonkeyPatch
) -> None:
    """HBase before 2.3 answers "unknown method"."""
    monkeypatch.setattr(
        T.THBaseService,
        "thrift_services",
        [name for name in T.THBaseService.thrift_services if name != "getThriftServerType"],
    )
    backend = Thrift1Backend(f"thrift1://{serve().address}", runtime=runtime)
    backend.open(runtime.now() + LONG_S)
    backend.close()
