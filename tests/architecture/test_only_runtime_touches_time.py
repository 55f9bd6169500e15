"""Only ``metaclient.runtime`` touches time, threads and chance; everything else is handed a ``Runtime``.

That is what lets one seed decide a whole simulated cluster: a single stray ``time.monotonic()`` or ``random.choice``
and a failing run can no longer be repeated. So the test looks for three things:

1. a forbidden module, imported in any way (``SEAM``);
2. a forbidden name of an otherwise harmless module, such as ``datetime.datetime.now`` (``NAMES``);
3. a library call that falls back to the real clock or to real chance unless told otherwise (``MUST_PASS``).

``benchmarks`` are not looked at: they measure the real world from outside.
"""

import ast
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("metaclient", "adapters", "spark_connector")
RUNTIME = ("metaclient", "runtime")

# Modules that bring in time, concurrency or chance, and those of submodules.
SEAM = frozenset(
    {
        "_thread",
        "asyncio",
        "concurrent.futures",
        "gevent",
        "greenlet",
        "http.server",
        "multiprocessing",
        "queue",
        "random",
        "sched",
        "secrets",
        "select",
        "selectors",
        "socket",
        "socketserver",
        "tenacity.nap",
        "threading",
        "time",
    }
)

# Names that do, in modules that are useful for other things.
NAMES = frozenset(
    {
        "datetime.date.today",
        "datetime.datetime.now",
        "datetime.datetime.today",
        "datetime.datetime.utcnow",
        "os.getrandom",
        "os.times",
        "os.urandom",
        "signal.alarm",
        "signal.setitimer",
        "tenacity.sleep",
        "tenacity.sleep_using_event",
        "tenacity.stop_after_delay",
        "tenacity.stop_before_delay",
        "tenacity.wait_exponential_jitter",
        "tenacity.wait_random",
        "tenacity.wait_random_exponential",
        "uuid.uuid1",
        "uuid.uuid4",
    }
)

# Calls that are ours only with this argument.
MUST_PASS: Mapping[str, str] = {
    "cachetools.RRCache": "choice",
    "cachetools.TLRUCache": "timer",
    "cachetools.TTLCache": "timer",
    "tenacity.Retrying": "sleep",
    "tenacity.retry": "sleep",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Allowance:
    """A file that may use some of the seam, and why it cannot go through the runtime."""

    file: str
    names: frozenset[str]
    reason: str


# Sockets of network adapters are the one expected kind of entry. One that is no longer needed fails the test.
ALLOWED: tuple[Allowance, ...] = (
    Allowance(
        "metaclient/wire/listener.py",
        frozenset({"selectors", "socket"}),
        "accepts TCP clients, of the fake and of change feeds",
    ),
    Allowance(
        "adapters/metaclient_fake/simulation/runner.py",
        frozenset({"concurrent.futures", "multiprocessing", "time"}),
        "spreads seeds over processes, and tells how fast they are",
    ),
    Allowance("adapters/metaclient_local_hbase/ports.py", frozenset({"socket"}), "finds free ports for real servers"),
    Allowance("metaclient/wire/loop_stream.py", frozenset({"select", "socket"}), "speaks TCP and TLS on an event loop"),
    Allowance("metaclient/wire/stream.py", frozenset({"select", "socket"}), "speaks TCP to HBase and to gateways"),
    Allowance("metaclient/wire/tls_server.py", frozenset({"select"}), "waits for the client's part of a handshake"),
    Allowance("metaclient/wire/tls.py", frozenset({"select", "socket"}), "speaks TLS to gateways"),
    Allowance("spark_connector/tables/hosts.py", frozenset({"socket"}), "asks which executor is on a server's machine"),
    Allowance("spark_connector/lookup_counts.py", frozenset({"socket"}), "executors report to the driver over TCP"),
)


@dataclasses.dataclass(frozen=True, slots=True)
class Use:
    """One use of the seam: where, which, and what to do instead."""

    file: str
    line: int
    name: str
    advice: str = "take it from the Runtime"

    def __str__(self) -> str:
        return f"{self.file}:{self.line} uses {self.name}: {self.advice}"


def uses(root: Path) -> list[Use]:
    """Every use of time, threads and chance under ``root`` outside of the runtime."""
    files = [path for package in PACKAGES for path in sorted((root / package).rglob("*.py"))]
    outside = [path.relative_to(root) for path in files if not _is_runtime(path.relative_to(root))]
    return [use for file in outside for use in _uses_in(file.as_posix(), root / file)]


def verdicts(root: Path, allowed: tuple[Allowance, ...]) -> list[str]:
    """What is wrong: uses that nothing allows, and allowances that nothing uses."""
    found = uses(root)
    granted = {(allowance.file, name) for allowance in allowed for name in allowance.names}
    used = {(use.file, use.name) for use in found}
    broken = [str(use) for use in found if (use.file, use.name) not in granted]
    return broken + [f"{file} no longer uses {name}: remove it from ALLOWED" for file, name in sorted(granted - used)]


def _is_runtime(file: Path) -> bool:
    """In the package ``metaclient.runtime``, or the module of that name."""
    return file.with_suffix("").parts[:2] == RUNTIME


def _uses_in(file: str, path: Path) -> Iterator[Use]:
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    aliases = _aliases(tree)
    for node in ast.walk(tree):
        match node:
            case ast.Import() | ast.ImportFrom():
                for name in _imported(node):
                    if (seam := _seam(name)) or name in NAMES:
                        yield Use(file, node.lineno, seam or name)
            case ast.Attribute():
                if (name := _dotted(node, aliases)) in NAMES:
                    yield Use(file, node.lineno, name)
            case ast.Call(func=func, args=args, keywords=keywords):
                yield from _uses_by_call(file, node.lineno, _dotted(func, aliases), args, keywords)


def _uses_by_call(
    file: str, line: int, called: str | None, args: list[ast.expr], keywords: list[ast.keyword]
) -> Iterator[Use]:
    match args:
        case [ast.Constant(value=str(literal)), *_] if called in {"__import__", "importlib.import_module"}:
            if seam := _seam(literal):
                yield Use(file, line, seam)
    needed = MUST_PASS.get(called or "")
    if needed and needed not in {keyword.arg for keyword in keywords}:
        yield Use(file, line, called or "", f"pass {needed}= from the Runtime")


def _aliases(tree: ast.AST) -> dict[str, str]:
    """Local name -> what it stands for, over all scopes of the file."""
    found = {"__import__": "__import__"}
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                found.update(
                    {
                        a.asname or a.name.partition(".")[0]: a.name if a.asname else a.name.partition(".")[0]
                        for a in names
                    }
                )
            case ast.ImportFrom(module=str(module), names=names, level=0):
                found.update({a.asname or a.name: f"{module}.{a.name}" for a in names})
    return found


def _imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if node.level or not node.module:
        return []  # relative: one of ours
    return [f"{node.module}.{alias.name}" for alias in node.names]


def _seam(name: str) -> str | None:
    """The forbidden module that this name is, or is in."""
    parts = name.split(".")
    prefixes = (".".join(parts[: n + 1]) for n in range(len(parts)))
    return next((prefix for prefix in prefixes if prefix in SEAM), None)


def _dotted(node: ast.expr, aliases: Mapping[str, str]) -> str | None:
    """``dt.datetime.now`` -> ``datetime.datetime.now``; None for anything that is not a chain of imported names."""
    match node:
        case ast.Name(id=name):
            return aliases.get(name)
        case ast.Attribute(value=value, attr=attr):
            base = _dotted(value, aliases)
            return f"{base}.{attr}" if base else None
    return None


# --- the rule -------------------------------------------------------------------------------------------------------


def test_only_runtime_touches_time_threads_and_chance() -> None:
    found = verdicts(ROOT, ALLOWED)
    assert not found, "\n".join(found)


def test_every_allowance_has_a_reason() -> None:
    assert [a.file for a in ALLOWED if not a.reason.strip()] == []


def test_runtime_is_where_the_checker_thinks() -> None:
    found = [path for path in (ROOT / "metaclient").rglob("*.py") if _is_runtime(path.relative_to(ROOT))]
    assert found


# --- the checker, on planted files ----------------------------------------------------------------------------------


def _plant(root: Path, file: str, text: str) -> Path:
    path = root / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return root


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("import time", "time"),
        ("import time as clock", "time"),
        ("from time import monotonic", "time"),
        ("def f():\n    from time import sleep", "time"),
        ("if TYPE_CHECKING:\n    import threading", "threading"),
        ("import os, random", "random"),
        ("import concurrent.futures", "concurrent.futures"),
        ("from concurrent import futures", "concurrent.futures"),
        ("from concurrent.futures import Future", "concurrent.futures"),
        ("import asyncio.locks", "asyncio"),
        ("from queue import SimpleQueue", "queue"),
        ("import select", "select"),
        ("import socket", "socket"),
        ("from greenlet import greenlet", "greenlet"),
        ("__import__('time')", "time"),
        ("import importlib\nimportlib.import_module('threading')", "threading"),
        ("from importlib import import_module\nimport_module('random')", "random"),
        ("import datetime\ndatetime.datetime.now()", "datetime.datetime.now"),
        ("import datetime as dt\nclock = dt.datetime.utcnow", "datetime.datetime.utcnow"),
        ("from datetime import datetime as D\nD.now(tz=None)", "datetime.datetime.now"),
        ("from datetime import date\ndate.today()", "datetime.date.today"),
        ("import os\nos.urandom(8)", "os.urandom"),
        ("from os import urandom", "os.urandom"),
        ("from uuid import uuid4", "uuid.uuid4"),
        ("import tenacity.nap", "tenacity.nap"),
        ("from tenacity.nap import sleep", "tenacity.nap"),
        ("from tenacity import stop_after_delay", "tenacity.stop_after_delay"),
        ("import tenacity\ntenacity.wait_random(0, 1)", "tenacity.wait_random"),
        ("import tenacity\ntenacity.Retrying(stop=s)", "tenacity.Retrying"),
        ("from tenacity import Retrying as R\nR(stop=s)", "tenacity.Retrying"),
        ("from cachetools import TTLCache\nTTLCache(10, ttl=3)", "cachetools.TTLCache"),
    ],
)
@pytest.mark.parametrize(
    "file", ["metaclient/lookup/locator.py", "adapters/metaclient_fake/region.py", "spark_connector/reader.py"]
)
def test_checker_reports_planted_use(tmp_path: Path, file: str, text: str, name: str) -> None:
    assert [(use.file, use.name) for use in uses(_plant(tmp_path, file, text + "\n"))] == [(file, name)]


@pytest.mark.parametrize(
    "text",
    [
        "runtime.sleep(3)\nruntime.now()\nself.rng.random()",
        "from metaclient.runtime import Runtime",
        "from . import time",
        "from .queue import ReplicaQueue",
        "import timeit_like, randomness, socketless",
        "from datetime import timedelta, datetime\ndatetime.fromisoformat('2024-01-01')",
        "def now() -> float: ...\nnow()",
        "import os\nos.fsync(1)",
        "import tenacity\ntenacity.Retrying(sleep=runtime.sleep, stop=s)",
        "from cachetools import LRUCache, TTLCache\nLRUCache(10)\nTTLCache(10, ttl=3, timer=runtime.now)",
        "# time.sleep(3)\n'import random'",
    ],
)
def test_checker_accepts_the_runtime_and_lookalikes(tmp_path: Path, text: str) -> None:
    assert uses(_plant(tmp_path, "metaclient/lookup/locator.py", text + "\n")) == []


@pytest.mark.parametrize("file", ["metaclient/runtime.py", "metaclient/runtime/threads.py"])
def test_checker_leaves_the_runtime_and_benchmarks_alone(tmp_path: Path, file: str) -> None:
    _plant(tmp_path, file, "import time, threading, random\n")
    assert uses(_plant(tmp_path, "benchmarks/load.py", "from time import perf_counter\n")) == []


@pytest.mark.parametrize(
    "file",
    [
        "adapters/metaclient_fake/runtime.py",
        "metaclient/runtimes.py",
        "metaclient/cli/runtime.py",
        "metaclient/time.py",
    ],
)
def test_checker_is_not_fooled_by_another_runtime(tmp_path: Path, file: str) -> None:
    found = uses(_plant(tmp_path, file, "\nimport time\n"))
    assert [str(use) for use in found] == [f"{file}:2 uses time: take it from the Runtime"]


SOCKETS = (Allowance("adapters/metaclient_thrift/transport.py", frozenset({"socket"}), "speaks TCP"),)


def test_allowance_is_for_one_file_and_the_names_it_lists(tmp_path: Path) -> None:
    _plant(tmp_path, "adapters/metaclient_thrift/transport.py", "import socket, time\n")
    _plant(tmp_path, "adapters/metaclient_thrift/other.py", "import socket\n")
    assert verdicts(tmp_path, SOCKETS) == [
        "adapters/metaclient_thrift/other.py:1 uses socket: take it from the Runtime",
        "adapters/metaclient_thrift/transport.py:1 uses time: take it from the Runtime",
    ]


def test_allowance_that_nothing_needs_is_reported(tmp_path: Path) -> None:
    _plant(tmp_path, "adapters/metaclient_thrift/transport.py", "")
    expected = ["adapters/metaclient_thrift/transport.py no longer uses socket: remove it from ALLOWED"]
    assert verdicts(tmp_path, SOCKETS) == expected
