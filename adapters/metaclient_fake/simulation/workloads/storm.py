"""A client whose tasks all come at once: warm-ups, lookups of one row, and locations that are shipped to another.

What a storm costs hbase:meta is checked in the calm at the end (:mod:`metaclient_fake.simulation.calm`); here it only
has to work.
"""

from __future__ import annotations

from collections.abc import Callable

from metaclient.errors import MetaClientError
from metaclient_fake.simulation.workloads.base import Workload

__all__ = ["Storm"]

TABLE = "t"
_TASKS = 6
#: Each n-th step is a storm; other steps are one lookup.
_STORM_EVERY = 6


class Storm(Workload):
    """Mostly single lookups; sometimes many tasks at the same instant."""

    kind = "storm"

    def step(self) -> None:
        self.count += 1
        row = self.dice.choice(self.world.registers)
        if self.count % _STORM_EVERY:
            self._one("locate", lambda: self.connection.locate(TABLE, row))
            return
        turn = self.dice.randrange(3)
        if turn == 0:
            self._many(lambda: self.connection.warm_up(TABLE))
        elif turn == 1:
            self._many(lambda: self.connection.locate(TABLE, row, reload=True))
        else:
            self._one("import", lambda: self.connection.import_locations(self.connection.export_locations(TABLE)))

    def _one(self, kind: str, call: Callable[[], object]) -> None:
        self.tried(self.begin(kind, TABLE), call)

    def _many(self, call: Callable[[], object]) -> None:
        operation = self.begin("storm", TABLE)
        runtime = self.world.runtime
        tasks = [runtime.start(call, name="storm") for _ in range(_TASKS)]
        first: MetaClientError | None = None
        for task in tasks:
            try:
                task.result()
            except MetaClientError as error:
                first = first or error
        self.ended([operation], first)
