"""Finds the calls of a happybase program that differ, or are missing, with ``import metaclient as happybase``.

The program is read, not run: names of modules and attributes decide. So a finding is a line to look at, and names that
are built at run time are not found.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from metaclient.cli.doctor_verdict import Verdict
from metaclient.wording import counted

__all__ = ["check_program"]

#: Modules of happybase with names that metaclient has in a module of the same name.
_SAME_MODULES = frozenset({"happybase", "happybase.connection", "happybase.pool", "happybase.table", "happybase.batch"})
#: Names of happybase's modules that metaclient's modules do not have -> what to write.
_MISSING_NAMES = {
    "THRIFT_TRANSPORTS": "give transport='buffered' or 'framed'",
    "THRIFT_PROTOCOLS": "give protocol='binary' or 'compact'",
    "STRING_OR_BINARY": "write (str, bytes)",
    "make_row": "rows are dicts already",
    "make_ordered_row": "rows are dicts already",
}
#: Attributes of happybase's objects that are gone or differ -> why, and what to write.
_ATTRIBUTES = {
    "_queue": "the pool has one connection and lends permits to use it: use pool.size",
    "_thread_connections": "the pool has one connection, which threads share",
    "_acquire_connection": "use `with pool.connection() as connection`",
    "_return_connection": "use `with pool.connection() as connection`",
    "_transport_class": "give transport= to Connection",
    "_protocol_class": "give protocol= to Connection",
    "_mutations": "a batch keeps operations of its own kind: use batch.send()",
    "_mutation_count": "a batch keeps operations of its own kind: count in the program",
    "_reset_mutations": "make a new batch instead",
    "_column_family_names": "use table.families()",
    "_initialized": "use connection.transport.is_open()",
}


def check_program(path: Path) -> list[Verdict]:
    """Return a verdict per line that differs, and one for the whole program; raise OSError or SyntaxError."""
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    found = sorted(set(_findings(tree, path.name)), key=lambda one: (_line(one), one.found))
    if not _imports_happybase(tree):
        found.append(Verdict("warning", path.name, "it does not import happybase", "check the modules that do"))
    elif not found:
        found.append(Verdict("good", path.name, "every call that was recognised means the same"))
    else:
        calls = counted(len(found), "place")
        found.append(Verdict("warning", path.name, f"{calls} to look at; change the import for the rest"))
    return found


def _line(verdict: Verdict) -> int:
    return int(verdict.about.rpartition(":")[2] or 0)


def _imports_happybase(tree: ast.AST) -> bool:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and any(name.name.partition(".")[0] == "happybase" for name in node.names):
            return True
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "happybase":
            return True
    return False


def _findings(tree: ast.AST, name: str) -> Iterator[Verdict]:
    for node in ast.walk(tree):
        where = f"{name}:{getattr(node, 'lineno', 0)}"
        match node:
            case ast.Import(names=names):
                for each in names:
                    if each.name.startswith("happybase.") and each.name not in _SAME_MODULES:
                        yield _no_module(where, each.name)
            case ast.ImportFrom(module=str(module), names=names) if module.partition(".")[0] == "happybase":
                if module not in _SAME_MODULES:
                    yield _no_module(where, module)
                for each in names:
                    if each.name in _MISSING_NAMES:
                        yield Verdict("bad", where, f"{module}.{each.name} is not there", _MISSING_NAMES[each.name])
            case ast.ClassDef(bases=bases):
                for base in bases:
                    if _dotted(base) in ("happybase.Connection", "happybase.ConnectionPool", "happybase.Table"):
                        yield Verdict(
                            "warning",
                            where,
                            f"class {node.name} inherits from {_dotted(base)}",
                            "public methods can be overridden; private ones are others",
                        )
            case ast.Attribute(attr=attribute) if attribute in _ATTRIBUTES:
                yield Verdict("bad", where, f".{attribute} is not there", _ATTRIBUTES[attribute])
            case ast.Attribute(attr="__version__", value=ast.Name(id="happybase")):
                yield Verdict(
                    "warning",
                    where,
                    "happybase.__version__ becomes the version of metaclient, which is less than 1.0",
                    "remove the test for happybase's version",
                )
            case ast.Call():
                yield from _call(node, where)


def _no_module(where: str, module: str) -> Verdict:
    return Verdict("bad", where, f"metaclient has no module {module.partition('.')[2]}", "leave the import as it is")


def _call(node: ast.Call, where: str) -> Iterator[Verdict]:
    keywords = {keyword.arg: keyword.value for keyword in node.keywords}
    name = _dotted(node.func).rpartition(".")[2]
    is_connection = name in ("Connection", "ConnectionPool") and _dotted(node.func).startswith("happybase")
    if is_connection and isinstance(value := keywords.get("compat"), ast.Constant) and value.value != "0.98":
        yield Verdict("warning", where, f"compat={value.value!r} is accepted and not used", "HBase 2 and 3 need none")
    is_reversed = isinstance(value := keywords.get("reverse"), ast.Constant) and bool(value.value)
    if name == "scan" and "row_prefix" in keywords and is_reversed:
        yield Verdict(
            "warning",
            where,
            "a reversed scan of a prefix has the rows of the prefix, which happybase's has not: it begins one row "
            "above and leaves out the row that equals the prefix",
            "remove what corrects that",
        )
    if name == "delete" and len(node.args) > 1 and isinstance(node.args[1], ast.List) and not node.args[1].elts:
        yield Verdict("bad", where, "delete(row, []) is refused", "leave the columns out to delete the whole row")


def _dotted(node: ast.expr) -> str:
    """Return ``a.b.c`` of a name or an attribute; empty text for other expressions."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attribute):
            return f"{_dotted(value)}.{attribute}"
    return ""
