"""``metaclient sim``: run many seeds, or one of them again; for people, or as one JSON document."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from metaclient.runtime.simulation import import_greenlet
from metaclient.wording import counted
from metaclient_fake.simulation.kinds import SeedSpec, SeedWorld, defects_of, drawn_spec, run_spec
from metaclient_fake.simulation.runner import SeedResult, Summary, cores, run_seeds
from metaclient_fake.simulation.shrink import shrunk
from metaclient_fake.simulation.spec import DURATION_S
from metaclient_fake.simulation.timeline import picture, text
from metaclient_fake.simulation.trial import Report

__all__ = ["sim"]

#: The number of violations of a failing run that are printed; the rest is counted.
_SHOWN_MAX = 5
#: Without a terminal, progress is one line per this many seeds.
_TOLD_EVERY = 20

_duration = click.option(
    "--duration", default=DURATION_S, show_default=True, type=click.FloatRange(1.0, 86_400.0), help="Simulated seconds."
)
_defect = click.option("--defect", default="", help="Plant a bug: 'metaclient sim defects' lists them.")
_clusters = click.option(
    "--clusters", "has_clusters", is_flag=True, help="Seeds of two or three clusters that replicate to each other."
)
_as_json = click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")


@click.group("sim", context_settings={"help_option_names": ["-h", "--help"]})
def sim() -> None:
    """The deterministic simulation: client, cluster and faults, all of it decided by a seed."""


@sim.command("run")
@click.option("--seeds", default=200, show_default=True, type=click.IntRange(1), help="Number of seeds.")
@click.option("--start", default=0, show_default=True, type=click.IntRange(0), help="The first seed.")
@click.option("--jobs", default=0, type=click.IntRange(0), help="Processes.  [default: one per core]")
@_duration
@click.option("--until-failure", is_flag=True, help="Stop at the first seed that fails.")
@_defect
@_clusters
@_as_json
def run_command(
    seeds: int,
    start: int,
    jobs: int,
    duration: float,
    until_failure: bool,
    defect: str,
    has_clusters: bool,
    as_json: bool,
) -> None:
    """Run many seeds on all cores; exit code 1 when one of them breaks a promise."""
    import_greenlet()  # virtual time needs it: refuse before anything is drawn
    _check_defect(defect, has_clusters=has_clusters)
    console = Console(stderr=True, emoji=False)
    jobs = min(jobs or cores(), seeds)
    with _progress(console) as progress:
        bar = progress.add_task("seeds", total=seeds, failures=0, speed=0.0)
        summary = Summary()

        def tell(result: SeedResult) -> None:
            summary.add(result)
            progress.update(bar, advance=1, failures=len(summary.failures), speed=summary.simulated_per_core_s)
            if not console.is_terminal and summary.seeds % _TOLD_EVERY == 0:
                console.print(f"{summary.seeds} of {counted(seeds, 'seed')}, {len(summary.failures)} failed")
            if result.violations:
                progress.console.print(f"[red]seed {result.seed}:[/] {escape(str(result.violations[0])[:300])}")

        done = run_seeds(
            range(start, start + seeds),
            jobs=jobs,
            duration_s=duration,
            defect=defect,
            has_clusters=has_clusters,
            until_failure=until_failure,
            on_result=tell,
        )
    if as_json:
        click.echo(json.dumps({**done.as_json(), "start": start, "jobs": jobs, "duration_s": duration}))
    else:
        _show(done, start)
    if done.failures and not as_json:
        first = min(done.failures, key=lambda failure: failure.seed)
        spec = drawn_spec(first.seed, duration_s=duration, defect=defect, has_clusters=has_clusters)
        _explain(spec, console)
    sys.exit(1 if done.failures else 0)


@sim.command("replay")
@click.argument("seed", type=click.IntRange(0))
@_duration
@click.option("--shrink", is_flag=True, help="Remove every fault and client that the failure does not need.")
@click.option("--picture", "picture_file", type=click.Path(dir_okay=False, path_type=Path), help="Write it as SVG.")
@_defect
@_clusters
@_as_json
def replay_command(
    seed: int,
    duration: float,
    shrink: bool,
    picture_file: Path | None,
    defect: str,
    has_clusters: bool,
    as_json: bool,
) -> None:
    """Run SEED again and tell what happened; exit code 1 when it breaks a promise."""
    import_greenlet()  # virtual time needs it: refuse before anything is drawn
    _check_defect(defect, has_clusters=has_clusters)
    console = Console(stderr=True, emoji=False)
    report, world = _replayed(drawn_spec(seed, duration_s=duration, defect=defect, has_clusters=has_clusters))
    if shrink and not report.is_good:
        report, world = _replayed(_smallest(report, console).spec)
    if picture_file is not None:
        picture_file.write_text(picture(world, report.violations), encoding="utf-8")
        console.print(f"picture: {picture_file}")
    if as_json:
        document = {**report.as_json(), "spec": report.spec.as_json(), "is_shrunk": shrink}
        click.echo(json.dumps({**document, "timeline": text(world, report.violations).splitlines()}))
    else:
        _tell(report, world)
    sys.exit(0 if report.is_good else 1)


@sim.command("defects")
@_clusters
@_as_json
def defects_command(has_clusters: bool, as_json: bool) -> None:
    """List the bugs that can be planted, to see the checkers fire."""
    if as_json:
        known = [
            {"name": one.name, "story": one.story, "caught_by": list(one.caught_by)}
            for one in defects_of(has_clusters=has_clusters).values()
        ]
        click.echo(json.dumps({"defects": known}))
        return
    table = Table("defect", "story", "caught by")
    for one in defects_of(has_clusters=has_clusters).values():
        table.add_row(one.name, escape(one.story), ", ".join(one.caught_by))
    Console().print(table)


# -- output ------------------------------------------------------------------------------------------------------------


def _check_defect(name: str, *, has_clusters: bool) -> None:
    defects = defects_of(has_clusters=has_clusters)
    if name and name not in defects:
        known = ", ".join(sorted(defects))
        raise click.BadParameter(f"there is no defect {name!r}; known are {known}", param_hint="--defect")


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failures]} failed, {task.fields[speed]:.0f} simulated s per core second"),
        TimeRemainingColumn(),
        console=console,
    )


def _show(done: Summary, start: int) -> None:
    console = Console(emoji=False)
    verdict = f"[red]{len(done.failures)} failed[/]" if done.failures else "[green]no violation[/]"
    last = start + done.seeds - 1
    console.print(
        f"{counted(done.seeds, 'seed')} from {start} to {last}: {verdict}; {counted(done.operations, 'operation')}, "
        f"{done.simulated_s:.0f} simulated s in {done.real_s:.1f} s "
        f"({done.simulated_per_core_s:.0f} simulated s per core second)"
    )
    for failure in sorted(done.failures, key=lambda one: one.seed):
        console.print(f"  {failure.replay_line}", markup=False, highlight=False)
    never = done.coverage.faults_never_tried()
    console.print(f"faults never tried: {', '.join(never) or 'none'}")
    unseen = done.coverage.transitions_never_seen()
    shown = "; ".join(f"{machine} {before} -> {after}" for machine, before, after in unseen)
    console.print(f"transitions never seen: {shown or 'none'}", soft_wrap=True)


def _replayed(spec: SeedSpec) -> tuple[Report[SeedSpec], SeedWorld]:
    worlds: list[SeedWorld] = []
    return run_spec(spec, keep=worlds), worlds[0]


def _smallest(report: Report[SeedSpec], console: Console) -> Report[SeedSpec]:
    with console.status("shrinking") as status:
        return shrunk(
            report,
            on_run=lambda number, spec: status.update(
                f"shrinking, run {number}: {counted(len(spec.faults), 'fault')}, {counted(len(spec.clients), 'client')}"
            ),
        )


def _explain(spec: SeedSpec, console: Console) -> None:
    """Print a failing seed: the command that repeats it, the smallest schedule, the timeline."""
    report, _ = _replayed(spec)
    if report.is_good:
        console.print(f"[red]seed {spec.seed} failed and does not fail again: that is a bug of the simulation[/]")
        return
    smallest, world = _replayed(_smallest(report, console).spec)
    _tell(smallest, world)


def _tell(report: Report[SeedSpec], world: SeedWorld) -> None:
    console = Console(highlight=False, soft_wrap=True, emoji=False)
    spec = report.spec
    console.print(
        f"seed {spec.seed}, digest {report.digest}: {counted(len(report.violations), 'violation')}", markup=False
    )
    for violation in report.violations[:_SHOWN_MAX]:
        console.print(f"  {violation}", markup=False)
    if len(report.violations) > _SHOWN_MAX:
        console.print(f"  and {len(report.violations) - _SHOWN_MAX} more")
    if report.is_good:
        return
    console.print(f"replay: {spec.replay_line} --shrink", markup=False)
    console.print(f"schedule: {counted(len(spec.faults), 'fault')}, {counted(len(spec.clients), 'client')}")
    for fault in spec.faults:
        console.print(f"  {fault}", markup=False)
    console.print("timeline:")
    console.print(text(world, report.violations), markup=False)
