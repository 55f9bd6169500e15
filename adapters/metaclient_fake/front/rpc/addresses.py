"""Maps server names inside the cluster to addresses that clients outside can connect to.

Inside, servers have names like ``rs1:16020``, which do not resolve. Outside, each server has its own port on the
front's host: every server name in a response (rows of hbase:meta, the registry, RegionMoved) is replaced by that
address, and every address in a request (a move's target) by the name inside. Start codes stay.
"""

from __future__ import annotations

from collections.abc import Callable

from metaclient.model import ServerName

__all__ = ["Addresses"]


class Addresses:
    """The inside and the outside name of each server.

    >>> addresses = Addresses("127.0.0.1", {"rs1": 40001}.__getitem__, {40001: ("rs1", 16020)}.get)
    >>> addresses.outside(ServerName("rs1", 16020, 7))
    ServerName(host='127.0.0.1', port=40001, start_code=7)
    >>> addresses.inside(ServerName("127.0.0.1", 40001, 7))
    ServerName(host='rs1', port=16020, start_code=7)
    >>> addresses.outside_cell(b"server_0001", b"rs1:16020"), addresses.outside_cell(b"state", b"OPEN")
    (b'127.0.0.1:40001', b'OPEN')
    """

    def __init__(
        self, host: str, port_of: Callable[[str], int], server_at: Callable[[int], tuple[str, int] | None]
    ) -> None:
        self.host = host
        self._port_of = port_of
        self._server_at = server_at

    def outside(self, server: ServerName) -> ServerName:
        return ServerName(self.host, self._port_of(server.host), server.start_code)

    def inside(self, server: ServerName) -> ServerName:
        """Return the name inside; an unknown name stays as it is: a move may ask for a server that never existed."""
        found = self._server_at(server.port)
        return server if found is None else ServerName(*found, server.start_code)

    def outside_cell(self, qualifier: bytes, value: bytes) -> bytes:
        """Return the value of a cell of family ``info`` of hbase:meta, for a reader outside."""
        column = qualifier.partition(b"_")[0]
        if column == b"server" and value:
            host, _, port = value.decode().rpartition(":")
            at = self.outside(ServerName(host, int(port)))
            return f"{at.host}:{at.port}".encode()
        if column == b"sn" and value:
            return str(self.outside(ServerName.parse(value.decode()))).encode()
        return value
