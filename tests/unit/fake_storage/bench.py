"""A region on a clock that tests set by hand, and short words for what tests do with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from metaclient.model import (
    LATEST_TIMESTAMP,
    Cell,
    CellType,
    Delete,
    FamilyDescriptor,
    Get,
    Put,
    RegionInfo,
    Result,
    Scan,
    TableDescriptor,
)
from metaclient.runtime import ThreadRuntime
from metaclient_fake.storage import FileSystem, Region, StorageConfig, Wal, WalEntry
from metaclient_fake.storage.wal import LoggedEntry

INFO = RegionInfo(b"t", region_id=1)


class Bench:
    """One file system, one clock, and regions opened on them."""

    def __init__(self, runtime: ThreadRuntime) -> None:
        self.runtime = runtime
        self.now_ms = 1000
        self.filesystem = FileSystem()
        self.servers = 0
        self.wal = self.new_wal()
        self.table = TableDescriptor(b"t", (FamilyDescriptor(b"cf", max_versions=3), FamilyDescriptor(b"g")))

    def new_wal(self) -> Wal:
        self.servers += 1
        return self.filesystem.create_wal(f"server-{self.servers}")

    def family(self, **settings: object) -> None:
        """Make ``cf`` the only family, with these settings."""
        self.table = TableDescriptor(b"t", (FamilyDescriptor(b"cf", **settings),))  # type: ignore[arg-type]  # tests

    def open(
        self,
        info: RegionInfo = INFO,
        *,
        recovered: Sequence[WalEntry] = (),
        config: StorageConfig | None = None,
        on_commit: Callable[[WalEntry], None] | None = None,
    ) -> Region:
        def told(entry: LoggedEntry, sequence_id: int, size: int) -> None:
            assert on_commit is not None
            on_commit(as_entry(entry, info, self.now_ms))

        return Region.open(
            info,
            self.table,
            self.filesystem,
            wal=self.wal,
            runtime=self.runtime,
            config=config,
            recovered=recovered,
            on_commit=told if on_commit is not None else None,
            time_ms=lambda: self.now_ms,
        )

    def crash(self, info: RegionInfo = INFO) -> Region:
        """The server dies; another one recovers the region from its log."""
        dead = self.wal
        dead.crash()
        self.wal = self.new_wal()
        return self.open(info, recovered=dead.entries_for(info.encoded_name))


def as_entry(told: LoggedEntry, info: RegionInfo, now_ms: int) -> WalEntry:
    """What a region told its replicas, as the log reads it: a packed row stands for an entry."""
    if isinstance(told, WalEntry):
        return told
    return WalEntry(info.encoded_name, info.table, told.sequence_id, now_ms, (told,), None, told.size)


def put(region: Region, row: bytes, timestamp: int = LATEST_TIMESTAMP, **values: bytes) -> None:
    """``put(region, b"r", a=b"1")`` writes cf:a."""
    cells = tuple(Cell(b"cf:" + name.encode(), timestamp, value) for name, value in values.items())
    region.mutate(Put(row, cells))


def delete(region: Region, row: bytes, column: bytes, kind: CellType, timestamp: int = LATEST_TIMESTAMP) -> None:
    region.mutate(Delete(row, (Cell(column, timestamp, b"", kind),)))


def values(region: Region, row: bytes, **options: object) -> dict[bytes, bytes]:
    """Column -> newest value."""
    result = region.get(Get(row, **options))  # type: ignore[arg-type]  # tests pass a Get's own fields
    return {cell.column: cell.value for cell in reversed(result.cells)}


def versions(region: Region, row: bytes, **options: object) -> list[tuple[int, bytes]]:
    """(timestamp, value) of all cells, newest first."""
    options.setdefault("max_versions", 1000)
    result = region.get(Get(row, **options))  # type: ignore[arg-type]  # tests pass a Get's own fields
    return [(cell.timestamp, cell.value) for cell in result.cells]


def scanned(region: Region, scan: Scan | None = None, page: int = 3) -> list[Result]:
    """All results of a scan, in small pages."""
    scanner = region.scanner(scan or Scan())
    found: list[Result] = []
    is_end = False
    while not is_end:
        results, is_end = scanner.next(page, 1 << 30)
        found += results
    return found


def rows_of(results: Sequence[Result]) -> list[bytes]:
    return [result.row for result in results]
