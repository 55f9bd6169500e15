"""``metaclient doctor --happybase FILE`` names the calls of a program that differ."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from metaclient.cli import main

DIFFERENT = {
    "from happybase.util import bytes_increment": "metaclient has no module util",
    "import happybase.util": "metaclient has no module util",
    "from happybase.connection import THRIFT_TRANSPORTS": "happybase.connection.THRIFT_TRANSPORTS is not there",
    "import happybase\nhappybase.ConnectionPool(size=2)._queue.qsize()": "._queue is not there",
    "import happybase\nassert happybase.__version__ >= '1.0'": "becomes the version of metaclient",
    "import happybase\nclass C(happybase.Connection):\n    pass": "class C inherits from happybase.Connection",
    "import happybase\nhappybase.Connection(compat='0.94')": "compat='0.94' is accepted and not used",
    "import happybase\ndef f(t):\n    return t.scan(row_prefix=b'a', reverse=True)": "a reversed scan of a prefix",
    "import happybase\ndef f(t):\n    t.delete(b'r', [])": "delete(row, []) is refused",
}


def verdicts(tmp_path: Path, text: str) -> tuple[int, list[dict[str, str]]]:
    path = tmp_path / "program.py"
    path.write_text(text, encoding="utf-8")
    made = CliRunner().invoke(main, ["doctor", "--happybase", str(path), "--json"])
    return made.exit_code, json.loads(made.stdout)["verdicts"]


@pytest.mark.parametrize(("program", "finding"), DIFFERENT.items())
def test_call_that_differs_is_named_with_its_line(tmp_path: Path, program: str, finding: str) -> None:
    code, (first, last) = verdicts(tmp_path, program)
    assert finding in first["found"]
    assert first["about"] == f"program.py:{len(program.splitlines()) - ('class C' in program)}"
    assert first["advice"]
    assert "1 place to look at" in last["found"]
    assert code == (first["level"] == "bad")


def test_program_without_differences_is_good(tmp_path: Path) -> None:
    program = "import happybase\nc = happybase.Connection('h', timeout=0)\nfor k, d in c.table('t').scan(): print(k)\n"
    code, (only,) = verdicts(tmp_path, program)
    assert (code, only["level"]) == (0, "good")


def test_file_that_is_no_program_of_happybase(tmp_path: Path) -> None:
    _, (only,) = verdicts(tmp_path, "import os\n")
    assert only["found"] == "it does not import happybase"
    path = tmp_path / "old.py"
    path.write_text("print 'x'\n", encoding="utf-8")
    made = CliRunner().invoke(main, ["doctor", "--happybase", str(path)])
    assert made.exit_code == 2
    assert "is no program of Python 3" in made.output
