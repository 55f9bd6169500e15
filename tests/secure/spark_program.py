"""A Spark job on a secure HBase, in a process of its own: only the driver can log in.

Arguments: one JSON object (see :class:`Job`). The executors have no ``KRB5_CONFIG``, no ticket, and cannot import the
package `gssapi`. All logs are DEBUG, and everything that Spark writes (event log, logs of master, workers and
executors) and shows (plans, errors, reprs) is kept below the job's folder, where the test looks for secrets.

The tokens of the run are read from the executors' Python workers and stored in ``secrets.json``, beside that folder.

A job's ``work`` is ``batch`` (write, read, show plans and errors) or ``stream`` (copy the changes of a table to another
table for ``stream_s``).
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import metaclient
import spark_connector as hbase_spark
from metaclient.runtime import ThreadRuntime
from metaclient_bench.spark_cluster import SparkCluster
from spark_connector.settings import tokens
from tests.spark.served import catalog_of

TABLE = "spark_secure"
ROWS = 1000
#: The tables of the stream, the longest pause between two rows of the source, and the time for the last batches.
SOURCE, SINK = "spark_secure_source", "spark_secure_sink"
ROW_PAUSE_S = 1.0
START_S_MAX = 240.0
LAST_BATCHES_S_MAX = 120.0
#: The variables by which a process finds a ticket or a token; only the driver gets them.
IDENTITY = ("KRB5_CONFIG", "KRB5CCNAME", "HADOOP_TOKEN_FILE_LOCATION")
#: Runs at the start of each Python process of Spark. The driver's own processes, which plan, have the same PYTHONPATH.
_AT_START = """import logging, os, sys
logging.basicConfig(level=logging.DEBUG)
if "KRB5_CONFIG" not in os.environ:
    sys.modules["gssapi"] = None  # an import raises ModuleNotFoundError
"""


@dataclass(frozen=True, slots=True)
class Job:
    """The job's folder, the options of its client, the work, and the duration of a stream."""

    folder: str
    options: dict[str, str]
    work: str = "batch"
    stream_s: float = 0.0

    @property
    def shown(self) -> Path:
        return Path(self.folder) / "shown"

    def login(self) -> dict[str, str]:
        """Return the options of a client in this process that logs in by the same keytab."""
        prefix = "hbase.client.keytab."
        return {"principal": self.options[f"{prefix}principal"], "keytab": self.options[f"{prefix}file"]}


def _held(batches: Iterator[Any]) -> Iterator[Any]:
    """Return, in a task, the identity that an executor could use without the driver, and the tokens that it got."""
    import pyarrow as pa

    for _ in batches:
        pass
    try:
        import gssapi  # noqa: F401  # its absence is what is asked for
    except ImportError as error:
        has_gssapi = str(error)
    else:
        has_gssapi = "yes"
    held = {
        "gssapi": has_gssapi,
        "environment": [name for name in IDENTITY if name in os.environ],
        "tokens": [
            (one.username, one.issued_ms, one.expires_ms, one.password.hex()) for one in tokens._received.values()
        ],
    }
    yield pa.RecordBatch.from_pydict({"held": [json.dumps(held)]})


class Run:
    """One run: the cluster, the session, and what was seen."""

    def __init__(self, job: Job, spark: Any) -> None:
        self.job, self.spark = job, spark
        self.options = job.options
        self.secrets: dict[int, tuple[str, int, int, str]] = {}
        self.executors: list[dict[str, object]] = []

    def show(self, name: str, text: str) -> None:
        with (self.job.shown / f"{name}.txt").open("a", encoding="utf-8") as file:
            file.write(text + "\n")

    def look(self) -> None:
        """Ask the Python workers for their tokens; those of Spark SQL run the tasks of the source, too."""
        for row in self.spark.range(0, 8, 1, 8).mapInArrow(_held, "held string").collect():
            one = json.loads(row.held)
            for token in one.pop("tokens"):
                self.secrets[token[1]] = token
            if one not in self.executors:
                self.executors.append(one)

    def read(self) -> Any:
        return self.spark.read.format("hbase").options(catalog=catalog_of(TABLE), **self.options).load()

    def numbers(self) -> Any:
        from pyspark.sql import functions as f

        return self.spark.range(ROWS).select(
            f.format_string("r%04d", "id").alias("id"), f.col("id").cast("int").alias("i"), f.lit("n").alias("name")
        )

    def batch(self) -> dict[str, object]:
        """Write and read, by the source's name and by Python objects; show plans and errors."""
        hbase_spark.write(
            self.numbers(), catalog_of(TABLE), newtable=2, regionStart="r0", regionEnd="r9", **self.options
        )
        read = self.read()
        table = hbase_spark.table(self.spark, catalog_of(TABLE), **self.options)
        counted = {"source": read.count(), "table": table.where("i < 10").count()}
        for frame in (read, table):
            for mode in ("extended", "formatted", "codegen", "cost"):
                self.show("plans", frame._sc._jvm.PythonSQLUtils.explainString(frame._jdf.queryExecution(), mode))
            self.show("reprs", f"{frame!r} {frame.schema!r} {frame._jdf.queryExecution().toString()}")
        self.look()
        failing = self.spark.read.format("hbase").options(catalog=catalog_of("no_such_table"), **self.options)
        try:
            failing.load().count()
        except Exception as error:  # its text is looked through for secrets
            self.show("errors", f"{error} {error!r} {getattr(error, 'java_exception', '')}")
        return counted

    def stream(self) -> dict[str, object]:
        """Copy the changes of a table to another one, while rows are written; the time begins with the first token."""
        with (
            ThreadRuntime() as runtime,
            metaclient.connect(config=self.options["hbase.spark.config.location"], **self.job.login()) as connection,
        ):
            for name in (SOURCE, SINK):
                connection.create_table(name, {"cf": {}})
            source, sink = connection.table(SOURCE), connection.table(SINK)
            query = self.copy_changes()
            written, end = 0, runtime.now() + START_S_MAX
            has_begun = False
            try:
                while runtime.now() < end:
                    if self.secrets and not has_begun:
                        has_begun, end = True, runtime.now() + self.job.stream_s
                    source.put(b"r%05d" % written, {b"cf:n": b"%d" % written})
                    written += 1
                    if query.exception() is not None:
                        break
                    self.look()
                    runtime.sleep(ROW_PAUSE_S)
                end = runtime.now() + LAST_BATCHES_S_MAX
                while query.isActive and sink.row(b"r%05d" % (written - 1)) == {} and runtime.now() < end:
                    runtime.sleep(ROW_PAUSE_S)
                error = query.exception()
            finally:
                query.stop()
            copied = [row for row, _ in sink.scan()]
        if error is not None:
            self.show("errors", str(error))
        return {"error": str(error or ""), "written": written, "copied": len(copied)}

    def copy_changes(self) -> Any:
        """Start the stream; its rows have the layout ``raw`` on both sides."""
        options = {**self.options, "hbase.spark.query.layout": "raw"}
        changes = self.spark.readStream.format("hbase").options(
            **{**options, "hbase.table": SOURCE, "hbase.spark.stream.lag.ms": 0, "startingTimestamp": 0}
        )
        sink = {**options, "hbase.table": SINK, "checkpointLocation": str(Path(self.job.folder) / "checkpoint")}
        return changes.load().writeStream.format("hbase").options(**sink).trigger(processingTime="2 seconds").start()


def main(text: str) -> int:
    job = Job(**json.loads(text))
    folder = Path(job.folder)
    for part in ("shown", "events", "imports"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    (folder / "imports" / "sitecustomize.py").write_text(_AT_START)
    logging.basicConfig(level=logging.DEBUG, filename=str(job.shown / "driver.log"))
    identity = {name: os.environ.pop(name) for name in IDENTITY if name in os.environ}
    with SparkCluster(workers=2) as cluster:
        os.environ.update(identity)  # of this process and its JVM, not of the executors
        spark = cluster.session(
            "secure",
            **{
                "spark.eventLog.enabled": True,
                "spark.eventLog.compress": False,
                "spark.eventLog.dir": f"file://{folder / 'events'}",
                "spark.executorEnv.PYTHONPATH": str(folder / "imports"),
                "spark.worker.cleanup.enabled": False,
            },
        )
        spark.sparkContext.setLogLevel("INFO")
        hbase_spark.register(spark)
        run = Run(job, spark)
        try:
            result = {"batch": run.batch, "stream": run.stream}[job.work]()
        finally:
            spark.stop()
            for log in cluster.folder.rglob("*"):
                if log.is_file() and (log.suffix == ".log" or log.name in ("stdout", "stderr")):
                    target = job.shown / "cluster" / log.relative_to(cluster.folder)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(log, target)
            (folder / "secrets.json").write_text(json.dumps(sorted(run.secrets.values())))
    (folder / "result.json").write_text(json.dumps({**result, "executors": run.executors}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
