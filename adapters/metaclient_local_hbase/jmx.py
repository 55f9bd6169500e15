"""Reads a region server's JMX counts over HTTP: the number of reads of each replica of hbase:meta."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

from metaclient import keys
from metaclient.errors import MetaClientError
from metaclient_local_hbase.ports import LOOPBACK

__all__ = ["meta_reads", "region_metrics"]

_QUERY = "/jmx?qry=Hadoop:service=HBase,name=RegionServer,sub=Regions"
#: An answer takes milliseconds on an idle machine. A time-out is an error: counted as zero it would be wrong.
TIMEOUT_S = 20.0
#: Without the user's proxy settings, which are for other hosts.
_open = build_opener(ProxyHandler({})).open


def region_metrics(info_port: int) -> Mapping[str, Any]:
    """Return the bean of all regions of one server; empty if the connection is refused; raise if it times out."""
    try:
        with _open(f"http://{LOOPBACK}:{info_port}{_QUERY}", timeout=TIMEOUT_S) as answer:
            beans = json.load(answer)["beans"]
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, URLError) else error
        if isinstance(reason, ConnectionRefusedError):
            return {}
        raise MetaClientError(f"the info page of port {info_port} did not answer: {reason}") from error
    return beans[0] if beans else {}


def meta_reads(servers: Iterable[Mapping[str, Any]], meta_replicas: int) -> dict[int, int]:
    """Return the reads of each replica by replica id, from the beans of all servers; without replicas that none has.

    >>> bean = {"Namespace_hbase_table_meta_region_1588230740_metric_readRequestCount": 7}
    >>> meta_reads([bean, {}], meta_replicas=2)
    {0: 7}
    """
    beans = list(servers)
    names = {
        replica_id: f"Namespace_hbase_table_meta_region_{_encoded(replica_id)}_metric_readRequestCount"
        for replica_id in range(meta_replicas)
    }
    found = {replica_id: [int(bean[name]) for bean in beans if name in bean] for replica_id, name in names.items()}
    return {replica_id: sum(counts) for replica_id, counts in found.items() if counts}


def _encoded(replica_id: int) -> str:
    return keys.encoded_region_name(keys.meta_region_name(replica_id))
