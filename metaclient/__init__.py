"""metaclient: an HBase client for Python that spreads the reads of ``hbase:meta`` over its replicas.

>>> import metaclient
>>> connection = metaclient.connect("scripted:?meta_replicas=3")
>>> connection.create_table("t", {"cf": {}})
>>> connection.table("t").put(b"r1", {b"cf:a": b"1"})
>>> connection.table("t").row(b"r1")
{b'cf:a': b'1'}
>>> connection.close()
"""

import logging
from importlib import import_module
from typing import TYPE_CHECKING

from metaclient.arguments import DEFAULT_HOST as DEFAULT_HOST
from metaclient.arguments import DEFAULT_PORT as DEFAULT_PORT
from metaclient.backend import Capabilities as Capabilities
from metaclient.batch import Batch
from metaclient.config import Config
from metaclient.config import MetaMode as MetaMode
from metaclient.config.options import ConnectOptions as ConnectOptions
from metaclient.config.tokens import Token as Token
from metaclient.connection import Connection, connect
from metaclient.errors import AccessDenied as AccessDenied
from metaclient.errors import AuthenticationFailed as AuthenticationFailed
from metaclient.errors import (
    BatchError,
    ConfigError,
    ConfigWarning,
    ConnectionClosed,
    DeadlineExceeded,
    MetaClientError,
    NoSuchFamily,
    Overloaded,
    RegionUnavailable,
    RetriesExhausted,
    TableDisabled,
    TableExists,
    TableNotFound,
    Unsupported,
)
from metaclient.errors import KdcUnreachable as KdcUnreachable
from metaclient.errors import NoConnectionsAvailable as NoConnectionsAvailable
from metaclient.errors import NoSuchReplica as NoSuchReplica
from metaclient.errors import TableNotDisabled as TableNotDisabled
from metaclient.meta.health_tracker import MetaReplicaStatus
from metaclient.model import CompareOp as CompareOp
from metaclient.model import Consistency, RegionLocation, RegionLocations, Row
from metaclient.model import FamilyDescriptor as FamilyDescriptor
from metaclient.model import Identity as Identity
from metaclient.model import RegionInfo as RegionInfo
from metaclient.model import ServerName as ServerName
from metaclient.model import TableDescriptor as TableDescriptor
from metaclient.pool import ConnectionPool
from metaclient.replication import Replication as Replication
from metaclient.replication_peers import Peer as Peer
from metaclient.replication_peers import PeerConfig as PeerConfig
from metaclient.replication_peers import PeerState as PeerState
from metaclient.replication_peers import ReplicationStatus as ReplicationStatus
from metaclient.replication_peers import SinkLoad as SinkLoad
from metaclient.replication_peers import SourceLoad as SourceLoad
from metaclient.session import Session as Session
from metaclient.table import Table
from metaclient.table_columns import ColumnScanOptions as ColumnScanOptions
from metaclient.telemetry import Event as Event
from metaclient.verification import VerificationReport as VerificationReport
from metaclient.verification import verify_replication as verify_replication
from metaclient.wording import Version

if TYPE_CHECKING:
    from metaclient import aio as aio

#: Compares by its numbers with a version as text: "0.10.0" is later than "0.9.0".
__version__ = Version("0.1.0")

# This list is frozen. The module has further attributes: happybase's other names (DEFAULT_HOST, DEFAULT_PORT,
# NoConnectionsAvailable), so that `import metaclient as happybase` works, errors that are rarely caught by name, and
# what connections take and return: Session, MetaMode, Event, Capabilities, ServerName, RegionInfo, TableDescriptor,
# and the values of Connection.replication; verify_replication compares two of them.
__all__ = [
    "Batch",
    "BatchError",
    "Config",
    "ConfigError",
    "ConfigWarning",
    "Connection",
    "ConnectionClosed",
    "ConnectionPool",
    "Consistency",
    "DeadlineExceeded",
    "MetaClientError",
    "MetaReplicaStatus",
    "NoSuchFamily",
    "Overloaded",
    "RegionLocation",
    "RegionLocations",
    "RegionUnavailable",
    "RetriesExhausted",
    "Row",
    "Table",
    "TableDisabled",
    "TableExists",
    "TableNotFound",
    "Unsupported",
    "connect",
]


def __getattr__(name: str) -> object:
    """Import ``metaclient.aio`` when it is first used: it needs asyncio, and greenlet of the extra ``aio``."""
    if name == "aio":
        return import_module("metaclient.aio")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


logging.getLogger(__name__).addHandler(logging.NullHandler())
