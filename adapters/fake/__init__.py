"""An HBase in memory: master, region servers, hbase:meta with replicas, faults. ``metaclient.connect("fake:")``."""

import logging

from adapters.fake.backend import FakeBackend
from adapters.fake.cluster import FakeCluster
from adapters.fake.config import ClusterConfig
from adapters.fake.factory import backend_factory, close_named_clusters, named_cluster
from adapters.fake.faults import ScheduledFault

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
