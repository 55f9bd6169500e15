"""The settings of each process: hbase-site.xml, logging, and the JVM's command line.

They work on 2.6.1 and 3.0.0-alpha-4; each setting that is not obvious has its reason beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from xml.sax.saxutils import escape

from metaclient_local_hbase.layout import Layout, Process, Role
from metaclient_local_hbase.ports import LOOPBACK
from metaclient_local_hbase.programs import SIMPLE_LOGIN, JavaLogin
from metaclient_local_hbase.secure import (
    client_properties,
    core_site,
    jvm_options,
    kdc_arguments,
    kerberos_options,
    login_properties,
    secure_site,
)

__all__ = ["command", "hbase_site", "java_login", "marker", "write_client_configuration", "write_configuration"]

_KDC = Path(__file__).parent / "java" / "Kdc.java"

#: Packages that JDK 17 hides and that Hadoop 2 and Netty use.
_OPENED = (
    "java.lang",
    "java.nio",
    "sun.nio.ch",
    "java.util",
    "java.util.concurrent",
    "java.net",
    "java.io",
    "jdk.internal.misc",
)
#: A secondary that is opened requests a flush of its primary before it serves. In 3.0, if the primary has moved
#: meanwhile, such a request stays at its first server for 45 retries, which is twelve minutes with HBase's pause of 100
#: ms. HBase has three threads for these requests, so those of hbase:meta wait, too. Only for 3.0: in 2.6 the threads
#: that replicate to secondaries end for good after 16 retries, and must outlast a restart.
_OF_3_0 = {"hbase.regionserver.region.replica.flusher.threads": "64", "hbase.client.pause": "10"}
#: A gateway reports a dead server in 1.2 s and not in two minutes. Only for gateways: a region server with few retries
#: aborts when a flush request of a secondary fails.
GATEWAY_RETRIES = 4

_LOGGING = """log4j.rootLogger=INFO,stderr
log4j.appender.stderr=org.apache.log4j.ConsoleAppender
log4j.appender.stderr.target=System.err
log4j.appender.stderr.layout=org.apache.log4j.PatternLayout
log4j.appender.stderr.layout.ConversionPattern=%d{ISO8601} %-5p [%t] %c{2}: %m%n
log4j.logger.org.apache.zookeeper=WARN
"""
#: The interval of JMX counts; Hadoop's default is 10.
METRICS_PERIOD_S = 1
_METRICS = f"*.period={METRICS_PERIOD_S}\n"

_CLASSES = {
    Role.ZOOKEEPER: "org.apache.hadoop.hbase.zookeeper.HQuorumPeer",
    Role.MASTER: "org.apache.hadoop.hbase.master.HMaster",
    Role.REGION_SERVER: "org.apache.hadoop.hbase.regionserver.HRegionServer",
    Role.THRIFT1: "org.apache.hadoop.hbase.thrift.ThriftServer",
    Role.THRIFT2: "org.apache.hadoop.hbase.thrift2.ThriftServer",
}


def hbase_site(layout: Layout, process: Process) -> dict[str, str]:
    """Return the properties of one process."""
    own = {**_own(process, layout.version), **secure_site(layout)}
    return {**_common(layout), **own, **layout.properties, **process.properties}


def _common(layout: Layout) -> dict[str, str]:
    data = layout.data
    return {
        "hbase.rootdir": f"file://{data}/hbase",
        "hbase.tmp.dir": f"{data}/tmp",
        "hbase.cluster.distributed": "true",
        "hbase.zookeeper.quorum": LOOPBACK,
        "hbase.zookeeper.property.clientPort": str(layout.process("zookeeper").port),
        "hbase.zookeeper.property.clientPortAddress": LOOPBACK,
        "hbase.zookeeper.property.dataDir": f"{data}/zookeeper",
        "hbase.zookeeper.property.tickTime": "1000",
        "hbase.zookeeper.property.minSessionTimeout": "2000",
        "hbase.zookeeper.property.maxSessionTimeout": "120000",
        "zookeeper.session.timeout": str(int(layout.session_s * 1000)),
        # A local folder has no hflush; that is allowed, because no data of value is stored here.
        "hbase.unsafe.stream.capability.enforce": "false",
        "hbase.wal.provider": "filesystem",
        # Its chunks take 2 MB per region: two hundred small tables filled a heap of 512 MB and ended a server.
        "hbase.hregion.memstore.mslab.enabled": "false",
        "hbase.meta.replica.count": str(layout.meta_replicas),
        "hbase.region.replica.replication.enabled": "true",
        "hbase.region.replica.replication.catalog.enabled": "true",
        # A region server of 3.0 that gets edits of another cluster writes them through a client of its own, which asks
        # the masters for the registry: without this, the one at port 16000.
        "hbase.masters": f"localhost:{layout.process('master').port}",
        # Replication to other clusters reacts in seconds: by default HBase waits up to five minutes after a rest, and a
        # minute before the queues of a dead server are taken over.
        "replication.source.maxretriesmultiplier": "5",
        "replication.sleep.before.failover": "2000",
        # A sink that hangs is called again after seconds, not after a minute; tests play such a sink.
        "replication.source.shipedits.timeout": "3000",
        "hbase.master.ipc.address": LOOPBACK,
        "hbase.regionserver.ipc.address": LOOPBACK,
        "hbase.master.hostname": "localhost",
        "hbase.regionserver.hostname": "localhost",
        "hbase.master.info.bindAddress": LOOPBACK,
        "hbase.regionserver.info.bindAddress": LOOPBACK,
        "hbase.master.wait.on.regionservers.mintostart": str(len(layout.region_servers)),
    }


def _own(process: Process, version: str) -> dict[str, str]:
    port, info_port = str(process.port), str(process.info_port)
    match process.role:
        case Role.MASTER:
            return {"hbase.master.port": port, "hbase.master.info.port": info_port}
        case Role.REGION_SERVER:
            own = {"hbase.regionserver.port": port, "hbase.regionserver.info.port": info_port}
            return {**own, **(_OF_3_0 if version.startswith("3.") else {})}
        case Role.THRIFT1 | Role.THRIFT2:
            return {
                "hbase.regionserver.thrift.port": port,
                "hbase.regionserver.thrift.ipaddress": LOOPBACK,
                "hbase.thrift.info.port": "-1",
                "hbase.client.retries.number": str(GATEWAY_RETRIES),
            }
        case Role.ZOOKEEPER | Role.KDC:
            return {}


def write_configuration(layout: Layout, process: Process) -> Path:
    """Write the folder of settings, which is the first entry of the process's class path."""
    folder = layout.folder / "conf" / process.name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "hbase-site.xml").write_text(_as_xml(hbase_site(layout, process)), encoding="utf-8")
    (folder / "core-site.xml").write_text(_as_xml(core_site(layout)), encoding="utf-8")
    (folder / "log4j.properties").write_text(_LOGGING, encoding="utf-8")
    (folder / "hadoop-metrics2-hbase.properties").write_text(_METRICS, encoding="utf-8")
    return folder


def _as_xml(properties: Mapping[str, str]) -> str:
    lines = [
        f"  <property><name>{escape(name)}</name><value>{escape(value)}</value></property>"
        for name, value in properties.items()
    ]
    return "\n".join(['<?xml version="1.0"?>', "<configuration>", *lines, "</configuration>", ""])


def marker(folder: Path) -> str:
    """Return the argument by which the processes of a cluster are found, also after the end of their starter."""
    return f"-Dmetaclient.cluster={folder}"


def _heap_mb(layout: Layout, role: Role) -> int:
    """Return the heap: region servers hold regions, the other processes need little."""
    match role:
        case Role.ZOOKEEPER | Role.KDC:
            return min(layout.heap_mb, 128)
        case Role.THRIFT1 | Role.THRIFT2:
            return min(layout.heap_mb, 256)
    return layout.heap_mb


def write_client_configuration(layout: Layout) -> Path:
    """Write the folder that clients read: hbase-site.xml and core-site.xml; return it.

    The Java programs of a secure cluster have a folder of their own, because it names the superuser's keytab.
    """
    folder = _write_client_folder(layout, "client", {})
    if layout.is_secure:
        _write_client_folder(layout, "java", login_properties(layout))
    return folder


def _write_client_folder(layout: Layout, name: str, login: Mapping[str, str]) -> Path:
    folder = layout.folder / "conf" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "hbase-site.xml").write_text(_as_xml({**client_properties(layout), **login}), encoding="utf-8")
    (folder / "core-site.xml").write_text(_as_xml(core_site(layout)), encoding="utf-8")
    return folder


def java_login(layout: Layout) -> JavaLogin:
    """Return how Java programs log in to the cluster: as the superuser if it is secure."""
    if not layout.is_secure:
        return SIMPLE_LOGIN
    return JavaLogin(tuple(kerberos_options(layout)), layout.folder / "conf" / "java")


def command(layout: Layout, process: Process, jars: str) -> list[str]:
    """Return the JVM's command line, with settings for little memory and a quick start, and the marker."""
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
    program = [str(_KDC), *kdc_arguments(layout)] if process.role is Role.KDC else [_CLASSES[process.role], "start"]
    return [
        "java",
        marker(layout.folder),
        f"-Dmetaclient.process={process.name}",
        f"-Xmx{_heap_mb(layout, process.role)}m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Djava.net.preferIPv4Stack=true",
        "-Dzookeeper.admin.enableServer=false",  # it would bind port 8080, on every interface
        *opened,
        *jvm_options(layout, process),
        *(layout.region_server_options if process.role is Role.REGION_SERVER else ()),
        "--add-exports=java.base/jdk.internal.misc=ALL-UNNAMED",
        "-cp",
        f"{layout.folder / 'conf' / process.name}:{jars}",
        *program,
    ]
