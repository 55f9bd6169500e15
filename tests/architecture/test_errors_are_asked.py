"""Code that decides on attempts asks an error for its properties, and never for its class or message.

A class test has to be found and extended for each new error. A property is part of the error's own definition.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import metaclient.errors
from tests.architecture.test_imports import ROOT, _plant

#: Folders and files, from the root of the repository.
DECIDING = (
    "metaclient/attempts",
    "metaclient/calls",
    "adapters/metaclient_native/admin.py",
    "adapters/metaclient_native/batches.py",
    "adapters/metaclient_native/registry_rpc.py",
)
#: The root is the border to foreign exceptions, which have no properties.
CLASSES = frozenset(metaclient.errors.__all__) - {"MetaClientError", "Attempt", "Disposition", "translated"}
#: File and class, each with its reason.
EXCEPTIONS = {
    ("metaclient/attempts/executor.py", "Overloaded"): "the runtime has no thread left: translated where it is raised",
    ("adapters/metaclient_native/admin.py", "DeadlineExceeded"): "the wait's own error, translated where it is raised",
}


def class_tests(folder: Path) -> Iterator[tuple[str, str]]:
    """Return the file and the class of each ``isinstance`` and ``except`` that names one of our errors."""
    for place in DECIDING:
        for path in [folder / place] if place.endswith(".py") else sorted((folder / place).glob("*.py")):
            if not path.exists():
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                match node:
                    case ast.Call(func=ast.Name(id="isinstance"), args=[_, tested]):
                        pass
                    case ast.ExceptHandler(type=ast.expr() as tested):
                        pass
                    case _:
                        continue
                names = {inner.id for inner in ast.walk(tested) if isinstance(inner, ast.Name)}
                yield from ((path.relative_to(folder).as_posix(), name) for name in sorted(names & CLASSES))


def test_no_decision_on_attempts_tests_the_class_of_an_error() -> None:
    assert set(class_tests(ROOT)) == set(EXCEPTIONS)


@pytest.mark.parametrize(
    "text",
    ["isinstance(error, CallTimeout | OSError)\n", "try:\n    f()\nexcept (OSError, CallTimeout):\n    pass\n"],
)
def test_checker_reports_a_class_test(tmp_path: Path, text: str) -> None:
    _plant(tmp_path, {"metaclient/calls/multi.py": text, "adapters/metaclient_native/admin.py": text})
    found = [("metaclient/calls/multi.py", "CallTimeout"), ("adapters/metaclient_native/admin.py", "CallTimeout")]
    assert list(class_tests(tmp_path)) == found


def test_checker_looks_at_files_that_exist() -> None:
    assert all((ROOT / place).exists() for place in DECIDING)
