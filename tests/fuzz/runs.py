"""Runs decoders on mutated inputs, and notes each input that broke a rule.

1. The decoder returns or raises one of its exceptions.
2. It takes at most ``CPU_S_MAX`` of the processor's time.
3. The process's peak of memory does not grow by more than ``MEMORY_MAX``.
"""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass

from tests.fuzz.decoders import Decoder
from tests.fuzz.mutations import mutated

__all__ = ["Finding", "checked", "input_of"]

#: 64 kB take some milliseconds; a second is not the machine's fault.
CPU_S_MAX = 1.0
MEMORY_MAX = 64 << 20


@dataclass(frozen=True)
class Finding:
    """An input that broke a rule."""

    decoder: str
    seed: int
    index: int
    what: str
    data: bytes

    def __str__(self) -> str:
        shown = self.data[:60].hex() + ("..." if len(self.data) > 60 else "")
        again = f"python -m tests.fuzz --decoder {self.decoder} --seed {self.seed} --only {self.index}"
        return f"{self.decoder}: {self.what}\n  {len(self.data)} bytes: {shown}\n  again: {again}"


def input_of(decoder: Decoder, seed: int, index: int) -> bytes:
    """Return the input of a number: it depends on nothing else, so that one can be run alone."""
    return mutated(random.Random(f"{seed}/{decoder.name}/{index}"), decoder.seeds)


def checked(decoder: Decoder, seed: int, indexes: Iterator[int] | range) -> Iterator[Finding | None]:
    """Run the inputs one after the other; a finding or None for each."""
    for index in indexes:
        data = input_of(decoder, seed, index)
        what = _broken_rule(decoder, data)
        yield Finding(decoder.name, seed, index, what, data) if what else None


def _broken_rule(decoder: Decoder, data: bytes) -> str | None:
    memory, begun = _peak_bytes(), time.process_time()
    try:
        decoder.run(data)
    except decoder.allowed:
        pass
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    took_s, grown = time.process_time() - begun, _peak_bytes() - memory
    if took_s > CPU_S_MAX:
        return f"took {took_s:.1f} s of the processor"
    if grown > MEMORY_MAX:
        return f"took {grown >> 20} MB of memory"
    return None


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
