"""Draws the document of a view for a terminal, with rich."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from metaclient.cli.picture import bar, sparkline

__all__ = ["screen_of"]

SERVERS_MAX = 20
ROWS_MAX = 6
EVENTS_MAX = 8
CHART_WIDTH = 30

_STYLES = {
    "up": "green",
    "healthy": "green",
    "open": "green",
    "ENABLED": "green",
    "slow": "yellow",
    "stopping": "yellow",
    "opening": "yellow",
    "doubted": "yellow",
    "ejected": "yellow",
    "DISABLED": "yellow",
    "hung": "bold red",
    "dead": "bold red",
    "cut off": "bold red",
    "silent": "bold red",
    "unplaced": "bold red",
    "failed": "bold red",
    "good": "green",
    "warning": "yellow",
    "bad": "red",
}
_UNKNOWN = Text("unknown", style="dim italic")
Cell = str | Text | None


def screen_of(view: dict[str, Any]) -> RenderableType:
    """Return the whole view; a line until the first figures."""
    if not view.get("ready"):
        return Text("collecting the first figures ...")
    parts: list[RenderableType] = [_title(view), _servers(view), _meta(view)]
    if view["clients"]:
        parts.append(_clients(view))
    if view["regions"]:
        parts.append(_regions(view))
    if view["region_replicas"]:
        parts.append(_replicas(view))
    if view["peers"]:
        parts.append(_peers(view))
    parts.append(_events(view))
    parts += [Text(f"unknown figures: {note}", style="dim") for note in view["notes"]]
    return Group(*parts)


def _title(view: dict[str, Any]) -> Text:
    summary = view["summary"]
    kind = "fake cluster" if view["is_fake"] else f"HBase {view['version'] or '(version unknown)'}"
    made = Text.assemble((f"metaclient watch  {kind}  {view['url']}", "bold"), "\n")
    made.append(f"{summary['servers_up']} of {view['servers_total']} servers up", "green")
    if summary["servers_bad"]:
        made.append(f", {summary['servers_bad']} dead, hung or cut off", "bold red")
    if summary["servers_unknown"]:
        made.append(f", {summary['servers_unknown']} unknown", "dim")
    made.append(f"; {summary['meta_healthy']} of {len(view['meta'])} meta replicas healthy")
    made.append(f"; reads of hbase:meta per second: {_rate(summary['meta_reads_per_s']) or 'unknown'}")
    return made


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> RichTable:
    """Return a table; columns whose names begin with ``>`` are aligned to the right. None is shown as unknown."""
    made = RichTable(title=f"\n{title}", title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    for column in columns:
        is_number = column.startswith(">")
        made.add_column(column.removeprefix(">"), justify="right" if is_number else "left", no_wrap=True)
    for row in rows:
        made.add_row(*(_UNKNOWN if cell is None else cell for cell in row))
    return made


def _state(state: str) -> Text:
    return Text(state, style=_STYLES.get(state, ""))


def _count(value: int | None) -> str | None:
    return None if value is None else f"{value:,}"


def _rate(value: float | None) -> str | None:
    return None if value is None else f"{value:.1f}"


def _ms(value: float | None) -> str | None:
    if value is None:
        return None
    return f"{value / 1000:.1f} s" if value >= 1000 else f"{value:.1f} ms"


def _s(value: float | None) -> str | None:
    return None if value is None else _ms(value * 1000)


def _plain(text: str | None) -> Text | None:
    """Return a text of the cluster without markup or control characters, which a terminal would obey."""
    return None if text is None else Text("".join(char if char.isprintable() else "?" for char in text))


def _servers(view: dict[str, Any]) -> RichTable:
    columns = ("server", "state", "meta", ">regions", ">reads/s", ">writes/s", "requests", ">queued", ">answer")
    shown = view["servers"][:SERVERS_MAX]
    title = "Region servers" + (
        f" ({len(shown)} of {view['servers_total']})" if len(shown) < view["servers_total"] else ""
    )
    return _table(
        title,
        columns,
        [
            (
                _plain(one["name"]),
                _state(one["liveness"]),
                ", ".join(map(str, one["meta"])) or "-",
                _count(one["regions"]),
                _rate(one["reads_per_s"]),
                _rate(one["writes_per_s"]),
                sparkline([value or 0.0 for value in one["chart"][-CHART_WIDTH:]]),
                _count(one["queued_calls"]),
                _ms(one["answer_ms"]),
            )
            for one in shown
        ],
    )


def _meta(view: dict[str, Any]) -> RichTable:
    columns = ("id", "server", "state", "share of reads", ">reads/s", ">lag", ">latency", ">errors", ">ejections")
    return _table(
        "Replicas of hbase:meta",
        columns,
        [
            (
                str(one["replica_id"]),
                _plain(one["server"]),
                _state(one["state"]),
                None if one["share"] is None else bar(one["share"], 12),
                _rate(one["reads_per_s"]),
                _s(one["lag_s"]),
                _ms(one["answer_ms"]),
                _count(one["errors"]),
                _count(one["ejections"]),
            )
            for one in view["meta"]
        ],
    )


def _clients(view: dict[str, Any]) -> RichTable:
    columns = (
        "lookups by",
        ">per s",
        "last minutes",
        ">median",
        ">waiting",
        ">longest",
        ">failed",
        ">retries",
        ">hedges",
        ">won",
    )
    return _table(
        "Lookups",
        columns,
        [
            (
                one["title"],
                _rate(one["lookups_per_s"]),
                sparkline([value or 0.0 for value in view["charts"]["clients"][one["name"]][-CHART_WIDTH:]]),
                _ms(one["median_ms"]),
                _count(one["waiting"]),
                Text(_s(one["longest_wait_s"]) or "", style="bold red" if one["longest_wait_s"] > 1.5 else ""),
                _count(one["failed"]),
                _count(one["retries"]),
                _count(one["hedges"] + one["meta_hedges"]),
                _count(one["hedges_won"]),
            )
            for one in view["clients"]
        ],
    )


def _start_key(text: str) -> str:
    return f"(first){text}" if not text or text.startswith(" (") else text


def _regions(view: dict[str, Any]) -> RichTable:
    rows = [
        (
            _plain(one["table"]),
            _plain(_start_key(one["start_key"])),
            _plain(one["server"]),
            _rate(one["requests_per_s"]),
            _count(one["requests"]),
        )
        for one in view["regions"][:ROWS_MAX]
    ]
    return _table("Hot regions", ("table", "start key", "server", ">requests/s", ">requests"), rows)


def _replicas(view: dict[str, Any]) -> RichTable:
    rows = [
        (
            _plain(one["table"]),
            _plain(_start_key(one["start_key"])),
            str(one["replica_id"]),
            _plain(one["server"]),
            _state(one["state"]),
            _s(one["lag_s"]),
        )
        for one in view["region_replicas"][:ROWS_MAX]
    ]
    title = f"Region replicas, the furthest behind of {view['region_replicas_total']}"
    return _table(title, ("table", "start key", "replica", "server", "state", ">lag"), rows)


def _peers(view: dict[str, Any]) -> RichTable:
    rows = [
        (
            _plain(one["subscription"] or one["peer_id"]),
            "subscription" if one["subscription"] else "cluster",
            _state(one["state"]),
            _plain(one["target"]),
            _count(one["logs"]),
            _ms(one["lag_ms"]),
            _plain(one["error"] or "-"),
        )
        for one in view["peers"][:ROWS_MAX]
    ]
    return _table("Peers and subscriptions", ("peer", "kind", "state", "to", ">logs kept", ">lag", "error"), rows)


def _events(view: dict[str, Any]) -> RichTable:
    newest = view["time_ms"]
    rows = [
        (
            f"{max(0, newest - one['time_ms']) / 1000:.0f} s ago",
            Text.assemble(("● ", _STYLES.get(one["level"], "blue")), _plain(one["text"]) or ""),
        )
        for one in view["events"][:EVENTS_MAX]
    ]
    return _table("Events", (">", "event"), rows)
