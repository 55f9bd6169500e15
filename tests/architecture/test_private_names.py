"""No package uses the private names (``_x``) of objects of another package.

A package here is a folder. An access ``thing._x`` is wrong in two cases:

1. No class, function or assignment of the folder defines ``_x``: the name belongs to another package.
2. ``thing`` is annotated with a class that is imported from another folder of ours (``connection: Connection``), or is
   an attribute that such a parameter is assigned to. This finds names that both packages happen to define.

``self._x``, ``cls._x`` and ``super()._x`` are a class's own names. Tests are exempt: they may look inside.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.architecture.test_imports import ROOT, SOURCE_ROOTS

#: Methods of namedtuples, which the standard library documents in spite of their names.
DOCUMENTED = frozenset({"_asdict", "_fields", "_make", "_replace"})

#: File and expression that are allowed, each with its reason.
EXCEPTIONS: Mapping[tuple[str, str], str] = {
    ("metaclient/runtime/running_loops.py", "events._get_running_loop"): "in asyncio's __all__; the other one raises",
    ("metaclient/wire/thrift/structs.py", "enum._NAMES_TO_VALUES"): "thriftpy2 offers the names of an enum only so",
    ("metaclient/wire/thrift/structs.py", "T.TKeepDeletedCells._VALUES_TO_NAMES"): "thriftpy2, as above",
    ("metaclient/wire/thrift/structs.py", "T.TCompressionAlgorithm._VALUES_TO_NAMES"): "thriftpy2, as above",
    ("metaclient/wire/thrift/structs.py", "T.TBloomFilterType._VALUES_TO_NAMES"): "thriftpy2, as above",
    ("spark_connector/dataframe.py", "spark.sparkContext._jsc"): "PySpark offers Hadoop's configuration only so",
    ("spark_connector/dataframe.py", "spark._jsparkSession"): "PySpark offers the JVM's session only so",
    ("spark_connector/tables/hosts.py", "spark.sparkContext._jsc"): "PySpark offers the list of executors only so",
    ("spark_connector/tables/jvm.py", "spark._jsparkSession"): "PySpark offers the JVM's session only so",
    ("spark_connector/tables/jvm.py", "spark._jvm"): "PySpark offers the JVM only so",
    ("spark_connector/tables/jvm.py", "spark.sparkContext._gateway"): "PySpark offers py4j's callbacks only so",
    ("adapters/metaclient_native/connection.py", "call._is_done"): "the flag of Pending, without a call per response",
    ("adapters/metaclient_fake/front/gateway.py", "self.backend._procedure"): "the master's procedures, not of the SPI",
    ("adapters/metaclient_fake/simulation/coverage.py", "region_server._TRANSITIONS"): "counts all transitions",
    ("adapters/metaclient_fake/simulation/coverage.py", "region_states._TRANSITIONS"): "counts all transitions",
    ("adapters/metaclient_fake/simulation/coverage.py", "replica_queue._TRANSITIONS"): "counts all transitions",
    ("adapters/metaclient_fake/simulation/defects.py", "self._writer._newest"): "plants a defect inside of the fake",
    ("adapters/metaclient_fake/simulation/world.py", "Task._fail_aloud"): "makes failed tasks fail the simulation",
    ("benchmarks/metaclient_bench/replication_cost.py", "sink._send"): "measures the parts of a sink",
    ("benchmarks/metaclient_bench/replication_cost.py", "sender._wire"): "measures the parts of a sink",
    ("benchmarks/metaclient_bench/replication_cost.py", "sender._carried"): "measures the parts of a sink",
}


def violations(root: Path) -> list[str]:
    """Return one sentence for every access to a private name of another package under ``root``."""
    files = sorted(path for package, folder in SOURCE_ROOTS.items() for path in (root / folder / package).rglob("*.py"))
    trees = {path: ast.parse(path.read_text(encoding="utf-8"), str(path)) for path in files}
    defined: dict[Path, set[str]] = {}
    for path, tree in trees.items():
        defined.setdefault(path.parent, set()).update(_defined(tree))
    found = []
    for path, tree in trees.items():
        foreign = _foreign_names(tree, path, root)
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and _is_private(node.attr) and not _is_own(node.value):
                why = None if node.attr in defined[path.parent] else f"{path.parent.name} does not define it"
                kind = foreign.get(_last_name(node.value))
                why = why or (kind and f"it is a {kind}")
                if why and (path.relative_to(root).as_posix(), ast.unparse(node)) not in EXCEPTIONS:
                    found.append(f"{path.relative_to(root)}:{node.lineno} uses {ast.unparse(node)}: {why}")
    return found


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in DOCUMENTED


def _is_own(value: ast.expr) -> bool:
    match value:
        case ast.Name(id="self" | "cls") | ast.Call(func=ast.Name(id="super")):
            return True
    return False


def _last_name(value: ast.expr) -> str:
    """Return ``connection`` for ``connection``, ``self.connection`` and ``self._connection``."""
    name = value.id if isinstance(value, ast.Name) else value.attr if isinstance(value, ast.Attribute) else ""
    return name.lstrip("_")


def _defined(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.Attribute(attr=name, value=value, ctx=ast.Store()) if _is_own(value):
                yield name


def _foreign_names(tree: ast.Module, path: Path, root: Path) -> dict[str, str]:
    """Return the names that are annotated with a class of another folder of ours, and that class."""
    roots = [root / folder for folder in SOURCE_ROOTS.values() if path.is_relative_to(root / folder)]
    here = {".".join(path.parent.relative_to(one).parts) for one in roots}
    classes = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] in SOURCE_ROOTS
        if not {node.module, node.module.rpartition(".")[0]} & here
        for alias in node.names
    }
    found = {}
    for node in ast.walk(tree):
        match node:
            case ast.arg(arg=name, annotation=ast.Name(id=kind)) if kind in classes:
                found[name] = kind
            case ast.AnnAssign(target=ast.Name() | ast.Attribute() as target, annotation=ast.Name(id=kind)) if (
                kind in classes
            ):
                found[_last_name(target)] = kind
    return found


# --- the rule -------------------------------------------------------------------------------------------------------


def test_no_package_uses_private_names_of_another() -> None:
    found = violations(ROOT)
    assert not found, "\n".join(found)


def test_exceptions_are_still_needed() -> None:
    for file, expression in EXCEPTIONS:
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        assert expression in {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}, file


# --- the checker, on planted trees ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("def f(connection):\n    connection._operations\n", "connection._operations: spark_connector does not"),
        ("def f(c: Connection):\n    c._own\n", "c._own: it is a Connection"),
        ("class A:\n    def f(self):\n        self._connection._own\n", "self._connection._own: it is a Connection"),
    ],
)
def test_checker_reports_a_private_name_of_another_package(tmp_path: Path, text: str, why: str) -> None:
    package = tmp_path / "spark_connector"
    package.mkdir()
    head = "from metaclient import Connection\nclass Own:\n    def __init__(self, connection: Connection):\n"
    (package / "x.py").write_text(head + "        self._own = 1\n" + text)
    assert [why in one for one in violations(tmp_path)] == [True]


def test_checker_accepts_private_names_of_its_own_package(tmp_path: Path) -> None:
    package = tmp_path / "spark_connector"
    package.mkdir()
    (package / "x.py").write_text("class Own:\n    def __init__(self):\n        self._own = 1\n")
    (package / "y.py").write_text("from spark_connector.x import Own\ndef f(own: Own):\n    return own._own\n")
    assert violations(tmp_path) == []
