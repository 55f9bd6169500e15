"""The region engine: one region's data on a shared file system; knows nothing of servers, network or master."""

from adapters.fake.storage.config import StorageConfig
from adapters.fake.storage.filesystem import FileSystem, RegionDirectory
from adapters.fake.storage.flush import FlushOutcome, FlushResult
from adapters.fake.storage.region import Region, RegionState
from adapters.fake.storage.scanner import RegionScanner
from adapters.fake.storage.store_file import StoreFile
from adapters.fake.storage.wal import Marker, MarkerKind, Wal, WalEntry

__all__ = [
    "FileSystem",
    "FlushOutcome",
    "FlushResult",
    "Marker",
    "MarkerKind",
    "Region",
    "RegionDirectory",
    "RegionScanner",
    "RegionState",
    "StorageConfig",
    "StoreFile",
    "Wal",
    "WalEntry",
]
