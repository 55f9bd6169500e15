"""Parses urls such as ``thrift2://host:port,host:port?transport=framed``: gateways, transport, protocol, options.

::

    thrift1://HOST[:PORT][,HOST[:PORT]...]    Thrift 1
    thrift2://...                             Thrift 2
    thrift1+sasl://, thrift2+sasl://...       with Kerberos (hbase.thrift.security.qop on the gateway)
    thrift2+http://...[/PATH]                 Thrift 2 in HTTP requests, with SPNEGO if an identity is given
    thrift2+https://...[/PATH]                the same over TLS (hbase.thrift.ssl.enabled); ?ca=FILE, ?verify=false
    thrift1+tls://, thrift2+tls://...         over TLS, which a proxy before the gateway adds; ?ca=FILE, ?verify=false

Every form takes ``connections=N`` (at most, per gateway) and ``retries_inside_s=SECONDS`` (how long the gateway
itself may retry), every form but HTTP ``transport=buffered|framed`` and ``protocol=binary|compact``. An option that is
unknown, given twice or without effect is refused.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import parse_qsl

from metaclient.config.url_secrets import address_of, masked_url, refuse_credentials, split_url
from metaclient.errors import ConfigError
from metaclient.wire.reply_limit import REPLY_BYTES_MAX, RESULT_BYTES_KEY, read_reply_bytes_max

__all__ = ["DEFAULT_PORT", "PROPERTIES", "Gateway", "ThriftUrl"]

DEFAULT_PORT = 9090
SCHEMES = (
    "thrift1",
    "thrift1+sasl",
    "thrift1+tls",
    "thrift2",
    "thrift2+http",
    "thrift2+https",
    "thrift2+sasl",
    "thrift2+tls",
)
_HTTP = ("+http", "+https")
_TLS = ("+tls", "+https")
TRANSPORTS = ("buffered", "framed")
PROTOCOLS = ("binary", "compact")
#: A gateway has 16 to 1000 workers, and each connection occupies one of them. A call that waits for a connection costs
#: twice the CPU time of one that does not (scenario peers, 64 callers on 32 connections).
CONNECTIONS = 64
#: HBase's default of 15 retries with pauses from 100 ms on (hbase.client.retries.number, hbase.client.pause).
RETRIES_INSIDE_S = 128.0
_OPTIONS = ("transport", "protocol", "connections", "retries_inside_s", "ca", "verify")
_FRAMED_KEY = "hbase.regionserver.thrift.framed"
_COMPACT_KEY = "hbase.regionserver.thrift.compact"
#: The properties of HBase that a Thrift backend reads.
PROPERTIES = frozenset({_FRAMED_KEY, _COMPACT_KEY, RESULT_BYTES_KEY})


class Gateway(NamedTuple):
    """The address of one gateway."""

    host: str
    port: int = DEFAULT_PORT

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ThriftUrl:
    """A parsed url.

    >>> url = ThriftUrl.parse("thrift2://gw1,gw2:9091?transport=framed")
    >>> [str(gateway) for gateway in url.gateways], url.is_framed, url.is_compact
    (['gw1:9090', 'gw2:9091'], True, False)
    """

    scheme: str
    gateways: tuple[Gateway, ...]
    path: str = "/"
    is_framed: bool = False
    is_compact: bool = False
    connections: int = CONNECTIONS
    retries_inside_s: float = RETRIES_INSIDE_S
    ca_file: str | None = None
    verifies: bool = True
    reply_bytes_max: int = REPLY_BYTES_MAX

    @property
    def is_http(self) -> bool:
        return self.scheme.endswith(_HTTP)

    @property
    def is_tls(self) -> bool:
        return self.scheme.endswith(_TLS)

    @property
    def is_sasl(self) -> bool:
        return self.scheme.endswith("+sasl")

    @property
    def dialect(self) -> str:
        """Transport and protocol as the options of a url; empty for the usual ones."""
        options = ("transport=framed" if self.is_framed else "", "protocol=compact" if self.is_compact else "")
        return "&".join(filter(None, options))

    @classmethod
    def parse(cls, url: str, properties: Mapping[str, str] | None = None) -> ThriftUrl:
        """Parse a url; ConfigError if it is wrong. HBase's own properties are the defaults."""
        refuse_credentials(url, "HBase's Thrift gateway")
        shown = masked_url(url)
        parts = split_url(url)
        if parts is None:
            raise ConfigError(f"{shown!r} is not a url: does an IPv6 address lack a bracket?")
        if parts.scheme not in SCHEMES:
            raise ConfigError(f"{shown!r} is not a Thrift url: it starts with one of {', '.join(SCHEMES)}")
        if not parts.netloc:
            raise ConfigError(f"{shown!r} names no gateway: write {parts.scheme}://HOST:PORT")
        if parts.path.strip("/") and not parts.scheme.endswith(_HTTP):
            raise ConfigError(f"{shown!r} has a path, which only thrift2+http:// can use")
        options = _options(shown, parts.query)
        _refuse_without_effect(shown, parts.scheme, options)
        if not parts.scheme.endswith(_HTTP):  # HBase's HTTP servlet supports neither frames nor the compact protocol
            options = {**_site_options(properties or {}), **options}
        if parts.scheme.endswith("+sasl") and _choice("transport", options, TRANSPORTS) == "framed":
            raise ConfigError(
                f"{shown!r}: HBase's gateways have no SASL with framed transport: leave out transport=framed "
                f"({_FRAMED_KEY}), or hbase.thrift.security.qop on the gateway"
            )
        return cls(
            parts.scheme,
            tuple(_gateway(text, shown) for text in parts.netloc.split(",")),
            path=parts.path or "/",
            is_framed=_choice("transport", options, TRANSPORTS) == "framed",
            is_compact=_choice("protocol", options, PROTOCOLS) == "compact",
            connections=int(_number("connections", options, CONNECTIONS, at_least=1)),
            retries_inside_s=_number("retries_inside_s", options, RETRIES_INSIDE_S, at_least=0),
            ca_file=options.get("ca"),
            verifies=_choice("verify", options, ("true", "false")) == "true",
            reply_bytes_max=read_reply_bytes_max(properties or {}),
        )


def _site_options(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the options that the gateway's settings in the site file give."""
    flags = ("false", "true")
    return {
        "transport": TRANSPORTS[flags.index(_choice(_FRAMED_KEY, properties, flags))],
        "protocol": PROTOCOLS[flags.index(_choice(_COMPACT_KEY, properties, flags))],
    }


def _refuse_without_effect(url: str, scheme: str, options: Mapping[str, str]) -> None:
    if not scheme.endswith(_TLS):
        for name in ("ca", "verify"):
            if name in options:
                raise ConfigError(f"{url!r}: {name} has no effect without TLS: write thrift2+tls://")
    elif "ca" in options and options.get("verify", "true").lower() == "false":
        raise ConfigError(f"{url!r}: ca has no effect with verify=false: leave one of them out")
    if scheme.endswith(_HTTP):
        for name in ("transport", "protocol"):
            if name in options:
                raise ConfigError(f"{url!r}: {name} has no effect over HTTP, which HBase serves unframed and binary")


def _options(url: str, query: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in _OPTIONS:
            near = difflib.get_close_matches(name, _OPTIONS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(_OPTIONS)}"
            raise ConfigError(f"{url!r} has an unknown option {name!r}: {hint}")
        if name in options:
            raise ConfigError(f"{url!r} has {name} twice: {options[name]!r} and {value!r}")
        options[name] = value
    return options


def _choice(name: str, options: Mapping[str, str], allowed: tuple[str, ...]) -> str:
    value = options.get(name, allowed[0]).lower()
    if value not in allowed:
        raise ConfigError(f"{name} must be {' or '.join(allowed)}, got {value!r}")
    return value


def _number(name: str, options: Mapping[str, str], default: float, *, at_least: float) -> float:
    text = options.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not at_least <= value < float("inf") or (name == "connections" and value != int(value)):
        raise ConfigError(f"{name} must be a number from {at_least:g} on, got {text!r}")
    return value


def _gateway(text: str, url: str) -> Gateway:
    address = address_of(text)
    if address is None:
        raise ConfigError(f"{url!r} has a bad address: write HOST:PORT, with a port from 0 to 65535")
    host, port = address
    return Gateway(host, DEFAULT_PORT if port is None else port)
