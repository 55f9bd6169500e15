"""The command ``doctor``: checks the meta replicas of a cluster, their placement and lag; one verdict per line.

The advice depends on HBase's version. Since 2.4, the number of copies is the REGION_REPLICATION of hbase:meta, edits
reach the copies by replication if ``hbase.region.replica.replication.catalog.enabled`` is set, and Java clients can
balance their lookups (HBASE-18070). Before 2.4 the active master reads ``hbase.meta.replica.count`` at its start, and
the copies follow by the store file refresher only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, astuple, dataclass
from pathlib import Path

import click

from metaclient.cli.doctor_verdict import Verdict
from metaclient.cli.happybase_check import check_program
from metaclient.cli.session import CommandSession, common
from metaclient.config import MetaMode
from metaclient.connection import Connection
from metaclient.errors import MetaClientError
from metaclient.model import META_TABLE, Row
from metaclient.wording import counted

__all__ = ["Verdict", "doctor", "examine"]

#: The number of rows of hbase:meta that are compared between the replicas.
ROWS_COMPARED = 1000
#: A replica that lags more gets no edits by replication, but only from the store file refresher, which takes minutes.
LAG_WORTH_A_WORD_S = 5.0
#: A replica that differs is read up to LOOKS times, PAUSE_S apart: the replication of an edit takes a moment.
LOOKS = 4
PAUSE_S = 0.5
#: The timeout of each read; a replica that does not respond within it is reported as broken.
PATIENCE_S = 10.0

Rows = dict[bytes, Row]


@dataclass(frozen=True, slots=True, order=True)
class HBaseVersion:
    """A version of HBase, as far as the advice depends on it."""

    major: int
    minor: int
    text: str

    @classmethod
    def parse(cls, text: str) -> HBaseVersion:
        """
        >>> HBaseVersion.parse("3.0.0-alpha-4").major, HBaseVersion.parse("2.4.18") >= ALTERS_META
        (3, True)
        """
        numbers = re.match(r"(\d+)\.(\d+)", text)
        if numbers is None:
            raise ValueError(f"a version of HBase is like 2.6.1, got {text!r}")
        return cls(int(numbers[1]), int(numbers[2]), text)


#: The first version in which hbase:meta can be altered, replicates to its copies, and Java clients balance lookups.
ALTERS_META = HBaseVersion(2, 4, "")


def examine(connection: Connection, version: HBaseVersion | None = None) -> Iterator[Verdict]:
    """Check a cluster with reads of a client; nothing is changed. ``version``: for backends that do not report it.

    >>> from metaclient import connect
    >>> with connect("fake:?meta_replicas=1") as connection:
    ...     [verdict.level for verdict in examine(connection)]
    ['good', 'warning']
    """
    reported = connection.hbase_version()
    version = HBaseVersion.parse(reported) if reported else version
    if not connection.capabilities.meta_replicas:
        yield Verdict("good", "cluster", "answers")
        yield Verdict(
            "bad", "backend", "cannot address copies of hbase:meta", "connect through thrift2:// or hbase:// instead"
        )
        return
    copies = connection.meta_replicas()
    named = f"HBase {version.text}" if version else "HBase of unknown version (--hbase-version names it)"
    yield Verdict("good", "cluster", f"{named} answers, and the registry names {counted(len(copies), 'meta replica')}")
    if len(copies) == 1:
        yield Verdict(
            "warning",
            "replicas",
            "hbase:meta has one copy: every lookup of every client goes to it",
            _more_copies(version),
        )
        return
    yield _spread([copy.server for copy in copies])
    primary: Rows | None = None  # read once, to keep the load of the primary low
    for copy in copies:
        if copy.id == 0:
            verdict, primary = _primary(connection)
            yield verdict
        else:
            yield _secondary(connection, copy.id, primary, version)
    yield _mode(connection.meta_mode)


def _more_copies(version: HBaseVersion | None) -> str:
    """Return how to add copies of hbase:meta."""
    alter = "type `alter 'hbase:meta', {REGION_REPLICATION => 3}` in HBase's shell, or `metaclient alter hbase:meta "
    alter += "--replicas 3` (no restart)"
    count = "set hbase.meta.replica.count=3 in hbase-site.xml of the masters and restart the active one"
    if version is None:
        return f"HBase 2.4 or later: {alter}; before 2.4: {count}"
    return alter if version >= ALTERS_META else count


def _fresher_copies(version: HBaseVersion | None) -> str:
    """Return how copies of hbase:meta get edits sooner."""
    replicate = (
        "set hbase.region.replica.replication.catalog.enabled=true in hbase-site.xml of all servers and restart "
    )
    replicate += "them one by one (if it is set: regions may be moving, run doctor again)"
    refresh = "set hbase.regionserver.meta.storefile.refresh.period=30000 in hbase-site.xml of all servers and restart "
    refresh += "them one by one; edits reach the copies after a flush of hbase:meta, because HBase before 2.4 does not "
    refresh += "replicate it"
    if version is None:
        return f"HBase 2.4 or later: {replicate}; before 2.4: {refresh}"
    return replicate if version >= ALTERS_META else refresh


def _spread(servers: list[str | None]) -> Verdict:
    unplaced = sum(server is None for server in servers)
    if unplaced:
        return Verdict(
            "bad",
            "placement",
            f"{unplaced} of {len(servers)} copies of hbase:meta without a server",
            "see the master's log",
        )
    if len(set(servers)) < len(servers):
        return Verdict(
            "warning",
            "placement",
            f"{len(servers)} copies of hbase:meta on {counted(len(set(servers)), 'server')}: one crash takes several",
            "type `balancer` in HBase's shell, or add region servers",
        )
    return Verdict("good", "placement", f"each of the {len(servers)} copies is on a server of its own")


def _rows(connection: Connection, replica_id: int) -> Rows:
    scan = connection.table(META_TABLE, use_prefix=False).scan(
        columns=[b"info"], limit=ROWS_COMPARED, consistency="TIMELINE", replica_id=replica_id
    )
    return {key: row for key, row in scan if isinstance(row, Row)}


def _unreadable(replica_id: int, error: MetaClientError, advice: str) -> Verdict:
    return Verdict("bad", f"replica {replica_id}", f"cannot be read: {type(error).__name__}: {error}", advice)


def _primary(connection: Connection) -> tuple[Verdict, Rows | None]:
    try:
        rows = _rows(connection, 0)
    except MetaClientError as error:
        return _unreadable(0, error, "all lookups depend on the primary: check its region server"), None
    return Verdict("good", "replica 0", f"{counted(len(rows), 'row')} read"), rows


def _secondary(connection: Connection, replica_id: int, primary: Rows | None, version: HBaseVersion | None) -> Verdict:
    """Compare one replica with the primary's rows; a difference counts if it remains after a few reads."""
    about = f"replica {replica_id}"
    for look in range(LOOKS):
        if look:  # the primary may have been read too early
            connection.engine.runtime.sleep(PAUSE_S)
            primary = _primary(connection)[1]
        try:
            rows = _rows(connection, replica_id)
        except MetaClientError as error:
            return _unreadable(replica_id, error, "check its server")
        if primary is None:  # reported as replica 0: there is nothing to compare with
            return Verdict("good", about, f"{counted(len(rows), 'row')} read")
        behind = sum(rows.get(key) != row for key, row in primary.items()) + len(rows.keys() - primary.keys())
        lag_s = max((row.lag_s or 0.0 for row in rows.values()), default=0.0)
        if not behind and lag_s <= LAG_WORTH_A_WORD_S:
            return Verdict("good", about, f"{counted(len(rows), 'row')} read, all equal to the primary")
    lag = f", {lag_s:.1f} s behind" if lag_s else ""
    return Verdict(
        "warning",
        about,
        f"{counted(len(rows), 'row')} read, {behind} different from the primary{lag}",
        _fresher_copies(version),
    )


def _mode(mode: MetaMode) -> Verdict:
    if mode is MetaMode.NONE:
        return Verdict(
            "warning",
            "mode",
            "this client reads only the primary",
            "leave meta_mode out, or set hbase.locator.meta.replicas.mode=LoadBalance",
        )
    return Verdict("good", "mode", f"this client uses {mode.value}")


@click.command()
@click.option("--hbase-version", metavar="VERSION", help="HBase's version, if the backend does not report it: 2.3.7.")
@click.option(
    "--happybase",
    "program",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Check a happybase program instead: the calls that differ with 'import metaclient as happybase'.",
)
@common
def doctor(session: CommandSession, hbase_version: str | None, program: Path | None) -> None:
    """Check the meta replicas of a cluster and advise what to type; exit code 1 if something is broken.

    \b
    metaclient doctor --url hbase://zk1:2181
    metaclient doctor --url thrift2://gateway:9090 --hbase-version 2.3.7
    metaclient doctor --happybase program.py
    """
    if program is None:
        version = HBaseVersion.parse(hbase_version) if hbase_version else None
        with session.connect(operation_timeout_s=PATIENCE_S) as connection:
            verdicts = list(examine(connection, version))
    else:
        try:
            verdicts = check_program(program)
        except (SyntaxError, UnicodeDecodeError) as error:
            raise click.UsageError(f"{program} is no program of Python 3: {error}") from None
    session.document({"verdicts": [asdict(verdict) for verdict in verdicts]}, rows="verdicts")
    if not session.is_for_people:
        session.table("", ("level", "about", "found", "advice"), [astuple(verdict) for verdict in verdicts])
    marks = {"good": "ok  ", "warning": "look", "bad": "BAD "}
    for verdict in verdicts:
        advice = f"\n        -> {verdict.advice}" if verdict.advice else ""
        session.say(f"{marks[verdict.level]} {verdict.about}: {verdict.found}{advice}")
    if any(verdict.level == "bad" for verdict in verdicts):
        raise SystemExit(1)
