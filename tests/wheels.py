"""Builds the wheel of this checkout, for tests that install it as a stranger does."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

__all__ = ["INSTALL_S", "built_wheel"]

ROOT = Path(__file__).resolve().parents[1]
#: Of a build or an installation, on a machine that does much else.
INSTALL_S = 280


def built_wheel(folder: Path) -> Path:
    """Build the wheel into the folder and return its file."""
    if importlib.util.find_spec("hatchling") is None:
        pytest.fail("hatchling builds the wheel: pip install 'hbase-metaclient[test]'", pytrace=False)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=INSTALL_S)
    (wheel,) = folder.glob("*.whl")
    return wheel
