"""Tools for tests: a fake HBase, a local real HBase, a scripted backend, the contract of backends, pytest fixtures.

>>> from metaclient.testing import FakeCluster
>>> with FakeCluster(servers=3, meta_replicas=2) as cluster, cluster.connect() as connection:
...     connection.tables()
[]
>>> from metaclient.testing import ScriptedBackend
>>> backend = ScriptedBackend(meta_replicas=3)
>>> rule = backend.on("read_meta", replica=1).hangs()
"""

from typing import TYPE_CHECKING, Any

from metaclient.testing.clusters import cluster_class
from metaclient.testing.fake_hbase import FakeHBase, FakeHBaseServer
from metaclient.testing.scripted import Call, Rule, ScriptedBackend

if TYPE_CHECKING:
    from metaclient.testing.contract import BackendContract

    #: The fake and the local HBase are separate packages, which are found by entry point.
    FakeCluster: Any
    LocalHBase: Any

__all__ = [
    "BackendContract",
    "Call",
    "FakeCluster",
    "FakeHBase",
    "FakeHBaseServer",
    "LocalHBase",
    "Rule",
    "ScriptedBackend",
]

#: Name here -> name under the entry point group ``metaclient.clusters``.
_CLUSTERS = {"FakeCluster": "fake", "LocalHBase": "hbase"}


def __getattr__(name: str) -> object:
    """Load names that need another package at their first use: clusters by entry point, the contract with pytest."""
    if name in _CLUSTERS:
        return cluster_class(_CLUSTERS[name])
    if name == "BackendContract":
        import pytest

        pytest.register_assert_rewrite("metaclient.testing.contract")
        from metaclient.testing.contract import BackendContract

        return BackendContract
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
