"""The error for a setting that is refused: name, value, source, reason and what is allowed, short enough for a log."""

from __future__ import annotations

from metaclient.errors import ConfigError

__all__ = ["cut", "refusal"]


def refusal(name: str, value: object, source: str, why: object, allowed: str) -> ConfigError:
    try:
        shown = repr(value)
    except ValueError:  # an int of more digits than Python prints
        shown = "a number of thousands of digits"
    if "password" in name.lower() or "secret" in name.lower():
        shown = "(not shown)"  # messages end in logs
    return ConfigError(f"{name} = {cut(shown)} ({source}): {why}; allowed: {allowed}")


def cut(text: str) -> str:
    return text if len(text) <= 100 else f"{text[:97]}..."
