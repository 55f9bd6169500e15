"""Decides how a client proves its identity and protects its connections, from properties, options and environment.

HBase's names and defaults are those of 2.6 (``User``, ``SaslUtil``, ``X509Util``). Settings that contradict each other
are refused with both names.

Which identity is used, the first that is there:

1. the option ``token``;
2. the options ``keytab`` with ``principal``, or ``ccache``, or ``principal`` alone (in the process's ticket cache);
3. HBase's token in the file that the environment variable ``HADOOP_TOKEN_FILE_LOCATION`` names;
4. the process's ticket cache.

DIVERGENCES: Kerberos is also implied by ``token``, ``keytab``, ``ccache`` or ``principal`` if
``hbase.security.authentication`` is absent; TLS by ``ca``, ``cert`` or ``key`` if ``hbase.client.netty.tls.enabled`` is
absent. Private keys and the client's certificate are read from PEM files only.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from metaclient.config.tokens import Token, TokenFunction, read_token_file
from metaclient.errors import ConfigError

if TYPE_CHECKING:
    from metaclient.config.fields import Config

__all__ = ["PROPERTIES", "Protection", "SecuritySettings", "TlsSettings", "parse_protections"]

TOKEN_FILE: Final = "HADOOP_TOKEN_FILE_LOCATION"
AUTHENTICATION: Final = "hbase.security.authentication"
HADOOP_AUTHENTICATION: Final = "hadoop.security.authentication"
PROTECTION: Final = "hbase.rpc.protection"
FALLBACK: Final = "hbase.ipc.client.fallback-to-simple-auth-allowed"
MASTER_PRINCIPAL: Final = "hbase.master.kerberos.principal"
REGION_SERVER_PRINCIPAL: Final = "hbase.regionserver.kerberos.principal"
NO_REVERSE_DNS: Final = "hbase.unsafe.client.kerberos.hostname.disable.reversedns"
TLS: Final = "hbase.client.netty.tls.enabled"
TLS_HOSTNAME: Final = "hbase.client.netty.tls.verify.server.hostname"
TLS_HANDSHAKE: Final = "hbase.client.netty.tls.handshaketimeout"
TLS_PROTOCOL: Final = "hbase.rpc.tls.protocol"
TLS_PROTOCOLS: Final = "hbase.rpc.tls.enabledProtocols"
_STORE: Final = "hbase.rpc.tls.{}.{}"
TRUST_STORE: Final = _STORE.format("truststore", "location")
KEY_STORE: Final = _STORE.format("keystore", "location")
#: The properties of HBase and Hadoop that are read here.
PROPERTIES: Final = frozenset(
    {
        AUTHENTICATION,
        HADOOP_AUTHENTICATION,
        PROTECTION,
        FALLBACK,
        MASTER_PRINCIPAL,
        REGION_SERVER_PRINCIPAL,
        NO_REVERSE_DNS,
        TLS,
        TLS_HOSTNAME,
        TLS_HANDSHAKE,
        TLS_PROTOCOL,
        TLS_PROTOCOLS,
        *(
            _STORE.format(which, what)
            for which in ("keystore", "truststore")
            for what in ("location", "type", "password")
        ),
    }
)
_HANDSHAKE_MS: Final = 5000
_TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")


class Protection(enum.Enum):
    """The protection of data after the handshake; the values are those of ``hbase.rpc.protection``."""

    AUTHENTICATION = "authentication"  # the data is sent as it is
    INTEGRITY = "integrity"  # a changed, repeated or missing message is detected
    PRIVACY = "privacy"  # and the data is encrypted

    @property
    def qop(self) -> str:
        """The word of DIGEST-MD5 (RFC 2831)."""
        return _QOPS[self]

    @property
    def mask(self) -> int:
        """The bit of GSSAPI (RFC 4752)."""
        return _MASKS[self]


_QOPS = {Protection.AUTHENTICATION: "auth", Protection.INTEGRITY: "auth-int", Protection.PRIVACY: "auth-conf"}
_MASKS = {Protection.AUTHENTICATION: 1, Protection.INTEGRITY: 2, Protection.PRIVACY: 4}
#: HBase accepts the words of SASL, too (SaslUtil.getQop of 2.6).
_WORDS = {one.value: one for one in Protection} | {qop: one for one, qop in _QOPS.items()}


def parse_protections(text: str, source: str = PROTECTION) -> tuple[Protection, ...]:
    """Return the protections of a comma-separated list, in its order; ConfigError for another word.

    >>> [one.name for one in parse_protections("privacy, auth-int")]
    ['PRIVACY', 'INTEGRITY']
    """
    words = [word.strip().lower() for word in text.split(",") if word.strip()]
    known = ", ".join(one.value for one in Protection)
    for word in words:
        if word not in _WORDS:
            raise ConfigError(
                f"{source} = {text[:100]!r}: {word[:50]!r} is no protection; allowed: a comma-separated list of {known}"
            )
    if not words:
        raise ConfigError(f"{source} is empty; allowed: a comma-separated list of {known}")
    return tuple(dict.fromkeys(_WORDS[word] for word in words))


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """How TLS is made on a connection. Files are read for each connection, so that renewed ones are used."""

    ca: str | None = None
    ca_type: str = ""  # JKS, PEM, or "": by the name of the file
    ca_password: str | None = field(default=None, repr=False)
    cert: str | None = None
    key: str | None = None
    verifies: bool = True
    verifies_hostname: bool = True
    handshake_s: float = _HANDSHAKE_MS / 1000
    version_min: str = _TLS_VERSIONS[0]
    version_max: str = _TLS_VERSIONS[-1]


@dataclass(frozen=True, slots=True)
class SecuritySettings:
    """The identity and the protection of a client's connections; without arguments, HBase's simple authentication."""

    is_kerberos: bool = False
    protections: tuple[Protection, ...] = (Protection.AUTHENTICATION,)
    master_principal: str | None = None
    region_server_principal: str | None = None
    is_fallback_allowed: bool = False
    resolves_names: bool = True  # _HOST is the reverse name of the server's address, not its name as given
    principal: str | None = None
    keytab: str | None = None
    ccache: str | None = None
    do_as: str | None = None
    #: The tokens to choose from by the id of the cluster.
    tokens: tuple[Token, ...] = ()
    #: Returns a token, and a new one later; there are no ``tokens`` then.
    fetch_token: TokenFunction | None = None
    #: The file of ``tokens``, which may be replaced by another process.
    token_file: str | None = None
    tls: TlsSettings | None = None

    @classmethod
    def of(cls, config: Config, *, environment: Mapping[str, str] = os.environ) -> SecuritySettings:
        """Return the settings of a configuration; ConfigError if two of them contradict each other."""
        properties = config.properties
        tls = _tls_of(config)
        given = {name: getattr(config, name) for name in ("token", "keytab", "ccache", "principal")}
        identity = [name for name, value in given.items() if value is not None]
        protections = parse_protections(properties.get(PROTECTION, "authentication"))
        if not _is_kerberos(properties, identity):
            _refuse_for_simple(config, identity, protections)
            return cls(tls=tls)
        _refuse_contradictions(config)
        tokens: tuple[Token, ...] = ()
        fetch_token = config.token if isinstance(config.token, TokenFunction) else None
        token_file = None
        if isinstance(config.token, Token):
            tokens = (config.token,)
        elif not identity and environment.get(TOKEN_FILE):
            token_file = environment[TOKEN_FILE]
            tokens = read_token_file(token_file)
        if (tokens or fetch_token) and config.do_as is not None:
            raise ConfigError(
                f"do_as={config.do_as!r} needs Kerberos, and a token is used ({_token_source(config)}): a token stands "
                "for one user; fetch one with connection.delegation_token() of a connection that has do_as"
            )
        made = cls(
            is_kerberos=True,
            protections=protections,
            master_principal=_text(properties, MASTER_PRINCIPAL),
            region_server_principal=_text(properties, REGION_SERVER_PRINCIPAL),
            is_fallback_allowed=_flag(properties, FALLBACK, default=False),
            resolves_names=not _flag(properties, NO_REVERSE_DNS, default=False),
            principal=config.principal,
            keytab=config.keytab,
            ccache=config.ccache,
            do_as=config.do_as,
            tokens=tokens,
            fetch_token=fetch_token,
            token_file=token_file if tokens else None,
            tls=tls,
        )
        if not tokens and fetch_token is None:
            for service in ("ClientService", "MasterService"):
                made.principals_of(service)  # raises if it is missing
        return made

    def principals_of(self, service: str) -> tuple[str, ...]:
        """Return the principals that a server of this service may have; the client tries them in this order.

        The registry is served by masters and region servers alike.
        """
        named = {MASTER_PRINCIPAL: self.master_principal, REGION_SERVER_PRINCIPAL: self.region_server_principal}
        if service in _OF_MASTERS:
            wanted = [MASTER_PRINCIPAL]
        elif service in _OF_BOTH:
            wanted = [MASTER_PRINCIPAL, REGION_SERVER_PRINCIPAL]
        else:
            wanted = [REGION_SERVER_PRINCIPAL]
        found = list(dict.fromkeys(principal for key in wanted if (principal := named[key])))
        if not found:
            raise ConfigError(
                f"Kerberos needs {' or '.join(wanted)}, the name of the servers, such as hbase/_HOST@EXAMPLE.COM: it "
                "is in the cluster's hbase-site.xml, which config= takes"
            )
        return tuple(found)


_OF_MASTERS = frozenset({"MasterService", "HbckService", "LockService", "RegionServerStatusService"})
_OF_BOTH = frozenset({"ClientMetaService"})


def _is_kerberos(properties: Mapping[str, str], identity: list[str]) -> bool:
    """Return True if connections are authenticated by Kerberos, or by a token that Kerberos has issued."""
    word = (_text(properties, AUTHENTICATION) or "").lower()
    if word not in ("", "simple", "kerberos"):
        raise ConfigError(f"{AUTHENTICATION} = {word[:50]!r}: allowed are simple and kerberos")
    hadoop = (_text(properties, HADOOP_AUTHENTICATION) or "").lower()
    if word == "kerberos" and hadoop == "simple":
        raise ConfigError(
            f"{AUTHENTICATION}=kerberos contradicts {HADOOP_AUTHENTICATION}=simple (core-site.xml): set both alike"
        )
    if word == "simple" and identity:
        raise ConfigError(
            f"{identity[0]} contradicts {AUTHENTICATION}=simple: remove {identity[0]}, or set {AUTHENTICATION}=kerberos"
        )
    return word == "kerberos" or bool(identity)


def _refuse_for_simple(config: Config, identity: list[str], protections: tuple[Protection, ...]) -> None:
    if config.do_as is not None:
        raise ConfigError(
            f"do_as={config.do_as!r} needs {AUTHENTICATION}=kerberos: with simple authentication the url names the "
            "user, as in hbase://zk1?user=NAME"
        )
    if protections[0] is not Protection.AUTHENTICATION:
        raise ConfigError(
            f"{PROTECTION}={protections[0].value} contradicts {AUTHENTICATION}=simple, which protects nothing: set "
            f"{AUTHENTICATION}=kerberos, or encrypt with {TLS}=true"
        )


def _refuse_contradictions(config: Config) -> None:
    if config.token is not None:
        for name in ("keytab", "ccache", "principal"):
            if getattr(config, name) is not None:
                raise ConfigError(f"token contradicts {name}: both name an identity; give one of them")
    if config.keytab is not None and config.ccache is not None:
        raise ConfigError("keytab contradicts ccache: both name the source of the ticket; give one of them")
    if config.keytab is not None and config.principal is None:
        raise ConfigError(
            f"keytab={config.keytab!r} needs principal, the name whose key in the file is used: principal='me@REALM' "
            "(hbase.client.keytab.file needs hbase.client.keytab.principal)"
        )


def _token_source(config: Config) -> str:
    return "the option token" if config.token is not None else TOKEN_FILE


def _tls_of(config: Config) -> TlsSettings | None:
    properties = config.properties
    options = [name for name in ("ca", "cert", "key") if getattr(config, name) is not None]
    is_enabled = _flag(properties, TLS, default=bool(options) or not config.verify)
    if not is_enabled:
        if options or not config.verify:
            name = options[0] if options else "verify"
            raise ConfigError(f"{name} contradicts {TLS}=false: remove one of them")
        return None
    if config.key is not None and config.cert is None:
        raise ConfigError(f"key={config.key!r} needs cert, the certificate of that key")
    if config.ca is not None and not config.verify:
        raise ConfigError(f"ca={config.ca!r} contradicts verify=False, which accepts any certificate; give one of them")
    low, high = _tls_versions(properties)
    return TlsSettings(
        ca=config.ca or _text(properties, TRUST_STORE),
        ca_type="" if config.ca else _text(properties, _STORE.format("truststore", "type")) or "",
        ca_password=None if config.ca else _text(properties, _STORE.format("truststore", "password")),
        cert=config.cert or _pem_of(properties),
        key=config.key,
        verifies=config.verify,
        verifies_hostname=_flag(properties, TLS_HOSTNAME, default=True),
        handshake_s=_milliseconds(properties, TLS_HANDSHAKE, _HANDSHAKE_MS) / 1000,
        version_min=low,
        version_max=high,
    )


def _pem_of(properties: Mapping[str, str]) -> str | None:
    """Return HBase's key store if it is a PEM file; ConfigError with the commands that convert any other."""
    path = _text(properties, KEY_STORE)
    if path is None:
        return None
    kind = (_text(properties, _STORE.format("keystore", "type")) or os.path.splitext(path)[1].lstrip(".")).upper()
    if kind == "PEM":
        return path
    name = os.path.splitext(os.path.basename(path))[0]
    commands = f"openssl pkcs12 -in {path} -nodes -out {name}.pem"
    if kind not in ("PKCS12", "P12"):
        to_p12 = f"keytool -importkeystore -srckeystore {path} -destkeystore {name}.p12 -deststoretype PKCS12"
        commands = f"{to_p12} && openssl pkcs12 -in {name}.p12 -nodes -out {name}.pem"
    raise ConfigError(
        f"{KEY_STORE} = {path!r} is of the type {kind or 'unknown'}, and Python reads PEM: convert it with "
        f"`{commands}`, and give cert='{name}.pem'"
    )


def _tls_versions(properties: Mapping[str, str]) -> tuple[str, str]:
    """Return the lowest and the highest version of TLS; servers of 2.6 have 1.2 unless they are set otherwise."""
    text = _text(properties, TLS_PROTOCOLS) or _text(properties, TLS_PROTOCOL)
    if text is None:
        return _TLS_VERSIONS[0], _TLS_VERSIONS[-1]
    named = [version for version in _TLS_VERSIONS if version in [word.strip() for word in text.split(",")]]
    if not named:
        key = TLS_PROTOCOLS if _text(properties, TLS_PROTOCOLS) else TLS_PROTOCOL
        raise ConfigError(f"{key} = {text[:100]!r}: allowed are {' and '.join(_TLS_VERSIONS)}")
    return named[0], named[-1]


def _text(properties: Mapping[str, str], key: str) -> str | None:
    return properties.get(key, "").strip() or None


def _flag(properties: Mapping[str, str], key: str, *, default: bool) -> bool:
    text = properties.get(key)
    if text is None:
        return default
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise ConfigError(f"{key} must be true or false, got {word[:50]!r}")
    return word == "true"


def _milliseconds(properties: Mapping[str, str], key: str, default: int) -> int:
    text = properties.get(key, str(default)).strip()
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and int(text) > 0):
        raise ConfigError(f"{key} must be a number of milliseconds from 1 on, got {text[:50]!r}")
    return int(text)
