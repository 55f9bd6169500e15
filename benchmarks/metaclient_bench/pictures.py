"""Draws charts as PNG; needs matplotlib."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from metaclient.errors import ExtraMissing
from metaclient_bench.figure import Chart, Lines

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["png"]

SIZE_INCHES = (8.0, 4.0)
DOTS_PER_INCH = 110


def png(chart: Chart) -> bytes:
    """Return the chart as a PNG file; raise ExtraMissing without matplotlib."""
    figure = _figure()
    axes = figure.subplots()
    _lines(axes, chart) if isinstance(chart, Lines) else _bars(axes, chart)
    axes.set_title(chart.title, fontsize=10)
    axes.set_ylabel(chart.y)
    if chart.goal is not None:
        axes.axhline(chart.goal, color="black", linestyle="--", linewidth=1)
        axes.annotate("goal", (1.0, chart.goal), xycoords=("axes fraction", "data"), va="bottom", ha="right")
    if chart.is_log_y:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=DOTS_PER_INCH, metadata={"Software": None})
    return file.getvalue()


def _figure() -> Any:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ExtraMissing.of("a picture", error.name, extra="plots") from error
    figure = Figure(figsize=SIZE_INCHES, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _lines(axes: Axes, chart: Any) -> None:
    for name, (xs, ys) in chart.series.items():
        axes.plot(xs, ys, label=name, linewidth=1.5, drawstyle="steps-post" if chart.is_steps else "default")
    for text, x in chart.marks.items():
        axes.axvline(x, color="grey", linestyle=":", linewidth=1)
        axes.annotate(text, (x, 0.5), xycoords=("data", "axes fraction"), color="grey", fontsize=8)
    if chart.ticks:
        axes.set_xticks(list(chart.ticks), list(chart.ticks.values()))
    axes.set_xlabel(chart.x)
    axes.legend(fontsize=8)


def _bars(axes: Axes, chart: Any) -> None:
    bars = axes.bar(list(chart.values), list(chart.values.values()), width=0.6)
    axes.bar_label(bars, fmt="%.3g", fontsize=8)
    axes.tick_params(axis="x", labelsize=8)
