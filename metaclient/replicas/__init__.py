"""Policies about copies of hbase:meta: which one to ask, in which order, and who is out for now.

Nothing here acts. A selector answers with an order of replica ids, health is a value with pure transitions, stale
ranges remember where a location proved wrong. ``metaclient.meta_reader`` owns them and does the reading.
"""

from metaclient.replicas.health import HealthState, ReplicaHealth
from metaclient.replicas.selector import (
    Lookup,
    MetaReplicaSelector,
    MetaView,
    PrimaryWhereStale,
    ReplicaView,
    RoundRobin,
    selector_named,
)
from metaclient.replicas.simple import SimpleSelector
from metaclient.replicas.stale import StaleRanges

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
