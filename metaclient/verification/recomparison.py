"""Compares rows that differ once more after a pause: replication is asynchronous, so that such rows may only be late.

Mirrors ``VerifyReplicationRecompareRunnable`` (HBase 2.6). DIVERGENCES:

- Rows that wait for their next comparison wait together, and are read by multi-gets: no threads are needed.
- The rows are read with the families, versions and times of the first comparison. HBase reads whole rows.
- A row that is equal now is good. HBase also requires that neither side has changed since the comparison before, so
  that a row which was late needs two more comparisons. A row that is gone on both sides is equal.
- The pause grows by the factor 2 to the power of the exponent, as HBase's help says. HBase's code has
  ``2 ^ exponent``, which is "exclusive or" in Java.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from metaclient.errors import ConfigError
from metaclient.model import Result
from metaclient.verification.comparison import Compared, RowVerdict, judged

__all__ = ["Recompare", "Recomparison", "RowReader"]

#: Differing rows that wait for their next comparison in memory: keys only.
RECOMPARED_AT_ONCE = 10_000
#: The longest pause between two comparisons.
PAUSE_S_MAX = 86_400.0
TRIES_MAX = 100


class RowReader(Protocol):
    """One side of a comparison: a table of a cluster, with families, versions and times to be read."""

    def scan(self, start: bytes, stop: bytes) -> Generator[Result, None, None]:
        """Yield the rows of a range in order; a row may come in pieces. Closing it closes the server's scanner."""
        ...

    def get(self, rows: Sequence[bytes]) -> list[Result]:
        """Return these rows in their order, without cells if a row does not exist."""
        ...


@dataclass(frozen=True, slots=True)
class Recompare:
    """How often differing rows are compared again (recompareSleep, recompareTries and recompareBackoffExponent).

    >>> list(Recompare(1.5, tries=3, backoff_exponent=1).pauses_s())
    [1.5, 3.0, 6.0]
    """

    pause_s: float
    tries: int = 1
    backoff_exponent: int = 0
    rows_per_get: int = 1000

    def __post_init__(self) -> None:
        if not self.pause_s > 0:
            raise ConfigError(f"recompare_s must be more than 0 seconds, got {self.pause_s!r}")
        if not 1 <= self.tries <= TRIES_MAX:
            raise ConfigError(f"recompare_tries must be from 1 to {TRIES_MAX}, got {self.tries!r}")
        if not 0 <= self.backoff_exponent <= 10:
            raise ConfigError(f"recompare_backoff_exponent must be from 0 to 10, got {self.backoff_exponent!r}")
        if max(self.pauses_s()) > PAUSE_S_MAX:
            raise ConfigError(
                f"recompare_s, recompare_tries and recompare_backoff_exponent give a last pause of more than "
                f"{PAUSE_S_MAX:.0f} seconds: choose smaller ones"
            )

    @classmethod
    def of(
        cls, pause_s: float | None, tries: int, backoff_exponent: int, *, rows_per_get: int = 1000
    ) -> Recompare | None:
        """Return the value of a user's arguments; None if rows are compared once."""
        if pause_s is None:
            if tries != 1 or backoff_exponent:
                raise ConfigError(
                    "recompare_tries and recompare_backoff_exponent need recompare_s, the pause before the first "
                    "comparison that is repeated"
                )
            return None
        return cls(pause_s, tries, backoff_exponent, rows_per_get)

    def pauses_s(self) -> Iterator[float]:
        """Yield the pause before each further comparison."""
        return (self.pause_s * 2.0 ** (self.backoff_exponent * number) for number in range(self.tries))


class Recomparison:
    """Compares the differing rows of one comparison again; ``recompares`` and ``failed`` count these comparisons."""

    def __init__(
        self, source: RowReader, peer: RowReader, recompare: Recompare | None, sleep: Callable[[float], None]
    ) -> None:
        self._source = source
        self._peer = peer
        self._recompare = recompare
        self._sleep = sleep
        self.recompares = 0
        self.failed = 0

    def final(self, found: Iterable[Compared]) -> Iterator[Compared]:
        """Yield the final verdicts; at most :data:`RECOMPARED_AT_ONCE` rows wait at a time."""
        recompare = self._recompare
        if recompare is None:
            yield from found
            return
        late: list[bytes] = []
        for compared in found:
            if compared.verdict is RowVerdict.GOODROWS:
                yield compared
                continue
            late.append(compared.row)
            if len(late) == RECOMPARED_AT_ONCE:
                yield from self._recompared(late, recompare)
                late = []
        yield from self._recompared(late, recompare)

    def _recompared(self, rows: list[bytes], recompare: Recompare) -> Iterator[Compared]:
        bad: list[Compared] = []
        for pause_s in recompare.pauses_s():
            if not rows:
                return
            self._sleep(pause_s)
            bad = []
            for compared in self._compared(rows, recompare.rows_per_get):
                if compared.verdict is RowVerdict.GOODROWS:
                    yield compared
                else:
                    bad.append(compared)
            self.recompares += len(rows)
            self.failed += len(bad)
            rows = [compared.row for compared in bad]
        yield from bad

    def _compared(self, rows: Sequence[bytes], rows_per_get: int) -> Iterator[Compared]:
        for first in range(0, len(rows), rows_per_get):
            some = rows[first : first + rows_per_get]
            for row, one, other in zip(some, self._source.get(some), self._peer.get(some), strict=True):
                is_gone = not one.cells and not other.cells
                yield Compared(RowVerdict.GOODROWS, row) if is_gone else judged(row, one, other)
