"""Types of the public API: code of a user passes mypy and pyright, and the options of connect() are those of Config."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from metaclient.config import Config
from metaclient.config.options import ConfigOptions

ROOT = Path(__file__).resolve().parents[2]
USER_CODE = ROOT / "tests" / "typing" / "user_code.py"
CHECK_S = 300


def test_options_of_connect_are_the_fields_of_the_configuration() -> None:
    fields = {one.name: one.type for one in dataclasses.fields(Config) if one.init and not one.name.startswith("_")}
    for name in ("meta_mode", "properties"):  # an argument of its own, and ``config``
        del fields[name]
    assert {name: hint.__forward_arg__ for name, hint in ConfigOptions.__annotations__.items()} == fields


def test_user_code_passes_mypy() -> None:
    made = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(USER_CODE)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=CHECK_S,
    )
    assert made.returncode == 0, made.stdout


def test_user_code_passes_pyright() -> None:
    """pyright comes from PyPI, and fetches its program by npm at the first start: without Node.js it is skipped."""
    if find_spec("pyright") is None:
        pytest.skip("pyright is not installed")
    command = [sys.executable, "-m", "pyright"]
    starts = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False, timeout=CHECK_S)
    if starts.returncode:
        pytest.skip(f"pyright does not start here: {starts.stderr.strip()[-200:]}")
    made = subprocess.run(
        [*command, "--pythonpath", sys.executable, str(USER_CODE)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=CHECK_S,
    )
    assert made.returncode == 0, made.stdout
