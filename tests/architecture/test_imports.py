"""Imports run one way: values, runtime, config, SPI, policies, locator, client, front ends.

A module may import its own layer and those below it. A module that stands in no layer fails the test too: whoever adds
one says where it belongs, in ``LAYERS``, and the reader of this file has the map.

What counts as an import: any ``import`` statement, wherever it stands (inside a function or under ``TYPE_CHECKING``:
both are knowledge of the other module), and ``import_module`` or ``__import__`` of a literal name.
"""

import ast
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# From the bottom up. A name stands for the module and, if it is a package, for all that is in it.
LAYERS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "values",
        (
            "metaclient.errors",
            "metaclient.wire.filter_arguments",
            "metaclient.wire.filter_language",
            "metaclient.wire.java_errors",
            "metaclient.keys",
            "metaclient.metarow",
            "metaclient.model",
            "metaclient.lookup.region_listing",
            "metaclient.row_limit",
            "metaclient.wording",
        ),
    ),
    ("runtime", ("metaclient.runtime",)),
    (
        "config",
        (
            "metaclient.config.cluster_url",
            "metaclient.config",
            "metaclient.config.hbase_properties",
            "metaclient.telemetry",
        ),
    ),
    ("SPI", ("metaclient.backend",)),
    ("policies", ("metaclient.attempts", "metaclient.meta", "metaclient.attempts.retry")),
    ("locator", ("metaclient.lookup.location_cache", "metaclient.lookup.locator", "metaclient.meta.reader")),
    (
        "client",
        (
            "metaclient",  # the front door itself; what is below it has a layer of its own
            "metaclient.arguments",
            "metaclient.batch",
            "metaclient.connection",
            "metaclient.calls.multi",
            "metaclient.calls.operations",
            "metaclient.pool",
            "metaclient.calls.put_pages",
            "metaclient.calls.region_walk",
            "metaclient.scanner",
            "metaclient.table",
        ),
    ),
    ("front ends", ("metaclient.__main__", "metaclient.cli", "metaclient.testing")),
)

# The layers say who is below whom inside `metaclient`; these say which of our packages each one may know.
PACKAGES: dict[str, frozenset[str]] = {
    "metaclient": frozenset(),  # finds adapters by entry point
    "adapters": frozenset({"metaclient"}),
    "spark_connector": frozenset({"metaclient"}),  # reaches adapters by url, as any user does
    "benchmarks": frozenset({"metaclient", "adapters", "spark_connector"}),
}

# Narrower than its layer: the runtime is the seam under everything, so that it can be replaced whole.
ONLY: dict[str, frozenset[str]] = {"metaclient.runtime": frozenset({"metaclient.errors"})}

# Commands are for people and fixtures for tests: a backend or a Spark job that needs one of these has it upside down.
# A package's own commands (its module ``cli``) may look and behave like ours.
FOR_PEOPLE = frozenset({"metaclient.__main__", "metaclient.cli"})


@dataclasses.dataclass(frozen=True, slots=True)
class Import:
    """One import: who, where, and what."""

    importer: str
    line: int
    imported: str


def violations(root: Path) -> list[str]:
    """Every broken rule in the packages under ``root``, one sentence each."""
    modules = {_module_name(path, root): path for package in PACKAGES for path in (root / package).rglob("*.py")}
    homeless = [
        f"{name} has no layer: add it to LAYERS in {Path(__file__).name}"
        for name in modules
        if _package(name) == "metaclient" and _layer(name) is None
    ]
    imports = [found for name, path in modules.items() for found in _imports(name, path, frozenset(modules))]
    broken = [f"{i.importer}:{i.line} imports {i.imported}: {why}" for i in imports if (why := _forbidden(i))]
    return sorted(homeless + broken)


def _forbidden(found: Import) -> str | None:
    """Why this import is not allowed; None when it is."""
    here, there = _package(found.importer), _package(found.imported)
    if there == "tests":
        return "what we ship knows nothing of its tests"
    if there not in PACKAGES:
        return None
    if here != there:
        if there not in PACKAGES[here]:
            return f"{here} may not know {there}"
        is_command = here == "benchmarks" or found.importer.endswith(".cli")
        if not is_command and _place(found.imported) in FOR_PEOPLE:
            return f"{here} may not use a command"
        return None
    if here != "metaclient":
        return None
    place = _place(found.importer)
    only = ONLY.get(place)
    if only is not None and _place(found.imported) not in only | {place}:
        return f"{place} may import only {', '.join(sorted(only))}"
    lower, upper = _layer(found.importer), _layer(found.imported)
    if lower is not None and upper is not None and upper > lower:
        return f"upward, from {LAYERS[lower][0]} to {LAYERS[upper][0]}"
    return None


def _imports(name: str, path: Path, modules: frozenset[str]) -> Iterator[Import]:
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.stmt | ast.expr):
            for imported in _named_by(node, package, modules):
                yield Import(name, node.lineno, imported)


def _named_by(node: ast.stmt | ast.expr, package: str, modules: frozenset[str]) -> list[str]:
    """The modules that a node imports; ``from a import b`` is ``a.b`` where that is a module, else ``a``."""
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=module, names=names, level=level):
            base = _absolute(module or "", level, package)
            return sorted({inner if (inner := f"{base}.{a.name}") in modules else base for a in names})
        case ast.Call(
            func=ast.Name(id="__import__" | "import_module") | ast.Attribute(attr="import_module"),
            args=[ast.Constant(value=str(literal)), *_],
        ):
            level = len(literal) - len(literal.lstrip("."))
            return [_absolute(literal[level:], level, package)]
    return []


def _absolute(module: str, level: int, package: str) -> str:
    if level == 0:
        return module
    parts = package.split(".")
    return ".".join(parts[: len(parts) - level + 1] + ([module] if module else []))


def _module_name(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _package(module: str) -> str:
    return module.partition(".")[0]


def _place(module: str) -> str:
    """The name in ``LAYERS`` that speaks for this module: its own, or that of the package it is in."""
    return ".".join(module.split(".")[:2])


def _layer(module: str) -> int | None:
    place = _place(module)
    return next((rank for rank, (_, places) in enumerate(LAYERS) if place in places), None)


# --- the rule -------------------------------------------------------------------------------------------------------


def test_imports_run_one_way() -> None:
    found = violations(ROOT)
    assert not found, "\n".join(found)


def test_checker_sees_this_tree() -> None:
    """A checker that looks into the wrong folder finds nothing wrong there."""
    assert {"metaclient.errors", "metaclient.backend"} <= {
        _module_name(path, ROOT) for path in (ROOT / "metaclient").rglob("*.py")
    }


# --- the checker, on planted trees ----------------------------------------------------------------------------------

CLEAN = {
    "metaclient/__init__.py": "from metaclient.connection import connect\n",
    "metaclient/errors.py": "",
    "metaclient/keys.py": "",
    "metaclient/model.py": "from metaclient import keys\n",
    "metaclient/runtime/__init__.py": "from metaclient.runtime.threads import ThreadRuntime\n",
    "metaclient/runtime/threads.py": "import threading\nfrom metaclient.errors import X\nfrom . import waiting\n",
    "metaclient/runtime/waiting.py": "",
    "metaclient/config/fields.py": "from .model import X\n",
    "metaclient/backend.py": "from metaclient.runtime import Runtime\n",
    "metaclient/attempts/retry.py": "from metaclient.attempts.executor import run\n",
    "metaclient/attempts/__init__.py": "from metaclient.attempts.executor import run\n",
    "metaclient/attempts/executor.py": "from ..backend import Backend\nfrom . import plan\n",
    "metaclient/attempts/plan.py": "",
    "metaclient/lookup/locator.py": "from metaclient import reads, retry\n",
    "metaclient/connection.py": "from metaclient.lookup.locator import Locator\n",
    "metaclient/cli/__init__.py": "import metaclient\n",
    "metaclient/testing/scripted.py": "from metaclient import cli, connect\nfrom metaclient.backend import Backend\n",
    "adapters/metaclient_fake/__init__.py": "import metaclient\nfrom metaclient.backend import Backend\n",
    "spark_connector/__init__.py": "from metaclient import connect\n",
    "spark_connector/cli.py": "from metaclient.cli.session import common\n",
    "benchmarks/metaclient_bench/__init__.py": "import metaclient_fake, spark_connector\nfrom metaclient.cli import main\n",
}


def _plant(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def test_checker_accepts_a_clean_tree(tmp_path: Path) -> None:
    assert violations(_plant(tmp_path, CLEAN)) == []


@pytest.mark.parametrize(
    ("file", "text", "verdict"),
    [
        ("metaclient/keys.py", "import metaclient.backend", "upward, from values to SPI"),
        ("metaclient/model.py", "from metaclient import locator", "upward, from values to locator"),
        ("metaclient/model.py", "from metaclient import connect", "upward, from values to client"),
        ("metaclient/model.py", "def f():\n    from metaclient.config import X", "upward, from values to config"),
        ("metaclient/backend.py", "if TYPE_CHECKING:\n    from .locator import X", "upward, from SPI to locator"),
        ("metaclient/attempts/plan.py", "from .. import locator", "upward, from policies to locator"),
        ("metaclient/attempts/plan.py", "from ..connection import X", "upward, from policies to client"),
        ("metaclient/connection.py", "from metaclient.testing import scripted", "upward, from client to front ends"),
        ("metaclient/runtime/__init__.py", "from metaclient.model import X", "may import only metaclient.errors"),
        ("metaclient/runtime/threads.py", "from ..model import X", "may import only metaclient.errors"),
        ("metaclient/runtime/threads.py", "import metaclient.config", "may import only metaclient.errors"),
        ("metaclient/runtime/threads.py", "import metaclient", "may import only metaclient.errors"),
        ("metaclient/cli/__init__.py", "import metaclient_fake", "metaclient may not know adapters"),
        ("metaclient/cli/demo.py", "from adapters import fake", "metaclient may not know adapters"),
        ("metaclient/cli/demo.py", "import_module('metaclient_fake')", "metaclient may not know adapters"),
        ("metaclient/cli/bench.py", "importlib.import_module('benchmarks')", "metaclient may not know benchmarks"),
        ("metaclient/testing/plugin.py", "__import__('adapters')", "metaclient may not know adapters"),
        ("metaclient/lookup/locator.py", "import spark_connector", "metaclient may not know spark_connector"),
        (
            "metaclient/lookup/locator.py",
            "importlib.import_module('.cli', __package__)",
            "upward, from locator to front ends",
        ),
        ("metaclient/lookup/locator.py", "import tests.unit", "knows nothing of its tests"),
        ("adapters/metaclient_fake/__init__.py", "import benchmarks", "adapters may not know benchmarks"),
        ("adapters/metaclient_fake/__init__.py", "from metaclient.cli import main", "adapters may not use a command"),
        ("spark_connector/__init__.py", "from metaclient_fake import X", "spark_connector may not know adapters"),
        ("spark_connector/jobs.py", "from metaclient.cli import main", "spark_connector may not use a command"),
    ],
)
def test_checker_reports_planted_import(tmp_path: Path, file: str, text: str, verdict: str) -> None:
    _plant(tmp_path, CLEAN)
    found = violations(_plant(tmp_path, {file: text + "\n"}))
    assert len(found) == 1
    assert found[0].endswith(verdict)


def test_checker_asks_for_a_layer_of_a_new_module(tmp_path: Path) -> None:
    found = violations(_plant(tmp_path, {**CLEAN, "metaclient/helpers.py": ""}))
    assert found == ["metaclient.helpers has no layer: add it to LAYERS in test_imports.py"]


def test_checker_names_file_and_line(tmp_path: Path) -> None:
    _plant(tmp_path, {**CLEAN, "metaclient/keys.py": '"""Keys."""\n\nimport metaclient.lookup.locator\n'})
    assert violations(tmp_path) == [
        "metaclient.keys:3 imports metaclient.lookup.locator: upward, from values to locator"
    ]
