"""The command ``replication verify``: compares a table of two clusters row by row, without Spark."""

from __future__ import annotations

import re
from contextlib import ExitStack
from typing import Any

import click

from metaclient.cli.session import CommandSession, F, clusters_named, connect_to_url, from_text, to_text
from metaclient.config.cluster_keys import ClusterKey
from metaclient.config.url_secrets import masked_url
from metaclient.errors import ConfigError
from metaclient.verification import VerificationReport, verify_replication
from metaclient.verification.report import SAMPLES

__all__ = ["comparison_options", "list_of", "recompare_arguments", "show_report", "verify"]

#: The beginning of a url: ``hbase://``, ``fake:``. A peer id has no colon, and a cluster key has its own form.
_URL = re.compile(r"[a-z][a-z0-9+]*:")


def comparison_options(command: F) -> F:
    """Add the options of every comparison, with the names of HBase's VerifyReplication."""
    for option in (
        click.option("--show", type=click.IntRange(min=0), default=SAMPLES, show_default=True, help="Rows to show."),
        click.option(
            "--recompareBackoffExponent",
            "recompare_backoff_exponent",
            type=click.IntRange(min=0),
            default=0,
            show_default=True,
            help="Each pause is 2 to this power times the pause before it.",
        ),
        click.option(
            "--recompareTries",
            "recompare_tries",
            type=click.IntRange(min=1),
            default=1,
            show_default=True,
            help="How often rows that differ are compared again.",
        ),
        click.option(
            "--recompareSleep",
            "--recomparesleep",
            "sleep_ms",
            type=click.IntRange(min=0),
            help="As --recompare, in ms.",
        ),
        click.option("--recompare", "pause_s", type=float, help="Compare rows that differ again after these seconds."),
        click.option("--raw", is_flag=True, help="Compare delete markers and the cells that they hide, too."),
        click.option(
            "--versions", type=click.IntRange(min=1), help="Versions of each cell.  [default: 1; all with --raw]"
        ),
        click.option("--families", default="", help="Families to compare, separated by commas."),
        click.option("--row-prefixes", default="", help="Only rows with one of these prefixes, separated by commas."),
    ):
        command = option(command)
    return command


def recompare_arguments(pause_s: float | None, sleep_ms: int | None) -> dict[str, float | None]:
    """Return the argument ``recompare_s`` of the options --recompare (seconds) and --recompareSleep (ms, 0 is off)."""
    if pause_s is not None and sleep_ms is not None:
        raise click.UsageError(
            "--recompare (seconds) and --recompareSleep (milliseconds) are the same option: give one"
        )
    return {"recompare_s": sleep_ms / 1000 if sleep_ms else pause_s}


def list_of(text: str) -> list[str]:
    """Return the parts of a text that are separated by commas.

    >>> list_of("a, b,")
    ['a', 'b']
    """
    return [part.strip() for part in text.split(",") if part.strip()]


@click.command("verify")
@click.argument("source")
@click.argument("target")
@click.argument("table")
@click.option("--peer", "peer_id", help="With a url as TARGET: compare the families that this peer of SOURCE gets.")
@click.option("--peer-table", help="The table's name in the other cluster.")
@click.option("--start", "startrow", default="", help="First row; \\xNN stands for a byte.")
@click.option("--stop", "stoprow", default="", help="Row to stop before; \\xNN stands for a byte.")
@click.option("--starttime", type=click.IntRange(min=0), help="Only cells from this time on (ms).")
@click.option("--endtime", type=click.IntRange(min=1), help="Only cells before this time (ms).")
@comparison_options
@clusters_named
def verify(session: CommandSession, source: str, target: str, table: str, peer_id: str | None, **options: Any) -> None:
    """Compare TABLE of the cluster SOURCE with the cluster TARGET; exit code 1 when rows differ.

    SOURCE is a url. TARGET is a url, a cluster key (zk1,zk2:2181:/hbase), or the id of a replication peer of SOURCE.
    For a peer, the families that it does not get are left out. The counters have the names of HBase's
    VerifyReplication. All rows are read by one process; `metaclient spark verify-replication` has a task per region.

    \b
    metaclient replication verify hbase://zk1:2181 west orders
    metaclient replication verify hbase://zk1:2181 hbase://zk9:2181 orders --families cf --recompare 10
    metaclient replication verify thrift2://gateway:9090 zk9:2181:/hbase orders --row-prefixes 2026,2027 --json
    """
    arguments = {
        **recompare_arguments(options.pop("pause_s"), options.pop("sleep_ms")),
        "families": [from_text(name) for name in list_of(options.pop("families"))],
        "row_prefixes": [from_text(prefix) for prefix in list_of(options.pop("row_prefixes"))],
        "startrow": from_text(options.pop("startrow")),
        "stoprow": from_text(options.pop("stoprow")),
        "samples": options.pop("show"),
        **options,
    }
    with ExitStack() as stack:
        here = stack.enter_context(connect_to_url(session, source))
        url = _url_of(target)
        if url is None and peer_id is not None:
            raise click.UsageError(f"TARGET {target!r} is a peer id, and so is --peer: with --peer, TARGET is a url")
        there = stack.enter_context(connect_to_url(session, url)) if url is not None else None
        known = peer_id if url is not None else target
        report = verify_replication(here, from_text(table), peer=there, peer_id=known, **arguments)
    shown = {"source": masked_url(source), "target": masked_url(target)}
    show_report(session, report, shown)


def _url_of(target: str) -> str | None:
    """Return the url of a TARGET that is a url or a cluster key; None for a peer id.

    >>> _url_of("zk1,zk2:2181:/hbase"), _url_of("fake:west"), _url_of("west")
    ('hbase://zk1:2181,zk2:2181/hbase', 'fake:west', None)
    """
    try:
        return ClusterKey.parse(target).url
    except ConfigError:
        return target if _URL.match(target) else None


def show_report(session: CommandSession, report: VerificationReport, more: dict[str, Any] | None = None) -> None:
    """Print a report, and exit with code 1 if rows differ."""
    session.document({**(more or {}), **report.as_dict()})
    session.table(report.table, ("counter", "rows"), report.counters.items())
    if report.samples and session.is_for_people:  # tsv has one table: the counters
        session.table("rows that differ", ("verdict", "row", "first difference"), _lines(report))
    for note in report.notes:
        session.say(f"note: {note}")
    if not report.is_equal:
        raise SystemExit(1)


def _lines(report: VerificationReport) -> list[tuple[str, str, str]]:
    return [(one.verdict.name, to_text(one.row), one.detail or "") for one in report.samples]
