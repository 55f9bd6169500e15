"""Null objects that a server's online map holds in place of a region that must not answer.

A stand-in adds no check to the fast path: it has a region's methods, and answers as HBase does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn, Protocol

from metaclient.backend import Outcome
from metaclient.errors import NotServingRegion
from metaclient.model import Check, Get, Mutation, Result, Scan
from metaclient_fake.storage import Region

__all__ = ["ClosingRegion", "EmptyRegion", "Hosted", "HostedScanner"]


class HostedScanner(Protocol):
    """A scanner over one region, at one read point."""

    def next(self, max_rows: int, max_bytes: int) -> tuple[list[Result], bool]: ...

    def close(self) -> None: ...


class Hosted(Protocol):
    """The methods that a region server calls on a region or a stand-in."""

    @property
    def is_primary(self) -> bool: ...

    def get(self, get: Get) -> Result: ...

    def scanner(self, scan: Scan) -> HostedScanner: ...

    def mutate(self, mutation: Mutation, *, nonce_group: int = 0, is_repetition: bool = False) -> Result | None: ...

    def batch(self, mutations: Sequence[Mutation]) -> Sequence[Outcome]: ...

    def check_and_mutate(
        self, check: Check, mutation: Mutation, *, nonce_group: int = 0, is_repetition: bool = False
    ) -> bool: ...


class ClosingRegion:
    """A region that is closing: HRegion.startRegionOperation with ``closing`` set."""

    __slots__ = ("is_primary", "region")

    def __init__(self, region: Region) -> None:
        self.region = region
        self.is_primary = region.is_primary

    def _refuse(self) -> NoReturn:
        raise NotServingRegion(f"{self.region.info.encoded_name} is closing", detail=NotServingRegion.java_class)

    def get(self, get: Get) -> Result:
        self._refuse()

    def scanner(self, scan: Scan) -> HostedScanner:
        self._refuse()

    def mutate(self, mutation: Mutation, *, nonce_group: int = 0, is_repetition: bool = False) -> Result | None:
        self._refuse()

    def batch(self, mutations: Sequence[Mutation]) -> Sequence[Outcome]:
        self._refuse()

    def check_and_mutate(
        self, check: Check, mutation: Mutation, *, nonce_group: int = 0, is_repetition: bool = False
    ) -> bool:
        self._refuse()


class EmptyRegion:
    """A secondary that was just re-opened and has no data yet, as on HBase 2.6.1: no error, no rows, stale.

    Writes go to the wrapped region, which refuses them.
    """

    __slots__ = ("region",)

    is_primary = False

    def __init__(self, region: Region) -> None:
        self.region = region

    def get(self, get: Get) -> Result:
        return Result(get.row, (), is_stale=True, exists=False if get.existence_only else None)

    def scanner(self, scan: Scan) -> HostedScanner:
        return _NothingToScan()

    def mutate(self, mutation: Mutation, *, nonce_group: int = 0, is_repetition: bool = False) -> Result | None:
        return self.region.mutate(mutation)

    def batch(self, mutations: Sequence[Mutation]) -> Sequence[Outcome]:
        return self.region.batch(mutations)

    def check_and_mutate(
        self, check: Check, mutation: Mutation, *, nonce_group: int = 0, is_repetition: bool = False
    ) -> bool:
        return self.region.check_and_mutate(check, mutation)


class _NothingToScan:
    def next(self, max_rows: int, max_bytes: int) -> tuple[list[Result], bool]:
        return [], True

    def close(self) -> None:
        pass
