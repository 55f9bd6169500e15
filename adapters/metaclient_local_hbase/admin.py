"""Admin calls that the Thrift gateways do not have: move, split, merge, flush, the balancer's switch.

Each is a run of ``java/AdminCalls.java`` (three seconds or more) and returns when the change is done.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from metaclient.keys import printable
from metaclient.model import ServerName
from metaclient_local_hbase.programs import SIMPLE_LOGIN, JavaLogin, run_java

__all__ = ["Admin"]

SOURCE = Path(__file__).parent / "java" / "AdminCalls.java"


class Admin:
    """HBase's Java admin for one cluster, found by its ZooKeeper (``host:port``)."""

    def __init__(self, zookeeper: str, login: JavaLogin = SIMPLE_LOGIN) -> None:
        self._zookeeper = zookeeper
        self._login = login

    def __repr__(self) -> str:
        return f"Admin({self._zookeeper!r})"

    def move(self, encoded_name: str, server: ServerName) -> None:
        """Move a region, or a replica of one, and wait until it is open there."""
        self._run("move", encoded_name, str(server))

    def split(self, table: bytes, row: bytes) -> list[str]:
        """Split the region of a row before that row; return the encoded names of the daughters."""
        return list(self._run("split", table.decode(), printable(row, len(row)))["daughters"])

    def merge(self, first: str, second: str) -> None:
        """Merge two neighbouring regions, given by their encoded names."""
        self._run("merge", first, second)

    def flush(self, table: bytes) -> None:
        self._run("flush", table.decode())

    def switch_balancer(self, on: bool) -> bool:
        """Turn the balancer on or off; return the previous setting."""
        return bool(self._run("balancer", "on" if on else "off")["was"])

    def meta_servers(self) -> dict[int, ServerName]:
        """Return the server of each replica of hbase:meta by replica id, from the registry."""
        found = self._run("meta")["servers"]
        return {int(replica_id): ServerName.parse(name) for replica_id, name in found.items()}

    def servers(self) -> list[ServerName]:
        """Return the region servers that the master has as live."""
        return [ServerName.parse(name) for name in self._run("servers")["servers"]]

    def _run(self, *arguments: str) -> Any:
        return json.loads(run_java(SOURCE, self._zookeeper, *arguments, login=self._login))
