"""The classes of metaclient.aio have every public method of the classes that they wrap, with the same parameters."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import metaclient
from metaclient import aio
from metaclient.freshness import canary
from metaclient.replication import Replication
from metaclient.session import Session

PAIRS = [
    (metaclient.Connection, aio.Connection),
    (metaclient.Table, aio.Table),
    (metaclient.Batch, aio.Batch),
    (metaclient.ConnectionPool, aio.ConnectionPool),
    (Session, aio.Session),
    (Replication, aio.Replication),
    (canary.FreshnessWatcher, aio.FreshnessWatcher),
]
#: Methods that make no call, and those that return an object to use in ``async with`` or ``async for``.
NOT_AWAITED = {
    "Connection": {"table", "session", "stats", "on_event"},
    "Table": {"scan", "scan_arrow", "batch"},
    "ConnectionPool": {"connection"},
    "Session": {"table", "token", "stats"},
}
#: Methods without a coroutine, each with its reason.
MISSING: dict[str, dict[str, str]] = {}


def methods_of(kind: type) -> dict[str, object]:
    return {name: one for name, one in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}


@pytest.mark.parametrize(("blocking", "mirror"), PAIRS, ids=lambda kind: kind.__name__)
def test_method_of_the_blocking_api_without_a_coroutine_is_reported(blocking: type, mirror: type) -> None:
    expected = methods_of(blocking).keys() - MISSING.get(mirror.__name__, {}).keys()
    assert expected == methods_of(mirror).keys(), "add it to the class in metaclient/aio"
    for name, method in methods_of(mirror).items():
        original = inspect.signature(methods_of(blocking)[name])  # type: ignore[arg-type]
        assert list(inspect.signature(method).parameters) == list(original.parameters), name  # type: ignore[arg-type]
        is_plain = name in NOT_AWAITED.get(mirror.__name__, set())
        assert inspect.iscoroutinefunction(method) is not is_plain, name


@pytest.mark.parametrize(("blocking", "mirror"), PAIRS, ids=lambda kind: kind.__name__)
def test_property_of_the_blocking_api_is_not_forgotten(blocking: type, mirror: type) -> None:
    def properties_of(kind: type) -> set[str]:
        found = inspect.getmembers(kind, lambda one: isinstance(one, property))
        return {name for name, _ in found if not name.startswith("_")}

    of_happybase = {"client", "transport"}  # aiohappybase's programs use neither
    assert properties_of(blocking) - of_happybase <= properties_of(mirror)


def test_import_of_metaclient_does_not_pay_for_asyncio() -> None:
    """The import of asyncio takes as long as the rest of metaclient."""
    program = (
        "import sys, metaclient, metaclient_native, metaclient_thrift;"
        "print([name for name in ('asyncio.tasks', 'greenlet', 'metaclient.aio') if name in sys.modules])"
    )
    made = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=300)
    assert made.stdout.strip() == "[]"


def test_missing_greenlet_is_named_with_the_command_that_installs_it() -> None:
    program = "import sys; sys.modules['greenlet'] = None\nimport metaclient\nmetaclient.aio"
    made = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=300)
    assert "metaclient.aio needs greenlet: pip install 'hbase-metaclient[aio]'" in made.stderr
