"""Ten thousand interrupts per backend, at random instants: the test of tests/unit, with a greater number."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from tests.attack.conftest import Figure
from tests.unit.test_interrupts import BACKENDS

pytestmark = pytest.mark.attack

INTERRUPTS = int(os.environ.get("METACLIENT_INTERRUPTS", "10000"))
#: Far more than 10,000 interrupts take: a call that hangs is ended with the process.
TIMEOUT_S = 600.0


@pytest.mark.parametrize("backend", BACKENDS)
def test_thousands_of_interrupts_leak_nothing_and_slow_no_later_call(backend: str, figure: Figure) -> None:
    begun = time.monotonic()
    chosen = ["-k", f"{backend} and random_instants", "tests/unit/test_interrupts.py"]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *chosen],
        env={**os.environ, "METACLIENT_INTERRUPTS": str(INTERRUPTS)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-5_000:] + ran.stderr[-2_000:]
    figure(f"{backend:9} {INTERRUPTS} interrupts survived in {time.monotonic() - begun:.0f} s")
