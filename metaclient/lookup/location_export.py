"""Encodes cached locations as JSON, so that another process can start with them instead of reading hbase:meta.

A document has the regions of each table, and optionally the places of the replicas of hbase:meta.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from metaclient import keys
from metaclient.errors import ConfigError
from metaclient.lookup.location_cache import LocationCache
from metaclient.model import MetaReplica, RegionInfo, RegionLocation, RegionLocations, ServerName

__all__ = ["decode_locations", "encode_locations", "export_locations", "import_locations"]


def export_locations(cache: LocationCache, tables: Sequence[bytes], replicas: Sequence[MetaReplica] = ()) -> bytes:
    """Return the cached locations of these tables (of all tables when empty) as bytes for :func:`import_locations`."""
    known = {name: cache.tables.get(name) for name in tables or tuple(cache.tables)}
    regions = {name: found.snapshot.regions for name, found in known.items() if found is not None}
    return encode_locations(regions, replicas)


def import_locations(cache: LocationCache, data: bytes) -> int:
    """Insert exported locations into a cache and return the number of regions."""
    return cache.take(decode_locations(data)[0])


def encode_locations(tables: Mapping[bytes, Sequence[RegionLocations]], replicas: Sequence[MetaReplica] = ()) -> bytes:
    """Return locations, and the places of the replicas of hbase:meta if given, as bytes for ``decode_locations``."""
    document: dict[str, object] = {
        "format": 1,
        "tables": {name.decode("utf-8"): [_as_json(entry) for entry in regions] for name, regions in tables.items()},
    }
    if replicas:
        document["meta"] = [[one.replica_id, list(one.server) if one.server is not None else None] for one in replicas]
    return json.dumps(document, separators=(",", ":")).encode()


def decode_locations(data: bytes) -> tuple[dict[bytes, list[RegionLocations]], tuple[MetaReplica, ...]]:
    """Return the regions of each table and the replicas of hbase:meta; raise ConfigError for any other data."""
    try:
        document = json.loads(data)
        if document["format"] != 1:
            raise ConfigError(f"these locations have format {document['format']!r}; this version reads 1")
        tables = {
            keys.table_name(name): [_from_json(keys.table_name(name), entry) for entry in entries]
            for name, entries in document["tables"].items()
        }
        replicas = tuple(
            MetaReplica(int(number), None if at is None else ServerName(str(at[0]), int(at[1]), int(at[2])))
            for number, at in document.get("meta", ())
        )
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"not a set of exported locations: {type(error).__name__}: {error}") from error
    return tables, replicas


def _as_json(entry: RegionLocations) -> list[object]:
    region = entry.region
    servers = [[*at.server, at.seqnum] if at is not None else None for at in entry.replicas]
    return [region.start_key.hex(), region.end_key.hex(), region.region_id, servers]


def _from_json(table: bytes, data: Sequence[object]) -> RegionLocations:
    start, end, region_id, servers = data
    if not (isinstance(start, str) and isinstance(end, str) and isinstance(region_id, int)):
        raise TypeError(f"a region is [start, end, id, servers], got {data!r}")
    if not isinstance(servers, list):
        raise TypeError(f"servers of a region must be a list, got {servers!r}")
    region = RegionInfo(table, bytes.fromhex(start), bytes.fromhex(end), region_id)
    if keys.ends_before_or_at(region.end_key, region.start_key):
        raise ValueError(f"a region ends before it starts: {data!r}")
    replicas = tuple(
        RegionLocation(region.replica(index), ServerName(str(at[0]), int(at[1]), int(at[2])), int(at[3]))
        if at is not None
        else None
        for index, at in enumerate(servers)
    )
    return RegionLocations(region, replicas)
