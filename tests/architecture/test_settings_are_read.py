"""No setting is accepted and then ignored: product code reads every field of every configuration.

A read is an attribute of the field's name, loaded from something that is named as configurations are (``config``,
``self._config``, ``limits``, ``self.config.replication``). The class that declares the field does not count, but for
its methods and properties that somebody calls.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

from metaclient.config import Config
from metaclient_fake.config.cluster import ClusterConfig
from metaclient_fake.config.region_replication import ReplicationConfig
from metaclient_fake.config.replication import PeerReplicationConfig
from metaclient_fake.config.storage import StorageConfig
from metaclient_fake.front.serving import FrontLimits
from metaclient_native.url import NativeUrl
from metaclient_thrift.url import ThriftUrl
from spark_connector.settings.options import Options

ROOT = Path(__file__).resolve().parents[2]
#: A configuration, the words that its values go by, and the folder in which it is used.
CONFIGURATIONS: list[tuple[type, set[str], str]] = [
    (Config, {"config", "_config"}, "metaclient"),
    (ClusterConfig, {"config", "_config", "settings"}, "adapters/metaclient_fake"),
    (ReplicationConfig, {"config", "_config", "replication"}, "adapters/metaclient_fake"),
    (PeerReplicationConfig, {"config", "_config", "peer_replication"}, "adapters/metaclient_fake"),
    (StorageConfig, {"config", "_config", "storage"}, "adapters/metaclient_fake"),
    (FrontLimits, {"limits", "_limits"}, "adapters/metaclient_fake"),
    (ThriftUrl, {"url", "_url", "parsed"}, "adapters/metaclient_thrift"),
    (NativeUrl, {"parsed"}, "adapters/metaclient_native"),
    (Options, {"options", "_options", "parsed"}, "spark_connector"),
]


def unread_fields(fields: Iterable[str], words: set[str], owner: str, trees: Iterable[ast.Module]) -> list[str]:
    """The fields that nothing in these modules loads from one of ``words``."""
    methods: dict[str, set[str]] = {}
    found: set[str] = set()
    for tree in trees:
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and node.name == owner:
                methods = _methods(node)
            else:
                found |= _loaded(node, words)
    waiting = [name for name in methods if name in found]
    while waiting:  # a method that is called reads fields, and calls other methods
        for name in methods.pop(waiting.pop(), set()):
            found.add(name)
            waiting += [name] if name in methods else []
    return sorted(set(fields) - found)


def _loaded(tree: ast.AST, words: set[str]) -> set[str]:
    """Attributes that are loaded from a name of ``words``, or from an attribute so called."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=word) | ast.Attribute(attr=word), attr=name, ctx=ast.Load()):
                if word in words:
                    names.add(name)
            case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str(name)), *_]):
                names.add(name)
    return names


def _methods(owner: ast.ClassDef) -> dict[str, set[str]]:
    """Methods and properties -> what each loads from ``self``; a check of values is no use of them."""
    functions = [node for node in owner.body if isinstance(node, ast.FunctionDef) and node.name != "__post_init__"]
    return {each.name: _loaded(each, {"self"}) for each in functions}


@pytest.mark.parametrize(
    ("owner", "words", "folder"), CONFIGURATIONS, ids=[each[0].__name__ for each in CONFIGURATIONS]
)
def test_every_setting_is_read(owner: type, words: set[str], folder: str) -> None:
    names = [item.name for item in dataclasses.fields(owner) if not item.name.startswith("_")]
    assert unread_fields(names, words, owner.__name__, _modules(folder)) == []


@cache
def _modules(folder: str) -> list[ast.Module]:
    return [ast.parse(path.read_text(encoding="utf-8")) for path in sorted((ROOT / folder).rglob("*.py"))]


# -- the checker, on planted modules --------------------------------------------------------------------------------

DECLARED = """
class Config:
    @property
    def double_s(self):
        return 2 * self.half_s
    def __post_init__(self):
        self.lost
"""


@pytest.mark.parametrize(
    ("reader", "unread"),
    [
        ("", ["half_s", "lost", "timeout_s"]),
        ("config.timeout_s", ["half_s", "lost"]),
        ("self._config.timeout_s + self._config.double_s", ["lost"]),
        ("def f():\n    return self.config.timeout_s, self.config.half_s", ["lost"]),
        ("config.timeout_s = config.lost = 1\nconfig.half_s", ["lost", "timeout_s"]),
        ("socket.timeout_s\nother.half_s", ["half_s", "lost", "timeout_s"]),
        ("getattr(config, 'lost')", ["half_s", "timeout_s"]),
    ],
)
def test_checker_finds_the_field_that_nothing_reads(reader: str, unread: list[str]) -> None:
    trees = [ast.parse(DECLARED), ast.parse(reader)]
    assert unread_fields(["half_s", "lost", "timeout_s"], {"config", "_config"}, "Config", trees) == unread
