"""Readers that accept stale data up to a limit: TIMELINE gets, multi-gets and scans with ``max_staleness``.

Half of the seeds give some TIMELINE readers a limit; :func:`with_bounded_reads` gives one to all of them.
"""

from __future__ import annotations

from metaclient.errors import MetaClientError
from metaclient.model import Row
from metaclient_fake.simulation.history import Operation
from metaclient_fake.simulation.spec import LIMITED, Spec
from metaclient_fake.simulation.workloads.base import Workload
from metaclient_fake.simulation.workloads.registers import COLUMN, TABLE
from metaclient_fake.simulation.workloads.timeline import Timeline

__all__ = ["Bounded", "with_bounded_reads"]

#: Limits in seconds: below the usual lag, about it, and far above it.
LIMITS_S = (0.001, 0.02, 0.2, 1.0, 10.0)


class Bounded(Workload):
    """Reads registers at any replica that is fresh enough."""

    kind = "bounded"

    def step(self) -> None:
        turn, limit_s = self.dice.random(), self.dice.choice(LIMITS_S)
        if turn < 0.6:
            row = self.dice.choice(self.world.registers)
            operation = self.begin("bounded_get", TABLE, row)
            operation.max_staleness_s = limit_s
            call = self.table(TABLE).row
            self.read(operation, lambda: call(row, consistency="TIMELINE", max_staleness=limit_s), COLUMN)
        elif turn < 0.7:
            row = self.dice.choice(self.world.registers)  # without a limit: so that lags become known
            call = self.table(TABLE).row
            self.read(self.begin("timeline_get", TABLE, row), lambda: call(row, consistency="TIMELINE"), COLUMN)
        else:
            self._read_many(limit_s, is_scan=turn > 0.9)

    def _read_many(self, limit_s: float, *, is_scan: bool) -> None:
        rows = sorted(self.world.registers)
        start = self.dice.randrange(len(rows))
        rows = rows[start : start + 4]
        operations = self.begin_all("bounded_scan" if is_scan else "bounded_rows", TABLE, rows)
        for operation in operations.values():
            operation.max_staleness_s = limit_s
        try:
            found = self._found(rows, limit_s, is_scan=is_scan)
        except MetaClientError as error:
            self.ended(operations.values(), error)
            return
        self.ended(operations.values())
        for row, operation in operations.items():
            self._note(operation, found.get(row))

    def _found(self, rows: list[bytes], limit_s: float, *, is_scan: bool) -> dict[bytes, Row]:
        table = self.table(TABLE)
        if not is_scan:
            return dict(table.rows(rows, consistency="TIMELINE", max_staleness=limit_s))
        scan = table.scan(rows[0], rows[-1] + b"\x00", consistency="TIMELINE", max_staleness=limit_s, batch_size=2)
        return {key: row for key, row in scan if isinstance(row, Row)}

    def _note(self, operation: Operation, row: Row | None) -> None:
        if row is not None:
            self.saw(operation, row, COLUMN)
        else:
            operation.kind = "bounded_missing"  # the replica that answered is not known; it has the limit all the same


def with_bounded_reads(spec: Spec, kind: str = Bounded.kind) -> Spec:
    """Return the run of a seed in which every TIMELINE reader has a limit of staleness; it has a writer, too.

    ``kind`` is the workload of these readers: ``bounded``, or ``canary``.
    """
    names = [client.workload for client in spec.clients]
    wanted = {Timeline.kind, "storm", "cells", *LIMITED}
    names = [kind if name in wanted else name for name in names]
    if kind not in names:
        names[-1] = kind
    if "registers" not in names:
        names[0] = "registers"
    return spec.with_clients(tuple(client.with_limit(name) for client, name in zip(spec.clients, names, strict=True)))
