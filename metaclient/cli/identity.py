"""The command ``whoami``: the user that the cluster takes the client for."""

from __future__ import annotations

import click

from metaclient.cli.session import CommandSession, common

__all__ = ["whoami"]


@click.command()
@common
def whoami(session: CommandSession) -> None:
    """Show the user that the cluster takes this client for, and how it was authenticated."""
    with session.connect() as connection:
        identity = connection.whoami()
    document = {"username": identity.username, "method": identity.method}
    session.done(document, f"{identity.username} ({identity.method})")
