"""The receiver of a small stream, in the driver's Python process of the query."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import metaclient
from metaclient.changes import Subscriptions
from metaclient.changes.receiver import open_receiver

if TYPE_CHECKING:
    from spark_connector.settings.options import Options

__all__ = ["DriverReceiver"]

#: The folder of the driver in its spool: a query that is started again on another machine goes on there.
_WORKER = "driver"
#: How long the end of the receiver may take: one fsync.
_END_S = 30.0


class DriverReceiver:
    """Receives the changes of one table into a folder until :meth:`close`. The subscription stays."""

    def __init__(self, options: Options, name: str, table: bytes, folder: Path) -> None:
        """Make the subscription if there is none, and start to receive."""
        options = options.resolved()
        self._connection = metaclient.connect(options.connection_url, config=dict(options.properties))
        try:
            is_known = any(info.name == name for info in Subscriptions(self._connection).list())
            self._receiver = open_receiver(
                self._connection,
                folder,
                name=name,
                worker=_WORKER,
                tables=() if is_known else (table,),
                spool_bytes_max=max(1, int(options.stream_spool_mb * (1 << 20))),
                options={
                    "host": options.stream_host,
                    "port": options.stream_port,
                    "allow_insecure": options.stream_allow_insecure,
                },
            )
            self._task = self._connection.engine.runtime.start_daemon(self._receiver.run, name="receive")
        except BaseException:
            self._connection.close()
            raise

    def check(self) -> None:
        """Raise the error that has ended the receiver, if any."""
        if self._task.is_done:
            self._task.result()

    def close(self) -> None:
        runtime = self._connection.engine.runtime
        try:
            self._receiver.close()
            runtime.wait_first((self._task,), runtime.now() + _END_S)
        finally:
            self._connection.close()
