"""``python -m tests.oldest``: print the lowest version of each dependency that pyproject.toml allows, as constraints.

`make oldest` installs these versions and runs the unit tests on them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

__all__ = ["constraints", "requirements"]

PYPROJECT = Path(__file__).parent.parent / "pyproject.toml"
_BOUND = re.compile(
    r"(?P<name>[A-Za-z0-9_.-]+)(?:\[[^\]]*\])?(?:>=|==)(?P<version>[0-9][0-9.]*?)(?:\.\*)?(?:,[^;]*)?(?:;.*)?"
)


def requirements() -> Iterator[str]:
    """Every dependency of the project and of its extras, as pyproject.toml has it."""
    project = tomllib.loads(PYPROJECT.read_text())["project"]
    yield from project["dependencies"]
    for extra in project["optional-dependencies"].values():
        yield from extra


def constraints(given: Iterator[str]) -> dict[str, str]:
    """Return each dependency's lowest version; ValueError for one without a lower bound."""
    found: dict[str, str] = {}
    for text in given:
        match = _BOUND.fullmatch(text.replace(" ", ""))
        if match is None:
            raise ValueError(f"{text!r} in pyproject.toml has no lower bound: write NAME>=VERSION")
        if found.setdefault(match["name"], match["version"]) != match["version"]:
            raise ValueError(f"{match['name']} has two lower bounds: {found[match['name']]} and {match['version']}")
    return found


if __name__ == "__main__":
    for each, version in constraints(requirements()).items():
        print(f"{each}=={version}")
