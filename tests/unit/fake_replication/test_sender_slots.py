"""Jobs of one line: what waits behind a job that cannot be started is refused, too, and never forgotten."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from metaclient.errors import Overloaded
from metaclient.runtime import SimRuntime
from metaclient_fake.region_replication import SendSlots


def test_job_behind_one_that_cannot_be_started_is_refused_not_forgotten() -> None:
    runtime = SimRuntime(seed=1)
    slots = SendSlots(runtime, 1)
    refused: list[str] = []
    start: Callable[..., Any] = runtime.start

    def job(name: str) -> Callable[[], Callable[[], object]]:
        return lambda: lambda: refused.append(f"{name} has run")

    def full(*args: object, name: str = "") -> Any:
        runtime.start = start  # type: ignore[method-assign]
        slots.run("server", job("second"), lambda error: refused.append(f"second: {type(error).__name__}"))
        raise Overloaded("all tasks are busy")

    runtime.start = full  # type: ignore[assignment, method-assign]
    slots.run("server", job("first"), lambda error: refused.append(f"first: {type(error).__name__}"))
    assert refused == ["first: Overloaded", "second: Overloaded"]
    slots.run("server", job("third"), lambda error: refused.append("third"))
    runtime.run_for(1.0)
    assert refused[2:] == ["third has run"]
    runtime.close()
