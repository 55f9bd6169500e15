"""Authentication and TLS of Thrift gateways: SASL on connections, SPNEGO and ``doAs`` on HTTP requests.

The principal of a gateway is ``hbase.thrift.kerberos.principal`` for SASL, and ``hbase.thrift.spnego.principal`` for
HTTP (``HTTP/_HOST`` without it). ``hbase.thrift.security.qop`` is the protection; without it, the gateway's is used.
A gateway of HBase acts for the authenticated user (``hadoop.proxyuser.*`` of its core-site.xml).
"""

from __future__ import annotations

import ssl
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass

from metaclient.config import Config
from metaclient.config.security import Protection, SecuritySettings, TlsSettings, parse_protections
from metaclient.errors import AuthenticationFailed, ConfigError, ServerUnreachable
from metaclient.protobuf import ProtocolError
from metaclient.runtime import Runtime
from metaclient.wire.sasl.gssapi import GssClient
from metaclient.wire.sasl.kerberos import KerberosContext, KerberosLogin, make_server_principal
from metaclient.wire.sasl.stream import SaslStream
from metaclient.wire.sasl.thrift import PlainLayer, negotiate_thrift
from metaclient.wire.stream import Dial, Stream, canonical_host
from metaclient.wire.tls_layer import make_context
from metaclient_thrift.url import Gateway, ThriftUrl

__all__ = ["SECURITY_PROPERTIES", "GatewaySecurity", "Negotiation"]

SASL_PRINCIPAL = "hbase.thrift.kerberos.principal"
SPNEGO_PRINCIPAL = "hbase.thrift.spnego.principal"
QOP = "hbase.thrift.security.qop"
#: The properties of HBase that are read here.
SECURITY_PROPERTIES = frozenset({SASL_PRINCIPAL, SPNEGO_PRINCIPAL, QOP})
_IDENTITY = ("principal", "keytab", "ccache")
_FILES = ("ca", "cert", "key")


@dataclass(frozen=True, slots=True)
class GatewaySecurity:
    """The identity of a client at the gateways of a url, and how it is proved; without a login, none is needed."""

    login: KerberosLogin | None = None
    pattern: str = ""  # of the gateways' principal
    protections: tuple[Protection, ...] = tuple(Protection)
    resolves_names: bool = True
    do_as: str | None = None
    tls: TlsSettings | None = None

    @classmethod
    def of(cls, url: ThriftUrl, config: Config) -> GatewaySecurity:
        """Return the security of a url and the options; ConfigError for an option without effect on this url."""
        _refuse_without_effect(url, config)
        tls = _tls_of(url, config) if url.is_tls else None
        is_negotiated = url.is_http and (
            config.do_as is not None
            or any(getattr(config, name) is not None for name in _IDENTITY)
            or SPNEGO_PRINCIPAL in config.properties
        )
        if not url.is_sasl and not is_negotiated:
            return cls(tls=tls)
        properties = config.properties
        pattern = properties.get(SASL_PRINCIPAL, "") if url.is_sasl else properties.get(SPNEGO_PRINCIPAL, "HTTP/_HOST")
        if not pattern:
            raise ConfigError(
                f"{url.scheme}:// needs {SASL_PRINCIPAL}, the name of the gateway, such as hbase/_HOST@EXAMPLE.COM: it "
                "is in the gateway's hbase-site.xml, which config= takes"
            )
        settings = SecuritySettings(
            resolves_names=properties.get("hbase.unsafe.client.kerberos.hostname.disable.reversedns", "") != "true"
        )
        return cls(
            KerberosLogin(config.principal, config.keytab, config.ccache),
            pattern,
            parse_protections(properties[QOP], QOP) if QOP in properties else tuple(Protection),
            settings.resolves_names,
            config.do_as,
            tls,
        )

    def make_context(self) -> ssl.SSLContext:
        """Return the context of TLS, with the files as they are now."""
        assert self.tls is not None
        return make_context(self.tls)

    def context_for(self, gateway: Gateway, *, is_spnego: bool = False) -> KerberosContext:
        """Return a new security context for a gateway."""
        assert self.login is not None
        host = canonical_host(gateway.host, gateway.port) if self.resolves_names else gateway.host
        return KerberosContext(self.login, make_server_principal(self.pattern, host), is_spnego=is_spnego)

    def make_dial(self, url: ThriftUrl, below: Dial, runtime: Runtime) -> Dial:
        """Return the `Dial` of the gateways' connections: ``below``, with the handshake of SASL if the url has it."""
        if not url.is_sasl:
            return below

        def dial(host: str, port: int, now: Callable[[], float], deadline: float) -> Stream:
            context = self.context_for(Gateway(host, port))
            mechanism = GssClient(context, make_lock=runtime.lock, protections=self.protections)
            stream = below(host, port, now, deadline)
            try:
                negotiate_thrift(stream, mechanism, name=b"GSSAPI", now=now, deadline=deadline)
            except BaseException as error:
                stream.close()
                made = _explain(error, f"{host}:{port}", context)
                if made is None:
                    raise
                raise made from error
            return SaslStream(
                stream,
                mechanism.layer or PlainLayer(),
                now,
                reply_bytes_max=url.reply_bytes_max,
                may_be_refused=False,
            )

        return dial


def _explain(error: BaseException, address: str, context: KerberosContext) -> Exception | None:
    """Return the error with the gateway's address and what to do; None if it needs neither."""
    if isinstance(error, AuthenticationFailed):
        return AuthenticationFailed(
            f"{address} with a ticket for {context.server}: {error}; if that is not the gateway's own principal, set "
            f"{SASL_PRINCIPAL}; for other reasons look into the gateway's log"
        )
    if isinstance(error, ProtocolError):
        return ConfigError(
            f"{address} does not speak SASL ({error}): {QOP} is not set on the gateway; write the url without +sasl"
        )
    if isinstance(error, ServerUnreachable):
        return ServerUnreachable(
            f"{address}: {error}; a gateway without SASL ({QOP} is not set on it) does not answer, or hangs up"
        )
    return None


class Negotiation:
    """The headers of one HTTP request: each has a new token, because gateways accept none twice."""

    def __init__(self, security: GatewaySecurity, gateway: Gateway) -> None:
        self._security = security
        self._gateway = gateway
        self._context: KerberosContext | None = None

    def headers(self) -> dict[str, str]:
        security = self._security
        if security.login is None:
            return {}
        self._context = security.context_for(self._gateway, is_spnego=True)
        made = {"Authorization": "Negotiate " + b64encode(self._context.step(None)).decode()}
        if security.do_as is not None:
            made["doAs"] = security.do_as
        return made

    def check_answer(self, status: int, header: str | None) -> None:
        """Check the gateway's proof of its identity, if it sent one; AuthenticationFailed for a refusal."""
        if status == 401:
            who = "the ticket" if self._context is not None else "a request without a ticket"
            server = f" for {self._context.server}" if self._context is not None else ""
            raise AuthenticationFailed(
                f"{self._gateway} refuses {who}{server} (HTTP 401): run `kinit`, or give keytab= and principal=; the "
                f"gateway's principal is {SPNEGO_PRINCIPAL}"
            )
        if self._context is None or header is None or not header.startswith("Negotiate "):
            return
        try:
            token = b64decode(header.removeprefix("Negotiate ").strip(), validate=True)
        except ValueError as error:
            raise AuthenticationFailed(f"{self._gateway}: its proof of identity is no base64") from error
        if token and not self._context.is_complete:
            self._context.step(token)


def _tls_of(url: ThriftUrl, config: Config) -> TlsSettings:
    for name, given in (("ca", url.ca_file), ("verify", None if url.verifies else "false")):
        if given is not None and (config.ca if name == "ca" else not config.verify):
            raise ConfigError(f"{name} is in the url and an option: give one of them")
    return TlsSettings(
        ca=url.ca_file or config.ca,
        cert=config.cert,
        key=config.key,
        verifies=url.verifies and config.verify,
    )


def _refuse_without_effect(url: ThriftUrl, config: Config) -> None:
    given = [name for name in (*_IDENTITY, "token", "do_as", *_FILES) if getattr(config, name) is not None]
    if not config.verify:
        given.append("verify")
    for name in given:
        if name == "token":
            raise ConfigError(f"token has no effect on {url.scheme}://: Thrift gateways take no delegation tokens")
        if name == "do_as" and not url.is_http:
            raise ConfigError(
                f"do_as has no effect on {url.scheme}://: a gateway reads it from HTTP requests only (thrift2+http://, "
                "with hbase.thrift.support.proxyuser=true on the gateway)"
            )
        if name in _IDENTITY and not (url.is_sasl or url.is_http):
            raise ConfigError(f"{name} has no effect on {url.scheme}://: write thrift2+sasl:// or thrift2+https://")
        if name in (*_FILES, "verify") and not url.is_tls:
            raise ConfigError(f"{name} has no effect without TLS: write thrift2+https:// or thrift2+tls://")
    if config.keytab is not None and config.principal is None:
        raise ConfigError(f"keytab={config.keytab!r} needs principal, the name whose key in the file is used")
