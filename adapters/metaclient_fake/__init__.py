"""An HBase in memory: master, region servers, hbase:meta with replicas, faults. ``metaclient.connect("fake:")``."""

import logging

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
