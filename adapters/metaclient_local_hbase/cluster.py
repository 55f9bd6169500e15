"""A real HBase in separate JVMs: starts it, injects faults, and always stops it.

The order of the start; other orders failed:

1. ZooKeeper, until its port answers.
2. The master, until it is the active one: a 3.0 region server that starts before the base znode exists never finds
   hbase:meta.
3. Region servers and gateways together.
4. The master has completed initialization and the secondaries of hbase:meta are open: to make them, a 3.0 master
   closes and reopens the primary once more after it has logged the end of its initialization.
5. The cluster is ready when each replica of hbase:meta answers a scan without an error.
"""

from __future__ import annotations

import atexit
import logging
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from metaclient import keys
from metaclient.backend import Backend, MetaScan
from metaclient.backends import backend_for
from metaclient.config import Config
from metaclient.errors import ConfigError, MetaClientError, Unsupported
from metaclient.model import MetaReplica, ServerName
from metaclient.runtime import Pending, Runtime, ThreadRuntime
from metaclient_local_hbase import jmx
from metaclient_local_hbase.admin import Admin
from metaclient_local_hbase.death_watch import DeathWatch, kill_all
from metaclient_local_hbase.folders import claim_folder, is_claimed, remove_below
from metaclient_local_hbase.jars import GATEWAY_VERSION, KDC_JARS, class_path, jar_folder
from metaclient_local_hbase.layout import Layout, Process, Role
from metaclient_local_hbase.ports import LOOPBACK, free_ports, is_listening
from metaclient_local_hbase.processes import is_stopped, running, send_signal, spawn
from metaclient_local_hbase.programs import JavaLogin
from metaclient_local_hbase.progress import Progress
from metaclient_local_hbase.secure import (
    REALM,
    USERS,
    gateway_properties,
    is_kdc_ready,
    make_certificates,
    secure_folder,
    write_krb5_conf,
)
from metaclient_local_hbase.settings import (
    METRICS_PERIOD_S,
    command,
    java_login,
    marker,
    write_client_configuration,
    write_configuration,
)
from metaclient_local_hbase.tools import check_tools, state_folder

__all__ = ["LocalHBase"]

_log = logging.getLogger(__name__)
#: 24 s were measured on two idle cores; a busy machine may take several times as long.
START_S_MAX = 240.0
STOP_S_MAX = 120.0
#: How long the servers may take to publish their counts.
METRICS_S_MAX = 60.0
POLL_S = 0.2
#: A crash is detected after this time (HBase: 90 s). Servers that get no CPU for longer abort.
SESSION_S = 6.0
#: Folders of earlier runs that are kept for their logs.
RUNS_KEPT = 5
CALL_S = 5.0
LOG_LINES_SHOWN = 12


class LocalHBase:
    """A real HBase on this machine; a context manager.

    ``with LocalHBase() as hbase`` starts it and stops it at the end. Processes are called ``zookeeper``, ``master``,
    ``rs1`` ..., ``thrift1``, ``thrift2`` (and ``thrift2-2`` ... with more ``gateways``); HBase's names
    (``localhost:PORT``) are accepted, too. Logs stay in ``folder`` after the end. Only the process that started it
    stops it, not a child of that process (``os.fork``).

    It has more than 30 methods because it is the one handle that tests hold: each is one action on the cluster.
    """

    _is_inherited = False

    def __init__(
        self,
        version: str = "2.6.1",
        region_servers: int = 3,
        meta_replicas: int = 3,
        *,
        gateways: int = 1,
        folder: str | Path | None = None,
        heap_mb: int = 512,
        session_s: float = SESSION_S,
        secure: bool = False,
        tls: bool = False,
        properties: Mapping[str, str] | None = None,
        region_server_options: Sequence[str] = (),
        runtime: Runtime | None = None,
        show: Callable[[str], None] | None = None,
    ) -> None:
        """``region_server_options`` are for JVMs: ``-XX:TieredStopAtLevel=4`` is production's compiler."""
        counted = (("region_servers", region_servers), ("meta_replicas", meta_replicas), ("gateways", gateways))
        for name, value in counted:
            if not isinstance(value, int) or value < 1:
                raise ConfigError(f"{name} must be a number from 1 on, got {value!r}")
        self._runtime: Runtime = runtime or ThreadRuntime()  # for its clock and random numbers; no task runs on it
        self._show = show
        self._layout = Layout.plan(
            _run_folder(self._runtime) if folder is None else Path(folder).absolute(),
            version=version,
            region_servers=region_servers,
            meta_replicas=meta_replicas,
            gateways=gateways,
            heap_mb=heap_mb,
            session_s=session_s,
            runtime=self._runtime,
            is_secure=secure,
            has_tls=tls,
            properties=properties,
            region_server_options=region_server_options,
        )
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._log_starts: dict[str, int] = {}  # name -> the offset in its log at which its last start begins
        self._watch: DeathWatch | None = None
        self._gateway: Backend | None = None
        #: The duration of the last ``up``, without the download of the jars.
        self.start_s = 0.0

    @classmethod
    def at(cls, folder: str | Path) -> LocalHBase:
        """Return the cluster that another process started in this folder; raise ConfigError if there is none."""
        layout = Layout.load(Path(folder).absolute())
        if layout is None:
            raise ConfigError(f"no cluster was started in {folder}; `metaclient hbase up` starts one")
        made = cls.__new__(cls)
        made._runtime, made._show, made._layout, made._children = ThreadRuntime(), None, layout, {}
        made._log_starts, made._watch, made._gateway, made.start_s = {}, None, None, 0.0
        return made

    @staticmethod
    def default_folder() -> Path:
        """Return the folder of the cluster that the command line starts."""
        return state_folder() / "local"

    # -- what others connect to --------------------------------------------------------------------------------

    @property
    def version(self) -> str:
        return self._layout.version

    @property
    def folder(self) -> Path:
        return self._layout.folder

    @property
    def thrift1_url(self) -> str:
        return f"thrift1://{LOOPBACK}:{self._layout.process('thrift1').port}"

    @property
    def thrift2_url(self) -> str:
        """The url of all Thrift 2 gateways."""
        return "thrift2://" + ",".join(f"{LOOPBACK}:{one.port}" for one in self._layout.thrift2_gateways)

    @property
    def native_url(self) -> str:
        """The url for HBase's own RPC, with ZooKeeper as the registry."""
        return f"hbase://{self.zookeeper}"

    @property
    def zookeeper(self) -> str:
        return f"{LOOPBACK}:{self._layout.process('zookeeper').port}"

    @property
    def admin(self) -> Admin:
        """HBase's Java admin: moves, splits, merges, flushes, the balancer's switch."""
        return Admin(self.zookeeper, self.java_login)

    @property
    def java_login(self) -> JavaLogin:
        return java_login(self._layout)

    @property
    def is_secure(self) -> bool:
        """True if the cluster authenticates its clients by Kerberos."""
        return self._layout.is_secure

    @property
    def client_config(self) -> Path:
        """The folder with the hbase-site.xml and core-site.xml of clients, for ``connect(config=...)``."""
        return self.folder / "conf" / "client"

    @property
    def krb5_conf(self) -> Path:
        """The Kerberos configuration; set ``KRB5_CONFIG`` to it before the first Kerberos call of a process."""
        return secure_folder(self._layout) / "krb5.conf"

    def identity(self, user: str = "alice") -> dict[str, str]:
        """Return the options ``principal`` and ``keytab`` of a user: ``alice``, a superuser, or ``bob``."""
        if not self.is_secure or user not in USERS:
            raise ConfigError(f"no user {user!r}: a secure cluster has {' and '.join(USERS)}")
        return {"principal": f"{user}@{REALM}", "keytab": str(secure_folder(self._layout) / f"{user}.keytab")}

    def tls_files(self) -> dict[str, str]:
        """Return the options ``ca`` and ``cert`` of a client with a certificate."""
        folder = secure_folder(self._layout)
        return {"ca": str(folder / "ca.pem"), "cert": str(folder / "client.pem")}

    def instructions(self) -> list[str]:
        """Return the lines that tell a user how to connect to a secure cluster; none if it is not secure."""
        lines: list[str] = []
        if self.is_secure:
            lines.append(f"export KRB5_CONFIG={self.krb5_conf}")
            for user in USERS:
                known = self.identity(user)
                lines.append(f"{user}: connect(config={str(self.client_config)!r}, {_as_arguments(known)})")
        if self._layout.has_tls:
            lines.append(f"TLS: connect(..., {_as_arguments(self.tls_files())})")
        return lines

    def class_path(self) -> str:
        """The class path for a Java program that connects to this cluster; it has the jars of client and servers."""
        return class_path(self.version)

    # -- life --------------------------------------------------------------------------------------------------

    def __enter__(self) -> LocalHBase:
        self.up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    def __repr__(self) -> str:
        return f"<LocalHBase {self.version} in {self.folder}: {len(self._pids())} of {len(self._layout.processes)} run>"

    def up(self) -> None:
        """Start all processes and wait until hbase:meta can be read at every replica; on failure, stop all of them."""
        if self._pids():
            raise ConfigError(f"a cluster runs in {self.folder} already; `metaclient hbase down` ends it")
        check_tools()
        with Progress(self._show) as progress:
            for version in dict.fromkeys((self.version, GATEWAY_VERSION, *((KDC_JARS,) if self.is_secure else ()))):
                jar_folder(version, progress.show)
            begun = self._runtime.now()  # the first download can take longer than START_S_MAX
            self._make_folder()
            self._watch = DeathWatch(marker(self.folder))
            atexit.register(self.down)
            self._runtime.on_fork(self._leave_to_parent)
            try:
                self._start_all(progress, begun + START_S_MAX)
            except BaseException:
                self.down()
                raise
        self.start_s = self._runtime.now() - begun

    def _make_folder(self) -> None:
        """Make the folder, without the logs of the last run, in which this run would find its own messages."""
        claim_folder(self.folder)
        remove_below(self.folder, "data")
        if self._layout.logs.is_dir():
            remove_below(self.folder, "logs.previous")
            self._layout.logs.rename(self.folder / "logs.previous")
        self._layout.logs.mkdir()
        self._layout.save()

    def _start_all(self, progress: Progress, deadline: float) -> None:
        write_client_configuration(self._layout)
        self._start_security(progress, deadline)
        progress.show("starting ZooKeeper")
        zookeeper = self._spawn("zookeeper")
        self._wait(lambda: is_listening(zookeeper.port), "ZooKeeper to answer", deadline)
        progress.show("starting the master")
        master = self._spawn("master")
        self._wait(lambda: self._has_logged(master, "Registered as active master"), "an active master", deadline)
        progress.show(f"starting {len(self._layout.region_servers)} region servers and the gateways")
        for process in self._layout.processes:
            if process.role is Role.REGION_SERVER or process.role.is_gateway:
                self._spawn(process.name)
        self._wait_for_servers(master, progress, deadline)
        self._wait_for_meta(progress, deadline)

    def _start_security(self, progress: Progress, deadline: float) -> None:
        """Make the keys and certificates that the other processes read; nothing if the cluster has neither."""
        if self.is_secure:
            progress.show("starting the Kerberos server")
            write_krb5_conf(self._layout)
            self._spawn("kdc")
            self._wait(lambda: is_kdc_ready(self._layout), "the Kerberos server", deadline)
        if self._layout.has_tls:
            progress.show("making certificates")
            make_certificates(self._layout)

    def _wait_for_servers(self, master: Process, progress: Progress, deadline: float) -> None:
        self._wait(lambda: self._has_logged(master, "Master has completed initialization"), "the master", deadline)
        for replica_id in range(1, self._layout.meta_replicas):
            text = f"Opened {MetaReplica(replica_id).region_name.decode()}"
            progress.show(f"waiting for replica {replica_id} of hbase:meta to open")
            self._wait(partial(self._has_any_logged, text), f"replica {replica_id} of hbase:meta to open", deadline)
        for process in self._layout.processes:
            if process.role.is_gateway:
                progress.show(f"waiting for the gateway {process.name}")
                self._wait(partial(is_listening, process.port), f"the gateway {process.name}", deadline)

    def wait_until_ready(self) -> None:
        """Return when the master has every running region server as live, and every replica of hbase:meta serves."""
        deadline = self._runtime.now() + START_S_MAX
        with Progress(self._show) as progress:
            for process in self._layout.region_servers:
                if process.name in self._pids():
                    is_known = partial(self._has_logged, process, "Serving as ")
                    self._wait(is_known, f"the master to report {process.name}", deadline)
            self._wait_for_meta(progress, deadline)

    def _wait_for_meta(self, progress: Progress, deadline: float) -> None:
        for replica_id in range(self._layout.meta_replicas):
            progress.show(f"waiting for replica {replica_id} of hbase:meta")
            what = f"replica {replica_id} of hbase:meta to serve reads"
            self._wait(partial(self._serves_meta, replica_id), what, deadline)

    def _leave_to_parent(self) -> None:
        """In a child process: forget the cluster, which must not end with the child."""
        self._is_inherited = True
        atexit.unregister(self.down)
        self._children = {}
        if self._watch is not None:
            self._watch.leave_to_parent()
            self._watch = None

    def leave(self) -> None:
        """Leave the cluster running when this process ends; :meth:`at` returns it later."""
        atexit.unregister(self.down)
        if self._watch is not None:
            self._watch.leave()
            self._watch = None
        self._close_gateway()

    def down(self) -> None:
        """Kill all processes and remove the data; logs and settings stay. Idempotent; no effect in a child process."""
        if self._is_inherited:
            return
        kill_all(marker(self.folder))
        for child in self._children.values():
            child.wait()
        self._children.clear()
        remove_below(self.folder, "data")
        self.leave()

    def start_gateway(self, scheme: str = "thrift2+sasl", *, protection: str = "privacy") -> str:
        """Start one more Thrift gateway of a secure cluster, whose clients need Kerberos; return its url.

        The scheme is ``thrift1+sasl``, ``thrift2+sasl``, ``thrift2+http`` or ``thrift2+https`` (the latter with
        ``tls=True``); SASL has this one protection. :meth:`down` ends it.
        """
        schemes = (
            "thrift1+sasl",
            "thrift2+sasl",
            "thrift2+http",
            *(("thrift2+https",) if self._layout.has_tls else ()),
        )
        if not self.is_secure or scheme not in schemes:
            raise ConfigError(f"no gateway {scheme!r}: a secure cluster can start {', '.join(schemes)}")
        (port,) = free_ports(1, self._runtime)
        role = Role(scheme.partition("+")[0])
        number = sum(process.role.is_gateway for process in self._layout.processes)
        name = f"{scheme.replace('+', '-')}-{number}"
        process = Process(name, role, port, properties=gateway_properties(self._layout, scheme, protection))
        self._layout = replace(self._layout, processes=(*self._layout.processes, process))
        self._layout.save()
        self._spawn(name)
        self._wait(partial(is_listening, port), f"the gateway {name}", self._runtime.now() + START_S_MAX)
        return f"{scheme}://localhost:{port}"

    def stop_gateway(self, url: str) -> None:
        """End a gateway that :meth:`start_gateway` started."""
        process = self._layout.process(url.partition("://")[2])
        child = self._children.pop(process.name)
        child.kill()
        child.wait()
        self._layout = replace(
            self._layout, processes=tuple(one for one in self._layout.processes if one is not process)
        )
        self._layout.save()

    def _spawn(self, name: str) -> Process:
        process = self._layout.process(name)
        write_configuration(self._layout, process)
        version = _jars_of(process.role, self.version)
        log = self._layout.log(process)
        self._log_starts[name] = log.stat().st_size if log.exists() else 0
        self._children[name] = spawn(command(self._layout, process, class_path(version)), log, self.folder)
        return process

    # -- waiting -----------------------------------------------------------------------------------------------

    def _wait(self, is_so: Callable[[], bool], what: str, deadline: float) -> None:
        while not is_so():
            self._check_alive()
            if self._runtime.now() > deadline:
                raise MetaClientError(f"waited {START_S_MAX:.0f} s for {what}; the logs are in {self._layout.logs}")
            self._runtime.sleep(POLL_S)

    def _check_alive(self) -> None:
        for name, child in self._children.items():
            if child.poll() is not None:
                log = self._layout.log(self._layout.process(name))
                lines = log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
                raise MetaClientError(
                    f"{name} ended while the cluster was starting (exit code {child.returncode}); its log is {log}",
                    detail="\n".join(lines),
                )

    def _has_logged(self, process: Process, text: str) -> bool:
        """Return True if the process has logged the text since its last start."""
        with self._layout.log(process).open("rb") as log:
            log.seek(self._log_starts.get(process.name, 0))
            return text.encode() in log.read()

    def _has_any_logged(self, text: str) -> bool:
        return any(self._has_logged(process, text) for process in self._layout.region_servers)

    def _serves_meta(self, replica_id: int) -> bool:
        gateway = self._through_gateway()
        first = MetaScan(b"", b"", is_reversed=False, limit=1)
        try:
            gateway.read_meta(MetaReplica(replica_id), first, self._runtime.now() + CALL_S)
        except MetaClientError as error:
            _log.debug("replica %d of hbase:meta does not serve yet: %s", replica_id, error)
            return False
        return True  # with or without rows: a new 3.0 has no region in hbase:meta

    def _through_gateway(self) -> Backend:
        if self._gateway is None:
            first = self._layout.process("thrift2")  # a test may have paused or killed the others
            self._gateway = backend_for(f"thrift2://{LOOPBACK}:{first.port}", self._runtime, Config())
        return self._gateway

    def _close_gateway(self) -> None:
        gateway, self._gateway = self._gateway, None
        if gateway is not None:
            gateway.close()

    # -- faults --------------------------------------------------------------------------------------------------

    def servers(self) -> list[str]:
        """Return the names of all region servers, dead ones as well."""
        return [process.name for process in self._layout.region_servers]

    def kill(self, name: str) -> None:
        """Kill a process with SIGKILL."""
        process = self._signal(name, signal.SIGKILL)
        child = self._children.pop(process.name, None)
        if child is not None:
            child.wait()

    def stop(self, name: str) -> None:
        """Stop a process with SIGTERM, as a rolling restart does, and wait; a region server closes its regions."""
        process = self._signal(name, signal.SIGTERM)
        deadline = self._runtime.now() + STOP_S_MAX
        while process.name in self._pids():
            if self._runtime.now() > deadline:
                raise MetaClientError(f"{process.name} did not end in {STOP_S_MAX:.0f} s; its log is in {self.folder}")
            self._runtime.sleep(POLL_S)
            child = self._children.get(process.name)
            if child is not None and child.poll() is not None:
                del self._children[process.name]

    def pause(self, name: str) -> None:
        """Pause a process with SIGSTOP: the system accepts connections, and no call is answered."""
        self._signal(name, signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """Resume a paused process with SIGCONT; a region server whose session has expired aborts by itself."""
        self._signal(name, signal.SIGCONT)

    def start(self, name: str) -> None:
        """Start a process that was killed or has ended, on its old port, without waiting until it serves."""
        process = self._layout.process(name)
        if process.name in self._pids():
            raise ConfigError(f"{process.name} runs already")
        if (ended := self._children.pop(process.name, None)) is not None:
            ended.wait()
        self._spawn(process.name)

    def _signal(self, name: str, number: signal.Signals) -> Process:
        process = self._layout.process(name)
        pid = self._pids().get(process.name)
        if pid is None or not send_signal(pid, number):
            raise ConfigError(f"{process.name} does not run")
        return process

    def _pids(self) -> dict[str, int]:
        return running(marker(self.folder))

    # -- what is where -------------------------------------------------------------------------------------------

    def meta_server(self, replica_id: int = 0) -> str:
        """Return the region server of a replica of hbase:meta."""
        server = self.meta_servers().get(replica_id)
        if server is not None:
            return self._layout.process(server.address).name
        raise MetaClientError(f"the registry has no server for replica {replica_id} of hbase:meta")

    def meta_servers(self) -> dict[int, ServerName | None]:
        """Return the region server of each replica of hbase:meta by replica id.

        Java's admin reads the registry, because a gateway answers from a cache that may be old. The gateway is used
        where Java has no compiler.
        """
        try:
            return dict(self.admin.meta_servers())
        except Unsupported:
            deadline = self._runtime.now() + CALL_S
            answer = self._through_gateway().meta_replicas(deadline)
            found = answer.result(deadline) if isinstance(answer, Pending) else answer
            return {replica.replica_id: replica.server for replica in found}

    def spread_meta(self) -> None:
        """Move the replicas of hbase:meta to different servers: after a crash two may stay on one server."""
        servers = self.meta_servers()
        if len(set(servers.values())) == min(len(servers), len(self._layout.region_servers)):
            return
        free = [one for one in self.admin.servers() if one not in servers.values()]
        taken: set[ServerName | None] = set()
        for replica_id, server in servers.items():
            if server in taken and free:
                self.admin.move(keys.encoded_region_name(MetaReplica(replica_id).region_name), free.pop())
            taken.add(server)
        self.wait_until_ready()

    def meta_reads(self, *, settled: bool = True) -> dict[int, int]:
        """Return the reads of each replica of hbase:meta by replica id, since it was opened, from the servers' JMX.

        The servers refresh the counts at intervals: ``settled`` waits until all reads before this call are counted.
        One lookup may count as several reads.
        """
        if settled:
            self._runtime.sleep(2.0 * METRICS_PERIOD_S)
        deadline = self._runtime.now() + METRICS_S_MAX
        while True:
            awake = {name for name, pid in self._pids().items() if not is_stopped(pid)}
            servers = [process for process in self._layout.region_servers if process.name in awake]
            found = jmx.meta_reads([jmx.region_metrics(one.info_port) for one in servers], self._layout.meta_replicas)
            # A server has no counts for a moment after a region was closed there.
            missing = self._layout.meta_replicas - len(found)
            is_complete = not missing or (len(awake) < len(self._layout.processes) and missing == 1)
            if is_complete or self._runtime.now() > deadline:
                return {replica_id: found.get(replica_id, 0) for replica_id in range(self._layout.meta_replicas)}
            self._runtime.sleep(POLL_S)

    def status(self) -> dict[str, Any]:
        """Return urls, folder and the state of each process, as JSON values."""
        pids = self._pids()
        return {
            "version": self.version,
            "folder": str(self.folder),
            "thrift1_url": self.thrift1_url,
            "thrift2_url": self.thrift2_url,
            "native_url": self.native_url,
            "zookeeper": self.zookeeper,
            "processes": [self._status_of(process, pids.get(process.name)) for process in self._layout.processes],
        }

    def _status_of(self, process: Process, pid: int | None) -> dict[str, Any]:
        state = "down" if pid is None else "paused" if is_stopped(pid) else "running"
        log = str(self._layout.log(process))
        return {"name": process.name, "state": state, "pid": pid, "port": process.port, "log": log}


def _run_folder(runtime: Runtime) -> Path:
    """Return a new folder for one run; the oldest folders without running processes are removed."""
    runs = state_folder() / "runs"
    runs.mkdir(mode=0o700, parents=True, exist_ok=True)
    old = sorted(path for path in runs.iterdir() if path.is_dir())
    for path in old[: -RUNS_KEPT or None]:
        if is_claimed(path) and not running(marker(path)):
            shutil.rmtree(path, ignore_errors=True)
    return runs / f"{runtime.time_ms()}-{runtime.rng.randrange(1 << 16):04x}"


def _jars_of(role: Role, version: str) -> str:
    """Return the set of jars that a process runs with."""
    if role is Role.KDC:
        return KDC_JARS
    return GATEWAY_VERSION if role.is_gateway else version


def _as_arguments(options: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in options.items())
