"""Which cluster a connection goes to: the argument, the environment, the configuration's quorum, and never a fake."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import metaclient
from metaclient.cli import main
from metaclient.config import Config
from metaclient.config.cluster_url import NoClusterNamed, chosen_url, url_of_properties
from metaclient.errors import ConfigError
from metaclient_native.url import NativeUrl
from tests.command_runner import command_runner

RPC_REGISTRY = "org.apache.hadoop.hbase.client.RpcConnectionRegistry"
QUORUM = {"hbase.zookeeper.quorum": "zk1"}


@pytest.fixture(autouse=True)
def no_url_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("METACLIENT_URL", raising=False)


def site(folder: Path, properties: Mapping[str, str]) -> Path:
    lines = [f"<property><name>{name}</name><value>{value}</value></property>" for name, value in properties.items()]
    path = folder / "hbase-site.xml"
    path.write_text(f"<configuration>{''.join(lines)}</configuration>\n")
    return path


@pytest.mark.parametrize(
    ("properties", "url"),
    [
        ({"hbase.zookeeper.quorum": "zk1, zk2"}, "hbase://zk1:2181,zk2:2181/hbase"),
        (
            {**QUORUM, "hbase.zookeeper.property.clientPort": "2222", "zookeeper.znode.parent": "/hbase-secure"},
            "hbase://zk1:2222/hbase-secure",
        ),
        # Unlike in a url, a port is its own host's alone (ZKConfig.buildZKQuorumServerString).
        ({"hbase.zookeeper.quorum": "zk1,zk2:2182"}, "hbase://zk1:2181,zk2:2182/hbase"),
        ({"hbase.zookeeper.quorum": "[::1],zk2"}, "hbase://[::1]:2181,zk2:2181/hbase"),
        # HBASE-20159: ZooKeeper for clients is another one.
        (
            {
                **QUORUM,
                "hbase.client.zookeeper.quorum": "zkc",
                "hbase.client.zookeeper.property.clientPort": "2183",
            },
            "hbase://zkc:2183/hbase",
        ),
        ({"hbase.masters": "m1,m2:16001"}, "hbase+rpc://m1:16000,m2:16001"),
        ({**QUORUM, "hbase.masters": "m1"}, "hbase://zk1:2181/hbase"),
        ({**QUORUM, "hbase.masters": "m1", "hbase.client.registry.impl": RPC_REGISTRY}, "hbase+rpc://m1:16000"),
        (
            {
                "hbase.masters": "m1",
                "hbase.client.bootstrap.servers": "rs1:16020",
                "hbase.client.registry.impl": RPC_REGISTRY,
            },
            "hbase+rpc://rs1:16020",
        ),
        ({}, None),
        ({"hbase.rpc.timeout": "5000"}, None),
    ],
)
def test_the_configuration_names_the_cluster_as_for_the_java_client(
    properties: dict[str, str], url: str | None
) -> None:
    assert url_of_properties(properties) == url
    if url is not None:
        NativeUrl.parse(url)  # the backend understands it


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"hbase.client.registry.impl": RPC_REGISTRY, **QUORUM}, "hbase.masters"),
        ({"hbase.client.registry.impl": "com.example.Registry", **QUORUM}, "no such registry"),
    ],
)
def test_a_registry_that_cannot_be_used_is_refused(properties: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        url_of_properties(properties)


def test_the_argument_counts_before_the_environment_and_that_before_the_configuration() -> None:
    environment = {"METACLIENT_URL": "thrift2://env:9090"}
    assert chosen_url("thrift2://argument:9090", QUORUM, environment) == "thrift2://argument:9090"
    assert chosen_url(None, QUORUM, environment) == "thrift2://env:9090"
    assert chosen_url(None, QUORUM, {}) == "hbase://zk1:2181/hbase"


def test_a_site_file_a_folder_a_mapping_and_a_config_all_name_the_cluster(tmp_path: Path) -> None:
    path = site(tmp_path, QUORUM)
    for config in (path, str(path), tmp_path, QUORUM, Config.of(QUORUM)):
        connection = metaclient.connect(config=config, autoconnect=False)
        assert connection.url == "hbase://zk1:2181/hbase"
        connection.close()


@pytest.mark.parametrize("options", [{}, {"config": {}}, {"config": {"hbase.rpc.timeout": 5000}}, {"retries": 3}])
def test_nobody_gets_a_fake_without_asking(options: dict[str, Any]) -> None:
    with pytest.raises(NoClusterNamed, match=r"three ways: a url .* METACLIENT_URL .* hbase\.zookeeper\.quorum"):
        metaclient.connect(**options)


@pytest.mark.parametrize("command", [("tables",), ("create", "t", "cf"), ("doctor",), ("put", "t", "r", "cf:a=1")])
def test_a_command_never_works_on_a_fake_that_nobody_named(command: tuple[str, ...], tmp_path: Path) -> None:
    path = site(tmp_path, {"hbase.rpc.timeout": "5000"})
    for given in ([], ["--config", str(path)]):
        result = command_runner().invoke(main, [*command, *given, "--json"])
        assert result.exit_code == 2
        assert json.loads(result.stdout)["error"] == "NoClusterNamed"
        assert "--url" in result.stderr


def test_a_command_takes_the_quorum_of_its_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    urls: list[str] = []
    monkeypatch.setattr("metaclient.connection.backend_for", lambda url, *_: urls.append(url) or 1 / 0)
    site(tmp_path, QUORUM)
    command_runner().invoke(main, ["doctor", "--config", str(tmp_path)])
    monkeypatch.setenv("METACLIENT_URL", "thrift2://env:9090")
    command_runner().invoke(main, ["doctor", "--config", str(tmp_path)])
    assert urls == ["hbase://zk1:2181/hbase", "thrift2://env:9090"]


def test_a_table_on_a_fake_of_one_command_is_announced_as_lost() -> None:
    result = command_runner().invoke(main, ["create", "t", "cf", "--url", "fake:"])
    assert result.exit_code == 0
    assert "ends with this command" in result.stderr


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("host:9090", r"it has no scheme; write thrift2://host:9090 .* hbase://host:9090 for ZooKeeper"),
        ("host", r"it has no scheme; write thrift2://host "),
        ("//host:9090", r"thrift2://host:9090"),
        ("thrift://host:9090", r"did you mean thrift[12]:"),
        ("hbase+zk://zk1", r"write hbase://"),
        ("conf/hbase-site.xml", r"given as config='conf/hbase-site.xml'"),
        ({"hbase.zookeeper.quorum": "zk1"}, r"'url' must be text .* given as config="),
        ("http://host:8080", r"known are .*thrift2\+http:"),
    ],
)
def test_a_url_without_a_known_scheme_shows_one(url: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        metaclient.connect(url)


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("thrift2://gw:9090", r"write connect\('thrift2://gw:9090'\), or url='thrift2://gw:9090'"),
        ("gw:9191", r"write host='gw', port=9191"),
    ],
)
def test_a_host_that_is_a_url_or_has_a_port_is_not_glued_into_another_url(host: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        metaclient.Connection(host, autoconnect=False)


def test_an_ipv6_host_is_put_in_brackets() -> None:
    connection = metaclient.Connection("::1", autoconnect=False)
    assert connection.url.startswith("thrift1://[::1]:9090?")
    connection.close()
