"""docs/spark.md is true: its code runs from top to bottom, and prints what stands below it."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from spark_connector.settings.options import _FIELDS
from tests.spark.patience import patiently
from tests.spark.releases import RELEASE
from tests.test_readme import examples

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "spark.md"
#: Why tests without Spark skip the code of this page, and the earliest release of Spark that runs it.
NOTES = {"needs Spark": (4, 0), "needs Spark 4.1": (4, 1)}

_OUTPUT = re.compile(r"\s*```text\n(?P<text>.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def no_views(spark: Any) -> Iterator[None]:
    """The page makes temporary views, which would hide tables of other tests."""
    yield
    for table in spark.catalog.listTables("default"):
        if table.isTemporary:
            spark.catalog.dropTempView(table.name)


@pytest.mark.essential
def test_the_guide_runs_and_prints_what_it_shows(spark: Any, no_views: None) -> None:
    text = GUIDE.read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    namespace: dict[str, object] = {"__name__": "__main__"}
    ran = 0
    for example in examples(text):
        assert example.skip in NOTES, f"line {example.line}: {example.skip}"
        if NOTES[example.skip] > RELEASE:
            continue
        with redirect_stdout(io.StringIO()) as printed:
            code = compile("\n" * example.line + example.code, str(GUIDE), "exec")
            patiently(partial(exec, code, namespace))
        rest = "".join(lines[example.line + example.code.count("\n") + 1 :])
        shown = _OUTPUT.match(rest)
        assert printed.getvalue().strip() == (shown["text"].strip() if shown else ""), f"line {example.line}"
        ran += 1
    assert ran > 10


def test_every_option_is_in_the_guides_table() -> None:
    """Names that share a row are written short, as `.stoprow` behind the first one."""
    table = GUIDE.read_text(encoding="utf-8").partition("## Options")[2]
    named = {name.lower() for name in re.findall(r"`([A-Za-z.]+)`", table)}
    for name in _FIELDS:
        parts = name.split(".")
        tails = {"." + ".".join(parts[at:]) for at in range(1, len(parts))}
        assert name in named or tails & named, f"{name} is not in the table of docs/spark.md"
