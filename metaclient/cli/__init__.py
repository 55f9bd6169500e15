"""``metaclient COMMAND``: the client on the command line.

Every command takes ``--json`` (one document on standard output, nothing else there), ``--url``, ``--config`` and
``-v``. Exit code 0: done, 1: failed, 2: wrong use. Packages add commands under the entry point group
``metaclient.commands``.
"""

from __future__ import annotations

from importlib.metadata import entry_points

import click

from metaclient import __version__
from metaclient.cli.data import delete, get, put, scan
from metaclient.cli.demo import demo
from metaclient.cli.doctor import doctor
from metaclient.cli.fake import fake
from metaclient.cli.hbase import hbase
from metaclient.cli.places import locate, meta, regions
from metaclient.cli.tables import create, drop, tables

__all__ = ["main"]


class _Commands(click.Group):
    """Our own commands, and those that other packages bring."""

    def list_commands(self, context: click.Context) -> list[str]:
        brought = {point.name for point in entry_points(group="metaclient.commands")}
        return sorted({*super().list_commands(context), *brought})

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        own = super().get_command(context, name)
        if own is not None:
            return own
        found = list(entry_points(group="metaclient.commands", name=name))
        command = found[0].load() if found else None
        return command if isinstance(command, click.Command) else None


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="metaclient")
def main() -> None:
    """The HBase client that keeps hbase:meta cool."""


for _command in (create, delete, demo, doctor, drop, fake, get, hbase, locate, meta, put, regions, scan, tables):
    main.add_command(_command)
