"""Only ``keys.py`` compares the end of a key range, in which ``b""`` is no upper bound; copies have a reason."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.architecture.test_sizes import FOLDERS, ROOT

HOME = "metaclient/keys.py"
ENDS = frozenset({"end", "stop", "end_key", "stop_key", "stop_row", "row_stop", "_end_key", "_stop_row"})
_ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)

#: File and function of each copy, with its reason.
COPIES: Mapping[tuple[str, str], str] = {
    ("metaclient/connection.py", "locate"): "a call costs 30 to 40 ns of about 410 of a cached locate",
    ("metaclient/lookup/location_cache.py", "index_of"): "the floor search; a call costs 60 ns of each get and put",
    ("metaclient/lookup/location_cache.py", "cached_primary"): "the same, without the call of index_of",
    ("metaclient/lookup/location_cache.py", "cached_region"): "the same, for a TIMELINE get",
    ("adapters/metaclient_fake/storage/region.py", "check_writable"): "one check for each row that is put",
    ("adapters/metaclient_fake/region_replication/replay.py", "_are_ours"): "one check for each row of a batch",
    (
        "metaclient/testing/contract/scans.py",
        "test_start_is_inclusive_and_stop_exclusive_wherever_the_borders_are",
    ): "the expectation of a test",
}


def comparisons(text: str) -> Iterator[str]:
    """Return the function of each ``end and row >= end`` or ``not end or row < end``."""
    for function in ast.walk(ast.parse(text)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if any(_compares_end(node) for node in ast.walk(function)):
            yield function.name


def _compares_end(node: ast.AST) -> bool:
    if not isinstance(node, ast.BoolOp):
        return False
    tested = {_name(one.operand if isinstance(one, ast.UnaryOp) else one) for one in node.values} & ENDS
    compared = {
        _name(side)
        for one in node.values
        if isinstance(one, ast.Compare) and isinstance(one.ops[0], _ORDER)
        for side in (one.left, *one.comparators)
    }
    return bool(tested & compared)


def _name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def test_ends_are_compared_in_one_module() -> None:
    found = {
        (path.relative_to(ROOT).as_posix(), name)
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        for name in comparisons(path.read_text(encoding="utf-8"))
    }
    assert {one for one in found if one[0] != HOME} == set(COPIES)
    assert any(file == HOME for file, _ in found), "the checker sees the home of the comparison"


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("if row < start or (end and row >= end): pass", True),
        ("return not self.end_key or row < self.end_key", True),
        ("return stop and at < limit", False),
        ("return at < stop and is_open", False),
    ],
)
def test_checker_reports_a_comparison(tmp_path: Path, text: str, is_found: bool) -> None:
    assert list(comparisons(f"def f():\n    {text}\n")) == (["f"] if is_found else [])
