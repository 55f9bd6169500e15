"""Reports the progress of a job (tasks done, all tasks) to a function, as a bar on a terminal, or in the log."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from metaclient.errors import MetaClientError
from metaclient.runtime import ThreadRuntime
from spark_connector.settings.session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Progress", "show_progress", "watch"]

_log = logging.getLogger(__name__)

#: Called with the number of tasks that are done and of all tasks, each time that the first number grows.
Progress: TypeAlias = Callable[[int, int], None]

#: The interval between two polls of Spark's status tracker.
LOOK_S = 0.5
_GROUP = "spark.jobGroup.id"
_ABOUT = "spark.job.description"


@contextmanager
def watch(spark: SparkSession, what: str, tasks: int | None, progress: Progress | bool | None = None) -> Iterator[None]:
    """Report the progress of the Spark job that runs inside of the block, and describe its jobs as ``what``.

    ``tasks`` is the number of all tasks; None: the number of tasks of the stages that Spark has begun so far.
    ``progress`` is a function of (done, all), True for a bar on standard error, None for a bar if standard error is a
    terminal, or False for the log only.
    """
    with show_progress(what, tasks, progress) as report:
        with _handled(spark, report) if is_connect(spark) else _polled(spark, what, tasks, report):
            yield
        if tasks is not None:
            report(tasks, tasks)


@contextmanager
def show_progress(what: str, tasks: int | None, progress: Progress | bool | None) -> Iterator[Progress]:
    """Yield a function that reports progress as ``progress`` asks for; it reports each number once."""
    last: list[int] = [-1]

    def once(tell: Progress) -> Progress:
        def report(done: int, total: int) -> None:
            if done > last[0]:
                last[0] = done
                _log.info("%s: %d of %d tasks", what, done, total)
                tell(done, total)

        return report

    if callable(progress):
        yield once(progress)
        return
    is_wanted = sys.stderr.isatty() if progress is None else progress
    if not is_wanted:
        yield once(lambda done, total: None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True)) as bar:
        number = bar.add_task(what, total=tasks)
        yield once(lambda done, total: bar.update(number, completed=done, total=total))


@contextmanager
def _polled(spark: SparkSession, what: str, tasks: int | None, report: Progress) -> Iterator[None]:
    """Poll Spark's status tracker for the jobs of a new job group, in a separate thread."""
    context: Any = spark.sparkContext
    runtime = ThreadRuntime(name="spark-progress", max_tasks=1)
    group = f"hbase-{runtime.rng.getrandbits(48):012x}"
    before = {name: context.getLocalProperty(name) for name in (_GROUP, _ABOUT)}
    context.setJobGroup(group, what)
    tracker = context.statusTracker()
    runtime.start_daemon(_poll, runtime, tracker, group, tasks, report, name="progress")
    try:
        yield
        if tasks is None:
            report(*_counts(tracker, group))
    finally:
        runtime.close()
        for name, value in before.items():
            context.setLocalProperty(name, value)


def _poll(runtime: ThreadRuntime, tracker: Any, group: str, tasks: int | None, report: Progress) -> None:
    from py4j.protocol import Py4JError

    while not runtime.closed:
        try:
            done, begun = _counts(tracker, group)
            report(*((done, begun) if tasks is None else (min(done, tasks), tasks)))
            runtime.sleep(LOOK_S)
        except MetaClientError:
            return  # closed: the job is over
        except Py4JError as error:
            _log.debug("no progress from Spark's status tracker: %s", error)
            return


def _counts(tracker: Any, group: str) -> tuple[int, int]:
    """Return the tasks that are done and all tasks of the stages that have begun."""
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    known = [stage for stage in stages if stage is not None]
    return sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known)


@contextmanager
def _handled(spark: Any, report: Progress) -> Iterator[None]:
    """Let Spark Connect call a progress handler."""

    def handler(stages: Any, **_: Any) -> None:
        found = list(stages or ())
        report(sum(one.num_completed_tasks for one in found), sum(one.num_tasks for one in found))

    spark.registerProgressHandler(handler)
    try:
        yield
    finally:
        spark.removeProgressHandler(handler)
