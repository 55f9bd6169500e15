"""Kerberos by the package `gssapi` (MIT's library): credentials, security contexts, and errors in one line each.

The package is imported when the first Kerberos connection is made. Credentials are acquired for each connection: a
ticket from a keytab that has expired is replaced then, and a `kinit` of the user is noticed. A ticket from a keytab is
kept in memory, and the ticket cache of the user stays untouched.

Waits for a Kerberos server (KDC) happen inside of the library and have its time limits (krb5.conf), so these functions
are called in the task of a connection, never in the thread of a caller.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

from metaclient.errors import AuthenticationFailed, ConfigError, ExtraMissing, KdcUnreachable, MetaClientError
from metaclient.protobuf import ProtocolError

__all__ = ["KerberosContext", "KerberosLogin", "ServerPrincipal", "load_gssapi", "make_server_principal"]

#: MIT's error codes start here (krb5_err.et); an error of a context has such a code as its minor status.
_BASE: Final = 2529638912
_CLIENT_UNKNOWN, _SERVER_UNKNOWN, _PREAUTH_FAILED, _TICKET_EXPIRED, _SKEW = 6, 7, 24, 32, 37
_KDC_UNREACHABLE, _REALM_UNRESOLVED, _REALM_UNKNOWN = 156, 44 + 104, 230
_SPNEGO: Final = "1.3.6.1.5.5.2"
_PARTS = re.compile(r"([^/@]+)/([^/@]+)(?:@([^/@]+))?")
_MINOR = re.compile(r"Minor \(\d+\): (.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ServerPrincipal:
    """The Kerberos name of a server, with its realm if that is known."""

    service: str
    host: str
    realm: str | None = None

    def __str__(self) -> str:
        return f"{self.service}/{self.host}" + (f"@{self.realm}" if self.realm else "")


def make_server_principal(pattern: str, host: str) -> ServerPrincipal:
    """Return the principal for a host: ``_HOST`` is replaced, in lower case. ConfigError if the pattern has no host.

    >>> str(make_server_principal("hbase/_HOST@EXAMPLE.COM", "Node1.Example"))
    'hbase/node1.example@EXAMPLE.COM'
    """
    found = _PARTS.fullmatch(pattern)
    if found is None:
        raise ConfigError(
            f"{pattern[:100]!r} is not the Kerberos principal of a server: write SERVICE/_HOST@REALM, such as "
            "hbase/_HOST@EXAMPLE.COM"
        )
    service, name, realm = found.groups()
    return ServerPrincipal(service, host.lower() if name == "_HOST" else name, realm)


def load_gssapi() -> ModuleType:
    """Return the package `gssapi`; ExtraMissing with the commands that install it."""
    try:
        import gssapi
    except ImportError as error:
        raise ExtraMissing(
            "Kerberos needs the package gssapi: apt-get install gcc python3-dev libkrb5-dev (dnf: gcc python3-devel "
            "krb5-devel), then pip install 'hbase-metaclient[kerberos]'; a delegation token needs neither"
        ) from error
    return gssapi  # type: ignore[no-any-return, unused-ignore]  # the package may not be installed where types are checked


@dataclass(frozen=True, slots=True)
class KerberosLogin:
    """Where the client's tickets come from: a keytab, a ticket cache, or the cache of the process."""

    principal: str | None = None
    keytab: str | None = None
    ccache: str | None = None

    def acquire(self, *, is_spnego: bool = False) -> Any:
        """Return credentials of `gssapi`, also for SPNEGO; AuthenticationFailed or KdcUnreachable if there are none."""
        gssapi = load_gssapi()
        name = None
        if self.principal is not None:
            name = gssapi.Name(self.principal, gssapi.NameType.kerberos_principal)
        store: dict[str, str] = {}
        if self.keytab is not None:
            store = {"client_keytab": self.keytab, "ccache": self._name_cache(self.keytab)}
        elif self.ccache is not None:
            store = {"ccache": self.ccache}
        mechs = [gssapi.MechType.kerberos, *([gssapi.OID.from_int_seq(_SPNEGO)] if is_spnego else [])]
        try:
            made = gssapi.Credentials(name=name, usage="initiate", mechs=mechs, **({"store": store} if store else {}))
            if made.lifetime <= 0:  # looks the ticket up: credentials of a cache are not checked before
                raise gssapi.exceptions.ExpiredCredentialsError(0xB0000, 0)
        except gssapi.exceptions.GSSError as error:
            raise self.explain(error) from error
        return made

    def _name_cache(self, path: str) -> str:
        """Return the cache in memory for the tickets of a keytab: another file, or another content, has another cache.

        Raise if the file cannot be read: the library would look for a ticket cache and report that.
        """
        try:
            with open(path, "rb") as file:
                magic = file.read(2)
                status = os.fstat(file.fileno())
        except OSError as error:
            raise AuthenticationFailed(
                f"the keytab {path} cannot be read: {error.strerror}; check the path and its permissions"
            ) from error
        if magic[:1] != b"\x05":
            raise AuthenticationFailed(f"{path} is not a keytab: it begins with {magic.hex()}")
        return f"MEMORY:metaclient-{self.principal}-{status.st_dev}-{status.st_ino}-{status.st_mtime_ns}"

    def explain(self, error: Exception, server: ServerPrincipal | None = None) -> MetaClientError:
        """Return the error of this tree for an error of `gssapi`: what failed, and what to do."""
        gssapi = load_gssapi()
        code = (getattr(error, "min_code", 0) & 0xFFFFFFFF) - _BASE
        found = _MINOR.search(str(error))
        reason = " ".join((found[1] if found else str(error)).replace("\0", " ").split())[:300]
        if code in (_KDC_UNREACHABLE, _REALM_UNRESOLVED):
            return KdcUnreachable(f"no Kerberos server (KDC) answers: {reason}; check krb5.conf and the network")
        if code == _SERVER_UNKNOWN:
            return AuthenticationFailed(
                f"the Kerberos server does not know the principal {server}: {reason}; check "
                "hbase.master.kerberos.principal, hbase.regionserver.kerberos.principal and the names of the hosts"
            )
        if code == _SKEW:
            return AuthenticationFailed(f"{reason}: set the clock of this machine")
        if self.keytab is not None:
            return AuthenticationFailed(
                f"the keytab {self.keytab} gives no ticket for {self.principal}: {reason}; `klist -k {self.keytab}` "
                "shows the principals that it has"
            )
        cache = f" -c {self.ccache}" if self.ccache else ""
        if code == _TICKET_EXPIRED or isinstance(error, gssapi.exceptions.ExpiredCredentialsError):
            return AuthenticationFailed(f"the Kerberos ticket has expired: run `kinit{cache}`, or give keytab=")
        if isinstance(error, gssapi.exceptions.MissingCredentialsError):
            return AuthenticationFailed(
                f"there is no Kerberos ticket: {reason}; run `kinit{cache}`, or give keytab= and principal="
            )
        where = f" for {server}" if server else ""
        return AuthenticationFailed(f"Kerberos failed{where}: {reason}")


class KerberosContext:
    """A security context of `gssapi` for one connection to one server."""

    def __init__(self, login: KerberosLogin, server: ServerPrincipal, *, is_spnego: bool = False) -> None:
        """``is_spnego``: the tokens are those of HTTP's "Negotiate" (RFC 4559)."""
        gssapi = load_gssapi()
        self._errors = gssapi.exceptions
        # The methods of the context do the same, and take 10 us more per call: they look for an error of `step`, which
        # was raised by then.
        self._wrap, self._unwrap = gssapi.raw.wrap, gssapi.raw.unwrap
        self._login = login
        self.server = server
        if server.realm is None:
            name = gssapi.Name(f"{server.service}@{server.host}", gssapi.NameType.hostbased_service)
        else:  # the whole name, so that the library does not look the host up by itself
            name = gssapi.Name(str(server), gssapi.NameType.kerberos_principal)
        flag = gssapi.RequirementFlag
        self._context = gssapi.SecurityContext(
            name=name,
            creds=login.acquire(is_spnego=is_spnego),
            usage="initiate",
            mech=gssapi.OID.from_int_seq(_SPNEGO) if is_spnego else gssapi.MechType.kerberos,
            flags=[
                flag.mutual_authentication,
                flag.integrity,
                flag.confidentiality,
                flag.replay_detection,
                flag.out_of_sequence_detection,
            ],
        )

    @property
    def is_complete(self) -> bool:
        return bool(self._context.complete)

    def step(self, token: bytes | None) -> bytes:
        try:
            return self._context.step(token) or b""
        except self._errors.GSSError as error:
            raise self._login.explain(error, self.server) from error

    def wrap(self, data: bytes, *, encrypts: bool) -> bytes:
        try:
            made: bytes = self._wrap(self._context, data, encrypts).message
        except self._errors.GSSError as error:  # the key has expired: the connection ends, and a new one logs in
            raise ConnectionResetError(f"Kerberos cannot protect more data: {error}") from error
        return made

    def unwrap(self, data: bytes) -> bytes:
        try:
            plain: bytes = self._unwrap(self._context, data).message
        except self._errors.GSSError as error:
            raise ProtocolError(f"wrapped data was changed, repeated or cut on its way: {error}") from error
        return plain
