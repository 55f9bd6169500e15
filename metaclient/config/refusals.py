"""Makes the errors for refused settings: name, value, source, reason and allowed values, on one short line."""

from __future__ import annotations

from metaclient.config.url_secrets import is_secret_name, masked_url
from metaclient.errors import ConfigError

__all__ = ["cut", "refusal"]


def refusal(name: str, value: object, source: str, why: object, allowed: str) -> ConfigError:
    """Return the error for a refused value; it shows no value of a property whose name suggests a password."""
    try:
        shown = repr(value)
    except ValueError:  # an int of more digits than Python prints
        shown = "a number of thousands of digits"
    if is_secret_name(name):
        shown = "(not shown)"  # error messages are logged
    elif "://" in shown:
        shown = masked_url(shown)
    return ConfigError(f"{name} = {cut(shown)} ({source}): {why}; allowed: {allowed}")


def cut(text: str) -> str:
    """Return at most 100 characters of a text."""
    return text if len(text) <= 100 else f"{text[:97]}..."
