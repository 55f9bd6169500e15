"""Only the executor starts, waits for and abandons calls of a backend; other modules give it plans and contests.

A second race would need its own rules for time-outs, hedges, late answers and abandoned calls, and they would differ.
"""

import ast
from pathlib import Path

from tests.architecture.test_imports import ROOT

EXECUTOR = "attempts/executor.py"
#: Methods of the executor (begin, abandon) and of the runtime (start, wait_first) that make a race.
PARTS_OF_A_RACE = frozenset({"abandon", "begin", "start", "wait_first"})
#: File and call that are no race, each with its reason.
OTHERS = {
    ("calls/page_ahead.py", "begin"): "requests the next page of a scan; the executor waits for it",
    ("calls/region_walk.py", "abandon"): "leaves the page that a closed scan had requested",
    ("calls/region_walk.py", "start"): "closes the scanner of an outrun page in the background",
    ("calls/staleness.py", "start"): "measures the lag of a replica in the background",
    ("lookup/locator.py", "wait_first"): "waits for a lookup of another caller, not for a backend",
    ("lookup/table_states.py", "wait_first"): "waits for a read of another caller, as the locator",
    ("meta/probes.py", "start"): "probes an ejected replica in the background",
    ("meta/registry.py", "start"): "reads the registry in the background",
    ("meta/registry.py", "wait_first"): "waits for the read of another caller",
}


def parts_of_races(folder: Path) -> set[tuple[str, str]]:
    """Return the file and the method of each call that starts, waits for or abandons something."""
    return {
        (path.relative_to(folder).as_posix(), node.func.attr)
        for layer in ("attempts", "meta", "lookup", "calls")
        for path in (folder / layer).glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in PARTS_OF_A_RACE
    }


def test_only_the_executor_races_calls() -> None:
    assert {part for part in parts_of_races(ROOT / "metaclient") if part[0] != EXECUTOR} == set(OTHERS)


def test_checker_reports_a_second_race(tmp_path: Path) -> None:
    (tmp_path / "calls").mkdir()
    (tmp_path / "calls" / "multi.py").write_text("self._executor.abandon(pending)\n")
    assert parts_of_races(tmp_path) == {("calls/multi.py", "abandon")}
