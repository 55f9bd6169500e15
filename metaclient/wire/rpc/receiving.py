"""Receives the log entries that the region servers of a cluster ship to this process (``ReplicateWALEntry``).

A :class:`Delivery` is one call. It is handed to a :class:`Receiver`, which answers it when its entries are safe: a
consumer of changes when they are committed, a spool when they are written to disk. The region server keeps its log
until then, and sends the entries again if the call is not answered or its connection breaks.

1. Before a call is read from the socket, its size is reserved at the receiver. ``reserve`` blocks while the receiver
   holds too many bytes; TCP then holds the region server. This is the back pressure.
2. A complete call is handed over with ``receive``, which returns at once. Its bytes stay reserved until the receiver
   answers the call or forgets it, and then gives them back itself.
3. ``Delivery.answer`` sends the empty response. It may be called by any thread, and does nothing the second time.

There is no response with an error: HBase would send the same entries again, for ever.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from typing import Protocol

from metaclient.protobuf import ProtocolError
from metaclient.runtime import Runtime
from metaclient.wire.listener import CONNECTIONS_MAX, Client, Listener, hang_up
from metaclient.wire.rpc import framing
from metaclient.wire.rpc.greeting import receive_exactly, receive_greeting
from metaclient.wire.rpc.replication import REPLICATE_WAL_ENTRY
from metaclient.wire.tls_server import serve_tls

__all__ = ["CALL_TIMEOUT_S", "Delivery", "DeliveryServer", "Receiver"]

logger = logging.getLogger(__name__)

#: hbase.rpc.timeout: how long a source waits for the answer if its call does not say it.
CALL_TIMEOUT_S = 60.0
ADMIN_SERVICE = "AdminService"
#: Longer than the two minutes after which a source closes a connection that it does not use.
_IDLE_TIMEOUT_S = 600.0
_UNSUPPORTED = "org.apache.hadoop.hbase.DoNotRetryIOException"


class Delivery:
    """One call of a source: the keys of log entries (``param``), their cells, and the way to answer it.

    ``size`` bytes are reserved for it. ``arrived`` and ``deadline`` are instants of ``runtime.now()``; after the
    deadline the source has given up the call, and sends its entries again.
    """

    __slots__ = ("_send", "arrived", "cells", "deadline", "is_answered", "is_late", "param", "size", "source")

    def __init__(
        self,
        param: bytes,
        cells: bytes,
        *,
        size: int,
        arrived: float,
        deadline: float,
        source: str,
        send: Callable[[], bool],
    ) -> None:
        """``send`` sends the response; it returns False if the source is gone."""
        self.param = param
        self.cells = cells
        self.size = size
        self.arrived = arrived
        self.deadline = deadline
        self.source = source
        self.is_answered = False
        self.is_late = False  # set by the receiver, once, when it has reported that the deadline has passed
        self._send = send

    def __repr__(self) -> str:
        state = "answered" if self.is_answered else "open"
        return f"<Delivery of {self.size} bytes from {self.source}, {state}>"

    def answer(self) -> bool:
        """Report success to the source; return False if the source is gone and will send the entries again."""
        if self.is_answered:
            return True
        self.is_answered = True
        return self._send()


class Receiver(Protocol):
    """Takes the calls of sources; all methods may be called by several threads at once."""

    def reserve(self, size: int) -> bool:
        """Wait until a call of ``size`` bytes may be read; return False if no more calls are taken.

        A call that is larger than the bound is let in when nothing else is held.
        """
        ...

    def release(self, size: int) -> None:
        """Give reserved bytes back, for a call that was not received completely."""
        ...

    def receive(self, delivery: Delivery) -> None:
        """Take over a call whose size was reserved; return at once."""
        ...


class DeliveryServer:
    """Listens for sources as a region server would, and hands their calls to a receiver."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        runtime: Runtime,
        receiver: Receiver,
        cluster_id: str,
        connections_max: int = CONNECTIONS_MAX,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """With ``tls``, sources connect by TLS (``hbase.client.netty.tls.enabled`` on the region servers)."""
        self._runtime = runtime
        self._receiver = receiver
        self._cluster_id = cluster_id
        self._listener = Listener(
            host,
            port,
            runtime=runtime,
            name="changes",
            serve=self.serve if tls is None else serve_tls(self.serve, tls, runtime.lock, runtime.now),
            connections_max=connections_max,
            idle_timeout_s=_IDLE_TIMEOUT_S,
        )

    @property
    def host(self) -> str:
        return str(self._listener.host)

    @property
    def port(self) -> int:
        return int(self._listener.port)

    def stats(self) -> dict[str, int]:
        """Return the number of connected sources, and of all that were accepted so far."""
        return self._listener.stats()

    def close(self) -> None:
        """Stop listening and close all connections: calls without an answer are sent again. Idempotent."""
        self._listener.close()

    def serve(self, sock: Client) -> None:
        """Serve one connection until the source closes it."""
        greeting = receive_greeting(sock, self._cluster_id)
        if greeting is None or greeting.service != ADMIN_SERVICE:
            return
        connection = _SourceConnection(sock, self._runtime)
        while (length := receive_exactly(sock, 4)) is not None:
            size = int.from_bytes(length, "big")
            if size > framing.FRAME_BYTES_MAX or not self._take(connection, size):
                return

    def _take(self, connection: _SourceConnection, size: int) -> bool:
        """Receive one call; return False if the connection is to be closed."""
        arrived = self._runtime.now()
        receiver = self._receiver
        if not receiver.reserve(size):
            return False
        is_handed_over = False
        try:
            frame = receive_exactly(connection.sock, size)
            if frame is None:
                return False
            request = framing.parse_request(frame)
            if request.method != REPLICATE_WAL_ENTRY:
                connection.refuse(request.call_id, request.method)
                return True
            timeout_s = request.timeout_ms / 1000 if request.timeout_ms else CALL_TIMEOUT_S
            call_id = request.call_id
            delivery = Delivery(
                request.param,
                request.cells,
                size=size,
                arrived=arrived,
                deadline=arrived + timeout_s,
                source=connection.source,
                send=lambda: connection.answer(call_id),
            )
            is_handed_over = True
            receiver.receive(delivery)
        except ProtocolError as error:
            logger.warning("%s sent bytes that are no call of HBase's RPC: %s", connection.source, error)
            return False
        finally:
            if not is_handed_over:
                receiver.release(size)
        return True


class _SourceConnection:
    """The socket of one source. Answers come from several threads, one at a time (``_writing``)."""

    def __init__(self, sock: Client, runtime: Runtime) -> None:
        self.sock = sock
        self.source = _address(sock)
        self._writing = runtime.lock()

    def answer(self, call_id: int) -> bool:
        try:
            with self._writing:
                self.sock.sendall(framing.response(call_id, b""))
        except OSError as error:
            logger.debug("%s did not wait for the answer: %r", self.source, error)
            hang_up(self.sock)
            return False
        return True

    def refuse(self, call_id: int, method: str) -> None:
        text = f"{_UNSUPPORTED}: a receiver of changes has no method {method!r}"
        with self._writing:
            self.sock.sendall(framing.error_response(call_id, _UNSUPPORTED, text, do_not_retry=True))


def _address(sock: Client) -> str:
    try:
        host, port = sock.getpeername()[:2]
    except OSError:
        return "a source that hung up"
    return f"{host}:{port}"
