"""Install the package gssapi, which the tests of a secure HBase need, if this machine permits it.

``python -m tests.secure.install`` is part of `make essential` and `make secure`. On Linux gssapi is always built, with
a C compiler and Kerberos' headers. As root on Debian or Ubuntu they are installed by apt-get.

The exit code is 0 if gssapi can be imported, and also if this machine has no headers and cannot get them: one sentence
then gives the reason, and the tests are skipped. If the headers are there and gssapi cannot be built, the code is 1.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["why_not_installed"]

#: libkrb5-dev has krb5-config, and python3-dev the headers of the system's Python.
_PACKAGES = ("gcc", "libc6-dev", "libkrb5-dev", "python3-dev")
_TOOLS = ("gcc", "krb5-config")
#: gssapi calls libkrb5 for all work on data: without optimisation it is built in 20 s instead of 100.
_FLAGS = "-O0 -g0"
_APT_S_MAX = 300.0
_BUILD_S_MAX = 600.0


def why_not_installed() -> str | None:
    """Return why gssapi cannot be imported and what to do, in one sentence; None if it can be."""
    try:
        import gssapi
    except ImportError as error:
        return (
            f"Kerberos needs the package gssapi ({error}): "
            f"apt-get install {' '.join(_PACKAGES)}, then pip install gssapi"
        )
    assert gssapi is not None
    return None


def _run(command: Sequence[str], seconds_max: float, **environment: str) -> str | None:
    """Return the last line of output of a command that failed; None if it succeeded."""
    try:
        ran = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds_max,
            env={**os.environ, **environment},
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    lines = [line for line in ran.stdout.splitlines() if line.strip()]
    return None if ran.returncode == 0 else (lines[-1] if lines else f"exit code {ran.returncode}")


def _missing_parts() -> list[str]:
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    return missing if (Path(sysconfig.get_path("include")) / "Python.h").exists() else [*missing, "Python.h"]


def _get_headers() -> str | None:
    """Install compiler and headers if they are missing; return why that was impossible."""
    missing = _missing_parts()
    if not missing:
        return None
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        return f"{', '.join(missing)} missing, and only root can install them with apt-get"
    install = ["apt-get", "install", "--yes", "--no-install-recommends", *_PACKAGES]
    failed = None
    for command in (install, ["apt-get", "update"], install):  # a new image has no lists of packages
        failed = _run(command, _APT_S_MAX, DEBIAN_FRONTEND="noninteractive")
        if not _missing_parts():
            return None
    return f"apt-get cannot install {' '.join(_PACKAGES)}: {failed or 'no reason given'}"


def main(environment: Mapping[str, str] = os.environ) -> int:
    if why_not_installed() is None:
        return 0
    missing = _get_headers()
    if missing is not None:
        print(f"the tests of a secure HBase are skipped, because gssapi cannot be built: {missing}", file=sys.stderr)
        return 0
    flags = f"{environment.get('CFLAGS', '')} {_FLAGS}".strip()
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--editable", ".[kerberos]"]
    failed = _run(pip, _BUILD_S_MAX, CFLAGS=flags)
    if failed is not None:
        print(f"gssapi cannot be installed, although compiler and headers are there: {failed}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
