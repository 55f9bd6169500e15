"""The same seed gives the same trace: on every machine, in every Python, whatever the hashes of this process are.

``digests.json`` holds the digests of some seeds. Whatever changes what client or cluster do changes them; that is no
failure, but it should be meant. ``python tests/simulation/test_digests.py`` writes them anew.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from metaclient_fake.simulation.spec import drawn
from metaclient_fake.simulation.trial import run

STORED = Path(__file__).with_name("digests.json")
ROOT = Path(__file__).resolve().parents[2]
DURATION_S = 15.0
SEEDS = range(6)
CODE = f"""
import json
from metaclient_fake.simulation.spec import drawn
from metaclient_fake.simulation.trial import run
print(json.dumps({{seed: run(drawn(seed, duration_s={DURATION_S})).digest for seed in range({len(SEEDS)})}}))
"""
#: Interpreters that may be on this machine beside the one that runs this.
OTHERS = ("python3.11", "python3.12", "python3.13", "python3.14")
NEEDED = "import greenlet, tenacity, cachetools, opentelemetry, click, rich"


def digests() -> dict[str, str]:
    return {str(seed): run(drawn(seed, duration_s=DURATION_S)).digest for seed in SEEDS}


def in_process(python: str, code: str, hash_seed: int) -> str:
    roots = os.pathsep.join(str(ROOT / folder) for folder in (".", "adapters"))
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": roots}
    done = subprocess.run(
        [python, "-c", code], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=280, check=True
    )
    return done.stdout


def digests_of(python: str, hash_seed: int) -> dict[str, str]:
    found: dict[str, str] = json.loads(in_process(python, CODE, hash_seed))
    return found


@pytest.fixture(scope="module")
def here() -> dict[str, str]:
    return digests()


def test_digests_are_the_stored_ones(here: dict[str, str]) -> None:
    stored = json.loads(STORED.read_text())
    assert here == stored, "if the behaviour was meant to change: python tests/simulation/test_digests.py"


def test_digests_differ_between_seeds(here: dict[str, str]) -> None:
    assert len(set(here.values())) == len(here)


@pytest.mark.parametrize("hash_seed", [0, 4242])
def test_digests_do_not_depend_on_the_hashes_of_a_process(here: dict[str, str], hash_seed: int) -> None:
    """Sets of bytes and text are in another order in each process."""
    assert digests_of(sys.executable, hash_seed) == here


def test_digest_of_a_seed_with_pauses_between_statements_does_not_depend_on_hashes() -> None:
    """Seed 2637 paused while a replica of hbase:meta read its changed rows again, in the order of a set."""
    code = (
        "from metaclient_fake.simulation.spec import drawn\n"
        "from metaclient_fake.simulation.trial import run\n"
        "report = run(drawn(2637, duration_s=40.0))\n"
        "print(report.digest, report.violations)"
    )
    one, other = (in_process(sys.executable, code, hash_seed) for hash_seed in (0, 4242))
    assert one == other
    assert one.endswith(" ()\n")


@pytest.mark.parametrize("name", OTHERS)
def test_digests_do_not_depend_on_the_python(here: dict[str, str], name: str) -> None:
    python = shutil.which(name)
    if python is None or subprocess.run([python, "-c", NEEDED], capture_output=True, timeout=60).returncode:
        pytest.skip(f"there is no {name} with greenlet and the client's dependencies here")
    assert digests_of(python, 1) == here


if __name__ == "__main__":
    STORED.write_text(json.dumps(digests(), indent=2) + "\n")
    print(f"written: {STORED}")
