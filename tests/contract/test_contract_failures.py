"""A failing test of the contract shows the values that it compared: the author of a backend sees nothing else.

pytest rewrites the asserts of a package that brings a plugin, when it loads plugins by entry point. In a run without
entry points only ``metaclient.testing`` asks for it, so the tests below start such a run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

FAILING = """
import pkgutil
from importlib import import_module
from metaclient.testing import BackendContract, contract

class TableWithGhost:
    def row(self, *_, **__):
        return {b"cf:ghost": b"boo"}

def test_ghost():
    BackendContract().test_missing_row_is_empty_and_not_an_error(TableWithGhost())

def test_modules():
    found = pkgutil.iter_modules(contract.__path__, f"{contract.__name__}.")
    modules = [import_module(module.name) for module in found]
    plain = [module.__name__ for module in modules if not hasattr(module, "@pytest_ar")]
    print(f"{len(modules)} modules, not rewritten: {plain}")
    assert not modules
"""


def test_failed_assert_of_the_contract_shows_no_values(tmp_path: Path) -> None:
    """Each module whose asserts pytest has rewritten has the name ``@pytest_ar``."""
    (tmp_path / "test_it.py").write_text(FAILING)
    path = os.pathsep.join([str(ROOT), *sys.path])
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "-p", "no:cacheprovider", "test_it.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "assert {b'cf:ghost': b'boo'} == {}" in run.stdout, run.stdout + run.stderr
    assert "16 modules, not rewritten: []" in run.stdout
