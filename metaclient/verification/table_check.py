"""VerifyReplication in one process, without Spark: two scans in the order of keys, merged row by row.

For tables of some million rows. ``spark_connector.verify_replication`` does the same with one task per region.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace

from metaclient import keys
from metaclient.connection import Connection, connect
from metaclient.errors import ConfigError
from metaclient.model import LATEST_TIMESTAMP, Consistency, Get, Result, Scan
from metaclient.replication_peers import Peer
from metaclient.table import ALL_VERSIONS
from metaclient.verification.comparison import merged
from metaclient.verification.recomparison import Recompare, Recomparison
from metaclient.verification.report import SAMPLES, Tally, VerificationReport, counts_of
from metaclient.verification.selection import Selection, explain_key, select_families, url_of_peer

__all__ = ["connect_to_peer", "verify_replication"]

#: Rows per page of both scans.
CACHING = 1000

Key = bytes | str


@dataclass(frozen=True, slots=True)
class _TableReader:
    """A :class:`RowReader` of one table; ``scan_template`` has everything but the range of rows."""

    connection: Connection
    table: bytes
    scan_template: Scan

    def scan(self, start: bytes, stop: bytes) -> Generator[Result, None, None]:
        scan = replace(self.scan_template, start_row=start, stop_row=stop)
        with closing(iter(self.connection.engine.scan_rows(self.table, scan, Consistency.STRONG))) as found:  # type: ignore[type-var]  # a generator
            for result, _ in found:
                yield result

    def get(self, rows: Sequence[bytes]) -> list[Result]:
        if self.scan_template.is_raw:  # a get of HBase cannot return delete markers
            return [self._scanned(row) for row in rows]
        wanted = self.scan_template
        gets = [
            Get(row, wanted.columns, wanted.max_versions, wanted.min_timestamp, wanted.max_timestamp) for row in rows
        ]
        return [result for result, _ in self.connection.engine.get_many(self.table, gets, Consistency.STRONG)]

    def _scanned(self, row: bytes) -> Result:
        cells = [cell for result in self.scan(row, keys.next_row(row)) for cell in result.cells]
        return Result(row, cells)


def verify_replication(
    source: Connection,
    table: Key,
    *,
    peer: Connection | None = None,
    peer_id: str | None = None,
    peer_table: Key | None = None,
    families: Sequence[Key] = (),
    startrow: Key | None = None,
    stoprow: Key | None = None,
    row_prefixes: Sequence[Key] = (),
    starttime: int | None = None,
    endtime: int | None = None,
    versions: int | None = None,
    raw: bool = False,
    recompare_s: float | None = None,
    recompare_tries: int = 1,
    recompare_backoff_exponent: int = 0,
    samples: int = SAMPLES,
) -> VerificationReport:
    """Compare a table with its copy on another cluster, row by row, and return HBase's counters.

    ``peer`` is a connection to the other cluster. ``peer_id`` is a replication peer of the source: only the families
    that it gets are compared, and without ``peer`` its cluster key is connected to. ``starttime`` and ``endtime``
    (exclusive) are in milliseconds; set ``endtime`` on a table that is being written to. ``versions`` per cell are
    compared (default 1); ``raw`` compares delete markers and the cells that they hide, and all versions by default.
    ``recompare_s`` compares rows that differ again after that many seconds, ``recompare_tries`` times; each pause is
    ``2 ** recompare_backoff_exponent`` times the pause before it. The report shows the first ``samples`` rows that
    differ. Names of tables are complete: the ``table_prefix`` of a connection is not added.

    >>> import metaclient
    >>> with metaclient.connect("scripted:") as here, metaclient.connect("scripted:") as there:
    ...     for connection in (here, there):
    ...         connection.create_table("t", {"cf": {}})
    ...     here.table("t").put(b"r1", {b"cf:a": b"1"})
    ...     verify_replication(here, "t", peer=there).counters["ONLY_IN_SOURCE_TABLE_ROWS"]
    1
    """
    recompare = Recompare.of(recompare_s, recompare_tries, recompare_backoff_exponent)
    ranges = _ranges(startrow, stoprow, row_prefixes)
    template = _template(starttime, endtime, versions, raw)
    name = keys.table_name(keys.as_bytes(table, "table"))
    other = name if peer_table is None else keys.table_name(keys.as_bytes(peer_table, "peer_table"))
    with ExitStack() as stack:
        known = source.replication.get(peer_id) if peer_id is not None else None
        with explain_key(known if peer is None else None):
            there = _connection_to(source, peer, known, peer_table, stack)
            if there is source and other == name:
                raise ConfigError("source and peer are the same table of the same cluster: every row would be equal")
            described = source.engine.describe(name), there.engine.describe(other)
        selected = select_families(
            *described, _family_names(families), peer=known, is_other_cluster=there is not source
        )
        template = replace(template, columns=selected.families)
        readers = _TableReader(source, name, template), _TableReader(there, other, template)
        return _compared(readers, ranges, recompare, selected, samples)


def _compared(
    readers: tuple[_TableReader, _TableReader],
    ranges: Sequence[tuple[bytes, bytes]],
    recompare: Recompare | None,
    selected: Selection,
    samples: int,
) -> VerificationReport:
    source, peer = readers
    recomparison = Recomparison(source, peer, recompare, source.connection.engine.runtime.sleep)
    tally = Tally(samples)
    for start, stop in ranges:
        with closing(source.scan(start, stop)) as ours, closing(peer.scan(start, stop)) as theirs:
            tally.add_all(recomparison.final(merged(ours, theirs)))
    return VerificationReport(
        table=keys.printable(source.table),
        peer_table=keys.printable(peer.table),
        families=tuple(map(keys.printable, selected.families)),
        notes=selected.notes,
        **counts_of(tally, recomparison if recompare is not None else None),
    )


def _family_names(families: Sequence[Key]) -> list[bytes]:
    if isinstance(families, bytes | str):
        raise TypeError("'families' must be a list of names, got one name")
    return [keys.as_bytes(family, "families") for family in families]


def connect_to_peer(source: Connection, peer: Peer) -> Connection:
    """Connect to the cluster of a replication peer, with the settings of the source's connection."""
    return connect(url_of_peer(peer), config=source.config)


def _connection_to(
    source: Connection, peer: Connection | None, known: Peer | None, peer_table: Key | None, stack: ExitStack
) -> Connection:
    if peer is not None:
        return peer
    if known is not None:
        return stack.enter_context(connect_to_peer(source, known))
    if peer_table is None:
        raise ConfigError("there is nothing to compare with: give peer, peer_id or peer_table")
    return source


def _ranges(startrow: Key | None, stoprow: Key | None, row_prefixes: Sequence[Key]) -> list[tuple[bytes, bytes]]:
    """Return the ranges of rows that the arguments allow together, sorted and disjoint.

    >>> _ranges("aa", None, ["b", b"a", "ab"])
    [(b'aa', b'b'), (b'b', b'c')]
    """
    if isinstance(row_prefixes, bytes | str):
        raise TypeError("'row_prefixes' must be a list of prefixes, got one prefix")
    start, stop = (keys.as_bytes(key or b"", name) for key, name in ((startrow, "startrow"), (stoprow, "stoprow")))
    if keys.ends_before_or_at(stop, start):
        raise ConfigError(f"startrow must be before stoprow (exclusive), got {startrow!r} and {stoprow!r}")
    if not row_prefixes:
        return [(start, stop)]
    outer: list[bytes] = []  # without prefixes that begin with another one
    for prefix in sorted(keys.as_bytes(prefix, "row_prefixes") for prefix in row_prefixes):
        if not prefix:
            raise ConfigError("row_prefixes has an empty prefix, which would be every row: leave it out")
        if not outer or not prefix.startswith(outer[-1]):
            outer.append(prefix)
    found = [(max(start, prefix), keys.earlier_end(stop, keys.prefix_stop(prefix))) for prefix in outer]
    return [(first, end) for first, end in found if not keys.ends_before_or_at(end, first)]


def _template(starttime: int | None, endtime: int | None, versions: int | None, raw: bool) -> Scan:
    if versions is not None and not 1 <= versions <= ALL_VERSIONS:
        raise ConfigError(f"versions must be from 1 to {ALL_VERSIONS}, got {versions!r}")
    first, end = starttime or 0, LATEST_TIMESTAMP if endtime is None else endtime
    if first < 0 or end <= first:
        raise ConfigError(f"endtime (exclusive) must be after starttime, got {starttime!r} and {endtime!r}")
    return Scan(
        max_versions=versions or (ALL_VERSIONS if raw else 1),
        min_timestamp=first,
        max_timestamp=end,
        caching=CACHING,
        is_raw=raw,
        cache_blocks=False,
    )
