"""TLS on the fronts of the fake, and the addresses at which it is served."""

from __future__ import annotations

import logging
import ssl
import urllib.request
from pathlib import Path

import pytest

import metaclient
from metaclient import AuthenticationFailed, ConfigError, MetaClientError
from metaclient_fake import FakeCluster
from tests.unit.certificates import make_certificates


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("tls"), "server", "client", "other")


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_whole_client_over_tls_with_a_token_and_client_certificates(files: Path, version: str) -> None:
    with FakeCluster(servers=2) as cluster:
        front = cluster.serve(
            thrift1_port=None, thrift2_port=None, rpc_port=0, is_secure=True,
            cert=str(files / "server.pem"), client_ca=str(files / "client.crt"),
        )  # fmt: skip
        options = {"ca": str(files / "server.crt"), "cert": str(files / "client.pem")}
        properties = {"hbase.rpc.tls.protocol": version}
        with metaclient.connect(
            front.rpc_url, open_timeout_s=60, token=front.issue_token("alice"), config=properties, **options
        ) as connection:
            connection.create_table("t", {"f": {}})
            table = connection.table("t")
            table.put(b"a", {b"f:q": b"x" * 1_000_000})
            assert table.row(b"a") == {b"f:q": b"x" * 1_000_000}
            assert connection.whoami() == ("alice", "TOKEN")


def test_wrong_or_missing_certificates_and_plaintext_are_named(files: Path) -> None:
    with FakeCluster(servers=1) as cluster:
        front = cluster.serve(
            thrift1_port=None, thrift2_port=None, rpc_port=0,
            cert=str(files / "server.crt"), key=str(files / "server.key"), client_ca=str(files / "client.crt"),
        )  # fmt: skip
        known, cert = str(files / "server.crt"), str(files / "client.pem")
        for options, text in (
            ({"ca": known}, "does not accept the client's certificate"),
            ({"ca": known, "cert": str(files / "other.pem")}, "does not accept the client's certificate"),
            ({"ca": str(files / "other.crt"), "cert": cert}, "the server's certificate is not accepted"),
        ):
            with pytest.raises(AuthenticationFailed, match=text):
                metaclient.connect(front.rpc_url, open_timeout_s=60, **options)
        with pytest.raises(MetaClientError, match=r"requires Kerberos .* TLS \(hbase.client.netty.tls.enabled\)"):
            metaclient.connect(front.rpc_url, open_timeout_s=5, operation_timeout_s=5)


def test_thrift_and_status_page_have_tls_too(files: Path) -> None:
    with FakeCluster(servers=1) as cluster:
        front = cluster.serve("localhost", status_port=0, cert=str(files / "server.pem"))
        assert front.thrift2_url is not None
        assert front.thrift2_url.startswith("thrift2+tls://")
        with metaclient.connect(f"{front.thrift2_url}?ca={files}/server.crt") as connection:
            connection.create_table("t", {"f": {}})
            assert connection.tables() == [b"t"]
        trusted = ssl.create_default_context(cafile=str(files / "server.crt"))
        assert front.status_url is not None
        with urllib.request.urlopen(front.status_url, context=trusted, timeout=60) as page:
            assert page.status == 200


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, r"without TLS \(cert=\) and client certificates \(client_ca=\) for thrift1, thrift2, rpc"),
        ({"thrift1_port": None, "thrift2_port": None}, r"client certificates \(client_ca=\) or tokens"),
        ({"thrift1_port": None, "thrift2_port": None, "is_secure": True}, r"at 0.0.0.0 without TLS \(cert=\):"),
        (
            {"is_secure": True, "cert": "server.pem"},
            r"without client certificates .* for thrift1, thrift2:",
        ),
        ({"client_ca": "client.crt", "host": "127.0.0.1"}, "client_ca=.* needs TLS: give cert="),
        ({"cert": "nowhere.pem", "host": "127.0.0.1"}, "nowhere.pem: cannot be used for TLS: No such file"),
    ],
)
def test_front_that_other_machines_reach_needs_tls_and_authentication(
    files: Path, options: dict[str, object], text: str
) -> None:
    given = {
        name: str(files / value) if name in ("cert", "client_ca") else value for name, value in options.items()
    }  # fmt: skip
    with FakeCluster(servers=1) as cluster, pytest.raises(ConfigError, match=text):
        cluster.serve(**{"host": "0.0.0.0", "rpc_port": 0, **given})


def test_front_for_other_machines_is_served_with_both_or_with_the_flag(
    files: Path, caplog: pytest.LogCaptureFixture
) -> None:
    both = {"cert": str(files / "server.pem"), "client_ca": str(files / "client.crt")}
    with FakeCluster(servers=1) as cluster:
        cluster.serve("0.0.0.0", rpc_port=0, **both).close()
        with caplog.at_level(logging.WARNING):
            cluster.serve("0.0.0.0", rpc_port=0, allow_insecure=True).close()
    assert "to other machines at 0.0.0.0 without TLS" in caplog.text
