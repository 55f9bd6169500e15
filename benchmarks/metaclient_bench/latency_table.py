"""Latencies of reads as the lines of a table: qps, max, min, avg, p90, p99, p999, p9999; STRONG beside TIMELINE.

These are the lines of the tests of region replicas that were published after HBASE-10070.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from metaclient_bench.figure import Figure, Lines, Outcome

__all__ = ["CLIENTS", "LIMIT_SHARE", "LINES", "Reads", "as_chart", "as_text", "outcome_of"]

#: The limit, as a share of what STRONG reads reach: 7000 of 12608 in the published tests.
LIMIT_SHARE = 0.555
HBASE: dict[str, Any] = {"hedge_plan": "all_at_once", "hedge_delay": "fixed", "hedge_budget": 1000}
CLIENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "strong": ("STRONG", {}),
    "hbase-10ms": ("TIMELINE", HBASE),
    "ours": ("TIMELINE", {}),
}
QUANTILES: Final = (0.5, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 0.9999)


@dataclass(frozen=True, slots=True)
class Reads:
    """The latencies of one client's reads, sorted; the time that all of them took; the share of extra calls."""

    seconds: Sequence[float]
    elapsed_s: float
    extra: float = 0.0

    @property
    def qps(self) -> float:
        return len(self.seconds) / self.elapsed_s

    @property
    def mean_s(self) -> float:
        return sum(self.seconds) / len(self.seconds)

    def quantile(self, q: float) -> float:
        """Return the q-quantile (nearest rank).

        >>> Reads([0.001, 0.002, 0.003, 0.1], 1.0).quantile(0.5)
        0.003
        """
        return self.seconds[min(int(q * len(self.seconds)), len(self.seconds) - 1)]


#: The lines of a table.
LINES: Final[Mapping[str, Callable[[Reads], float]]] = {
    "qps_sec": lambda reads: reads.qps,
    "max_latency_us": lambda reads: reads.seconds[-1] * 1e6,
    "min_latency_us": lambda reads: reads.seconds[0] * 1e6,
    "avg_latency_us": lambda reads: reads.mean_s * 1e6,
    "p90_latency_us": lambda reads: reads.quantile(0.9) * 1e6,
    "p99_latency_us": lambda reads: reads.quantile(0.99) * 1e6,
    "p999_latency_us": lambda reads: reads.quantile(0.999) * 1e6,
    "p9999_latency_us": lambda reads: reads.quantile(0.9999) * 1e6,
}


def as_text(title: str, made: Mapping[str, Reads]) -> str:
    """Return a table: one column per client, and its difference to the first client in per cent.

    >>> print(as_text("no limit", {"strong": Reads([0.002], 1.0), "timeline": Reads([0.001], 1.0)}).splitlines()[4])
    avg_latency_us            2000.00         1000.00   -50.0%
    """
    first = next(iter(made.values()))
    head = "".join(f"{name:>16}" + ("" if one is first else f"{'':>9}") for name, one in made.items())
    lines = [title + "\n" + " " * 17 + head]
    for name, value in LINES.items():
        cells = ""
        for one in made.values():
            cells += f"{value(one):>16.2f}"
            if one is not first:
                cells += f"{value(one) / value(first) - 1:>+9.1%}"
        lines.append(f"{name:<17}{cells}")
    return "\n".join(lines)


def as_chart(title: str, made: Mapping[str, Reads]) -> Lines:
    """Return a picture of the distribution; each quantile is as far from the next as any other."""
    places = [float(index) for index in range(len(QUANTILES))]
    series = {
        f"{name} (+{one.extra:.1%} calls)": (places, [one.quantile(q) * 1e3 for q in QUANTILES])
        for name, one in made.items()
    }
    ticks = {at: "p" + f"{q * 100:g}".replace(".", "") for at, q in zip(places, QUANTILES, strict=True)}
    return Lines(title, "quantile", "ms", series, ticks=ticks, is_log_y=True)


def outcome_of(tables: Mapping[str, Mapping[str, Reads]]) -> Outcome:
    """Return the outcome; the last two tables are those that the figures come from: no limit, limited."""
    unlimited, limited = list(tables.values())[-2:]
    ours, strong = limited["ours"], limited["strong"]
    figures = (
        Figure.of(
            "T4",
            "p999 of TIMELINE over STRONG reads, limited rate, server pauses",
            ours.quantile(0.999) / strong.quantile(0.999),
            "<= 0.2",
            ours_ms=ours.quantile(0.999) * 1e3,
            strong_ms=strong.quantile(0.999) * 1e3,
            hbase_ms=limited["hbase-10ms"].quantile(0.999) * 1e3,
        ),
        Figure.of("T4b", "the same, mean", ours.mean_s / strong.mean_s, "<= 1.01"),
        Figure.of(
            "T4c",
            "the same without a limit, reads per second",
            unlimited["ours"].qps / unlimited["strong"].qps,
            ">= 0.99",
        ),
    )
    samples = {
        title: {name: {line: round(value(one), 2) for line, value in LINES.items()} for name, one in made.items()}
        for title, made in tables.items()
    }
    texts = tuple(as_text(title, made) for title, made in tables.items())
    return Outcome(figures, samples, tuple(as_chart(title, made) for title, made in tables.items()), texts)
