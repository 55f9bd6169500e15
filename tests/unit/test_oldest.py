"""The constraints of `make oldest` are those of pyproject.toml, all of them."""

from __future__ import annotations

import itertools
import re
import tomllib

import pytest

from tests.oldest import PYPROJECT, constraints, requirements


def test_no_dependency_is_left_out_of_the_oldest_versions() -> None:
    project = tomllib.loads(PYPROJECT.read_text())["project"]
    listed = [*project["dependencies"], *itertools.chain(*project["optional-dependencies"].values())]
    names = {re.split(r"[\[<>=!~ ]", text)[0] for text in listed}
    assert constraints(requirements()).keys() == names
    assert {"thriftpy2", "click", "pyarrow", "pytest", "kazoo"} <= names


def test_lower_bounds_are_read_in_every_form() -> None:
    forms = ["a>=1.2", "b[x]>=4.0,<5", "c==0.17.*", "d-e >= 3"]
    assert constraints(iter(forms)) == {"a": "1.2", "b": "4.0", "c": "0.17", "d-e": "3"}


@pytest.mark.parametrize("text", ["a", "a<5", "a!=3"])
def test_dependency_without_a_lower_bound_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no lower bound"):
        constraints(iter([text]))
