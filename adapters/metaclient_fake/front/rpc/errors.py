"""Translates metaclient's errors to HBase's exceptions on the wire: class, text, new location, retry flag."""

from __future__ import annotations

from dataclasses import dataclass

from metaclient.errors import CallQueueTooBig, Disposition, MetaClientError, RegionMoved, ScannerLost, Unsupported
from metaclient.protobuf import ProtocolError
from metaclient.wire.rpc.framing import error_response
from metaclient_fake.front.java_text import FRAME, IO_EXCEPTION, java_class_of
from metaclient_fake.front.rpc.addresses import Addresses

__all__ = ["DO_NOT_RETRY", "Thrown", "thrown"]

DO_NOT_RETRY = "org.apache.hadoop.hbase.DoNotRetryIOException"


@dataclass(frozen=True, slots=True)
class Thrown:
    """A Java exception of HBase."""

    java_class: str
    text: str
    do_not_retry: bool = False
    host: str | None = None
    port: int | None = None
    is_overloaded: bool = False

    @property
    def trace(self) -> str:
        return f"{self.java_class}: {self.text}\n{FRAME.format(where='Server')}"

    def frame(self, call_id: int) -> bytes:
        """Return the whole answer to a call."""
        return error_response(
            call_id,
            self.java_class,
            self.trace,
            do_not_retry=self.do_not_retry,
            hostname=self.host,
            port=self.port,
            is_overloaded=self.is_overloaded or None,
        )

    def pair(self) -> dict[str, object]:
        """Return the exception as part of a Multi response, which has no retry flag."""
        return {"name": self.java_class, "value": self.trace.encode()}


def thrown(error: MetaClientError, addresses: Addresses) -> Thrown:
    """Return HBase's exception. Scanner errors are "do not retry" in HBase, although a new scanner would work."""
    if isinstance(error, Unsupported | ProtocolError):
        return Thrown(DO_NOT_RETRY, f"java.lang.UnsupportedOperationException: {error}", do_not_retry=True)
    if isinstance(error, RegionMoved) and error.server is not None:
        at = addresses.outside(error.server) if error.server.host else error.server
        text = f"Region moved to: hostname={at.host} port={at.port} startCode={at.start_code}. "
        text += f"As of locationSeqNum={error.seqnum}."
        return Thrown(java_class_of(error), text, host=at.host, port=at.port)
    java = java_class_of(error)
    is_final = error.disposition is Disposition.FATAL and java != IO_EXCEPTION
    return Thrown(
        java,
        str(error),
        do_not_retry=is_final or isinstance(error, ScannerLost),
        is_overloaded=isinstance(error, CallQueueTooBig),
    )
