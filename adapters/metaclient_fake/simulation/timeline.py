"""Draws the operations and faults of a run in time: as text, and as a picture (SVG) with a lane per server and client.

A run has thousands of operations; what led to a violation is among those near it. The text shows the faults, the
operations that the violations name, and what else happened to the same rows or by the same clients around them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from xml.sax.saxutils import escape

from metaclient.wording import counted
from metaclient_fake.simulation.history import NEVER, Operation, Status
from metaclient_fake.simulation.injector import Struck
from metaclient_fake.simulation.kinds import SeedWorld
from metaclient_fake.simulation.world import Violation

__all__ = ["picture", "text"]

#: The maximum number of operations in the text: those that violations name, and others near them.
_OPERATIONS_MAX = 40
#: Seconds around a violation in which others are shown, too.
_NEAR_S = 3.0


def text(world: SeedWorld, violations: Sequence[Violation]) -> str:
    """Return the relevant faults and operations, in order of time."""
    entries: list[tuple[float, str]] = [(struck.began_at, str(struck)) for struck in world.injector.struck]
    entries += [(one.called_at, one.describe()) for one in relevant(world, violations)]
    entries += [(one.at_s, f"{one.at_s:8.3f} {'':11} VIOLATION     {_first_line(one)}") for one in violations]
    return "\n".join(line for _, line in sorted(entries, key=lambda entry: entry[0]))


def _first_line(violation: Violation) -> str:
    return str(violation).partition("\n")[0]


def relevant(world: SeedWorld, violations: Sequence[Violation]) -> list[Operation]:
    """Return the operations that the violations name, then those on the same rows near them, up to a bound."""
    by_number = {operation.number: operation for operation in world.history}
    named = {number: by_number[number] for one in violations for number in one.operations if number in by_number}
    rows = {operation.row for operation in named.values() if operation.row}
    instants = [operation.called_at for operation in named.values()]
    near = [
        operation
        for operation in world.history
        if operation.row in rows
        and operation.number not in named
        and any(abs(operation.called_at - instant) <= _NEAR_S for instant in instants)
    ]
    chosen = [*list(named.values())[:_OPERATIONS_MAX], *near][:_OPERATIONS_MAX]
    return sorted(chosen, key=lambda operation: operation.called_at)


# -- the picture -------------------------------------------------------------------------------------------------------

_WIDTH, _LANE, _LEFT, _TOP = 1400, 18, 150, 40
_COLOURS = {
    Status.OK: "#4c9a52",
    Status.FAILED: "#d08a2e",
    Status.UNKNOWN: "#8a5bb5",
    Status.RUNNING: "#999999",
}
_FAULT, _REFUSED, _BROKEN = "#c0392b", "#e6b8b2", "#000000"


def picture(world: SeedWorld, violations: Sequence[Violation]) -> str:
    """Return an SVG document: faults above, clients below, time from left to right, violations as vertical lines."""
    end_s = max(world.runtime.now(), 1.0)
    kinds = list(dict.fromkeys(struck.fault.kind for struck in world.injector.struck))
    clients = [client.name for client in world.clients]
    lanes = [*kinds, *clients]
    height = _TOP + _LANE * (len(lanes) + 1)
    scale = (_WIDTH - _LEFT - 20) / end_s
    parts = [*_frame(lanes, len(kinds), height, end_s, scale)]
    parts += [_fault(struck, kinds.index(struck.fault.kind), scale, end_s) for struck in world.injector.struck]
    named = {number for one in violations for number in one.operations}
    lane_of = {name: len(kinds) + index for index, name in enumerate(clients)}
    parts += [
        _operation(operation, lane_of[operation.client], scale, end_s, operation.number in named)
        for operation in world.history
        if operation.client in lane_of and operation.group == operation.number
    ]
    parts += [_mark(one, height, scale) for one in violations]
    title = (
        f"seed {world.spec.seed}: {counted(len(violations), 'violation')}, {counted(len(world.history), 'operation')}"
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" font-family="sans-serif">',
            '<rect width="100%" height="100%" fill="white"/>',
            f'<text x="10" y="20" font-size="14">{escape(title)}</text>',
            *parts,
            "</svg>",
        ]
    )


def _frame(lanes: Sequence[str], faults: int, height: int, end_s: float, scale: float) -> Iterable[str]:
    for index, name in enumerate(lanes):
        y = _TOP + index * _LANE
        shade = "#fbeeec" if index < faults else ("#f4f4f4" if index % 2 else "#ffffff")
        yield f'<rect x="0" y="{y}" width="{_WIDTH}" height="{_LANE}" fill="{shade}"/>'
        yield f'<text x="6" y="{y + 13}" font-size="11">{escape(name)}</text>'
    step = 5 if end_s <= 100 else 20
    for second in range(0, int(end_s) + 1, step):
        x = _LEFT + second * scale
        yield f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{height}" stroke="#dddddd" stroke-width="0.5"/>'
        yield f'<text x="{x:.1f}" y="{_TOP - 4}" font-size="9" fill="#666666">{second} s</text>'


def _bar(x_s: float, until_s: float, lane: int, scale: float, colour: str, title: str, margin: int = 3) -> str:
    x, width = _LEFT + x_s * scale, max(1.5, (until_s - x_s) * scale)
    y = _TOP + lane * _LANE + margin
    shape = f'x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_LANE - 2 * margin}" fill="{colour}"'
    return f"<rect {shape}><title>{escape(title)}</title></rect>"


def _fault(struck: Struck, lane: int, scale: float, end_s: float) -> str:
    until_s = struck.ended_at if struck.ended_at is not None else end_s
    return _bar(struck.began_at, until_s, lane, scale, _REFUSED if struck.refusal else _FAULT, str(struck), 2)


def _operation(operation: Operation, lane: int, scale: float, end_s: float, is_named: bool) -> str:
    until_s = operation.returned_at if operation.returned_at != NEVER else end_s
    colour = _BROKEN if is_named else _COLOURS[operation.outcome]
    return _bar(operation.called_at, until_s, lane, scale, colour, operation.describe(), 1 if is_named else 4)


def _mark(violation: Violation, height: int, scale: float) -> str:
    x = _LEFT + violation.at_s * scale
    line = f'x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{height}" stroke="{_BROKEN}" stroke-dasharray="4 3"'
    return f"<line {line}><title>{escape(str(violation))}</title></line>"
