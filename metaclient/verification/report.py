"""The result of a comparison: HBase's counters, some of the rows that differ, and remarks on what was left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from metaclient import keys
from metaclient.verification.comparison import Compared, RowVerdict
from metaclient.verification.recomparison import Recomparison
from metaclient.wording import counted, text_table

__all__ = ["SAMPLES", "Tally", "VerificationReport", "counts_of"]

#: Rows that differ which a report shows; their number is not limited.
SAMPLES = 20


class Tally:
    """Counts verdicts and keeps the first rows that differ, in the order in which they are added."""

    def __init__(self, samples_max: int = SAMPLES) -> None:
        self.samples: list[Compared] = []
        self._samples_max = samples_max
        self._counts: Counter[RowVerdict] = Counter()

    def add_all(self, found: Iterable[Compared]) -> None:
        for compared in found:
            self._counts[compared.verdict] += 1
            if compared.verdict is not RowVerdict.GOODROWS and len(self.samples) < self._samples_max:
                self.samples.append(compared)

    def __getitem__(self, verdict: RowVerdict) -> int:
        return self._counts[verdict]


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class VerificationReport:
    """The numbers of equal and differing rows. ``counters`` has VerifyReplication's names; ``repr`` is a table.

    >>> report = VerificationReport(
    ...     table="t", peer_table="t", good=3, only_in_source=1,
    ...     samples=(Compared(RowVerdict.ONLY_IN_SOURCE, b"r7"),), notes=("family d was not compared",),
    ... )
    >>> report
    table t, compared with t: 1 of 4 rows differs
    counter                    rows
    GOODROWS                      3
    BADROWS                       1
    ONLY_IN_SOURCE_TABLE_ROWS     1
    ONLY_IN_PEER_TABLE_ROWS       0
    CONTENT_DIFFERENT_ROWS        0
    row  verdict
    r7   ONLY_IN_SOURCE
    note: family d was not compared
    """

    table: str
    peer_table: str
    good: int = 0
    only_in_source: int = 0
    only_in_peer: int = 0
    content_different: int = 0
    #: Comparisons of rows that differed before, and those of them that failed again; None if rows are compared once.
    recompares: int | None = None
    failed_recompares: int | None = None
    families: tuple[str, ...] = ()  # that were compared; () = all
    samples: tuple[Compared, ...] = ()  # the first rows that differ
    notes: tuple[str, ...] = ()

    @property
    def bad(self) -> int:
        return self.only_in_source + self.only_in_peer + self.content_different

    @property
    def is_equal(self) -> bool:
        return not self.bad

    @property
    def counters(self) -> dict[str, int]:
        """The counters under HBase's names; those of repeated comparisons only if there were any."""
        found = {
            "GOODROWS": self.good,
            "BADROWS": self.bad,
            RowVerdict.ONLY_IN_SOURCE.value: self.only_in_source,
            RowVerdict.ONLY_IN_PEER.value: self.only_in_peer,
            RowVerdict.CONTENT_DIFFERENT.value: self.content_different,
        }
        if self.recompares is not None and self.failed_recompares is not None:
            found |= {"RECOMPARES": self.recompares, "FAILED_RECOMPARE": self.failed_recompares}
        return found

    def as_dict(self) -> dict[str, Any]:
        """Return everything as values that JSON can hold."""
        return {
            "table": self.table,
            "peer_table": self.peer_table,
            "equal": self.is_equal,
            "counters": self.counters,
            "families": list(self.families),
            "differences": [
                {"verdict": one.verdict.name, "row": _text(one.row), "detail": one.detail} for one in self.samples
            ],
            "notes": list(self.notes),
        }

    def __repr__(self) -> str:
        compared, differ = counted(self.good + self.bad, "row"), "differs" if self.bad == 1 else "differ"
        lines = [f"table {self.table}, compared with {self.peer_table}: {self.bad} of {compared} {differ}"]
        lines += text_table(("counter", "rows"), self.counters.items())
        if self.samples:
            lines += text_table(("row", "verdict", ""), self.difference_lines())
        if self.bad > len(self.samples) > 0:
            lines.append(f"... and {counted(self.bad - len(self.samples), 'more row')}")
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def difference_lines(self) -> list[tuple[str, str, str]]:
        """Return row, verdict and first difference of each sample, as text for people."""
        return [(_text(one.row), one.verdict.name, one.detail or "") for one in self.samples]


def counts_of(tally: Tally, recomparison: Recomparison | None) -> dict[str, Any]:
    """Return the fields of a report that a tally and the repeated comparisons determine."""
    return {
        "good": tally[RowVerdict.GOODROWS],
        "only_in_source": tally[RowVerdict.ONLY_IN_SOURCE],
        "only_in_peer": tally[RowVerdict.ONLY_IN_PEER],
        "content_different": tally[RowVerdict.CONTENT_DIFFERENT],
        "recompares": None if recomparison is None else recomparison.recompares,
        "failed_recompares": None if recomparison is None else recomparison.failed,
        "samples": tuple(tally.samples),
    }


def _text(row: bytes) -> str:
    return keys.printable(row, len(row))
