"""A real gateway copies a call's sequence id and name into its reply, and what is at a wrong port is named."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import metaclient
from metaclient.errors import ConfigError, MetaClientError, RequestRefused, TableNotFound, Unsupported
from metaclient.model import Get
from metaclient.runtime import ThreadRuntime
from metaclient.wire.thrift.idl import thrift2
from metaclient_local_hbase import LocalHBase
from metaclient_thrift import Thrift1Backend, Thrift2Backend

WAIT_S = 60.0
T2 = thrift2()
Backend = Thrift1Backend | Thrift2Backend


@pytest.fixture(params=["thrift1", "thrift2"])
def backend(request: pytest.FixtureRequest, hbase: LocalHBase) -> Iterator[Backend]:
    with ThreadRuntime() as runtime:
        made: Backend = (
            Thrift1Backend(hbase.thrift1_url, runtime=runtime)
            if request.param == "thrift1"
            else Thrift2Backend(hbase.thrift2_url.partition(",")[0], runtime=runtime)
        )
        made.open(runtime.now() + WAIT_S)
        yield made
        made.close()


def test_errors_of_a_real_gateway_carry_the_sequence_id_of_their_call(backend: Backend) -> None:
    """HBase's exceptions, an unknown method and an internal error: each is an answer, and keeps its connection."""

    def until() -> float:
        return float(backend._runtime.now() + WAIT_S)

    def failing(method: str, *args: object) -> MetaClientError:
        with pytest.raises(MetaClientError) as caught:
            backend._call(method, *args, deadline=until())
        return caught.value

    for number in range(3):
        with pytest.raises(TableNotFound):
            backend.get(None, b"no-such-table-%d" % number, Get(b"r"), until())
        assert backend.table_names(until()) is not None
        if isinstance(backend, Thrift2Backend):
            assert isinstance(failing("get", b"t", T2.TGet(row=b"")), RequestRefused | TableNotFound)
        else:
            backend._channel.ask(lambda link: link.server_type(), "getThriftServerType", until(), None)
    (state,) = backend._channel.gateways._states.values()
    (link,) = state.idle
    assert link._number >= 9, "an answer was not taken for one, and its connection was given up"


def refusal(url: str) -> str:
    with pytest.raises(ConfigError) as caught, metaclient.connect(url):
        pytest.fail(f"{url} was taken for good")
    return str(caught.value)


def test_ports_of_a_real_hbase_are_told_apart(hbase: LocalHBase) -> None:
    first, second = (url.partition("//")[2].partition(",")[0] for url in (hbase.thrift1_url, hbase.thrift2_url))
    rpc = hbase._layout.process("rs1")
    assert "is a Thrift 2 gateway" in refusal(f"thrift1://{second}")
    assert "is a Thrift 1 gateway" in refusal(f"thrift2://{first}")
    for query in ("?transport=framed", "?protocol=compact", "?transport=framed&protocol=compact"):
        assert refusal(f"thrift2://{second}{query}").endswith(f"write thrift2://{second}")
    for scheme in ("thrift1", "thrift2"):
        assert "write hbase+rpc://" in refusal(f"{scheme}://127.0.0.1:{rpc.port}")
        assert "is an HTTP server" in refusal(f"{scheme}://127.0.0.1:{rpc.info_port}")
    assert "is an HTTP server" in refusal(f"hbase+rpc://127.0.0.1:{rpc.info_port}")
    assert refusal(f"hbase+rpc://{second}").endswith(f"write thrift2://{second}")
    with pytest.raises((ConfigError, Unsupported)):
        metaclient.connect(f"thrift2+http://{second}")
