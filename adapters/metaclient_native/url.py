"""Parses ``hbase:`` urls: the addresses of the registry, the parent znode, and the user."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl

from metaclient.config.security import PROPERTIES as SECURITY_PROPERTIES
from metaclient.config.url_secrets import address_of, masked_url, refuse_credentials, split_url
from metaclient.errors import ConfigError
from metaclient.wire.reply_limit import RESULT_BYTES_KEY

__all__ = ["PROPERTIES", "Endpoint", "NativeUrl"]

ZOOKEEPER_PORT = 2181
MASTER_PORT = 16000
ZNODE_PARENT = "/hbase"
_OPTIONS = ("user",)
_PORT_KEY = "hbase.zookeeper.property.clientPort"
#: The properties of HBase that the native backend reads.
PROPERTIES = frozenset(
    {
        "hbase.client.bootstrap.servers",
        "hbase.masters",
        "hbase.zookeeper.quorum",
        _PORT_KEY,
        RESULT_BYTES_KEY,
        "zookeeper.znode.parent",
        *SECURITY_PROPERTIES,
    }
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of one server of the registry."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class NativeUrl:
    """A parsed url.

    >>> url = NativeUrl.parse("hbase://zk1,zk2:2182/hbase-secure")
    >>> [str(endpoint) for endpoint in url.endpoints], url.znode_parent
    (['zk1:2182', 'zk2:2182'], '/hbase-secure')
    >>> NativeUrl.parse("hbase+rpc://master1").endpoints[0].port
    16000
    """

    endpoints: tuple[Endpoint, ...]
    is_rpc: bool = False
    znode_parent: str = ZNODE_PARENT
    user: str | None = None

    @classmethod
    def parse(cls, url: str, properties: Mapping[str, str] | None = None) -> NativeUrl:
        """Parse a url; ConfigError if it is wrong. HBase's own properties fill in what the url does not have."""
        properties = properties or {}
        refuse_credentials(url, "HBase (a user is written ?user=NAME)")
        shown = masked_url(url)
        parts = split_url(url)
        if parts is None:
            raise ConfigError(f"{shown!r} is not a url: does an IPv6 address lack a bracket?")
        if parts.scheme not in ("hbase", "hbase+rpc"):
            raise ConfigError(f"{shown!r} is not a url of HBase's own RPC: it starts with hbase:// or hbase+rpc://")
        options = _parse_options(shown, parts.query)
        if parts.scheme == "hbase+rpc":
            if parts.path.strip("/"):
                raise ConfigError(f"{shown!r} has a path, which only hbase:// can use (the parent znode)")
            named = properties.get("hbase.client.bootstrap.servers") or properties.get("hbase.masters") or ""
            addresses = _parse_addresses(shown, parts.netloc or named, MASTER_PORT)
            if not addresses:
                raise ConfigError(f"{shown!r} names no server: write hbase+rpc://MASTER:16000,... or set hbase.masters")
            return cls(addresses, True, user=options.get("user"))
        addresses = _parse_addresses(
            shown, parts.netloc or properties.get("hbase.zookeeper.quorum", ""), _parse_port(properties)
        )
        if not addresses:
            raise ConfigError(
                f"{shown!r} names no ZooKeeper: write hbase://HOST:2181/hbase or set hbase.zookeeper.quorum"
            )
        parent = parts.path.rstrip("/") or properties.get("zookeeper.znode.parent", ZNODE_PARENT)
        return cls(addresses, False, parent, options.get("user"))


def _parse_port(properties: Mapping[str, str]) -> int:
    text = properties.get(_PORT_KEY, str(ZOOKEEPER_PORT)).strip()
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and 0 < int(text) <= 65_535):
        raise ConfigError(f"{_PORT_KEY} must be a port from 1 to 65535, got {text[:50]!r}")
    return int(text)


def _parse_options(url: str, query: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in _OPTIONS:
            near = difflib.get_close_matches(name, _OPTIONS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(_OPTIONS)}"
            raise ConfigError(f"{url!r} has an unknown option {name!r}: {hint}")
        if not value:
            raise ConfigError(f"{url!r}: {name} must not be empty")
        if name in options:
            raise ConfigError(f"{url!r} has {name} twice: {options[name]!r} and {value!r}")
        options[name] = value
    return options


def _parse_addresses(url: str, text: str, default: int) -> tuple[Endpoint, ...]:
    """Return the addresses; a port after the last host is that of all, as in HBase: ``zk1,zk2,zk3:2181``."""
    found: list[tuple[str, int | None]] = []
    for one in filter(None, (part.strip() for part in text.split(","))):
        address = address_of(one)
        if address is None:
            raise ConfigError(f"{url!r} has a bad address: write HOST:PORT, with a port from 0 to 65535")
        found.append(address)
    ports = [port for _, port in found if port is not None]
    if len(ports) == 1 and found[-1][1] is not None:
        default = ports[0]
    return tuple(Endpoint(host, default if port is None else port) for host, port in found)
