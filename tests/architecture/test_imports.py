"""Imports run one way, between packages and inside of each: a module imports its own layer of LAYERS or a lower one.

A module that stands in no layer fails the test too. Its author adds it to ``LAYERS``, which thereby stays the map of
the tree: each name in it is a file or a folder that ``ls`` shows.

What counts as an import: any ``import`` statement, wherever it stands (inside a function or under ``TYPE_CHECKING``:
both are knowledge of the other module), and ``import_module`` or ``__import__`` of a literal name.
"""

import ast
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: The folder on the import path that holds each package.
SOURCE_ROOTS: Mapping[str, str] = {
    "metaclient": ".",
    "metaclient_fake": "adapters",
    "metaclient_native": "adapters",
    "metaclient_thrift": "adapters",
    "metaclient_local_hbase": "adapters",
    "spark_connector": ".",
    "metaclient_bench": "benchmarks",
}

#: From the bottom up: the name of a layer, and the modules and folders in it. A package's own name is its ``__init__``.
LAYERS: Mapping[str, tuple[tuple[str, tuple[str, ...]], ...]] = {
    "metaclient": (
        (
            "values",
            (
                "cluster_status",
                "errors",
                "keys",
                "metarow",
                "model",
                "protobuf",
                "replication_peers",
                "row_limit",
                "row_runs",
                "table_schema",
                "wording",
            ),
        ),
        ("runtime", ("runtime",)),
        ("config", ("config", "telemetry")),
        ("wire and SPI", ("backend", "many_gets", "wire")),
        ("columns", ("columns",)),
        ("store files", ("hfile",)),
        ("attempts", ("attempts",)),
        ("meta", ("meta",)),
        ("lookup", ("lookup",)),
        ("freshness", ("freshness",)),
        ("calls", ("calls",)),
        (
            "client",
            (
                "aio",
                "arguments",
                "backends",
                "batch",
                "changes",
                "connection",
                "engine",
                "filters",
                "metaclient",
                "pool",
                "replication",
                "scanner",
                "session",
                "table",
                "table_columns",
                "verification",
            ),
        ),
        ("watch", ("watch",)),
        ("front ends", ("__main__", "cli", "testing")),
    ),
    "metaclient_fake": (
        ("config", ("config",)),
        ("storage", ("storage",)),
        ("network", ("network",)),
        ("coordination", ("coordination",)),
        ("region replication", ("region_replication",)),
        ("replication", ("replication",)),
        ("server", ("server",)),
        ("master", ("master",)),
        (
            "cluster",
            (
                "backend",
                "change_host",
                "chores",
                "cluster",
                "factory",
                "faults",
                "grants",
                "inherited",
                "metaclient_fake",
                "replication_admin",
                "status",
                "watching",
                "user_backend",
            ),
        ),
        ("front", ("front",)),
        ("simulation", ("simulation",)),
    ),
    "spark_connector": (
        ("schema", ("schema",)),
        ("conditions", ("conditions",)),
        ("settings", ("settings",)),
        ("clients", ("clients", "lookup_counts")),
        ("planning", ("planning",)),
        ("reading", ("reading",)),
        ("writing", ("writing",)),
        ("streaming", ("streaming",)),
        ("tables", ("tables",)),
        ("data source", ("dataframe", "source")),
        ("jobs", ("jobs",)),
        ("front", ("__main__", "autoload", "cli", "spark_connector")),
    ),
}

#: Which other packages of ours each package may import.
PACKAGES: Mapping[str, frozenset[str]] = {
    "metaclient": frozenset(),  # finds adapters by entry point
    "metaclient_fake": frozenset({"metaclient"}),
    "metaclient_native": frozenset({"metaclient"}),
    "metaclient_thrift": frozenset({"metaclient"}),
    "metaclient_local_hbase": frozenset({"metaclient"}),
    "spark_connector": frozenset({"metaclient"}),  # reaches adapters by url, as any user does
    "metaclient_bench": frozenset(SOURCE_ROOTS) - {"metaclient_bench"},
}

#: Narrower than its layer: the runtime is the seam below everything, so that it can be replaced as a whole.
ONLY: Mapping[str, frozenset[str]] = {"metaclient.runtime": frozenset({"metaclient.errors"})}

#: Upward imports that are allowed, each with its reason.
EXCEPTIONS: Mapping[tuple[str, str], str] = {
    ("metaclient_fake.cluster", "metaclient_fake.front"): "FakeCluster.serve() starts the front that serves it",
}

#: Commands are for people: a backend or a Spark job must not need one. A package's own ``cli`` may use ours.
COMMANDS = frozenset({"metaclient.__main__", "metaclient.cli"})


@dataclasses.dataclass(frozen=True, slots=True)
class Import:
    """One import: the importing module, the line, and the imported module."""

    importer: str
    line: int
    imported: str


def violations(root: Path) -> list[str]:
    """Return one sentence for every broken rule in the packages under ``root``."""
    modules = {
        _module_name(path, root / folder): path
        for package, folder in SOURCE_ROOTS.items()
        for path in (root / folder / package).rglob("*.py")
    }
    homeless = [
        f"{name} has no layer: add it to LAYERS in {Path(__file__).name}"
        for name in modules
        if _package(name) in LAYERS and _layer(name) is None
    ]
    imports = [found for name, path in modules.items() for found in _imports(name, path, frozenset(modules))]
    broken = [f"{i.importer}:{i.line} imports {i.imported}: {why}" for i in imports if (why := _forbidden(i))]
    return sorted(homeless + broken)


def _forbidden(found: Import) -> str | None:
    """Return why this import is not allowed; None when it is."""
    here, there = _package(found.importer), _package(found.imported)
    if there == "tests":
        return "shipped code must not import tests"
    if there not in PACKAGES:
        return None
    if here != there:
        return _forbidden_between(found, here, there)
    place = _place(found.importer)
    only = ONLY.get(place)
    if only is not None and _place(found.imported) not in only | {place}:
        return f"{place} may import only {', '.join(sorted(only))}"
    if (place, _place(found.imported)) in EXCEPTIONS:
        return None
    lower, upper = _layer(found.importer), _layer(found.imported)
    if lower is not None and upper is not None and upper > lower:
        return f"upward, from {LAYERS[here][lower][0]} to {LAYERS[here][upper][0]}"
    return None


def _forbidden_between(found: Import, here: str, there: str) -> str | None:
    if there not in PACKAGES[here]:
        return f"{here} may not import {there}"
    is_command = here == "metaclient_bench" or found.importer.endswith(".cli")
    if not is_command and _place(found.imported) in COMMANDS:
        return f"{here} may not use a command"
    return None


def _imports(name: str, path: Path, modules: frozenset[str]) -> Iterator[Import]:
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.stmt | ast.expr):
            for imported in _named_by(node, package, modules):
                yield Import(name, node.lineno, imported)


def _named_by(node: ast.stmt | ast.expr, package: str, modules: frozenset[str]) -> list[str]:
    """Return the modules that a node imports; ``from a import b`` is ``a.b`` where that is a module, else ``a``."""
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
    """Return the top module or folder of its package that this module is in."""
    return ".".join(module.split(".")[:2])


def _layer(module: str) -> int | None:
    name = _place(module).rpartition(".")[2]
    return next((rank for rank, (_, names) in enumerate(LAYERS.get(_package(module), ())) if name in names), None)


# --- the rule -------------------------------------------------------------------------------------------------------


def test_imports_run_one_way() -> None:
    found = violations(ROOT)
    assert not found, "\n".join(found)


def test_checker_sees_this_tree() -> None:
    """A checker that looks into the wrong folder finds nothing wrong there."""
    for package, folder in SOURCE_ROOTS.items():
        assert (ROOT / folder / package / "__init__.py").is_file()


@pytest.mark.parametrize("package", LAYERS)
def test_layers_name_only_what_is_there(package: str) -> None:
    """``LAYERS`` reads like ``ls``: every name in it is a module or a folder."""
    folder = ROOT / SOURCE_ROOTS[package] / package
    names = {name for _, names in LAYERS[package] for name in names} - {package}
    assert {name for name in names if not (folder / name).is_dir() and not (folder / f"{name}.py").is_file()} == set()


def test_exceptions_are_still_needed() -> None:
    found = set()
    for package, folder in SOURCE_ROOTS.items():
        for path in (ROOT / folder / package).rglob("*.py"):
            name = _module_name(path, ROOT / folder)
            found |= {(_place(one.importer), _place(one.imported)) for one in _imports(name, path, frozenset())}
    assert set(EXCEPTIONS) <= found


# --- the checker, on planted trees ----------------------------------------------------------------------------------

CLEAN = {
    "metaclient/__init__.py": "from metaclient.connection import connect\n",
    "metaclient/errors.py": "",
    "metaclient/keys.py": "",
    "metaclient/model.py": "from metaclient import keys\n",
    "metaclient/runtime/__init__.py": "from metaclient.runtime.threads import ThreadRuntime\n",
    "metaclient/runtime/threads.py": "import threading\nfrom metaclient.errors import X\nfrom . import waiting\n",
    "metaclient/runtime/waiting.py": "",
    "metaclient/config/__init__.py": "from ..model import X\n",
    "metaclient/backend.py": "from metaclient.runtime import Runtime\n",
    "metaclient/attempts/__init__.py": "from metaclient.attempts.executor import run\n",
    "metaclient/attempts/executor.py": "from ..backend import Backend\nfrom . import plan\n",
    "metaclient/attempts/plan.py": "",
    "metaclient/meta/__init__.py": "from metaclient import attempts\n",
    "metaclient/lookup/__init__.py": "",
    "metaclient/lookup/locator.py": "from metaclient import attempts, meta\n",
    "metaclient/connection.py": "from metaclient.lookup.locator import Locator\n",
    "metaclient/cli/__init__.py": "import metaclient\n",
    "metaclient/testing/scripted.py": "from metaclient import cli, connect\nfrom metaclient.backend import Backend\n",
    "adapters/metaclient_fake/__init__.py": "import metaclient\nfrom metaclient.backend import Backend\n",
    "adapters/metaclient_fake/storage/__init__.py": "",
    "adapters/metaclient_fake/server/__init__.py": "from metaclient_fake import storage\n",
    "adapters/metaclient_native/__init__.py": "import metaclient.wire.rpc\n",
    "spark_connector/__init__.py": "from metaclient import connect\n",
    "spark_connector/schema/__init__.py": "",
    "spark_connector/planning/__init__.py": "import spark_connector.schema\n",
    "spark_connector/cli.py": "from metaclient.cli.session import common\n",
    "benchmarks/metaclient_bench/__init__.py": "import metaclient_fake\nfrom metaclient.cli import main\n",
}
LOCATOR = "metaclient/lookup/locator.py"
FAKE = "adapters/metaclient_fake/__init__.py"


def _plant(root: Path, files: Mapping[str, str]) -> Path:
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
        ("metaclient/keys.py", "import metaclient.backend", "upward, from values to wire and SPI"),
        ("metaclient/model.py", "from metaclient.lookup import locator", "upward, from values to lookup"),
        ("metaclient/model.py", "from metaclient import connect", "upward, from values to client"),
        ("metaclient/model.py", "def f():\n    from metaclient.config import X", "upward, from values to config"),
        ("metaclient/backend.py", "if TYPE_CHECKING:\n    from .meta import X", "upward, from wire and SPI to meta"),
        ("metaclient/attempts/plan.py", "from .. import lookup", "upward, from attempts to lookup"),
        ("metaclient/attempts/plan.py", "from ..connection import X", "upward, from attempts to client"),
        ("metaclient/connection.py", "from metaclient.testing import scripted", "upward, from client to front ends"),
        ("metaclient/runtime/__init__.py", "from metaclient.model import X", "may import only metaclient.errors"),
        ("metaclient/runtime/threads.py", "from ..model import X", "may import only metaclient.errors"),
        ("metaclient/runtime/threads.py", "import metaclient.config", "may import only metaclient.errors"),
        ("metaclient/runtime/threads.py", "import metaclient", "may import only metaclient.errors"),
        ("metaclient/cli/__init__.py", "import metaclient_fake", "metaclient may not import metaclient_fake"),
        ("metaclient/cli/demo.py", "from metaclient_fake import cluster", "metaclient may not import metaclient_fake"),
        ("metaclient/cli/demo.py", "import_module('metaclient_fake.x')", "metaclient may not import metaclient_fake"),
        ("metaclient/testing/plugin.py", "__import__('spark_connector')", "metaclient may not import spark_connector"),
        (LOCATOR, "importlib.import_module('metaclient_bench')", "metaclient may not import metaclient_bench"),
        (LOCATOR, "importlib.import_module('..cli', __package__)", "upward, from lookup to front ends"),
        (LOCATOR, "import tests.unit", "shipped code must not import tests"),
        (FAKE, "import metaclient_bench", "metaclient_fake may not import metaclient_bench"),
        (FAKE, "import metaclient_native", "metaclient_fake may not import metaclient_native"),
        (FAKE, "from metaclient.cli import main", "metaclient_fake may not use a command"),
        ("adapters/metaclient_fake/storage/x.py", "import metaclient_fake.server", "upward, from storage to server"),
        ("spark_connector/__init__.py", "import metaclient_fake", "spark_connector may not import metaclient_fake"),
        ("spark_connector/jobs/x.py", "from metaclient.cli import main", "spark_connector may not use a command"),
        ("spark_connector/schema/x.py", "import spark_connector.planning", "upward, from schema to planning"),
    ],
)
def test_checker_reports_planted_import(tmp_path: Path, file: str, text: str, verdict: str) -> None:
    _plant(tmp_path, CLEAN)
    found = violations(_plant(tmp_path, {file: text + "\n"}))
    assert len(found) == 1
    assert found[0].endswith(verdict)


def test_checker_asks_for_a_layer_of_a_new_module(tmp_path: Path) -> None:
    found = violations(_plant(tmp_path, {**CLEAN, "metaclient/helpers.py": "", "spark_connector/extra.py": ""}))
    assert found == [
        "metaclient.helpers has no layer: add it to LAYERS in test_imports.py",
        "spark_connector.extra has no layer: add it to LAYERS in test_imports.py",
    ]


def test_checker_names_file_and_line(tmp_path: Path) -> None:
    _plant(tmp_path, {**CLEAN, "metaclient/keys.py": '"""Keys."""\n\nimport metaclient.lookup\n'})
    assert violations(tmp_path) == ["metaclient.keys:3 imports metaclient.lookup: upward, from values to lookup"]
