"""A whole fake HBase: the facade that users hold, and its parts."""

from metaclient_fake.cluster.fake_cluster import FakeCluster

__all__ = ["FakeCluster"]
