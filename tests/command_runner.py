"""Runs commands of click with standard output and standard error apart, on every version of click that is allowed."""

from __future__ import annotations

import inspect

from click.testing import CliRunner

__all__ = ["command_runner"]


def command_runner() -> CliRunner:
    """Return a runner that keeps both outputs apart: click 8.2 does so always, 8.1 on request."""
    if "mix_stderr" in inspect.signature(CliRunner).parameters:
        return CliRunner(mix_stderr=False)  # type: ignore[call-arg,unused-ignore]  # of click 8.1 alone
    return CliRunner()
