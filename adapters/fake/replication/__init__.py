"""Region replication: how a primary pushes its edits to its replicas, and what they make of it (HBASE-26233)."""

from adapters.fake.replication.buffer_manager import BufferManager
from adapters.fake.replication.config import ReplicationConfig
from adapters.fake.replication.flush_requester import FlushRequester
from adapters.fake.replication.read_gate import GateState, ReadGate
from adapters.fake.replication.replay import Replay, Replayed
from adapters.fake.replication.replica_queue import Batch, QueueState, ReplicaStatus
from adapters.fake.replication.sender import ReplicaSender, SendSlots, Wire
from adapters.fake.replication.server import ServerReplication, has_memstore_replication, is_on
from adapters.fake.replication.sink import Sink, SinkState

__all__ = [
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
    "ReplicationConfig",
    "SendSlots",
    "ServerReplication",
    "Sink",
    "SinkState",
    "Wire",
    "has_memstore_replication",
    "is_on",
]
