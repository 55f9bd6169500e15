"""Charts for a terminal: bars and sparklines."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["bar", "sparkline"]

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_LEVELS = "▁▂▃▄▅▆▇█"


def bar(share: float, width: int) -> str:
    """Return a bar for a share of 0..1, with its percentage.

    >>> bar(0.5, 8)
    '████     50 %'
    """
    eighths = round(max(0.0, min(share, 1.0)) * width * 8)
    full, part = divmod(eighths, 8)
    drawn = "█" * full + (_EIGHTHS[part] if part else "")
    return f"{drawn:<{width}} {share:>3.0%}".replace("%", " %")


def sparkline(values: Sequence[float], top: float | None = None) -> str:
    """Return one character per value: a full block for the highest (or ``top``), a space for zero.

    >>> sparkline([0, 1, 2, 4])
    ' ▃▅█'
    """
    highest = top or max(values, default=0) or 1
    return "".join(
        " " if value <= 0 else _LEVELS[min(int(value / highest * len(_LEVELS)), len(_LEVELS) - 1)] for value in values
    )
