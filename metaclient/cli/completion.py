"""The command ``completion``: prints the script with which a shell completes commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

__all__ = ["completion"]

#: The file that each shell reads at its start, and the line to add to it.
_LINES = {
    "bash": ("~/.bashrc", 'eval "$(metaclient completion bash)"'),
    "zsh": ("~/.zshrc", 'eval "$(metaclient completion zsh)"'),
    "fish": ("~/.config/fish/config.fish", "metaclient completion fish | source"),
}


@click.command()
@click.argument("shell", type=click.Choice(list(_LINES)))
def completion(shell: str) -> None:
    """Print the completion script of SHELL.

    \b
    bash: add to ~/.bashrc                     eval "$(metaclient completion bash)"
    zsh:  add to ~/.zshrc                      eval "$(metaclient completion zsh)"
    fish: add to ~/.config/fish/config.fish    metaclient completion fish | source
    """
    made = get_completion_class(shell)
    assert made is not None, "click has a class for each of the three shells"
    click.echo(made(click.get_current_context().find_root().command, {}, "metaclient", "_METACLIENT_COMPLETE").source())
