"""Writes the results: a PNG per chart, a JSON document per scenario, and one page with all of them."""

from __future__ import annotations

import base64
import html
import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path

from metaclient.errors import ExtraMissing
from metaclient_bench.figure import Chart, Figure
from metaclient_bench.pictures import png
from metaclient_bench.scenario import Run

__all__ = ["number", "write"]

PAGE = "report.html"
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; color: #222 }
table { border-collapse: collapse; width: 100% }
td, th { border-bottom: 1px solid #ddd; padding: .3em .6em; text-align: left }
td.met { color: #176f2c } td.missed { color: #b3261e; font-weight: bold } img { max-width: 100% }
.note { color: #666 }
"""


def write(runs: Sequence[Run], folder: Path, *, is_quick: bool) -> tuple[Path, str | None]:
    """Write everything into the folder; return the page's path, and a notice if there are no pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    notice: str | None = None
    sections: list[str] = []
    for run in runs:
        (folder / f"{run.scenario.name}.json").write_text(json.dumps(run.as_json(), indent=1), encoding="utf-8")
        pictures: list[bytes] = []
        try:
            pictures = _pictures(run, folder)
        except ExtraMissing as error:
            notice = str(error)
        sections.append(_section(run, pictures))
    page = folder / PAGE
    page.write_text(_page(runs, sections, is_quick, notice), encoding="utf-8")
    return page, notice


def _pictures(run: Run, folder: Path) -> list[bytes]:
    drawn = [png(chart) for chart in run.outcome.charts]
    for index, picture in enumerate(drawn):
        (folder / _picture_name(run, index)).write_bytes(picture)
    return drawn


def _picture_name(run: Run, index: int) -> str:
    return f"{run.scenario.name}.png" if index == 0 else f"{run.scenario.name}-{index + 1}.png"


def _page(runs: Sequence[Run], sections: Sequence[str], is_quick: bool, notice: str | None) -> str:
    figures = [figure for run in runs for figure in run.outcome.figures]
    met = sum(figure.is_met for figure in figures)
    kind = "quick run: fewer samples" if is_quick else "full run"
    where = f"Python {platform.python_version()}, {os.cpu_count()} cores"
    missing = f'<p class="note">{html.escape(notice)}</p>' if notice else ""
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>metaclient benchmarks</title>'
        f"<style>{_STYLE}</style><h1>metaclient benchmarks</h1>"
        f"<p>{met} of {len(figures)} figures met their goals ({kind}; {where}). "
        "Every figure is a ratio, a count or a time of this one run, next to the Java client's if measured.</p>"
        f"{missing}{''.join(sections)}</html>\n"
    )


def _section(run: Run, pictures: Sequence[bytes]) -> str:
    scenario = run.scenario
    rows = "".join(_row(figure) for figure in run.outcome.figures)
    images = "".join(_image(picture, chart) for picture, chart in zip(pictures, run.outcome.charts, strict=False))
    texts = "".join(f"<pre>{html.escape(text)}</pre>" for text in run.outcome.texts)
    failed = f'<p class="note">Failed: {html.escape(run.error)}</p>' if run.error else ""
    return (
        f'<h2 id="{scenario.name}">{html.escape(scenario.name)}</h2><p>{html.escape(scenario.shows)}</p>{failed}'
        f"<table><tr><th>id<th>what<th>value<th>goal<th>met<th>beside</tr>{rows}</table>{texts}{images}"
        f'<p class="note">backend {html.escape(scenario.backend)}, {run.seconds:.1f} s</p>'
    )


def _row(figure: Figure) -> str:
    met = ("met" if figure.is_met else "missed", html.escape(figure.verdict))
    beside = ", ".join(f"{name.replace('_', ' ')} {number(value)}" for name, value in figure.beside.items())
    return (
        f"<tr><td>{figure.id}<td>{html.escape(figure.what)}<td>{number(figure.value)}<td>{html.escape(str(figure.goal))}"
        f'<td class="{met[0]}">{met[1]}<td>{html.escape(beside)}</tr>'
    )


def _image(picture: bytes, chart: Chart) -> str:
    data = base64.b64encode(picture).decode("ascii")
    return f'<p><img alt="{html.escape(chart.title, quote=True)}" src="data:image/png;base64,{data}"></p>'


def number(value: float) -> str:
    """Return a number as text, rounded for reading.

    >>> number(33.333333), number(213), number(0.0004)
    ('33.3', '213', '0.0004')
    """
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"
