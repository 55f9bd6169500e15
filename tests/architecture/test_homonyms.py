"""A class name means one thing within a package: no two modules of it define a class or type alias of the same name.

A leading underscore does not count: a reader of ``_Row`` next to ``Row`` has to look twice, too. The classes of a
mirror have the names of the classes that they wrap, on purpose.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.test_imports import ROOT, SOURCE_ROOTS, _plant

#: Folders whose classes have the names of others.
MIRRORS = frozenset({"metaclient/aio"})


def homonyms(root: Path) -> list[str]:
    """Return "package: name is in module and module" for each name that has two definitions."""
    return [
        f"{package}: {name} is in {' and '.join(sorted(modules))}"
        for package, folder in SOURCE_ROOTS.items()
        for name, modules in _modules_by_name(root / folder, package).items()
        if len(modules) > 1
    ]


def _modules_by_name(folder: Path, package: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for path in (folder / package).rglob("*.py"):
        if path.parent.relative_to(folder).as_posix() in MIRRORS:
            continue
        for name in _names(path.read_text(encoding="utf-8")):
            found[name.lstrip("_")].add(path.relative_to(folder).as_posix())
    return found


def _names(text: str) -> Iterator[str]:
    for node in ast.parse(text).body:
        match node:
            case ast.ClassDef(name=name):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name), annotation=ast.Name(id="TypeAlias")):
                yield name


def test_no_class_name_has_two_meanings_in_a_package() -> None:
    assert homonyms(ROOT) == []


@pytest.mark.parametrize(
    "second", ["class Row: ...\n", "class _Row: ...\n", "from typing import TypeAlias\nRow: TypeAlias = bytes\n"]
)
def test_checker_reports_a_homonym(tmp_path: Path, second: str) -> None:
    _plant(tmp_path, {"metaclient/model.py": "class Row: ...\n", "metaclient/testing/rows.py": second})
    assert homonyms(tmp_path) == ["metaclient: Row is in metaclient/model.py and metaclient/testing/rows.py"]


def test_checker_allows_the_names_of_a_mirror(tmp_path: Path) -> None:
    planted = {"metaclient/table.py": "class Table: ...\n", "metaclient/aio/table.py": "class Table: ...\n"}
    assert homonyms(_plant(tmp_path, planted)) == []


def test_checker_allows_a_name_in_two_packages(tmp_path: Path) -> None:
    assert homonyms(_plant(tmp_path, {"metaclient/a.py": "class A: ...", "spark_connector/a.py": "class A: ..."})) == []
