"""Product code stays small enough to read: bounds on files, classes and functions.

A class or file over its bound says in its docstring why ("more than 30 methods because ...", "more than 600 lines
because ..."). A function over its bound is split.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("metaclient", "adapters", "spark_connector", "benchmarks")

FILE_LINES_MAX = 600
CLASS_METHODS_MAX = 30
FUNCTION_LINES_MAX = 60

FILE_REASON = f"more than {FILE_LINES_MAX} lines because"
CLASS_REASON = f"more than {CLASS_METHODS_MAX} methods because"


def violations(root: Path) -> list[str]:
    """Return "path [name]: what is too big" for each bound that product code exceeds without a reason."""
    found: list[str] = []
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            where = path.relative_to(root).as_posix()
            found += [f"{name}: {problem}" for name, problem in _problems(where, text)]
    return found


def _problems(where: str, text: str) -> Iterator[tuple[str, str]]:
    tree = ast.parse(text)
    lines = len(text.splitlines())
    if lines > FILE_LINES_MAX and not _gives(tree, FILE_REASON):
        yield where, f"{lines} lines; split it, or say in its docstring: {FILE_REASON} ..."
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            methods = sum(isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) for part in node.body)
            if methods > CLASS_METHODS_MAX and not _gives(node, CLASS_REASON):
                yield (
                    f"{where} {node.name}",
                    f"{methods} methods; split it, or say in its docstring: {CLASS_REASON} ...",
                )
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            name, length = f"{where} {node.name}", function_lines(node)
            if length > FUNCTION_LINES_MAX:
                yield name, f"{length} lines; split it"


def _gives(node: ast.Module | ast.ClassDef, reason: str) -> bool:
    return reason in " ".join((ast.get_docstring(node) or "").split())


def function_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


# --- the rule -------------------------------------------------------------------------------------------------------


def test_files_classes_and_functions_are_within_their_bounds_or_say_why() -> None:
    found = violations(ROOT)
    assert not found, "\n".join(found)


# --- the checker, on planted files ----------------------------------------------------------------------------------


def _planted(root: Path, text: str) -> list[str]:
    file = root / "metaclient" / "keys.py"
    file.parent.mkdir()
    file.write_text(text, encoding="utf-8")
    return violations(root)


def _class(methods: int, docstring: str) -> str:
    return f'class Big:\n    """{docstring}"""\n' + "".join(f"    def m{n}(self): ...\n" for n in range(methods))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('"""Keys."""\n' + "x = 1\n" * FILE_LINES_MAX, "601 lines"),
        (_class(CLASS_METHODS_MAX + 1, "Big."), "31 methods"),
        ("def f():\n" + "    x = 1\n" * FUNCTION_LINES_MAX, "61 lines"),
    ],
)
def test_checker_reports_what_is_too_big(tmp_path: Path, text: str, problem: str) -> None:
    (found,) = _planted(tmp_path, text)
    assert problem in found


@pytest.mark.parametrize(
    "text",
    [
        f'"""Keys. It has {FILE_REASON} it is a table."""\n' + "x = 1\n" * FILE_LINES_MAX,
        _class(CLASS_METHODS_MAX + 1, f"Big. It has {CLASS_REASON}\n    it is a protocol."),
        _class(CLASS_METHODS_MAX, "Just small enough."),
        "def f():\n" + "    x = 1\n" * (FUNCTION_LINES_MAX - 1),
    ],
)
def test_checker_accepts_a_reason_and_what_is_within_the_bounds(tmp_path: Path, text: str) -> None:
    assert _planted(tmp_path, text) == []
