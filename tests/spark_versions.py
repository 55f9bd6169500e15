"""``python -m tests.spark_versions [VERSION ...] [-- PYTEST ARGUMENT ...]``: run the Spark tests on several Sparks.

Each version has an environment of its own, ``.venv-spark-VERSION``, with the newest release of that version. The
default is every version that the connector supports, and all tests that are marked ``spark``. At the end there is one
line per version; the exit code is 1 if one of them failed.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path
from typing import NamedTuple

__all__ = ["SUPPORTED", "Outcome", "arguments", "run_on"]

ROOT = Path(__file__).parent.parent
SUPPORTED = ("4.0", "4.1", "4.2", "4.3")
#: What pytest gets if there is no ``--``.
TESTS = ("-m", "spark", "tests")
#: The longest that the tests of one version may take.
TIMEOUT_S = 2 * 3600.0


class Outcome(NamedTuple):
    """The exit code of one version's tests, and pytest's last line."""

    version: str
    code: int
    summary: str


def arguments(given: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the versions and the arguments for pytest.

    >>> arguments(["4.0", "--", "-x"])
    (('4.0',), ('-x',))
    """
    at = given.index("--") if "--" in given else len(given)
    versions, tests = tuple(given[:at]) or SUPPORTED, tuple(given[at + 1 :]) or TESTS
    unknown = [version for version in versions if version not in SUPPORTED]
    if unknown:
        raise SystemExit(f"there is no Spark {unknown[0]} among the supported versions {', '.join(SUPPORTED)}")
    return versions, tests


def environment(version: str) -> Path:
    """Return the Python of a version's environment; make the environment if it is missing."""
    folder = ROOT / f".venv-spark-{version}"
    python = folder / "bin" / "python"
    if not python.exists():
        print(f"making {folder.name} (once; Spark is 400 MB)", flush=True)
        venv.create(folder, with_pip=True, clear=True)
    wanted = [".[test,sim,spark,connect]", f"pyspark[connect]=={version}.*"]
    command = [str(python), "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]
    subprocess.run([*command, "--editable", *wanted], cwd=ROOT, check=True)
    return python


def run_on(version: str, tests: tuple[str, ...]) -> Outcome:
    """Run pytest on one version of Spark, and show its output as it comes."""
    python = environment(version)
    command = [str(python), "-m", "pytest", "-o", f"cache_dir=.pytest_cache/spark-{version}", *tests]
    print(f"Spark {version}: {' '.join(command[1:])}", flush=True)
    last = ""
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            last = line.strip() or last
        code = process.wait(TIMEOUT_S)
    return Outcome(version, code, last)


if __name__ == "__main__":
    chosen, wanted_tests = arguments(sys.argv[1:])
    outcomes = [run_on(version, wanted_tests) for version in chosen]
    for outcome in outcomes:
        print(f"Spark {outcome.version}: {'passed' if outcome.code == 0 else 'FAILED'}: {outcome.summary}")
    sys.exit(any(outcome.code for outcome in outcomes))
