"""Reads the metrics of a region server over HTTP, from the JMX servlet of its info page.

HBase renews these metrics every few seconds (hbase.regionserver.metrics.period).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

from metaclient import keys
from metaclient.errors import CallTimeout, MetaClientError, ServerUnreachable
from metaclient.model import META_TABLE

__all__ = ["DEFAULT_INFO_PORT", "JmxRegion", "JmxServer", "parse_beans", "read_jmx"]

#: hbase.regionserver.info.port
DEFAULT_INFO_PORT = 16030
#: A server of thousands of regions sends some megabytes.
ANSWER_BYTES_MAX = 64 * 1024 * 1024
_QUERY = "/jmx?qry=Hadoop:service=HBase,name=RegionServer,sub="
#: Without the user's proxy settings, which are for other hosts.
_open = build_opener(ProxyHandler({})).open

_REGION = re.compile(
    r"Namespace_(?P<namespace>[^:]+?)_table_(?P<table>.+)_region_(?P<region>[0-9a-f]+)_metric_"
    r"(?P<metric>readRequestCount|writeRequestCount|storeFileSize)"
)
_QUEUES = ("numCallsInGeneralQueue", "numCallsInPriorityQueue", "numCallsInReplicationQueue")


@dataclass(frozen=True, slots=True)
class JmxRegion:
    """The counters of one region on one server."""

    table: str
    encoded_name: str
    reads: int = 0
    writes: int = 0
    store_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JmxServer:
    """The metrics of one region server; None where its beans have none."""

    regions: int | None = None
    reads: int | None = None
    writes: int | None = None
    queued_calls: int | None = None
    meta_reads: Mapping[int, int] = field(default_factory=dict)
    by_region: tuple[JmxRegion, ...] = ()


def read_jmx(host: str, port: int, timeout_s: float, *, part: str = "*") -> JmxServer:
    """Return the metrics of a server, or only those of one bean.

    ServerUnreachable if the port is closed, CallTimeout if it does not answer.
    """
    shown = f"[{host}]" if ":" in host else host
    try:
        with _open(f"http://{shown}:{port}{_QUERY}{part}", timeout=timeout_s) as answer:
            return parse_beans(json.loads(answer.read(ANSWER_BYTES_MAX))["beans"])
    except TimeoutError as error:
        raise CallTimeout(f"the info page {host}:{port} did not answer within {timeout_s:g} s") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = error.reason if isinstance(error, URLError) else error
        if isinstance(reason, TimeoutError):
            raise CallTimeout(f"the info page {host}:{port} did not answer within {timeout_s:g} s") from error
        if isinstance(error, OSError):
            raise ServerUnreachable(f"the info page {host}:{port} cannot be read: {reason}") from error
        raise MetaClientError(f"{host}:{port} sent no metrics of a region server: {reason!r}") from error


def parse_beans(beans: Iterable[Mapping[str, Any]]) -> JmxServer:
    """Return the metrics of a server's beans.

    >>> name = "Namespace_hbase_table_meta_region_1588230740_metric_readRequestCount"
    >>> parse_beans([{"name": "x,sub=Regions", name: 7}, {"name": "x,sub=Server", "regionCount": 3}])
    JmxServer(regions=3, reads=None, writes=None, queued_calls=None, meta_reads={0: 7}, by_region=())
    """
    by_kind = {str(bean.get("name", "")).rpartition("sub=")[2]: bean for bean in beans}
    server, ipc = by_kind.get("Server", {}), by_kind.get("IPC", {})
    regions = _regions(by_kind.get("Regions", {}))
    replica_ids = {keys.encoded_region_name(keys.meta_region_name(number)): number for number in range(10)}
    meta = META_TABLE.decode()
    queues = [ipc[name] for name in _QUEUES if name in ipc]
    return JmxServer(
        regions=server.get("regionCount"),
        reads=server.get("readRequestCount"),
        writes=server.get("writeRequestCount"),
        queued_calls=sum(queues) if queues else None,
        meta_reads={
            replica_ids[one.encoded_name]: one.reads
            for one in regions
            if one.table == meta and one.encoded_name in replica_ids
        },
        by_region=tuple(one for one in regions if one.table != meta),
    )


def _regions(bean: Mapping[str, Any]) -> list[JmxRegion]:
    counts: dict[tuple[str, str], dict[str, int]] = {}
    for name, value in bean.items():
        found = _REGION.fullmatch(name)
        if found is not None:
            namespace, table = found["namespace"], found["table"]
            shown = table if namespace == "default" else f"{namespace}:{table}"
            counts.setdefault((shown, found["region"]), {})[found["metric"]] = int(value)
    return [
        JmxRegion(
            table,
            region,
            some.get("readRequestCount", 0),
            some.get("writeRequestCount", 0),
            some.get("storeFileSize"),
        )
        for (table, region), some in counts.items()
    ]
