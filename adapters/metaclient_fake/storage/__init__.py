"""The region engine: one region's data on a shared file system. It does not import servers, network or master."""

from metaclient_fake.config.storage import StorageConfig
from metaclient_fake.storage.filesystem import FileSystem, RegionDirectory
from metaclient_fake.storage.flush import FlushOutcome, FlushResult
from metaclient_fake.storage.region import Region, RegionPhase
from metaclient_fake.storage.scanner import RegionScanner
from metaclient_fake.storage.store_file import StoreFile
from metaclient_fake.storage.wal import Marker, MarkerKind, Wal, WalEntry

__all__ = [
    "FileSystem",
    "FlushOutcome",
    "FlushResult",
    "Marker",
    "MarkerKind",
    "Region",
    "RegionDirectory",
    "RegionPhase",
    "RegionScanner",
    "StorageConfig",
    "StoreFile",
    "Wal",
    "WalEntry",
]
