"""Hands store files over to the regions of a table, as BulkLoadHFilesTool (HBase 2.6.1) does.

1. A server makes a folder for the load, in which servers keep the files until they are loaded: its path is the token.
2. Files are grouped by region. A file that spans the end of its region, because the region has split since the file
   was written, is split there into two new files.
3. All files of a region are loaded by one call, which is atomic. A region that did not take them is looked up again,
   and its files are grouped again, at most ``ATTEMPTS_MAX`` times.
4. The folder of the load is deleted.

A call whose outcome is unknown is not repeated: the server may have moved the files, and a second call would fail
although the first one succeeded.

DIVERGENCES: regions are loaded one after the other; a file is split by the process that hands it over, row by row in
Arrow, with the settings of the family.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from metaclient import keys
from metaclient.attempts.retry import pause_s
from metaclient.backend import BulkLoadBackend, BulkLoads
from metaclient.errors import CallTimeout, Disposition, MetaClientError, RequestRefused, Unsupported
from metaclient.hfile import FileSettings, HFileWriter, StoragePath, open_hfile
from metaclient.model import RegionLocation
from metaclient.wording import counted

if TYPE_CHECKING:
    from metaclient.calls.operations import Operations

__all__ = ["Loaded", "StoreFileToLoad", "load_files", "split_file"]

_log = logging.getLogger(__name__)
#: hbase.bulkload.retries.number
ATTEMPTS_MAX = 10


@dataclass(frozen=True, slots=True)
class StoreFileToLoad:
    """A store file of one family: its path, and its first and last row."""

    family: bytes
    path: StoragePath
    first_row: bytes
    last_row: bytes


@dataclass(slots=True)
class Loaded:
    """What a load did: the regions that took files, files that were split, and calls that were repeated."""

    regions: set[bytes] = field(default_factory=set)
    files: int = 0
    split_files: int = 0
    retries: int = 0


def load_files(
    operations: Operations,
    table: bytes,
    files: Sequence[StoreFileToLoad],
    settings: Mapping[bytes, FileSettings],
) -> Loaded:
    """Hand files over to the table's regions; ``settings`` of a family are those of files that have to be split.

    Raises Unsupported for a backend without bulk loads, and RequestRefused if servers do not take a file.
    """
    backend = operations.backend
    if not backend.capabilities.bulk_load or not isinstance(backend, BulkLoadBackend):
        raise Unsupported(f"backend {backend.name!r} has no bulk load: connect with HBase's own RPC (hbase://)")
    done = Loaded()
    if not files:
        return done
    load = _Load(operations, backend.bulk_loads, table, settings, done)
    place, token = load.prepare(files[0].first_row)
    try:
        load.run(list(files), token)
    finally:
        load.clean_up(place, token)
    return done


class _Load:
    """One bulk load."""

    def __init__(
        self,
        operations: Operations,
        calls: BulkLoads,
        table: bytes,
        settings: Mapping[bytes, FileSettings],
        done: Loaded,
    ) -> None:
        self._operations = operations
        self._calls = calls
        self._table = table
        self._settings = settings
        self._done = done
        self._splits = 0

    def prepare(self, row: bytes) -> tuple[RegionLocation, str]:
        """Return the region that was asked for the token, and the token."""
        operations = self._operations
        deadline = operations.deadline(self._table)

        def attempt() -> tuple[RegionLocation, str]:
            place = self._locate(row, deadline)
            return place, operations.at(place, str, self._calls.prepare, place, self._table, deadline=deadline)

        return operations.retried(attempt, deadline, self._table, "prepare a bulk load", row)

    def clean_up(self, place: RegionLocation, token: str) -> None:
        """Delete the folder of the load. A failure is logged: HBase deletes the folder when it starts again."""
        deadline = self._operations.deadline(self._table)
        try:
            self._operations.executor.call(self._calls.clean_up, place, token, deadline=deadline)
        except MetaClientError as error:
            _log.warning("the folder %s of a bulk load was not deleted: %s", token, error)

    def run(self, queue: list[StoreFileToLoad], token: str) -> None:
        """Load all files; those of a region that did not take them are tried again."""
        runtime, config = self._operations.runtime, self._operations.config
        for attempt in range(1, ATTEMPTS_MAX + 1):
            refused: list[StoreFileToLoad] = []
            last: MetaClientError | None = None
            for place, files in self._grouped(queue, reload=attempt > 1):
                error = self._load_region(place, files, token)
                if error is not None:
                    refused += files
                    last = error
            if not refused:
                return
            queue = refused
            if attempt < ATTEMPTS_MAX:
                self._done.retries += 1
                _log.info("%s of a bulk load are tried again: %s", counted(len(queue), "file"), last)
                runtime.sleep(pause_s(attempt, unit_s=config.pause_s))
        first, last_row = keys.printable(queue[0].first_row), keys.printable(queue[0].last_row)
        count = f"{counted(len(queue), 'file')} {'was' if len(queue) == 1 else 'were'}"
        raise RequestRefused(
            f"bulk load of table {keys.printable(self._table)!r}: {count} not taken after {ATTEMPTS_MAX} attempts, "
            f"among them {queue[0].path} (rows {first} to {last_row}): {last}"
        )

    def _load_region(
        self, place: RegionLocation, files: Sequence[StoreFileToLoad], token: str
    ) -> MetaClientError | None:
        """Load the files of a region; return the error after which they are tried again, None if they are loaded."""
        pairs = [(file.family, file.path.uri) for file in files]
        deadline = self._operations.deadline(self._table)
        region = keys.printable(place.region_name)
        try:
            is_loaded = self._operations.executor.call(
                self._calls.load, place, pairs, token, deadline=deadline, is_write=True
            )
        except MetaClientError as error:
            if error.may_have_applied:
                raise CallTimeout(
                    f"bulk load of region {region}: the outcome is unknown, because {error}. Its files are in the "
                    "table, or still at "
                    f"{files[0].path}; run the load again with the same timestamp, which writes the same cells",
                    may_have_applied=True,
                ) from error
            if error.disposition is Disposition.FATAL:
                raise
            return error
        if not is_loaded:
            return RequestRefused(
                f"region {region} did not take them; the log of server {place.server} has the reason. A server must be "
                f"able to read and write {files[0].path}, and the files must fit into the region"
            )
        self._done.regions.add(place.region_name)
        self._done.files += len(files)
        return None

    # -- files and regions ---------------------------------------------------------------------------------------------

    def _grouped(
        self, files: Sequence[StoreFileToLoad], *, reload: bool
    ) -> list[tuple[RegionLocation, list[StoreFileToLoad]]]:
        """Return the files of each region, those that span the end of a region as two files."""
        found: dict[bytes, tuple[RegionLocation, list[StoreFileToLoad]]] = {}
        rest = list(files)
        while rest:
            file = rest.pop()
            deadline = self._operations.deadline(self._table)
            place = self._locate(file.first_row, deadline, reload=reload)
            if keys.contains(place.region.start_key, place.region.end_key, file.last_row):
                found.setdefault(place.region_name, (place, []))[1].append(file)
                continue
            self._splits += 1
            self._done.split_files += 1
            halves = split_file(file, place.region.end_key, self._settings[file.family], self._splits)
            _log.info("file %s spans the end of region %s and was split", file.path, place.region.encoded_name)
            rest += halves
        return list(found.values())

    def _locate(self, row: bytes, deadline: float, *, reload: bool = False) -> RegionLocation:
        operations, table = self._operations, self._table
        entry = operations.retried(
            lambda: operations.locator.locate_region(table, row, deadline=deadline, reload=reload),
            deadline,
            table,
            "locate",
            row,
        )
        found = entry.at(0)
        assert found is not None, "locate_region returns a region with a location"
        return found


def split_file(file: StoreFileToLoad, row: bytes, settings: FileSettings, number: int) -> list[StoreFileToLoad]:
    """Write the rows before ``row`` and those from it on to two new files beside this one; return the files."""
    made: list[StoreFileToLoad] = []
    parent = StoragePath(file.path.base, file.path.path.rpartition("/")[0])
    for name, start, stop in (("bottom", b"", row), ("top", row, b"")):
        path = parent.child(f"{file.path.name}.{number}.{name}")
        with ExitStack() as stack:
            source = stack.enter_context(open_hfile(file.path))
            sink = stack.enter_context(path.output())
            writer = HFileWriter(sink, settings)
            for batch in source.batches(start, stop):
                writer.append_cells(batch)
            writer.close()
        if writer.first_row is not None and writer.last_row is not None:
            made.append(StoreFileToLoad(file.family, path, writer.first_row, writer.last_row))
    return made
