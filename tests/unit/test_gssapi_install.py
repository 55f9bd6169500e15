"""The set-up of the tests of a secure HBase: it skips only what the machine cannot build."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.secure import install


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commands that were run; each fails. gssapi cannot be imported."""
    ran: list[str] = []

    def run(command: Sequence[str], seconds_max: float, **environment: str) -> str:
        ran.append(" ".join(command))
        return "E: no network"

    monkeypatch.setattr(install, "why_not_installed", lambda: "no gssapi")
    monkeypatch.setattr(install, "_run", run)
    return ran


def test_headers_that_cannot_be_had_are_a_sentence_and_no_failure(
    commands: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(install, "_missing_parts", lambda: ["krb5-config"])
    monkeypatch.setattr(install.shutil, "which", lambda tool: f"/usr/bin/{tool}")
    monkeypatch.setattr(install.os, "geteuid", lambda: 0)
    assert install.main() == 0
    assert [command.split()[1] for command in commands] == ["install", "update", "install"]
    assert "are skipped" in capsys.readouterr().err

    monkeypatch.setattr(install.os, "geteuid", lambda: 1000)
    commands.clear()
    assert install.main() == 0
    assert commands == []
    assert "krb5-config missing, and only root" in capsys.readouterr().err


def test_build_that_fails_although_the_headers_are_there_is_a_failure(
    commands: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(install, "_missing_parts", list)
    assert install.main() == 1
    assert "although compiler and headers are there: E: no network" in capsys.readouterr().err
    assert ".[kerberos]" in commands[0]
