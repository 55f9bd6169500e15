"""Bulk loads of the RPC front: reads the HFiles that a client names, and adds their cells to a region.

DIVERGENCES: there is no staging folder, the token is only a name; files are read where the client wrote them, on a file
system that this process can read, and stay there. Files with tags (a time to live per cell) are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from metaclient import keys
from metaclient.errors import ConfigError, RequestRefused
from metaclient.hfile import CorruptFile, FileMissing, StoragePath, open_hfile
from metaclient.model import Cell, CellType
from metaclient.protobuf import decode, encode
from metaclient.wire.cell_arrays import COLUMNS
from metaclient.wire.rpc import bulk_load_messages as messages
from metaclient.wire.rpc.names import table_from
from metaclient_fake.front.rpc.channel import Answer, Incoming
from metaclient_fake.front.rpc.meta_rows import replica_of_meta
from metaclient_fake.server.data_calls import DataCalls

if TYPE_CHECKING:
    from metaclient_fake.backend import FakeBackend
    from metaclient_fake.storage import Region

__all__ = ["bulk_load_methods"]


def bulk_load_methods(backend: FakeBackend, host: str) -> Mapping[str, Callable[[Incoming], Answer]]:
    """Return the methods of ClientService for the server at ``host``, by name."""
    calls = _BulkLoads(backend, host)
    return {
        "PrepareBulkLoad": calls.prepare,
        "BulkLoadHFile": calls.load,
        "CleanupBulkLoad": calls.clean_up,
    }


class _BulkLoads:
    """The calls of bulk loads at one server."""

    def __init__(self, backend: FakeBackend, host: str) -> None:
        self._backend = backend
        self._host = host

    def prepare(self, call: Incoming) -> Answer:
        request = decode(messages.PREPARE_REQUEST, call.param)
        self._at_region(_region(request), lambda _: None, call.deadline)
        number = self._backend.cluster.runtime.rng.getrandbits(64)
        token = f"/hbase/staging/{keys.printable(table_from(request['table_name']))}__{number:x}"
        return Answer(encode(messages.PREPARE_RESPONSE, {"bulk_token": token}))

    def clean_up(self, call: Incoming) -> Answer:
        decode(messages.CLEANUP_REQUEST, call.param)
        return Answer(b"")

    def load(self, call: Incoming) -> Answer:
        """Read the files, then add all their cells at once; answer false for files that do not fit or are bad."""
        request = decode(messages.BULK_LOAD_REQUEST, call.param)
        try:
            cells = _read([(one["family"], one["path"]) for one in request.get("family_path", ())])
        except (ConfigError, CorruptFile, FileMissing):
            return _answer(is_loaded=False)  # HBase logs the reason and returns false

        def add(region: Region) -> bool:
            info = region.info
            if not all(keys.contains(info.start_key, info.end_key, row) for row in cells):
                return False
            region.bulk_load(cells)
            return True

        return _answer(is_loaded=self._at_region(_region(request), add, call.deadline))

    def _at_region(self, name: bytes, run: Callable[[Region], Any], deadline: float) -> Any:
        if replica_of_meta(name) is not None:
            raise RequestRefused("hbase:meta takes no bulk load: its rows are written by the master alone")

        def at(calls: DataCalls) -> Any:
            server = calls.server
            region = server.regions.get(name)
            if region is None:
                raise server.assignments.unavailable(name)
            return run(region)

        server = self._backend.cluster.servers_by_host[self._host].name
        return self._backend.at_server(server, at, deadline=deadline, is_write=True)


def _answer(*, is_loaded: bool) -> Answer:
    return Answer(encode(messages.BULK_LOAD_RESPONSE, {"loaded": is_loaded}))


def _region(request: Mapping[str, Any]) -> bytes:
    name: bytes = request["region"]["value"]
    return name


def _read(files: Sequence[tuple[bytes, str]]) -> dict[bytes, list[Cell]]:
    """Return the cells of the files by row; CorruptFile, FileMissing or ConfigError if a file cannot be read."""
    found: dict[bytes, list[Cell]] = {}
    for family, path in files:
        with open_hfile(StoragePath.of(path)) as source:
            if source.tags_max:
                raise RequestRefused(
                    f"file {path} has tags, such as a time to live per cell, which the fake's bulk load does not keep"
                )
            for batch in source.batches():
                columns = [batch[name].to_pylist() for name in COLUMNS]
                for row, of, qualifier, stamp, kind, value in zip(*columns, strict=True):
                    if of != family:
                        raise CorruptFile(f"file {path} has cells of family {keys.printable(of)}")
                    cell = Cell(family + b":" + qualifier, stamp, value, CellType(kind))
                    found.setdefault(row, []).append(cell)
    return found
