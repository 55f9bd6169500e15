"""Authentication of native connections: which preamble, mechanism and connection header a service gets.

A connection is opened by its own task in this order: TCP, TLS, preamble, SASL, connection header. With simple
authentication there is no handshake, so preamble and header are sent together with the first calls.

No user is named in the header of a SASL connection: HBase would take any name but the full principal as a request to
impersonate that user. Only ``do_as`` names one.
"""

from __future__ import annotations

import getpass
import os
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from metaclient.config import Config, checked_properties
from metaclient.config.security import SecuritySettings
from metaclient.config.tokens import Token
from metaclient.errors import AuthenticationFailed, ConfigError, MetaClientError, ServerUnreachable
from metaclient.protobuf import ProtocolError
from metaclient.runtime import Runtime, draw_secret
from metaclient.wire.reply_limit import read_reply_bytes_max
from metaclient.wire.rpc import framing
from metaclient.wire.sasl.digest_md5 import DigestClient
from metaclient.wire.sasl.gssapi import GssClient
from metaclient.wire.sasl.handshake import Negotiated, negotiate, read_exactly
from metaclient.wire.sasl.kerberos import KerberosContext, KerberosLogin, ServerPrincipal, make_server_principal
from metaclient.wire.sasl.mechanism import Mechanism
from metaclient.wire.sasl.messages import FRAME_REFUSED, SaslRefused, encode_token
from metaclient.wire.sasl.stream import SaslStream
from metaclient.wire.stream import Dial, Stream, canonical_host
from metaclient.wire.tls_layer import tls_layer_dial
from metaclient_native.errors import explain_missing_authentication, explain_sasl_refusal
from metaclient_native.request import ServiceAddress
from metaclient_native.token_supply import TokenSupply

__all__ = ["Security", "encode_identity"]

#: Addresses whose principal is remembered; one entry per registry server of which two principals are possible.
REMEMBERED_MAX = 1024
#: The wait for the answer to an empty token: a server of HBase 3.0 that is not secure sends none.
ASK_S_MAX = 1.0


@dataclass(frozen=True, slots=True)
class Security:
    """The identity of a client on HBase's RPC, and how it is proved. ``user`` counts with simple authentication."""

    user: str
    settings: SecuritySettings = field(default_factory=SecuritySettings)
    reply_bytes_max: int = field(default_factory=lambda: read_reply_bytes_max({}))
    #: Returns the cluster's id before a deadline, to choose among tokens of several clusters.
    find_cluster_id: Callable[[float], str | None] | None = None
    #: The tokens, if they are replaced while the client runs.
    supply: TokenSupply | None = None
    #: Host and port -> the principal that worked; bounded by ``REMEMBERED_MAX``.
    _principals: dict[tuple[str, int], str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, properties: Mapping[str, str] | None = None, *, user: str | None = None, config: Config | None = None
    ) -> Security:
        """Return the authentication that HBase's properties and the options of ``config`` ask for.

        >>> Security.of({}, user="ada").user
        'ada'
        """
        config = config or Config.of(checked_properties(properties or {}, "properties"))
        settings = SecuritySettings.of(config)
        if settings.is_kerberos and user is not None:
            raise ConfigError(
                f"user={user!r} in the url contradicts hbase.security.authentication=kerberos, where the ticket or "
                "token names the user: leave it out, or write do_as= to impersonate that user"
            )
        return cls(
            user or os.environ.get("HADOOP_USER_NAME") or _login(),
            settings,
            read_reply_bytes_max(config.properties),
            supply=TokenSupply(settings) if settings.fetch_token or settings.token_file else None,
        )

    def encode_opening(self, service: str) -> bytes:
        """Return the bytes that precede the first call, in the same write: none after a SASL handshake."""
        if self.settings.is_kerberos:
            return b""
        return framing.preamble(framing.AUTH_SIMPLE) + framing.connection_header(service, self.user)

    def make_dial(self, service: str, dial: Dial, runtime: Runtime) -> Dial:
        """Return the `Dial` of a service's connections: ``dial`` itself, with TLS and SASL if the settings say so."""
        if self.settings.tls is not None:
            dial = tls_layer_dial(self.settings.tls, dial, runtime.lock)
        if not self.settings.is_kerberos:
            return dial
        return partial(self._dial_authenticated, service, dial, runtime)

    def ask_why_closed(
        self, dial: Dial, address: ServiceAddress, now: Callable[[], float], deadline: float
    ) -> AuthenticationFailed | None:
        """Return the error for a server that closed a connection because it requires Kerberos; None if it does not.

        A secure server of HBase 3.0 closes a simple connection without an answer, where 2.6 names the reason. So the
        server gets an empty token on another connection: a secure server refuses it, any other server does not.
        """
        if self.settings.is_kerberos:
            return None
        host, port, service = address
        until = min(deadline, now() + ASK_S_MAX)
        try:
            stream = dial(host, port, now, until)
        except MetaClientError:
            return None
        try:
            stream.write(framing.preamble(framing.AUTH_KERBEROS) + encode_token(b""), until)
            is_refused = read_exactly(stream, len(FRAME_REFUSED), now, until) == FRAME_REFUSED
        except (OSError, EOFError, MetaClientError):
            return None
        finally:
            stream.close()
        return explain_missing_authentication(f"{host}:{port}", service) if is_refused else None

    def _dial_authenticated(
        self,
        service: str,
        dial: Dial,
        runtime: Runtime,
        host: str,
        port: int,
        now: Callable[[], float],
        deadline: float,
    ) -> Stream:
        opening = _Opening(self, service, dial, runtime, host, port, now, deadline)
        token = self._choose_token(runtime.time_ms(), deadline)
        if token is not None:
            return opening.by_token(token)
        candidates = self.settings.principals_of(service)
        known = self._principals.get((host, port))
        ordered = sorted(candidates, key=lambda one: one != known)
        failures: list[MetaClientError] = []
        for pattern in ordered:
            try:
                stream = opening.by_kerberos(pattern)
            except AuthenticationFailed as error:
                failures.append(error)
                continue
            if len(candidates) > 1 and len(self._principals) < REMEMBERED_MAX:
                self._principals[host, port] = pattern
            return stream
        raise failures[0]

    def _choose_token(self, time_ms: int, deadline: float) -> Token | None:
        """Return the token of this cluster that expires last; None if there is no token."""
        tokens = self.settings.tokens if self.supply is None else self.supply.tokens(time_ms)
        clusters = {token.cluster_id for token in tokens}
        if len(clusters) > 1:
            cluster_id = self.find_cluster_id(deadline) if self.find_cluster_id is not None else None
            tokens = tuple(token for token in tokens if token.cluster_id == cluster_id)
            if not tokens:
                raise AuthenticationFailed(
                    f"no token is of this cluster ({cluster_id}): there are tokens of {', '.join(sorted(clusters))}"
                )
        return max(tokens, key=lambda token: token.expires_ms, default=None)


@dataclass(frozen=True, slots=True)
class _Opening:
    """One attempt, or several with other principals, to open a connection to one service of one server."""

    security: Security
    service: str
    dial: Dial
    runtime: Runtime
    host: str
    port: int
    now: Callable[[], float]
    deadline: float

    def by_token(self, token: Token) -> Stream:
        username, password = encode_identity(token)
        mechanism = DigestClient(
            username, password, cnonce=draw_secret(16).hex(), protections=self.security.settings.protections
        )
        return self._open(mechanism, framing.AUTH_DIGEST, f"the token of {token.username}", user=None)

    def by_kerberos(self, pattern: str) -> Stream:
        settings = self.security.settings
        server = self._principal(pattern)
        login = KerberosLogin(settings.principal, settings.keytab, settings.ccache)
        mechanism = GssClient(
            KerberosContext(login, server), make_lock=self.runtime.lock, protections=settings.protections
        )
        return self._open(mechanism, framing.AUTH_KERBEROS, f"a ticket for {server}", user=settings.do_as)

    def _principal(self, pattern: str) -> ServerPrincipal:
        host = canonical_host(self.host, self.port) if self.security.settings.resolves_names else self.host
        return make_server_principal(pattern, host)

    def _open(self, mechanism: Mechanism, auth: int, identity: str, *, user: str | None) -> Stream:
        address = f"{self.host}:{self.port}"
        stream = self.dial(self.host, self.port, self.now, self.deadline)
        try:
            preamble = framing.preamble(auth)
            try:
                agreed = negotiate(stream, mechanism, preamble=preamble, now=self.now, deadline=self.deadline)
            except ServerUnreachable as error:
                raise ServerUnreachable(f"{address} with {identity}: {error}") from error
            except ProtocolError as error:
                raise ProtocolError(f"{address} does not speak HBase's RPC: {error}") from error
            if agreed is Negotiated.SIMPLE:
                return self._open_simple(stream, address)
            made = SaslStream(
                stream,
                mechanism.layer,
                self.now,
                explain=partial(explain_sasl_refusal, address=address, service=self.service, identity=identity),
                reply_bytes_max=self.security.reply_bytes_max,
            )
            made.write(framing.connection_header(self.service, user), self.deadline)
            return made
        except SaslRefused as error:
            stream.close()
            raise explain_sasl_refusal(error, address=address, service=self.service, identity=identity) from error
        except OSError as error:
            stream.close()
            raise ServerUnreachable(f"{address}: the connection ended during authentication: {error}") from error
        except BaseException:
            stream.close()
            raise

    def _open_simple(self, stream: Stream, address: str) -> Stream:
        """Continue without authentication on a server that is not secure, if the settings allow that."""
        if not self.security.settings.is_fallback_allowed:
            raise AuthenticationFailed(
                f"{address} is not secure, and the connection would fall back to simple authentication: set "
                "hbase.security.authentication=simple for this cluster, or "
                "hbase.ipc.client.fallback-to-simple-auth-allowed=true to allow it"
            )
        stream.write(framing.connection_header(self.service, self.security.user), self.deadline)
        return stream


def encode_identity(token: Token) -> tuple[str, str]:
    """Return user name and password of DIGEST-MD5 for a token: base64, as HBase's SaslUtil of 2.6 encodes them."""
    return b64encode(token.identifier).decode(), b64encode(token.password).decode()


def _login() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return "metaclient"
