"""``python -m tests.fuzz --seconds 60``: mutate recorded frames on every decoder for a given time.

Prints the inputs that were tried and the findings of each decoder; ends with 1 if there are findings.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time

from tests.fuzz.decoders import DECODERS, Decoder
from tests.fuzz.runs import Finding, checked

_FINDINGS_MAX = 3  # of one decoder: more of the same help nobody


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="time for all decoders together (60)")
    parser.add_argument("--seed", type=int, default=0, help="the same seed makes the same inputs (0)")
    parser.add_argument("--decoder", choices=[one.name for one in DECODERS], help="only this one")
    parser.add_argument("--only", type=int, metavar="NUMBER", help="only the input of this number")
    given = parser.parse_args()
    chosen = [one for one in DECODERS if given.decoder in (None, one.name)]
    findings: list[Finding] = []
    for decoder in chosen:
        if given.only is not None:
            findings += [one for one in checked(decoder, given.seed, range(given.only, given.only + 1)) if one]
        else:
            findings += _run(decoder, given.seed, given.seconds / len(chosen))
    for one in findings:
        print(one)
    return 1 if findings else 0


def _run(decoder: Decoder, seed: int, seconds: float) -> list[Finding]:
    deadline = time.monotonic() + seconds
    findings: list[Finding] = []
    tried = 0
    for found in checked(decoder, seed, itertools.count()):
        tried += 1
        findings += [found] if found else []
        if time.monotonic() >= deadline or len(findings) >= _FINDINGS_MAX:
            break
    print(f"{decoder.name:18} {tried:8} inputs, {len(findings)} findings", flush=True)
    return findings


if __name__ == "__main__":
    sys.exit(main())
