"""Region replication: how a primary pushes its edits to its replicas, and how they apply them (HBASE-26233)."""

from metaclient_fake.config.region_replication import ReplicationConfig
from metaclient_fake.region_replication.buffer_manager import BufferManager
from metaclient_fake.region_replication.flush_requester import FlushRequester
from metaclient_fake.region_replication.read_gate import GateState, ReadGate
from metaclient_fake.region_replication.replay import Replay, Replayed
from metaclient_fake.region_replication.replica_queue import Acknowledged, Batch, QueueState, ReplicaStatus
from metaclient_fake.region_replication.sender import ReplicaSender, ReplicaTransport, SendSlots
from metaclient_fake.region_replication.server import ServerReplication, has_memstore_replication, is_on
from metaclient_fake.region_replication.sink import Sink, SinkState
from metaclient_fake.region_replication.sink_source import SinkSource

__all__ = [
    "Acknowledged",
    "Batch",
    "BufferManager",
    "FlushRequester",
    "GateState",
    "QueueState",
    "ReadGate",
    "Replay",
    "Replayed",
    "ReplicaSender",
    "ReplicaStatus",
    "ReplicaTransport",
    "ReplicationConfig",
    "SendSlots",
    "ServerReplication",
    "Sink",
    "SinkSource",
    "SinkState",
    "has_memstore_replication",
    "is_on",
]
