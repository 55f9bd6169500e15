"""One finding of the command ``doctor``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Level", "Verdict"]

Level = Literal["good", "warning", "bad"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """One finding: its subject, the observation, and the advice."""

    level: Level
    about: str
    found: str
    advice: str = ""
