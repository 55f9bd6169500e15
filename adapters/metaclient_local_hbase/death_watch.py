"""Kills a cluster's JVMs when the process that started them is gone, however it went.

Run as a program of its own with the mark as its argument. Its standard input is a pipe that only the starter holds:
when that closes without a word (a crash, a kill, an exit that forgot us), everything that carries the mark is killed.
One line first means: leave them, they are meant to stay.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from metaclient_local_hbase.processes import running, send_signal

__all__ = ["DeathWatch", "kill_all", "main"]

#: Where ``adapters`` can be imported from, installed or not.
ROOT = Path(__file__).resolve().parents[2]
#: Started while we were killing the others: look again, but not for ever.
ROUNDS_MAX = 10


def kill_all(mark: str) -> list[str]:
    """Kill everything that carries the mark; the names of those that were killed."""
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
            start_new_session=True,  # Ctrl-C is for us; it must outlive us
        )

    def leave(self) -> None:
        """The JVMs are meant to stay, or are gone already."""
        pipe, self._watch.stdin = self._watch.stdin, None
        if pipe is not None:
            try:
                pipe.write(b"leave\n")
                pipe.close()
            except OSError:  # the watching process was killed
                pass
            self._watch.wait()

    def leave_to_parent(self) -> None:
        """In a child process: close our end of the pipe, which would hide the parent's death. Nothing is buffered."""
        if self._watch.stdin is not None:
            self._watch.stdin.close()


def main(arguments: list[str]) -> int:
    """Wait for the starter's end."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if not sys.stdin.buffer.readline():
        kill_all(arguments[0])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
