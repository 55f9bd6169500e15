"""Reads what is in a spool."""

from pathlib import Path

from metaclient.changes.decoding import decode_rows
from metaclient.changes.spool import Spool
from metaclient.wire.rpc.replication import decode_keys

__all__ = ["rows_in"]


def rows_in(folder: Path) -> list[bytes]:
    """Return the rows of all new entries of a spool."""
    spool = Spool(folder)
    found = []
    for part in spool.slices({}, spool.end()):
        for call in spool.read(part):
            at = 0
            for index, (_, count) in enumerate(decode_keys(call.param)):
                rows, at = decode_rows(call.cells, at, len(call.cells), count)
                if call.flags is None or call.flags[index]:
                    found += [row for row, _ in rows]
    return found
