"""Starts, finds and signals the JVMs of a cluster, by a marker on their command line and never by a saved process id.

A process id in a file may belong to another process by the time it is read; the marker cannot. So the running processes
are always looked up in the system's list of processes.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

__all__ = ["is_stopped", "running", "send_signal", "spawn"]

_PROC = Path("/proc")
_NAME = "-Dmetaclient.process="


def spawn(command: list[str], log: Path, folder: Path) -> subprocess.Popen[bytes]:
    """Start a JVM in a session of its own, so that Ctrl-C does not reach it; its output goes to its log.

    Files that it writes are readable for this user only.
    """
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=folder,
            start_new_session=True,
            umask=0o077,
        )


def running(mark: str) -> dict[str, int]:
    """Return the process ids of all processes with the marker by name, without zombies, which have no command line."""
    found: dict[str, int] = {}
    for pid, arguments in _command_lines():
        if mark in arguments:
            name = next((one[len(_NAME) :] for one in arguments if one.startswith(_NAME)), None)
            if name is not None:
                found[name] = pid
    return found


def _command_lines() -> Iterator[tuple[int, list[str]]]:
    if not (_PROC / "self" / "cmdline").exists():
        yield from _command_lines_of_ps()
        return
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            with suppress(OSError):  # it ended meanwhile, or belongs to another user
                yield int(entry.name), (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")


def _command_lines_of_ps() -> Iterator[tuple[int, list[str]]]:
    listed = subprocess.run(["ps", "-axww", "-o", "pid=,command="], capture_output=True, text=True, check=True)
    for line in listed.stdout.splitlines():
        pid, *arguments = line.split()
        yield int(pid), arguments


def is_stopped(pid: int) -> bool:
    """Return True if the process is paused by SIGSTOP."""
    listed = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return listed.stdout.strip().startswith("T")


def send_signal(pid: int, number: signal.Signals) -> bool:
    """Send a signal to a process; return False if it has ended."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True
