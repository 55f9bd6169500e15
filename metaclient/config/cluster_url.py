"""Decides which cluster a connection is made to: by the url argument, the environment, or the configuration.

There is no default: a fake cluster is used only if the url is ``fake:``.

The properties are read as HBase's Java client reads them (``ConnectionRegistryFactory``, ``ZKConfig``,
``RpcConnectionRegistry`` and ``MasterRegistry`` of HBase 2.6):

1. ``hbase.client.registry.impl`` chooses between ZooKeeper and RPC. If it is absent, ZooKeeper is used if a quorum
   is given, else RPC if servers are given.
2. ZooKeeper: ``hbase.client.zookeeper.quorum``, else ``hbase.zookeeper.quorum``; a host without a port gets the client
   port; ``zookeeper.znode.parent`` is the path.
3. RPC: ``hbase.client.bootstrap.servers``, else ``hbase.masters``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from metaclient.errors import ConfigError

__all__ = ["ENVIRONMENT", "NoClusterNamed", "chosen_url", "url_of_properties"]

#: The environment variable with the url of the cluster, for calls without a url.
ENVIRONMENT = "METACLIENT_URL"
_REGISTRY = "hbase.client.registry.impl"
_RPC_REGISTRIES = ("RpcConnectionRegistry", "MasterRegistry")
_ZOOKEEPER_REGISTRIES = ("ZKConnectionRegistry", "ZKAsyncRegistry")
_QUORUM = "hbase.zookeeper.quorum"
_CLIENT_PORT = "hbase.zookeeper.property.clientPort"
_CLIENT_QUORUM = "hbase.client.zookeeper.quorum"
_CLIENT_QUORUM_PORT = "hbase.client.zookeeper.property.clientPort"
_BOOTSTRAP_SERVERS = "hbase.client.bootstrap.servers"
_MASTERS = "hbase.masters"
_ZNODE_PARENT = "zookeeper.znode.parent"


class NoClusterNamed(ConfigError):
    """No url, environment variable or property names a cluster; the message shows the three ways to name one."""


def chosen_url(url: str | None, properties: Mapping[str, str], environment: Mapping[str, str] = os.environ) -> str:
    """Return the url to connect to; NoClusterNamed if no cluster is named.

    >>> chosen_url(None, {"hbase.zookeeper.quorum": "zk1,zk2"}, environment={})
    'hbase://zk1:2181,zk2:2181/hbase'
    >>> chosen_url("thrift2://gateway:9090", {"hbase.zookeeper.quorum": "zk1,zk2"}, environment={})
    'thrift2://gateway:9090'
    """
    found = url or environment.get(ENVIRONMENT, "").strip() or url_of_properties(properties)
    if found:
        return found
    lack = f"the configuration has no {_QUORUM}" if properties else "there is no configuration"
    raise NoClusterNamed(
        f"no cluster is named: there is no url, {ENVIRONMENT} is not set, and {lack}. Name one in one of three ways: "
        "a url (--url on the command line) such as hbase://zk1,zk2:2181/hbase, thrift2://gateway:9090 or fake: (a "
        f"cluster in memory that ends with the connection); {ENVIRONMENT} in the environment; or config (--config), "
        f"an hbase-site.xml with {_QUORUM} or {_MASTERS}"
    )


def url_of_properties(properties: Mapping[str, str]) -> str | None:
    """Return the url of the cluster that HBase's properties name, or None; ConfigError if they contradict.

    >>> url_of_properties({"hbase.client.registry.impl": "RpcConnectionRegistry", "hbase.masters": "m1,m2:16001"})
    'hbase+rpc://m1:16000,m2:16001'
    """
    registry = properties.get(_REGISTRY, "").strip().rpartition(".")[2]
    if registry and registry not in (*_RPC_REGISTRIES, *_ZOOKEEPER_REGISTRIES):
        raise ConfigError(
            f"{_REGISTRY} = {registry!r}: no such registry here; known are "
            f"{', '.join((*_ZOOKEEPER_REGISTRIES[:1], *_RPC_REGISTRIES))}; or give a url"
        )
    zookeeper, rpc = _zookeeper_url(properties), _rpc_url(properties)
    if registry in _RPC_REGISTRIES:
        if rpc is None:
            raise ConfigError(f"{_REGISTRY} = {registry} needs {_BOOTSTRAP_SERVERS} or {_MASTERS}; or give a url")
        return rpc
    return zookeeper if registry else zookeeper or rpc


def _zookeeper_url(properties: Mapping[str, str]) -> str | None:
    port = _text(properties, _CLIENT_PORT) or "2181"
    quorum = _text(properties, _CLIENT_QUORUM)
    if quorum:
        port = _text(properties, _CLIENT_QUORUM_PORT) or port
    else:
        quorum = _text(properties, _QUORUM)
    parent = _text(properties, _ZNODE_PARENT) or "/hbase"
    return f"hbase://{_with_ports(quorum, port)}{parent}" if quorum else None


def _rpc_url(properties: Mapping[str, str]) -> str | None:
    bootstrap, masters = _text(properties, _BOOTSTRAP_SERVERS), _text(properties, _MASTERS)
    if bootstrap:
        return f"hbase+rpc://{_with_ports(bootstrap, '16000')}"
    return f"hbase+rpc://{_with_ports(masters, '16000')}" if masters else None


def _with_ports(addresses: str, port: str) -> str:
    """Return the addresses, each with a port: in a url of HBase the last port would apply to all hosts."""
    hosts = (host.strip() for host in addresses.split(","))
    return ",".join(host if _has_port(host) else f"{host}:{port}" for host in hosts if host)


def _has_port(host: str) -> bool:
    return ":" in host.rpartition("]")[2]  # an IPv6 address stands in brackets


def _text(properties: Mapping[str, str], name: str) -> str:
    return properties.get(name, "").strip()
