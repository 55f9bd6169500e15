"""Code that decides on attempts asks an error for its properties, and never for its class or message.

A class test has to be found and extended for each new error. A property is part of the error's own definition.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import metaclient.errors
from tests.architecture.test_imports import ROOT

LAYERS = ("attempts", "calls")
#: The root is the border to foreign exceptions, which have no properties.
CLASSES = frozenset(metaclient.errors.__all__) - {"MetaClientError", "Attempt", "Disposition", "translated"}
#: File and class, each with its reason.
EXCEPTIONS = {("attempts/executor.py", "Overloaded"): "the runtime has no thread left: translated where it is raised"}


def class_tests(folder: Path) -> Iterator[tuple[str, str]]:
    """Return the file and the class of each ``isinstance`` and ``except`` that names one of our errors."""
    for layer in LAYERS:
        for path in sorted((folder / layer).glob("*.py")):
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
    assert set(class_tests(ROOT / "metaclient")) == set(EXCEPTIONS)


@pytest.mark.parametrize(
    "text",
    ["isinstance(error, CallTimeout | OSError)\n", "try:\n    f()\nexcept (OSError, CallTimeout):\n    pass\n"],
)
def test_checker_reports_a_class_test(tmp_path: Path, text: str) -> None:
    (tmp_path / "calls").mkdir()
    (tmp_path / "calls" / "multi.py").write_text(text)
    assert list(class_tests(tmp_path)) == [("calls/multi.py", "CallTimeout")]
