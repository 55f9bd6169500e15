"""Scans of the whole table or a part of it, forwards and backwards, in pages of few rows, some of them broken off.

Between the rows that clients write there are rows that never change: each completed scan of their range must
return each of them once. What a scan sees of a register is a read of it like any other: the row was as it was returned
at some moment between the call of the scan and the arrival of the row.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from metaclient.errors import MetaClientError
from metaclient.model import Row
from metaclient_fake.simulation.history import Operation
from metaclient_fake.simulation.observed import ObservedBackend
from metaclient_fake.simulation.workloads.base import Workload
from metaclient_fake.simulation.workloads.registers import COLUMN, TABLE

__all__ = ["Asked", "Scans", "asked_of"]


class Asked(NamedTuple):
    """The options of a scan; the range is [start, stop) forwards and (start, stop] backwards."""

    start: bytes | None
    stop: bytes | None
    is_reversed: bool
    limit: int | None


def asked_of(scan: Operation) -> Asked:
    assert isinstance(scan.argument, Asked), "scans note what they were asked for"
    return scan.argument


class Scans(Workload):
    """Scans, and notes the rows in the order in which they came."""

    kind = "scans"

    def made_backend(self) -> ObservedBackend:
        """Return a backend that, in every second seed, lets scans request pages ahead as from a remote cluster."""
        backend = super().made_backend()
        backend.capabilities = replace(backend.capabilities, is_remote=self.world.spec.seed % 2 == 1)
        return backend

    def step(self) -> None:
        is_reversed = self.dice.random() < 0.25
        consistency = "TIMELINE" if self.dice.random() < 0.4 else "STRONG"
        batch_size = self.dice.choice((1, 3, 7, 1000))
        start, stop = self._range()
        limit = 5 if self.dice.random() < 0.15 else None
        breaks_off = self.dice.random() < 0.15
        operation = self.begin("scan" if consistency == "STRONG" else "timeline_scan", TABLE)
        operation.argument = Asked(start, stop, is_reversed, limit)
        rows: list[tuple[bytes, float, Row]] = []
        call = self.table(TABLE).scan(
            row_start=stop if is_reversed else start,
            row_stop=start if is_reversed else stop,
            batch_size=batch_size,
            limit=limit,
            reverse=is_reversed,
            consistency=consistency,
        )
        try:
            for key, row in call:
                assert isinstance(row, Row), "nobody asked for sorted columns"
                rows.append((key, self.world.runtime.now(), row))
                if breaks_off and len(rows) >= 4:
                    call.close()  # type: ignore[attr-defined]  # a generator
                    break
            else:
                operation.expected = "complete"
        except MetaClientError as error:
            self.world.history.failed(operation, error)
        else:
            self.world.history.ok(operation)
        operation.value = tuple(key for key, _, _ in rows)
        self._note_registers(operation, rows)

    def _range(self) -> tuple[bytes | None, bytes | None]:
        """Return the whole range or a part of it; ends are existing rows, as region borders are."""
        if self.dice.random() < 0.2:
            return None, None
        statics = self.world.statics
        start = self.dice.randrange(len(statics))
        stop = min(start + self.dice.randrange(5), len(statics) - 1)
        return statics[start], statics[stop] + b"~"

    def _note_registers(self, scan: Operation, rows: list[tuple[bytes, float, Row]]) -> None:
        kind = "get" if scan.kind == "scan" else "timeline_get"
        seen = set()
        for key, at, row in rows:
            seen.add(key)
            if key in self.world.register_set:
                operation = self._derived(scan, kind, key, at)
                self.saw(operation, row, COLUMN)
        if scan.kind == "scan":
            for key in self._passed(scan, [key for key, _, _ in rows]):
                if key not in seen:
                    self._derived(scan, kind, key, scan.returned_at)

    def _derived(self, scan: Operation, kind: str, row: bytes, returned_at: float) -> Operation:
        operation = self.begin(kind, TABLE, row, of=scan)
        self.world.history.ok(operation)
        operation.called_at, operation.returned_at = scan.called_at, returned_at
        return operation

    def _passed(self, scan: Operation, keys: list[bytes]) -> list[bytes]:
        """Return the registers in the part of the range that the scan has read, returned or not."""
        start, stop, is_reversed, limit = asked_of(scan)
        is_complete = scan.expected == "complete" and limit is None
        found = [
            row
            for row in self.world.registers
            if (start is None or row > start) and (stop is None or row < stop)  # no register is an end
        ]
        if is_complete:
            return found
        if not keys:
            return []
        return [row for row in found if (row > keys[-1] if is_reversed else row < keys[-1])]
