"""An HBase in memory: master, region servers, hbase:meta with replicas, faults. ``metaclient.connect("fake:")``."""

import logging
from typing import TYPE_CHECKING

from metaclient_fake.backend import FakeBackend
from metaclient_fake.cluster import FakeCluster
from metaclient_fake.config.cluster import ClusterConfig
from metaclient_fake.factory import backend_factory, close_named_clusters, named_cluster
from metaclient_fake.faults import ScheduledFault

__all__ = [
    "ClusterConfig",
    "FakeBackend",
    "FakeCluster",
    "ScheduledFault",
    "backend_factory",
    "close_named_clusters",
    "named_cluster",
]

logging.getLogger(__name__).addHandler(logging.NullHandler())

if TYPE_CHECKING:
    from metaclient.testing.fake_hbase import FakeHBase

    def _has_the_type_of_the_fixture(cluster: FakeCluster) -> FakeHBase:
        """Have mypy check that the class has all methods of the type that tests of applications see."""
        return cluster
