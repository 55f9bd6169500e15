"""``metaclient bench`` and ``python -m metaclient_bench``: list the scenarios, run one or all, as text or JSON."""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from metaclient.errors import ExtraMissing
from metaclient_bench.figure import Outcome
from metaclient_bench.pictures import png
from metaclient_bench.report import number, write
from metaclient_bench.scenario import Run, Scenario, as_one
from metaclient_bench.scenarios import SCENARIOS

__all__ = ["bench", "group_of", "main"]

ALL = "all"
#: The default folder of the page that ``run all`` writes; ``make clean`` removes it.
OUTPUT = Path("build") / "benchmarks"


def group_of(scenarios: Sequence[Scenario]) -> click.Group:
    """Return the commands for these scenarios."""

    @click.group("bench", context_settings={"help_option_names": ["-h", "--help"]})
    def group() -> None:
        """Run the benchmarks; compare the figures with their goals and with the Java client."""

    @group.command("list")
    @click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
    def list_command(as_json: bool) -> None:
        """List the scenarios."""
        if as_json:
            known = [{"scenario": one.name, "ids": list(one.ids), "shows": one.shows} for one in scenarios]
            click.echo(json.dumps({"scenarios": known}))
        else:
            Console().print(_listing(scenarios))

    @group.command("run")
    @click.argument("name")
    @click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
    @click.option(
        "--backend",
        help="Where to run, for scenarios that can run elsewhere: fake, local-hbase[:VERSION], "
        "secure-hbase[:VERSION] or a url.",
    )
    @click.option("--quick", is_flag=True, help="Fewer samples: a tenth of the time, less exact figures.")
    @click.option(
        "--output",
        type=click.Path(file_okay=False, path_type=Path),
        help=f"Folder for pictures, documents and the page.  [default with 'all': {OUTPUT.as_posix()}, without --json]",
    )
    @click.option(
        "--picture",
        type=click.Path(dir_okay=False, path_type=Path),
        help="File for the scenario's first picture (PNG).",
    )
    def run_command(
        name: str, as_json: bool, backend: str | None, quick: bool, output: Path | None, picture: Path | None
    ) -> None:
        """Run the scenario NAME (or the one with that figure's id), or all."""
        console = Console(stderr=as_json)
        chosen = _chosen(scenarios, name)
        if picture is not None and name == ALL:
            raise click.BadParameter("--picture needs one scenario, not all", param_hint="--picture")
        if backend is not None:
            chosen = _elsewhere(scenarios, chosen, backend)
        elif name == ALL:
            chosen = _possible(chosen, console)
        runs = [_run(scenario, quick, console) for scenario in chosen]
        if as_json:
            click.echo(json.dumps(as_one(runs) if name == ALL else runs[0].as_json()))
        elif output is None and name == ALL:
            output = OUTPUT
        if output is not None:
            _write(runs, output, quick, console)
        if picture is not None:
            _draw(runs[0], picture, console)
        sys.exit(0 if all(run.is_met for run in runs) else 1)

    return group


def _chosen(scenarios: Sequence[Scenario], name: str) -> Sequence[Scenario]:
    if name == ALL:
        return scenarios
    found = [one for one in scenarios if name == one.name or name.upper() in one.ids]
    if not found:
        names = ", ".join(one.name for one in scenarios)
        raise click.BadParameter(f"there is no scenario {name!r}; known are {names}, all", param_hint="NAME")
    return found[:1]


def _elsewhere(scenarios: Sequence[Scenario], chosen: Sequence[Scenario], backend: str) -> Sequence[Scenario]:
    try:
        return [scenario.on(backend) for scenario in chosen]
    except ValueError as error:
        able = ", ".join(one.name for one in scenarios if one.run_on is not None)
        raise click.BadParameter(f"{error}; --backend is for {able}", param_hint="--backend") from error


def _possible(chosen: Sequence[Scenario], console: Console) -> Sequence[Scenario]:
    """Return the scenarios that can run here, and print why the others cannot."""
    missing = {scenario.name: scenario.missing() for scenario in chosen}
    for name, what in missing.items():
        if what is not None:
            console.print(f"[yellow]{name} is skipped:[/] {escape(what)}")
    return [scenario for scenario in chosen if missing[scenario.name] is None]


def _run(scenario: Scenario, quick: bool, console: Console) -> Run:
    """Run one scenario and show its figures; a failure gives a run without figures, and the others continue."""
    began = time.perf_counter()
    try:
        with console.status(f"{scenario.name}: {escape(scenario.shows)}"):
            outcome, error = scenario.run(quick), None
    except ExtraMissing as raised:
        outcome, error = Outcome((), {}), str(raised)
    except Exception as raised:
        outcome, error = Outcome((), {}), f"{type(raised).__name__}: {raised}"
        Console(stderr=True).print(escape(traceback.format_exc()))
    run = Run(scenario, outcome, time.perf_counter() - began, error)
    console.print(_table(run))
    for text in outcome.texts:
        console.print(escape(text), highlight=False, soft_wrap=True, end="\n\n")
    return run


def _write(runs: Sequence[Run], folder: Path, quick: bool, console: Console) -> None:
    page, notice = write(runs, folder, is_quick=quick)
    if notice is not None:
        console.print(f"[yellow]no pictures:[/] {escape(notice)}")
    console.print(f"report: {page}")


def _draw(run: Run, file: Path, console: Console) -> None:
    if not run.outcome.charts:
        console.print("[yellow]no picture:[/] the scenario has drawn none")
        return
    try:
        drawn = png(run.outcome.charts[0])
    except ExtraMissing as error:
        console.print(f"[yellow]no picture:[/] {escape(str(error))}")
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(drawn)
    console.print(f"picture: {file}")


def _listing(scenarios: Sequence[Scenario]) -> Table:
    table = Table("scenario", "figures", "shows")
    for scenario in scenarios:
        table.add_row(scenario.name, ", ".join(scenario.ids), escape(scenario.shows))
    return table


def _table(run: Run) -> Table:
    title = f"{run.scenario.name}: {escape(run.scenario.shows)}"
    caption = f"{run.seconds:.1f} s" if run.error is None else f"[red]failed:[/] {escape(run.error)}"
    table = Table("id", "what", "value", "goal", "met", "beside", title=title, caption=caption, title_justify="left")
    for figure in run.outcome.figures:
        met = f"[{'green' if figure.is_met else 'red'}]{figure.verdict}[/]"
        beside = "\n".join(f"{name.replace('_', ' ')} {number(value)}" for name, value in figure.beside.items())
        table.add_row(figure.id, escape(figure.what), number(figure.value), str(figure.goal), met, escape(beside))
    return table


bench = group_of(SCENARIOS)


def main() -> None:
    bench(prog_name="python -m benchmarks")
