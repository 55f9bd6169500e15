"""A function of the client takes at most six positional arguments: more of them cannot be told apart at the call."""

import ast
from pathlib import Path

from tests.architecture.test_imports import ROOT

POSITIONAL_MAX = 6
#: File and function that take more, each with its reason.
EXCEPTIONS = {
    ("aio/table.py", "scan"): "happybase's signature",
    ("cli/data.py", "scan"): "the parameters of a command, which click gives by name",
    ("connection.py", "__init__"): "happybase's signature",
    ("model.py", "__init__"): "the fields of a value (Get), in the order of the dataclass",
    ("table.py", "scan"): "happybase's signature",
}


def long_signatures(folder: Path) -> set[tuple[str, str]]:
    """Return the file and the name of each function with more positional arguments."""
    return {
        (path.relative_to(folder).as_posix(), node.name)
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
        and len([one for one in node.args.posonlyargs + node.args.args if one.arg not in ("self", "cls")])
        > POSITIONAL_MAX
    }


def test_functions_take_few_positional_arguments() -> None:
    assert long_signatures(ROOT / "metaclient") == set(EXCEPTIONS)


def test_checker_reports_a_long_signature(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("def f(a, b, c, d, e, f, g): ...\ndef g(a, *, b, c, d, e, f, g): ...\n")
    assert long_signatures(tmp_path) == {("x.py", "f")}
