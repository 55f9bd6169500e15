"""Stores the master's procedures for RPC clients, which get a number at once and request the result later."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from metaclient.errors import MetaClientError
from metaclient.runtime import Runtime, Task
from metaclient.wire.rpc.admin_messages import PROCEDURE_FINISHED, PROCEDURE_NOT_FOUND, PROCEDURE_RUNNING
from metaclient_fake.front.rpc.addresses import Addresses
from metaclient_fake.front.rpc.errors import thrown

__all__ = ["Procedures"]

#: Maximum number of results that are kept; HBase keeps them for 15 minutes.
_REMEMBERED = 1000


class Procedures:
    """The started procedures, newest last."""

    def __init__(self, runtime: Runtime, addresses: Addresses) -> None:
        self._runtime = runtime
        self._addresses = addresses
        self._lock = runtime.lock()
        self._last = 0
        self._tasks: OrderedDict[int, Task[object]] = OrderedDict()

    def start(self, procedure: Callable[[], object]) -> int:
        task = self._runtime.start(procedure, name="procedure")
        with self._lock:
            self._last += 1
            self._tasks[self._last] = task
            if len(self._tasks) > _REMEMBERED:
                self._tasks.popitem(last=False)
            return self._last

    def result(self, number: int) -> dict[str, Any]:
        """Return the fields of a GetProcedureResultResponse."""
        with self._lock:
            task = self._tasks.get(number)
        if task is None:
            return {"state": PROCEDURE_NOT_FOUND}
        now = self._runtime.time_ms()
        if not task.is_done:
            return {"state": PROCEDURE_RUNNING, "submitted_time": now, "last_update": now}
        answer: dict[str, Any] = {"state": PROCEDURE_FINISHED, "submitted_time": now, "last_update": now}
        error = task.error()
        if isinstance(error, MetaClientError):
            what = thrown(error, self._addresses)
            answer["exception"] = {
                "source": "procedure",
                "generic_exception": {"class_name": what.java_class, "message": what.text},
            }
        elif error is not None:
            raise error
        return answer
