"""What a server's online map holds in a region's place while the region itself may not answer: null objects.

A stand-in costs the fast path nothing: calls find an object with a region's methods, and it says what HBase says.
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
    """A scanner over one region, at one moment of it."""

    def next(self, max_rows: int, max_bytes: int) -> tuple[list[Result], bool]: ...

    def close(self) -> None: ...


class Hosted(Protocol):
    """What a region server needs of whatever stands at a region's name."""

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
    """A region on its way out: HRegion.startRegionOperation with ``closing`` set."""

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
    """A secondary that was just re-opened and knows nothing yet, as on HBase 2.6.1: no error, no rows, stale.

    Writes go to the region behind it, which refuses them.
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
