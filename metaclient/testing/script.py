"""The script of a scripted backend: recorded calls, and rules that delay, fail or answer calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from metaclient.model import ServerName

__all__ = ["Call", "Rule"]


@dataclass(frozen=True, slots=True)
class Call:
    """One recorded call."""

    method: str
    at_s: float
    replica_id: int | None
    server: ServerName | None
    table: bytes | None
    argument: object


class Rule:
    """The reaction of the backend to matching calls; made by :meth:`ScriptedBackend.on`."""

    def __init__(
        self,
        method: str,
        replica: int | None,
        server: ServerName | None,
        table: bytes | None,
        times: int | None,
        when: Callable[[Call], bool] | None,
    ) -> None:
        self._method = method
        self._replica = replica
        self._server = server
        self._table = table
        self._when = when
        self.times = times
        self.used = 0
        self._delay_s = 0.0
        self._hangs = False
        self._error: BaseException | Callable[[], BaseException] | None = None
        self._value: object = None
        self._has_value = False

    def raises(self, error: BaseException | Callable[[], BaseException]) -> Rule:
        """Raise this error, or the error that this function returns."""
        self._error = error
        return self

    def hangs(self) -> Rule:
        """Do not respond before the deadline; on a backend that does not honour deadlines, do not respond at all."""
        self._hangs = True
        return self

    def delays(self, seconds: float) -> Rule:
        """Wait that long, then apply the rest of the rule, or return the true result."""
        self._delay_s = seconds
        return self

    def answers(self, value: object) -> Rule:
        """Return this value, or the result of this function for the argument of the call."""
        self._value = value
        self._has_value = True
        return self

    def fits(self, call: Call) -> bool:
        """Return True if the rule applies to the call and is not used up."""
        return (
            self._method in (call.method, "*")
            and (self.times is None or self.used < self.times)
            and (self._replica is None or self._replica == call.replica_id)
            and (self._server is None or self._server == call.server)
            and (self._table is None or self._table == call.table)
            and (self._when is None or self._when(call))
        )

    def answer(self, argument: object) -> Any:
        """Return the scripted value, or the result of the scripted function for the argument of the call."""
        return self._value(argument) if callable(self._value) else self._value
