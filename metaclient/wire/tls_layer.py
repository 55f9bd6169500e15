"""TLS over any `Stream`, for connections that one thread reads while another one writes.

OpenSSL forbids reads and writes of one TLS object at the same time. So the object works on buffers in memory
(``ssl.MemoryBIO``) under a lock, and the bytes are moved outside of it: a reader that waits for the network does not
delay a writer.

:mod:`metaclient.wire.tls` has the `Dial` of Thrift, whose connections have one user at a time.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import AbstractContextManager

from metaclient.config.security import TlsSettings
from metaclient.errors import AuthenticationFailed, ConfigError, MetaClientError, ServerUnreachable
from metaclient.wire.stream import Dial, Stream
from metaclient.wire.trust_store import read_certificates

__all__ = ["TlsLayerStream", "explain_tls_error", "make_context", "tls_layer_dial"]

READ_BYTES = 64 * 1024
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
#: Reasons of OpenSSL for a peer that speaks no TLS.
_NO_TLS = ("WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE")
MakeLock = Callable[[], AbstractContextManager[object]]


def make_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return a context with the files of the settings; ConfigError if one of them cannot be used."""
    context = ssl.create_default_context() if settings.ca is None else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = _VERSIONS[settings.version_min]
    context.maximum_version = _VERSIONS[settings.version_max]
    if settings.ca is not None:
        certificates = read_certificates(settings.ca, kind=settings.ca_type, password=settings.ca_password)
        try:
            context.load_verify_locations(cadata=certificates)
        except ssl.SSLError as error:
            raise ConfigError(f"ca {settings.ca}: no certificate can be read from it: {error.reason}") from error
    if settings.cert is not None:
        try:
            context.load_cert_chain(settings.cert, settings.key, password=_refuse_password)
        except OSError as error:  # ssl.SSLError is one
            why = getattr(error, "reason", None) or error.strerror or str(error)
            files = f"cert {settings.cert}" + (f" and key {settings.key}" if settings.key else "")
            raise ConfigError(
                f"{files}: cannot be used: {why}; PEM files with the certificate, its chain and its key are needed, "
                "without a password"
            ) from error
    context.check_hostname = settings.verifies and settings.verifies_hostname
    context.verify_mode = ssl.CERT_REQUIRED if settings.verifies else ssl.CERT_NONE
    return context


def _refuse_password() -> str:
    return ""  # without it, OpenSSL would ask on the terminal


def tls_layer_dial(settings: TlsSettings, below: Dial, make_lock: MakeLock) -> Dial:
    """Return a `Dial` that makes TLS on the streams of ``below``."""

    def dial(host: str, port: int, now: Callable[[], float], deadline: float) -> TlsLayerStream:
        context = make_context(settings)
        stream = below(host, port, now, deadline)
        try:
            made = TlsLayerStream(stream, context, host, make_lock, address=f"{host}:{port}")
            made.handshake(now, min(deadline, now() + settings.handshake_s))
            return made
        except ssl.SSLError as error:
            stream.close()
            raise explain_tls_error(error, f"{host}:{port}") from error
        except OSError as error:
            stream.close()
            raise ServerUnreachable(f"{host}:{port} did not complete the TLS handshake: {error}") from error
        except BaseException:
            stream.close()
            raise

    return dial


def explain_tls_error(error: ssl.SSLError, address: str) -> MetaClientError:
    """Return the error of this tree for an error of OpenSSL."""
    reason = error.reason or str(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        return AuthenticationFailed(
            f"{address}: the server's certificate is not accepted: {error.verify_message or reason}; give ca= (or "
            "hbase.rpc.tls.truststore.location) the certificate of its authority, and name the server as its "
            "certificate does"
        )
    if "CERTIFICATE" in reason or reason in ("SSLV3_ALERT_HANDSHAKE_FAILURE", "TLSV1_ALERT_UNKNOWN_CA"):
        return AuthenticationFailed(
            f"{address}: the server does not accept the client's certificate ({reason}): give cert= and key=, signed "
            "by an authority that the server trusts and made for this host (hbase.server.netty.tls.client.auth.mode, "
            "hbase.server.netty.tls.verify.client.hostname)"
        )
    if reason in _NO_TLS:
        return AuthenticationFailed(
            f"{address} does not speak TLS: set hbase.client.netty.tls.enabled=false, or enable "
            "hbase.server.netty.tls.enabled on the server"
        )
    return ServerUnreachable(f"{address}: TLS failed: {reason}")


class TlsLayerStream:
    """A `Stream` with TLS over a `Stream`. See the module's docstring."""

    def __init__(
        self, stream: Stream, context: ssl.SSLContext, host: str | None, make_lock: MakeLock, *, address: str = ""
    ) -> None:
        """``host`` is the name that the server's certificate must have; None on the server's side."""
        self._stream = stream
        self._address = address or host or ""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host, server_side=host is None)
        self._lock = make_lock()  # guards the TLS object and both buffers
        self._sending = make_lock()  # held while bytes are sent: records keep their order
        # Used by the reading thread only:
        self._plain = b""  # read by `is_silent`, and not returned yet
        self._may_hold = True  # received bytes may not be decrypted yet: the handshake may have left some
        self._failure: ssl.SSLError | None = None  # of OpenSSL, after bytes that were returned
        self._has_ended = False

    @property
    def version(self) -> str | None:
        return self._tls.version()

    def handshake(self, now: Callable[[], float], deadline: float) -> None:
        """Make the handshake; OSError (ssl.SSLError is one)."""
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._send_pending(deadline)
                data = self._stream.read(READ_BYTES, deadline)
                if data is None:
                    if now() >= deadline:
                        raise TimeoutError("no answer in time") from None
                elif data:
                    self._incoming.write(data)
                else:
                    raise ConnectionResetError("the server closed the connection") from None
            except ssl.SSLError:
                self._send_alert(deadline)
                raise
        self._send_pending(deadline)

    def _send_alert(self, deadline: float) -> None:
        """Tell the peer why the handshake ends; the peer may be gone."""
        try:
            self._send_pending(deadline)
        except OSError:
            self._has_ended = True

    def _send_pending(self, deadline: float) -> None:
        with self._sending:
            with self._lock:
                data = self._outgoing.read()
            if data:
                self._stream.write(data, deadline)

    def read(self, size_max: int, deadline: float) -> bytes | None:
        if self._plain:
            data, self._plain = self._plain[:size_max], self._plain[size_max:]
            return data
        while True:
            received: bytes | None = None
            if not self._may_hold:
                received = self._stream.read(READ_BYTES, deadline)
                if received is None:
                    return None
            plain = self._decrypt(received, size_max, deadline)
            if plain is not None:
                return plain

    def _take(self, data: bytes) -> None:
        """Hand received bytes, or b"" at the end, to OpenSSL; the caller holds the lock."""
        self._may_hold = True
        if data:
            self._incoming.write(data)
        else:
            self._has_ended = True
            self._incoming.write_eof()

    def _decrypt(self, received: bytes | None, size_max: int, deadline: float) -> bytes | None:
        """Return the bytes of all records that have arrived, b"" at the end, None if more must arrive.

        An error after such bytes is raised by the next call.
        """
        parts: list[bytes] = []
        with self._lock:
            if received is not None:
                self._take(received)
            failure, self._failure = self._failure, None
            if failure is None:
                failure = self._decrypt_records(parts, size_max)
            is_asked = bool(self._outgoing.pending)
        if is_asked and failure is None:  # TLS 1.3 answers a request for new keys
            self._send_pending(deadline)
        if parts:
            self._failure = failure
            return parts[0] if len(parts) == 1 else b"".join(parts)
        if failure is None:
            return None
        if self._has_ended or isinstance(failure, ssl.SSLZeroReturnError | ssl.SSLEOFError):
            return b""
        made = explain_tls_error(failure, self._address)
        if isinstance(made, AuthenticationFailed):
            raise made from failure
        raise failure

    def _decrypt_records(self, parts: list[bytes], size_max: int) -> ssl.SSLError | None:
        """Append the data of whole records, at most ``size_max`` bytes; return the error that ends the stream.

        OpenSSL returns one record of at most 16 KB per call. Without the check of `pending`, each read would end with
        an exception.
        """
        read, left = self._tls.read, size_max
        try:
            while left:
                part = read(left)
                if not part:
                    return ssl.SSLZeroReturnError("the peer has closed the stream")
                parts.append(part)
                left -= len(part)
                if left and not self._incoming.pending:  # the whole record was returned, and no other has begun
                    self._may_hold = self._has_ended
                    return None
        except ssl.SSLWantReadError:
            self._may_hold = False
        except ssl.SSLError as error:
            return error
        return None

    def write(self, data: bytes, deadline: float) -> None:
        with self._sending:
            with self._lock:
                at = self._tls.write(data)
                while at < len(data):
                    at += self._tls.write(memoryview(data)[at:])
                encrypted = self._outgoing.read()
            self._stream.write(encrypted, deadline)

    def is_silent(self) -> bool:
        """See `Stream`. Session tickets of TLS 1.3 are no data, so waiting bytes are decrypted first."""
        if self._plain or self._has_ended:
            return False
        while not self._stream.is_silent():
            data = self._stream.read(READ_BYTES, float("inf"))  # does not wait: there are bytes, or the end
            with self._lock:
                self._take(data or b"")
            if not data:
                return False
        try:
            with self._lock:
                self._plain = self._tls.read(READ_BYTES)
        except ssl.SSLWantReadError:
            return True
        except ssl.SSLError:
            self._has_ended = True
        return False

    def close(self) -> None:
        self._stream.close()

    def leave_to_parent(self) -> None:
        self._stream.leave_to_parent()
