"""Policies about copies of hbase:meta: which one to ask, in which order, and who is out for now.

Nothing here acts. A selector answers with an order of replica ids, health is a value with pure transitions, stale
ranges remember where a location proved wrong. ``metaclient.meta.reader`` owns them and does the reading.
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
