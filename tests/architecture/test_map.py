"""The map of docs/design.md shows the tree as it is, and the guided page docs/one-put.md names functions that exist."""

import ast
import re
from pathlib import Path

import pytest

from tests.architecture.test_imports import LAYERS, ROOT, SOURCE_ROOTS

MAP = ROOT / "docs" / "design.md"
GUIDE = ROOT / "docs" / "one-put.md"
#: A row of the tables of the guide: ``| 1.1 | `Class.function` | `path/of/file.py` |``.
_STEP = re.compile(r"^\| [\d.]+ \| `(?P<name>[\w.]+)` \| `(?P<path>[\w/.]+)` \|$", re.MULTILINE)
_INDENT = 2


def mapped(text: str) -> set[str]:
    """Return the paths that the first indented block of a document with a folder in it names, relative to the root.

    >>> sorted(mapped("Tree:\\n\\n    a/     folder\\n      b.py c/  two\\n               things\\n    d/e/  more\\n"))
    ['a', 'a/b.py', 'a/c', 'd/e']
    """
    found: set[str] = set()
    parents: list[str] = []
    for line in text[re.search(r"^    \S+/ ", text, re.MULTILINE).start() :].splitlines():  # type: ignore[union-attr]
        if not line.startswith("    "):
            break
        depth, rest = divmod(len(line) - len(line.lstrip()) - 4, _INDENT)
        names = re.match(r"\s+((?:[\w/-]+(?:/|\.py)(?:\s|$))+)", line)
        if names is None or rest or depth > len(parents):
            continue  # the explanation goes on
        entries = [name.rstrip("/") for name in names[1].split()]
        found |= {"/".join((*parents[:depth], name)) for name in entries}
        parents = [*parents[:depth], entries[0]]
    return found


def missing_steps(text: str, root: Path) -> list[str]:
    """Return the steps of a guide whose function is not in the file that the guide names."""
    return [
        f"{step['name']} is not in {step['path']}"
        for step in _STEP.finditer(text)
        if step["name"] not in _functions(root / step["path"])
    ]


def _functions(path: Path) -> set[str]:
    if not path.is_file():
        return set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    methods = {
        f"{node.name}.{item.name}" for node in classes for item in node.body if isinstance(item, ast.FunctionDef)
    }
    return methods | {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


# --- the rule -------------------------------------------------------------------------------------------------------


def test_map_names_only_what_is_there() -> None:
    assert {path for path in mapped(MAP.read_text(encoding="utf-8")) if not (ROOT / path).exists()} == set()


@pytest.mark.parametrize("package", LAYERS)
def test_map_names_every_module_of_a_layer(package: str) -> None:
    shown = mapped(MAP.read_text(encoding="utf-8"))
    folder = f"{SOURCE_ROOTS[package]}/{package}".removeprefix("./")
    names = {name for _, names in LAYERS[package] for name in names} - {package, "__main__"}
    assert {name for name in names if not {f"{folder}/{name}", f"{folder}/{name}.py"} & shown} == set()


def test_guide_names_functions_that_exist() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    assert len(_STEP.findall(text)) > 20
    assert missing_steps(text, ROOT) == []


# --- the checkers, on planted text ----------------------------------------------------------------------------------


def test_checker_reports_a_module_that_is_gone() -> None:
    shown = mapped("    metaclient/   the client\n      keys.py gone.py\n          values\n      meta/  replicas\n")
    assert {path for path in shown if not (ROOT / path).exists()} == {"metaclient/gone.py"}


def test_checker_reports_a_function_that_moved(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("class A:\n    def f(self): ...\n", encoding="utf-8")
    steps = "| 1.1 | `A.f` | `a.py` |\n| 1.2 | `A.g` | `a.py` |\n| 1.3 | `f` | `b.py` |\n"
    assert missing_steps(steps, tmp_path) == ["A.g is not in a.py", "f is not in b.py"]
