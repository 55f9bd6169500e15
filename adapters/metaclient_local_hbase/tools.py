"""The programs that a local HBase needs, the packages to install for them, and the folders of its files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from metaclient.errors import Unsupported

__all__ = ["NEEDED_FOR_PROGRAMS", "cache_folder", "check_tools", "missing_tools", "state_folder"]

#: Program -> the packages that contain it, by their usual names.
NEEDED = {
    "java": "a JDK or JRE 11 or newer (Debian, Ubuntu: openjdk-17-jre-headless; Fedora: java-17-openjdk-headless; "
    "Homebrew: openjdk)",
    "mvn": "Apache Maven 3.6 or newer (Debian, Ubuntu, Fedora, Homebrew: maven)",
}
#: Java programs that are run from their source need the compiler, too.
NEEDED_FOR_PROGRAMS = "a JDK 11 or newer (Debian, Ubuntu: openjdk-17-jdk-headless; Fedora: java-17-openjdk-devel)"


def missing_tools(path: str | None = None) -> str | None:
    """Return what to install before a local HBase can be started; None if nothing is missing."""
    absent = [name for name in NEEDED if shutil.which(name, path=path) is None]
    if not absent:
        return None
    return "a local HBase needs " + " and ".join(f"{name!r}: install {NEEDED[name]}" for name in absent)


def check_tools() -> None:
    """Raise Unsupported, with the packages to install, if a program is missing."""
    missing = missing_tools()
    if missing is not None:
        raise Unsupported(missing)


def cache_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Return the folder of the jars, which can be fetched again at any time."""
    return _folder(environ, "XDG_CACHE_HOME", ".cache")


def state_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Return the folder of clusters and their logs."""
    return _folder(environ, "XDG_STATE_HOME", ".local/state")


def _folder(environ: Mapping[str, str] | None, variable: str, default: str) -> Path:
    base = (os.environ if environ is None else environ).get(variable, "")
    # The XDG specification: a relative path is to be ignored.
    root = Path(base) if os.path.isabs(base) else Path.home() / default
    return root / "metaclient" / "hbase"
