"""Reads of hbase:meta and of its replicas: the policies, which are exported here, and the modules that act on them.

Policies do not act: ``selector`` returns an order of replica ids, ``health`` is a value with pure transitions, and
``stale`` stores the ranges in which a location proved wrong.

The modules that act, from the bottom up: ``health_tracker`` stores the health of each replica, ``registry`` stores the
place of each replica, ``reading`` judges the answers of one read, ``calls`` sends the calls, ``probes`` probes ejected
replicas, ``java_reader`` reads as the Java client does, and ``reader`` plans a read and chooses between the two ways.
"""

from metaclient.meta.health import HealthState, ReplicaHealth
from metaclient.meta.selector import (
    Lookup,
    MetaReplicaSelector,
    MetaView,
    PrimaryWhereStale,
    ReplicaView,
    RoundRobin,
    selector_named,
)
from metaclient.meta.simple import SimpleSelector
from metaclient.meta.stale import StaleRanges

__all__ = [
    "HealthState",
    "Lookup",
    "MetaReplicaSelector",
    "MetaView",
    "PrimaryWhereStale",
    "ReplicaHealth",
    "ReplicaView",
    "RoundRobin",
    "SimpleSelector",
    "StaleRanges",
    "selector_named",
]
