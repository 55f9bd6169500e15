"""``metaclient spark ...``: the connector's jobs on the command line, each in a Spark session of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click

from metaclient.cli.session import CommandSession, common, to_text
from metaclient.cli.verification import comparison_options, list_of, recompare_arguments, show_report
from metaclient.config import Config
from metaclient.config.cluster_url import chosen_url
from metaclient.config.url_secrets import masked_url
from metaclient.errors import MetaClientError
from metaclient.wording import counted
from spark_connector.settings.session import ensure_java, ensure_python, need_pyspark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SparkFailed", "spark"]

F = TypeVar("F", bound=Callable[..., Any])
Begin: TypeAlias = "Callable[[], AbstractContextManager[SparkSession]]"
#: Rows of a read, or of the differences, that a command shows by default.
SHOWN = 20

_DEFAULTS = {
    "spark.app.name": "metaclient",
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.unix.domain.socket.enabled": "true",  # a quarter of the cost of a small partition
}


class SparkFailed(MetaClientError):
    """A Spark job failed; the message is the last error of its tasks."""


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def spark() -> None:
    """Read, count, copy and verify HBase tables in Spark, with one task per region."""


def _job(command: F) -> F:
    """Add the options of every job; the command gets its own session and a function that starts a Spark session."""

    @click.option("--master", default="local[*]", show_default=True, help="Where Spark runs: spark://host:7077, ...")
    @click.option("--conf", "confs", multiple=True, metavar="NAME=VALUE", help="A setting of Spark.")
    @click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="An option of the data source.")
    @common
    @functools.wraps(command)
    def wrapper(
        session: CommandSession, master: str, confs: Sequence[str], options: Sequence[str], **arguments: Any
    ) -> None:
        need_pyspark()
        session = replace(session, url=chosen_url(session.url, Config.of(session.config).properties))
        given: dict[str, str] = {**_pairs("--option", options)}
        if session.config is not None:
            given["hbase.spark.config.location"] = session.config
        if session.meta_mode is not None:
            given["hbase.locator.meta.replicas.mode"] = session.meta_mode
        begin = functools.partial(_spark, master, _pairs("--conf", confs))
        command(session, begin, options=given, **arguments)

    return wrapper  # type: ignore[return-value]  # click's decorators return the type of the function that they wrap


def _pairs(name: str, texts: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not sign or not key:
            raise click.UsageError(f"{name} is NAME=VALUE, got {masked_url(text)!r}")
        if key in found:
            raise click.UsageError(f"{name} {key} is given twice")  # the values may hold passwords
        found[key] = value
    return found


@contextmanager
def _spark(master: str, confs: dict[str, str]) -> Iterator[SparkSession]:
    """Yield a Spark session that ends with the command; raise errors of Spark as :class:`SparkFailed`."""
    ensure_java()
    ensure_python()
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master)
    for name, value in {**_DEFAULTS, **confs}.items():
        builder = builder.config(name, value)
    try:
        running = builder.getOrCreate()
    except (PySparkException, Py4JError) as error:
        raise SparkFailed(f"no Spark session at {master!r}: {_last_line(error)}") from error
    try:
        yield running
    except (PySparkException, Py4JError) as error:
        raise SparkFailed(_last_line(error)) from error
    finally:
        running.stop()


def _last_line(error: Exception) -> str:
    """Return the last error line of this package, or the first line: Spark adds the stack traces of Python and Java."""
    lines = [line.strip() for line in str(error).splitlines()]
    ours = [line for line in lines if line.startswith(("metaclient.", "spark_connector."))]
    return (ours or [line for line in lines if line] or [type(error).__name__])[-1 if ours else 0]


def _range(command: F) -> F:
    """Add the options that choose rows and cells, with the names of HBase's tools."""
    for option in (
        click.option("--endtime", type=click.IntRange(min=1), help="Only cells before this time (ms)."),
        click.option("--starttime", type=click.IntRange(min=0), help="Only cells from this time on (ms)."),
        click.option("--prefix", help="Only rows with this prefix."),
        click.option("--stop", "stoprow", help="Row to stop before; \\xNN stands for a byte."),
        click.option("--start", "startrow", help="First row; \\xNN stands for a byte."),
    ):
        command = option(command)
    return command


@spark.command("row-count")
@click.argument("table")
@_range
@click.option("--expected", type=click.IntRange(min=0), help="Fail if the number of rows is not this one.")
@_job
def row_count(session: CommandSession, begin: Begin, table: str, **arguments: Any) -> None:
    """Count the rows of TABLE."""
    from spark_connector.jobs import row_count as job

    options = arguments.pop("options")
    with begin() as running:
        rows = job(running, table, url=session.url, progress=_progress(session), **arguments, **options)
    session.done({"table": table, "rows": rows}, counted(rows, "row"))


@spark.command("copy-table")
@click.argument("table")
@_range
@click.option("--row-prefixes", default="", help="Only rows with one of these prefixes, separated by commas.")
@click.option("--to-table", help="The target's name; the same by default.")
@click.option("--to-url", help="The target's cluster; the same by default.")
@click.option("--families", help="Families to copy, separated by commas; a:b writes family a to b.")
@click.option("--versions", type=click.IntRange(min=1), default=1, show_default=True, help="Versions of each cell.")
@click.option("--all-cells", is_flag=True, help="Copy all versions, delete markers and the cells that they hide.")
@click.option(
    "--create", is_flag=True, help="Create the target with the source's families and regions if it is missing."
)
@_job
def copy_table(session: CommandSession, begin: Begin, table: str, **arguments: Any) -> None:
    """Copy TABLE, or a part of it, to another table."""
    from spark_connector.jobs import copy_table as job

    options = arguments.pop("options")
    arguments["row_prefixes"] = list_of(arguments["row_prefixes"])
    with begin() as running:
        done = job(running, table, url=session.url, progress=_progress(session), **arguments, **options)
    to_url = masked_url(arguments["to_url"] or session.url or "")
    text = f"{counted(done.rows, 'row')}, {counted(done.cells, 'cell')} copied to {done.to_table} at {to_url}"
    session.done({**done.as_dict(), "to": {"table": done.to_table, "url": to_url}}, text)


@spark.command("verify-replication")
@click.argument("table")
@_range
@click.option("--peer-url", help="The other cluster.")
@click.option("--peer", "peer_id", help="A replication peer: its cluster, and the families that it gets.")
@click.option("--peer-table", help="The table's name there.")
@click.option("--replica", "replica_id", type=click.IntRange(min=1), help="Compare with this replica of each region.")
@comparison_options
@click.option("--block-rows", type=click.IntRange(min=1), help="First compare digests of blocks of this many rows.")
@_job
def verify_replication(session: CommandSession, begin: Begin, table: str, show: int, **arguments: Any) -> None:
    """Compare TABLE with its copy, or with its replica; exit code 1 when rows differ."""
    from spark_connector.jobs import verify_replication as job

    options = arguments.pop("options")
    arguments |= recompare_arguments(arguments.pop("pause_s"), arguments.pop("sleep_ms"))
    arguments |= {name: list_of(arguments[name]) for name in ("families", "row_prefixes")}
    with begin() as running:
        report = job(running, table, url=session.url, samples=show, progress=_progress(session), **arguments, **options)
        report.close()
    show_report(session, report)


@spark.command("read")
@click.argument("table", required=False)
@click.option(
    "--catalog", "catalog_file", type=click.File(), help="A file with a catalog, as JSON of hbase-connectors."
)
@click.option("--columns", help="Columns of the catalog, separated by commas.")
@click.option("--where", help="A condition, as SQL.")
@click.option("--limit", type=click.IntRange(min=1), default=SHOWN, show_default=True, help="Rows at most.")
@_job
def read(
    session: CommandSession,
    begin: Begin,
    table: str | None,
    catalog_file: Any,
    columns: str | None,
    where: str | None,
    limit: int,
    options: dict[str, str],
) -> None:
    """Read rows of TABLE (as maps of its cells), or of the table and columns of a catalog."""
    from spark_connector.dataframe import table as dataframe

    if (table is None) == (catalog_file is None):
        raise click.UsageError("give TABLE, or --catalog with a file, and not both")
    if table is not None:
        options = {"hbase.table": table, "hbase.spark.query.layout": "map", **options}
    wanted = [name.strip() for name in columns.split(",")] if columns else None
    catalog = catalog_file.read() if catalog_file is not None else None
    with begin() as running:
        df = dataframe(running, catalog, url=session.url, columns=wanted, where=where, limit=limit, **options)
        _show(session, df)


def _show(session: CommandSession, df: DataFrame) -> None:
    rows = [row.asDict() for row in df.collect()]
    session.document(
        {"columns": df.columns, "rows": [{k: _plain(v) for k, v in row.items()} for row in rows]}, rows="rows"
    )
    session.table("", df.columns, [[_plain(value) for value in row.values()] for row in rows])
    session.say(counted(len(rows), "row"))


def _plain(value: Any) -> Any:
    """Return a value of Spark as a value that JSON can hold."""
    if isinstance(value, bytes | bytearray):
        return to_text(bytes(value))
    if isinstance(value, dict):
        return {_plain(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _progress(session: CommandSession) -> bool | None:
    """Return the argument ``progress`` of a job: no bar for programs, else one if stderr is a terminal."""
    return None if session.is_for_people else False
