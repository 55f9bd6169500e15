"""Runs decoders on mutated inputs, and notes each input that broke a rule.

1. The decoder returns or raises one of its exceptions.
2. It takes at most ``UNITS_MAX`` times the processor time of a fixed loop, measured on this machine at this moment.
3. The process's peak of memory does not grow by more than ``MEMORY_MAX``.

Rules 2 and 3 hold whether the decoder returned or raised.

The processor's time is that of this thread, without the garbage collector: a collection walks over every object of the
process, so that its time depends on the tests that ran before. An input over the limit is run again, after the fixed
loop is timed again, and counts only if it is over the limit each time.
"""

from __future__ import annotations

import gc
import random
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.decoders import Decoder
from tests.fuzz.mutations import mutated

__all__ = ["MEMORY_MAX", "Finding", "checked", "input_of", "peak_bytes", "reset_peak_bytes"]

#: One unit is the fixed loop of ``_unit_s``: about 2 ms. A slow decoder takes 50 units for an input of 64 kB; one whose
#: time is quadratic takes hundreds.
UNITS_MAX = 200.0
#: Inputs that take less are not compared with the loop: no machine is so fast that this would be slow.
SECONDS_UNCHECKED = 0.05
#: Runs of an input before it counts as slow.
TRIES = 3
MEMORY_MAX = 64 << 20
_CLEAR_REFS, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


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
    units: list[float] = []
    for _ in range(TRIES):
        before = reset_peak_bytes()
        seconds, error = _timed(lambda: decoder.run(data))
        grown = peak_bytes() - before
        if error is not None and not isinstance(error, decoder.allowed):
            return f"{type(error).__name__}: {str(error)[:200]}"
        if grown > MEMORY_MAX:
            return f"took {grown >> 20} MB of memory"
        units.append(seconds / _unit_s() if seconds > SECONDS_UNCHECKED else 0.0)
        if units[-1] <= UNITS_MAX:
            return None
    return f"took {min(units):.0f} times the processor time of the fixed loop; {UNITS_MAX:.0f} are allowed"


def _timed(run: Callable[[], object]) -> tuple[float, Exception | None]:
    """Run something; return this thread's processor time in seconds, and the error."""
    was_enabled = gc.isenabled()
    gc.disable()
    begun = time.thread_time()
    try:
        run()
    except Exception as error:
        return time.thread_time() - begun, error
    finally:
        if was_enabled:
            gc.enable()
    return time.thread_time() - begun, None


def _unit_s() -> float:
    """Return the processor time of a fixed loop that makes objects, as decoders do; the least of three runs."""
    return min(_timed(lambda: {str(one): [one] for one in range(10_000)})[0] for _ in range(3))


def reset_peak_bytes() -> int:
    """Set the process's peak of memory to what it uses now, where the system can (Linux); return it."""
    if _CLEAR_REFS.exists():
        _CLEAR_REFS.write_text("5")  # proc(5): resets the peak resident set size
    return peak_bytes()


def peak_bytes() -> int:
    """Return the process's peak of memory, since the last reset where there is one."""
    if _CLEAR_REFS.exists():
        (line,) = (one for one in _STATUS.read_text().splitlines() if one.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
