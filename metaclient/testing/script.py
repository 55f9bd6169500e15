"""The script of a scripted backend: recorded calls, and rules that decide what becomes of a call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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
    """What happens to calls that fit; made by :meth:`ScriptedBackend.on`."""

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
        self._error = error
        return self

    def hangs(self) -> Rule:
        """Silent until the deadline; for ever on a backend that does not honour deadlines."""
        self._hangs = True
        return self

    def delays(self, seconds: float) -> Rule:
        """Takes that long, then goes on as the rest of the rule says, or truthfully."""
        self._delay_s = seconds
        return self

    def answers(self, value: object) -> Rule:
        """Answers this value, or what the function makes of the call."""
        self._value = value
        self._has_value = True
        return self

    def fits(self, call: Call) -> bool:
        return (
            self._method in (call.method, "*")
            and (self.times is None or self.used < self.times)
            and (self._replica is None or self._replica == call.replica_id)
            and (self._server is None or self._server == call.server)
            and (self._table is None or self._table == call.table)
            and (self._when is None or self._when(call))
        )
