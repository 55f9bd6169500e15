"""Runs many seeds, on all cores: a seed is independent of every other, so each goes to the next free process.

This is the only module of the simulation that uses real time and real processes. A seed that does not end is killed
with its process after :data:`SEED_S_MAX`, and the run reports which seeds were running.
"""

from __future__ import annotations

import faulthandler
import gc
import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from metaclient_fake.simulation.coverage import Coverage
from metaclient_fake.simulation.kinds import drawn_spec, run_spec
from metaclient_fake.simulation.spec import DURATION_S
from metaclient_fake.simulation.world import Violation

__all__ = ["SeedResult", "Summary", "cores", "run_seeds"]

#: A seed takes about a second; one that takes this long never ends.
SEED_S_MAX = 300.0
#: Seeds submitted per process: the next one is available when one ends, and a stop takes effect soon.
_AHEAD = 2


@dataclass(frozen=True, slots=True)
class SeedResult:
    """The result of one seed, small enough to be sent between processes."""

    seed: int
    violations: tuple[Violation, ...]
    digest: str
    replay_line: str
    simulated_s: float
    operations: int
    processor_s: float
    coverage: Coverage

    def as_json(self) -> dict[str, object]:
        return {
            "seed": self.seed,
            "digest": self.digest,
            "replay": self.replay_line,
            "violations": [{"checker": one.checker, "message": one.message} for one in self.violations],
        }


@dataclass(slots=True)
class Summary:
    """The results of all seeds together."""

    seeds: int = 0
    simulated_s: float = 0.0
    operations: int = 0
    processor_s: float = 0.0
    real_s: float = 0.0
    failures: list[SeedResult] = field(default_factory=list)
    coverage: Coverage = field(default_factory=Coverage)

    def add(self, result: SeedResult) -> None:
        self.seeds += 1
        self.simulated_s += result.simulated_s
        self.operations += result.operations
        self.processor_s += result.processor_s
        self.coverage.add(result.coverage)
        if result.violations:
            self.failures.append(result)

    @property
    def simulated_per_core_s(self) -> float:
        """Simulated seconds per second of one core."""
        return self.simulated_s / self.processor_s if self.processor_s else 0.0

    def as_json(self) -> dict[str, object]:
        return {
            "seeds": self.seeds,
            "failures": [failure.as_json() for failure in self.failures],
            "simulated_s": round(self.simulated_s, 1),
            "operations": self.operations,
            "real_s": round(self.real_s, 2),
            "simulated_s_per_core_s": round(self.simulated_per_core_s, 1),
            "coverage": self.coverage.as_json(),
        }


def cores() -> int:
    """Return the processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_seeds(
    seeds: Iterable[int],
    *,
    jobs: int = 1,
    duration_s: float = DURATION_S,
    defect: str = "",
    has_clusters: bool = False,
    until_failure: bool = False,
    on_result: Callable[[SeedResult], None] | None = None,
) -> Summary:
    """Run all seeds, or until one fails; results are reported as they complete, in any order.

    ``has_clusters``: each seed is a run of several clusters (:mod:`metaclient_fake.simulation.clusters`).
    """
    summary = Summary()
    began = time.perf_counter()
    kind = _Kind(duration_s, defect, has_clusters)
    results = _here(seeds, kind) if jobs <= 1 else _spread(seeds, jobs, kind)
    for result in results:
        summary.add(result)
        if on_result is not None:
            on_result(result)
        if result.violations and until_failure:
            break
    summary.real_s = time.perf_counter() - began
    return summary


class _Kind(NamedTuple):
    """What all seeds of a run have in common."""

    duration_s: float
    defect: str
    has_clusters: bool


def _here(seeds: Iterable[int], kind: _Kind) -> Iterator[SeedResult]:
    for seed in seeds:
        yield _one(seed, kind)


def _one(seed: int, kind: _Kind) -> SeedResult:
    began = time.process_time()
    with _garbage_at_the_end():
        report = run_spec(drawn_spec(seed, **kind._asdict()))
    return SeedResult(
        seed,
        report.violations,
        report.digest,
        report.spec.replay_line,
        report.simulated_s,
        report.operations,
        time.process_time() - began,
        report.coverage,
    )


@contextmanager
def _garbage_at_the_end() -> Iterator[None]:
    """Collect garbage once per seed, at its end: during the run, nearly all new objects are in use.

    Objects from before the seed are not examined.
    """
    was_enabled, was_frozen = gc.isenabled(), gc.get_freeze_count() > 0
    gc.disable()
    gc.freeze()
    try:
        yield
        gc.collect()
    finally:
        if not was_frozen:
            gc.unfreeze()
        if was_enabled:
            gc.enable()


def _watched(seed: int, kind: _Kind) -> SeedResult:
    """Run a seed in a process of the pool; a seed that does not end kills the process, with a traceback."""
    faulthandler.dump_traceback_later(SEED_S_MAX, exit=True)
    try:
        return _one(seed, kind)
    finally:
        faulthandler.cancel_dump_traceback_later()


def _spread(seeds: Iterable[int], jobs: int, kind: _Kind) -> Iterator[SeedResult]:
    # Spawned, not forked: the calling process may have threads.
    context = multiprocessing.get_context("spawn")
    waiting = iter(seeds)
    running: dict[Future[SeedResult], int] = {}
    with ProcessPoolExecutor(max_workers=jobs, mp_context=context) as pool:
        try:
            while True:
                while len(running) < jobs * _AHEAD and (seed := next(waiting, None)) is not None:
                    running[pool.submit(_watched, seed, kind)] = seed
                if not running:
                    return
                done, _ = wait(running, timeout=2 * SEED_S_MAX, return_when=FIRST_COMPLETED)
                if not done:
                    raise RuntimeError(f"no seed finished within {2 * SEED_S_MAX:g} s: {sorted(running.values())}")
                for future in sorted(done, key=lambda one: running[one]):
                    on_its_way = sorted(running.values())
                    del running[future]
                    try:
                        yield future.result()
                    except BrokenProcessPool as error:
                        raise RuntimeError(
                            f"a process died or a seed did not end within {SEED_S_MAX:g} s; one of these: {on_its_way}"
                        ) from error
        finally:
            # After a failure, running seeds are not waited for. Otherwise none is running, and a pool whose end is not
            # waited for may print an error of its own at the end of the process (CPython 3.11).
            pool.shutdown(wait=not running, cancel_futures=True)
