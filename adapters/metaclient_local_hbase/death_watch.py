"""Kills a cluster's JVMs when the process that started them has ended in any way.

This runs as a separate program, with the cluster's marker as its argument. Its standard input is a pipe whose other end
only the starter holds. When the pipe closes (a crash, a kill, an exit without ``down``), every process with the marker
is killed. If the starter has written a line before, the processes are left running.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from metaclient_local_hbase.processes import running, send_signal

__all__ = ["DeathWatch", "kill_all", "main"]

#: The folder from which ``metaclient_local_hbase`` can be imported, installed or not.
ROOT = Path(__file__).resolve().parents[2]
#: A JVM may be started while the others are killed: the list of processes is read again, this often at most.
ROUNDS_MAX = 10


def kill_all(mark: str) -> list[str]:
    """Kill every process with the marker; return the names of the killed processes."""
    killed: list[str] = []
    for _ in range(ROUNDS_MAX):
        found = running(mark)
        if not found:
            break
        for name, pid in found.items():
            send_signal(pid, signal.SIGKILL)
            killed.append(name)
    return list(dict.fromkeys(killed))


class DeathWatch:
    """The starter's end of the pipe."""

    def __init__(self, mark: str) -> None:
        self._watch = subprocess.Popen(
            [sys.executable, "-m", "metaclient_local_hbase.death_watch", mark],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
            start_new_session=True,  # Ctrl-C ends the starter; this process must outlive it
        )

    def leave(self) -> None:
        """Leave the JVMs running, or end the watch after they were stopped."""
        pipe, self._watch.stdin = self._watch.stdin, None
        if pipe is not None:
            try:
                pipe.write(b"leave\n")
                pipe.close()
            except OSError:  # the watching process was killed
                pass
            self._watch.wait()

    def leave_to_parent(self) -> None:
        """In a child process: close its copy of the pipe, which would hide the parent's end. Nothing is buffered."""
        if self._watch.stdin is not None:
            self._watch.stdin.close()


def main(arguments: list[str]) -> int:
    """Wait for the end of the starter, then kill the processes unless it wrote a line."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if not sys.stdin.buffer.readline():
        kill_all(arguments[0])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
