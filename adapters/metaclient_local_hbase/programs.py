"""Runs single-file Java programs with HBase's jars: admin calls that gateways lack, and HBase's Java client in tests.

Java compiles them at each start (two or three seconds), so there is no build step, and only the source is shipped.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from metaclient.errors import MetaClientError, Unsupported
from metaclient_local_hbase.jars import GATEWAY_VERSION, class_path
from metaclient_local_hbase.tools import NEEDED_FOR_PROGRAMS

__all__ = ["SIMPLE_LOGIN", "JavaLogin", "java_command", "run_java", "start_java"]

#: For a program that does one thing and ends, in three seconds; a busy machine takes several times as long.
RUN_S_MAX = 240.0
#: The error text of a Java without a compiler for a source file.
_NO_COMPILER = "jdk.compiler"


@dataclass(frozen=True, slots=True)
class JavaLogin:
    """How HBase's Java client logs in: options of the JVM, and the folder of its hbase-site.xml and core-site.xml."""

    options: tuple[str, ...] = ()
    folder: Path | None = None


SIMPLE_LOGIN: Final = JavaLogin()


def java_command(source: Path, *arguments: str, is_long: bool = False, login: JavaLogin = SIMPLE_LOGIN) -> list[str]:
    """Return the command line of a program; its jars are those of 2.6.1, which work with 3.0, too.

    A short program starts faster without the optimizing compiler. A program that ``is_long`` gets the JVM's defaults.
    """
    flags = ["-Xmx1g"] if is_long else ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"]
    flags = [*flags, "-Djava.net.preferIPv4Stack=true", *login.options]
    jars = class_path(GATEWAY_VERSION)
    return ["java", *flags, "-cp", f"{login.folder}:{jars}" if login.folder else jars, str(source), *arguments]


def run_java(source: Path, *arguments: str, login: JavaLogin = SIMPLE_LOGIN) -> str:
    """Run a program to its end; return its output."""
    command = java_command(source, *arguments, login=login)
    try:
        ran = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=RUN_S_MAX
        )
    except subprocess.TimeoutExpired as error:
        text = f"{source.name} {' '.join(arguments)} did not end within {RUN_S_MAX:.0f} s"
        raise MetaClientError(text, detail=str(error.stderr or "")) from error
    if ran.returncode != 0:
        raise _failed(source, arguments, ran.stderr)
    return ran.stdout


def _failed(source: Path, arguments: tuple[str, ...], said: str) -> MetaClientError:
    if _NO_COMPILER in said:
        return Unsupported(f"{source.name} needs a Java that can compile: install {NEEDED_FOR_PROGRAMS}", detail=said)
    lines = [line for line in said.splitlines() if line.strip() and not line.startswith("log4j:")]
    wanted = next((line for line in lines if "Exception" in line or "error:" in line), "it said nothing")
    return MetaClientError(f"{source.name} {' '.join(arguments)}: {wanted.strip()}", detail=said)


def start_java(
    source: Path, *arguments: str, log: Path, is_long: bool = False, login: JavaLogin = SIMPLE_LOGIN
) -> subprocess.Popen[str]:
    """Start a program that prints lines until its standard input is closed; its error output goes to the log."""
    with log.open("ab") as errors:
        return subprocess.Popen(
            java_command(source, *arguments, is_long=is_long, login=login),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
