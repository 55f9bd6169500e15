"""A spool: the calls of region servers in files, between HBase, which pushes, and a consumer that pulls and replays.

A receiver (:mod:`metaclient.changes.receiver`) appends each call to a file, makes it durable, and then answers it. A
consumer, usually in another process, reads the files while they are written, and deletes what it has processed.

======================  ==========================================================================================
``records``             the bytes of a segment: a header, then calls, each with a checksum
``disk``                the few operations on files that a worker needs; tests replace it and cut them anywhere
``journal``             the files of one worker, written: append, sync, roll, recovery after kill -9
``spool``               the files of all workers, read: positions, slices, calls, and commits, which delete segments
======================  ==========================================================================================
"""

from metaclient.changes.spool.journal import Journal, SpoolFull
from metaclient.changes.spool.records import Position, SpooledCall, SpoolError
from metaclient.changes.spool.spool import Offset, Spool, SpoolSlice, read_calls

__all__ = [
    "Journal",
    "Offset",
    "Position",
    "Spool",
    "SpoolError",
    "SpoolFull",
    "SpoolSlice",
    "SpooledCall",
    "read_calls",
]
