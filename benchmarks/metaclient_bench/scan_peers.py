"""Peers of the connector's scan, each in its own process: happybase's scan, and a bare loop that drops the pages.

Run as ``python -m metaclient_bench.scan_peers KIND HOST PORT TABLE START STOP ROWS``. It prints ``ready``, and for each
line on standard input it scans once and prints the number of rows. Start-up is not part of the measured time.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["Peers", "main"]


def happybase_scan(host: str, port: int, table: str, start: bytes, stop: bytes, rows: int) -> Callable[[], int]:
    """Scan as a happybase program does; return the number of rows."""
    import happybase

    def scan() -> int:
        connection = happybase.Connection(host, port)  # a gateway closes connections that are idle for a minute
        found = connection.table(table).scan(row_start=start or None, row_stop=stop or None, batch_size=rows)
        total = sum(1 for _ in found)
        connection.close()
        return total

    return scan


def bare_scan(host: str, port: int, table: str, start: bytes, stop: bytes, rows: int) -> Callable[[], int]:
    """Scan by bare Thrift 2 calls: thriftpy2 decodes the pages, which are dropped; return the number of rows."""
    from thriftpy2.rpc import make_client

    from metaclient.wire.thrift.idl import thrift2

    thrift: Any = thrift2()

    def scan() -> int:
        client = make_client(thrift.THBaseService, host, port, timeout=60_000)
        number = client.openScanner(table.encode(), thrift.TScan(startRow=start, stopRow=stop, caching=rows))
        total = 0
        while True:
            page = client.getScannerRows(number, rows)
            total += len(page)
            if len(page) < rows:
                client.closeScanner(number)
                client.close()
                return total

    return scan


KINDS = {"happybase": happybase_scan, "bare": bare_scan}


class Peers:
    """Peers that scan at the same time, each its own range; a context manager."""

    def __init__(self, kind: str, host: str, port: int, table: str, ranges: Sequence[tuple[bytes, bytes]], rows: int):
        self._processes = [
            subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "metaclient_bench.scan_peers",
                    kind,
                    host,
                    str(port),
                    table,
                    *_hex(each),
                    str(rows),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for each in ranges
        ]
        for process in self._processes:
            self._heard(process)

    def __enter__(self) -> Peers:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()

    def _heard(self, process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"a peer ended with {process.wait()} before it had scanned")
        return line.strip()

    def scan(self) -> tuple[int, float]:
        """Run one scan of all peers; return the sum of rows, and the seconds until the last peer was done."""
        began = time.perf_counter()
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        rows = sum(int(self._heard(process)) for process in self._processes)
        return rows, time.perf_counter() - began


def _hex(each: tuple[bytes, bytes]) -> list[str]:
    return [f"x{key.hex()}" for key in each]


def main(arguments: list[str]) -> int:
    kind, host, port, table, start, stop, rows = arguments
    scan = KINDS[kind](host, int(port), table, bytes.fromhex(start[1:]), bytes.fromhex(stop[1:]), int(rows))
    print("ready", flush=True)
    for _ in sys.stdin:
        print(scan(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
