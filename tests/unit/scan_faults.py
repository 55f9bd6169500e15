"""Faults in the middle of scans, for tests that draw them: lost scanners, tired servers, regions that change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from metaclient.errors import CallQueueTooBig, CallTimeout, NotServingRegion, ScannerLost
from metaclient.testing import ScriptedBackend

_ERRORS = {"lost": ScannerLost, "gone": NotServingRegion, "slow": CallTimeout, "busy": CallQueueTooBig}
_CHANGES = ("split", "merge", "move")


def scan_faults(rows: st.SearchStrategy[bytes]) -> st.SearchStrategy[dict[int, tuple[str, bytes]]]:
    """Which of a scan's calls meets what, and at which row."""
    kinds = st.sampled_from([*_ERRORS, *_CHANGES])
    return st.dictionaries(st.integers(1, 12), st.tuples(kinds, rows), max_size=4)


def strike(backend: ScriptedBackend, faults: Mapping[int, tuple[str, bytes]]) -> None:
    """Let the calls of scans of table ``t`` meet these faults; a region that changes loses its scanners."""
    calls = iter(range(1, 10_000))

    def is_struck(call: Any) -> bool:
        fault = faults.get(next(calls)) if call.method in ("scan_open", "scan_next") else None
        if fault is None:
            return False
        kind, row = fault
        if kind == "split" and backend.region_of(b"t", row).region.start_key != row:
            backend.split(b"t", row)
        elif kind == "merge":
            backend.merge(b"t", b"", row)
        elif kind == "move":
            backend.move(b"t", row, backend.servers[len(row)])
        trouble.raises(_ERRORS.get(kind, ScannerLost)("scripted"))
        return True

    trouble = backend.on("*", when=is_struck)
