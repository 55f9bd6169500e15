"""Reads ``docs/known-differences.md``: which tests of the contract a backend behind a gateway cannot pass, and why."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

__all__ = ["KNOWN", "known_differences", "mark_if_known"]

TABLE = Path(__file__).resolve().parents[2] / "docs" / "known-differences.md"
_LINE = re.compile(r"^\| `(?P<test>[^`]+)` \| (?P<backends>[^|]+) \| (?P<reason>[^|]+) \|$")


def known_differences(text: str) -> dict[tuple[str, str], str]:
    """(test, backend) -> reason."""
    found = [match for line in text.splitlines() if (match := _LINE.match(line))]
    return {
        (match["test"], backend.strip()): match["reason"].strip()
        for match in found
        for backend in match["backends"].split(",")
    }


KNOWN = known_differences(TABLE.read_text(encoding="utf-8"))


def mark_if_known(request: pytest.FixtureRequest, backend: str, full_name: str) -> None:
    """A test that is listed must fail: one that passes again must leave the table."""
    reason = KNOWN.get((request.node.originalname, backend)) or KNOWN.get((full_name, backend))
    if reason is not None:
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))
