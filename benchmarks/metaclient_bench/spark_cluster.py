"""Spark's own standalone cluster on this machine, from the pip package: a master and workers, each a process.

Workers listen on different addresses (127.0.0.2, 127.0.0.3, ...), so that they are different hosts for Spark's
locality. All processes are killed when the cluster is closed, and also when the process that started it dies.
``session`` creates a SparkSession on it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from metaclient.errors import MetaClientError
from metaclient.runtime import ThreadRuntime
from metaclient_local_hbase.death_watch import DeathWatch, kill_all
from spark_connector.settings.session import ensure_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SparkCluster"]

START_S = 180.0
_LOOK_S = 0.1
_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = re.compile(r"Registering worker (\S+) with")


class SparkCluster:
    """A master and ``workers`` workers of one core each; a context manager.

    >>> with SparkCluster(workers=2) as cluster:  # doctest: +SKIP
    ...     spark = cluster.session("demo")
    """

    def __init__(self, *, workers: int = 2, memory: str = "1g") -> None:
        self.workers = workers
        self._java = ensure_java()
        self._runtime = ThreadRuntime(name="spark-cluster")
        self.folder = Path(tempfile.mkdtemp(prefix="spark-cluster-"))
        self._mark = f"-Dmetaclient.cluster={self.folder}"
        self._watch = DeathWatch(self._mark)
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            self._start(memory)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> SparkCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self, memory: str) -> None:
        self._spawn("master", "127.0.0.1", "org.apache.spark.deploy.master.Master", ["--port", "0"])
        self.url = self._seen("master", _MASTER, 1)[0]
        for number in range(self.workers):
            size = ["--port", "0", "--cores", "1", "--memory", memory, "--work-dir", str(self.folder / f"work{number}")]
            worker = "org.apache.spark.deploy.worker.Worker"
            self._spawn(f"worker{number}", f"127.0.0.{2 + number}", worker, [*size, self.url])
        self._seen("master", _REGISTERED, self.workers)

    def _spawn(self, name: str, host: str, program: str, arguments: list[str]) -> None:
        import pyspark

        home = Path(pyspark.__file__).parent
        environment = {
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": host,
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_DAEMON_MEMORY": "256m",
            # close() finds the processes to kill by this mark; executors end with their worker.
            "SPARK_DAEMON_JAVA_OPTS": f"{self._mark} -Dmetaclient.process={name}",
            "PYSPARK_PYTHON": sys.executable,
        }
        command = [str(home / "bin" / "spark-class"), program, "--host", host, "--webui-port", "0", *arguments]
        with (self.folder / f"{name}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=environment,
                    cwd=self.folder,
                    start_new_session=True,
                )
            )

    def _seen(self, name: str, pattern: re.Pattern[str], count: int) -> list[str]:
        """Wait until that many lines of a log match; return the matches."""
        deadline = self._runtime.now() + START_S
        log = self.folder / f"{name}.log"
        while True:
            text = log.read_text(encoding="utf-8", errors="replace")
            found = pattern.findall(text)
            if len(found) >= count:
                return [str(one) for one in found]
            if any(process.poll() is not None for process in self._processes) or self._runtime.now() > deadline:
                raise MetaClientError(f"Spark's cluster did not start; the end of {log.name}:\n{text[-2000:]}")
            self._runtime.sleep(_LOOK_S)

    def session(self, name: str, **conf: object) -> SparkSession:
        """Return a session with one executor per worker; ``conf`` has Spark's names, with ``_`` or ``.``."""
        from pyspark.sql import SparkSession

        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        settings: dict[str, object] = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.executor.cores": 1,
            "spark.cores.max": self.workers,
            "spark.ui.enabled": False,
            "spark.sql.shuffle.partitions": 2,
            "spark.python.unix.domain.socket.enabled": True,
            "spark.sql.warehouse.dir": str(self.folder / "warehouse"),
            **{key.replace("_", "."): value for key, value in conf.items()},
        }
        builder = SparkSession.builder.master(self.url).appName(name)
        for key, value in settings.items():
            builder = builder.config(key, str(value).lower() if isinstance(value, bool) else value)
        return builder.getOrCreate()

    @property
    def pids(self) -> list[int]:
        """Process ids of the master and the workers, whose children the executors are."""
        return [process.pid for process in self._processes]

    def close(self) -> None:
        """Kill everything and remove the folder. Idempotent."""
        for process in self._processes:
            process.terminate()
        deadline = self._runtime.now() + 10.0
        for process in self._processes:
            try:
                process.wait(max(0.0, deadline - self._runtime.now()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        kill_all(self._mark)
        self._watch.leave()
        self._processes.clear()
        shutil.rmtree(self.folder, ignore_errors=True)
        self._runtime.close()
