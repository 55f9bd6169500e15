"""Decides which families a get or scan reads, and the query for each of them; caches the compiled queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from metaclient.errors import RequestRefused
from metaclient.model import Get, Scan
from metaclient_fake.storage.mutations import Mutations
from metaclient_fake.storage.query_matcher import StoreQuery
from metaclient_fake.storage.store import Store

__all__ = ["FamilyQueries", "Queries"]

#: (index of the store, its query) for each family that is read.
FamilyQueries: TypeAlias = tuple[tuple[int, StoreQuery], ...]

#: Compiled queries cached per region. Most programs use few different queries; others pay for compiling.
QUERIES_MAX = 256


class Queries:
    """Compiles requests into one query per family. Needs no lock: at worst a query is compiled twice."""

    def __init__(self, stores: Sequence[Store], mutations: Mutations) -> None:
        self._stores = stores
        self._mutations = mutations
        self._known: dict[object, FamilyQueries] = {}

    def of(self, asked: Get | Scan) -> FamilyQueries:
        """Return the query of each family; raise NoSuchFamily, or RequestRefused for a column of a raw scan."""
        is_raw = isinstance(asked, Scan) and asked.is_raw
        has_filter = asked.filter is not None
        stamps = (asked.min_timestamp, asked.max_timestamp)
        key = (asked.columns, asked.max_versions, stamps, is_raw, has_filter)
        found = self._known.get(key)
        if found is None:
            found = self._compiled(asked, is_raw)
            if len(self._known) >= QUERIES_MAX:
                self._known.clear()
            self._known[key] = found
        return found

    def _compiled(self, asked: Get | Scan, is_raw: bool) -> FamilyQueries:
        wanted = _by_family(asked.columns)
        for family, columns in wanted.items():
            self._mutations.store(family)
            if is_raw and columns is not None:
                raise RequestRefused("Cannot specify any column for a raw scan")
        return tuple(
            (index, _query(store, asked, wanted.get(store.name), is_raw))
            for index, store in enumerate(self._stores)
            if not wanted or store.name in wanted
        )


def _query(store: Store, asked: Get | Scan, columns: frozenset[bytes] | None, is_raw: bool) -> StoreQuery:
    return StoreQuery.of(
        store.family,
        columns=columns,
        max_versions=asked.max_versions,
        min_timestamp=asked.min_timestamp,
        max_timestamp=asked.max_timestamp,
        is_raw=is_raw,
        has_filter=asked.filter is not None,
    )


def _by_family(columns: Sequence[bytes]) -> dict[bytes, frozenset[bytes] | None]:
    """Return the requested columns of each family; None = all columns."""
    wanted: dict[bytes, set[bytes] | None] = {}
    for name in columns:
        family, colon, qualifier = name.partition(b":")
        if not colon:
            wanted[family] = None
        else:
            found = wanted.setdefault(family, set())
            if found is not None:
                found.add(family + b":" + qualifier)
    return {family: None if found is None else frozenset(found) for family, found in wanted.items()}
