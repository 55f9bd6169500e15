"""The layout of a cluster as a value: its processes, their ports, the folder; saved in a file."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from metaclient.errors import ConfigError
from metaclient.runtime import Runtime
from metaclient_local_hbase.ports import free_ports

__all__ = ["Layout", "Process", "Role"]

FILE = "cluster.json"


class Role(enum.Enum):
    """The kinds of processes, in the order in which they are started."""

    KDC = "kdc"
    ZOOKEEPER = "zookeeper"
    MASTER = "master"
    REGION_SERVER = "rs"
    THRIFT1 = "thrift1"
    THRIFT2 = "thrift2"

    @property
    def is_gateway(self) -> bool:
        return self in (Role.THRIFT1, Role.THRIFT2)


@dataclass(frozen=True, slots=True)
class Process:
    """One JVM: its name, its role, its port, the port of its info page (0: none), and properties of its own."""

    name: str
    role: Role
    port: int
    info_port: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Layout:
    """The facts of a cluster that do not change while it runs."""

    folder: Path
    version: str
    meta_replicas: int
    heap_mb: int
    session_s: float
    processes: tuple[Process, ...]
    has_tls: bool = False
    #: Properties for all servers and gateways, beside those of the layout.
    properties: Mapping[str, str] = field(default_factory=dict)
    #: Options of the region servers' JVMs, after those of the layout, so that they win.
    region_server_options: tuple[str, ...] = ()

    @property
    def is_secure(self) -> bool:
        """True if the cluster authenticates by Kerberos: it has a Kerberos server of its own."""
        return any(process.role is Role.KDC for process in self.processes)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def thrift2_gateways(self) -> tuple[Process, ...]:
        """The gateways that ask their clients for no authentication."""
        return tuple(one for one in self.processes if one.role is Role.THRIFT2 and not one.properties)

    @property
    def region_servers(self) -> tuple[Process, ...]:
        return tuple(process for process in self.processes if process.role is Role.REGION_SERVER)

    def process(self, name: str) -> Process:
        """Return a process by its name (``rs1``), or by HBase's: ``host:port`` or ``host,port,startcode``."""
        for process in self.processes:
            if name == process.name or str(process.port) in name.replace(":", ",").split(",")[1:2]:
                return process
        raise ConfigError(f"no process {name!r}; there are {', '.join(process.name for process in self.processes)}")

    def log(self, process: Process) -> Path:
        return self.logs / f"{process.name}.log"

    # -- the file ----------------------------------------------------------------------------------------------

    def save(self) -> None:
        plain = asdict(self)
        plain["folder"] = str(self.folder)
        for process in plain["processes"]:
            process["role"] = process["role"].value
        (self.folder / FILE).write_text(json.dumps(plain, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Layout | None:
        """Return the layout that was saved in this folder; None if there is none."""
        try:
            plain = json.loads((folder / FILE).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        processes = tuple(Process(**{**one, "role": Role(one["role"])}) for one in plain.pop("processes"))
        plain["region_server_options"] = tuple(plain.get("region_server_options", ()))
        return cls(**{**plain, "folder": folder, "processes": processes})

    @classmethod
    def plan(
        cls,
        folder: Path,
        *,
        version: str,
        region_servers: int,
        meta_replicas: int,
        gateways: int = 1,
        heap_mb: int,
        session_s: float,
        runtime: Runtime,
        is_secure: bool = False,
        has_tls: bool = False,
        properties: Mapping[str, str] | None = None,
        region_server_options: Sequence[str] = (),
    ) -> Layout:
        """Return a layout with free ports; ``gateways`` is the number of Thrift 2 gateways."""
        servers = [f"rs{number}" for number in range(1, region_servers + 1)]
        named = [
            *((("kdc", Role.KDC),) if is_secure else ()),
            ("zookeeper", Role.ZOOKEEPER),
            ("master", Role.MASTER),
            *((name, Role.REGION_SERVER) for name in servers),
            ("thrift1", Role.THRIFT1),
            *((f"thrift2-{number}" if number > 1 else "thrift2", Role.THRIFT2) for number in range(1, gateways + 1)),
        ]
        ports = free_ports(2 * len(named), runtime)
        processes = tuple(
            Process(name, role, ports[2 * at], ports[2 * at + 1] if role in (Role.MASTER, Role.REGION_SERVER) else 0)
            for at, (name, role) in enumerate(named)
        )
        return cls(
            folder,
            version,
            meta_replicas,
            heap_mb,
            session_s,
            processes,
            has_tls,
            dict(properties or {}),
            tuple(region_server_options),
        )
