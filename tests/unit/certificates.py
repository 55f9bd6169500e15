"""Certificates for tests, made with openssl."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

__all__ = ["make_certificates"]


def make_certificates(folder: Path, *names: str) -> Path:
    """Make ``NAME.crt``, ``NAME.key`` and ``NAME.pem`` (both) for localhost; each certificate signs itself."""
    if shutil.which("openssl") is None:
        pytest.skip("the certificates are made with openssl")
    for name in names:
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
             "-keyout", f"{name}.key", "-out", f"{name}.crt", "-subj", f"/CN={name}",
             "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
            cwd=folder, check=True, capture_output=True,
        )  # fmt: skip
        (folder / f"{name}.pem").write_text((folder / f"{name}.crt").read_text() + (folder / f"{name}.key").read_text())
    return folder
