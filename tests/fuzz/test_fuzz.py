"""A fixed small part of the fuzzing, and proof that the rules are checked."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest

from metaclient.errors import ConfigError
from tests.fuzz import runs
from tests.fuzz.decoders import DECODERS, Decoder
from tests.fuzz.runs import checked, input_of

INPUTS = 300


@pytest.mark.parametrize("decoder", DECODERS, ids=lambda one: one.name)
def test_mutated_frame_breaks_no_rule_of_its_decoder(decoder: Decoder) -> None:
    findings = [str(one) for one in checked(decoder, 0, range(INPUTS)) if one is not None]
    assert findings == []


@pytest.mark.parametrize("decoder", DECODERS, ids=lambda one: one.name)
def test_first_recorded_frame_is_decoded_without_an_error(decoder: Decoder) -> None:
    decoder.run(decoder.seeds[0])


def test_foreign_exception_is_a_finding_that_can_be_run_again() -> None:
    def run(data: bytes) -> None:
        raise KeyError("field")

    (finding,) = checked(Decoder("bad", [b"abc"], run), 5, range(7, 8))
    assert finding is not None
    assert "KeyError" in finding.what
    assert "--seed 5 --only 7" in str(finding)
    assert finding.data == input_of(Decoder("bad", [b"abc"], run), 5, 7)


_OVER = runs.MEMORY_MAX + 1


@pytest.mark.parametrize("refuses", [False, True], ids=["returns", "raises"])
def test_memory_is_a_finding(monkeypatch: pytest.MonkeyPatch, refuses: bool) -> None:
    monkeypatch.setattr(runs, "reset_peak_bytes", lambda: 0)
    monkeypatch.setattr(runs, "peak_bytes", lambda: _OVER)
    (finding,) = checked(_decoder(refuses), 0, range(1))
    assert finding is not None
    assert "memory" in finding.what


def test_peak_of_memory_is_the_peak_of_the_input_and_not_of_the_inputs_before() -> None:
    before = runs.reset_peak_bytes()
    first = bytearray(_OVER)
    assert runs.peak_bytes() - before >= _OVER - (4 << 20)
    del first
    before = runs.reset_peak_bytes()
    assert bytearray(_OVER)
    assert runs.peak_bytes() - before >= _OVER - (4 << 20)


@pytest.mark.parametrize("refuses", [False, True], ids=["returns", "raises"])
def test_processor_time_is_a_finding(monkeypatch: pytest.MonkeyPatch, refuses: bool) -> None:
    monkeypatch.setattr(runs, "_timed", _timer(decoder_s=[9.0] * runs.TRIES, unit_s=0.002))
    (finding,) = checked(_decoder(refuses), 0, range(1))
    assert finding is not None
    assert "took 4500 times" in finding.what


def test_slow_machine_is_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_timed", _timer(decoder_s=[9.0], unit_s=0.1))
    assert list(checked(_decoder(refuses=False), 0, range(1))) == [None]


def test_slow_moment_of_the_machine_is_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_timed", _timer(decoder_s=[9.0, 9.0, 0.3], unit_s=0.002))
    assert list(checked(_decoder(refuses=False), 0, range(1))) == [None]


def test_collector_does_not_run_while_an_input_is_timed() -> None:
    seen = []
    decoder = Decoder("seeing", [b"abc"], lambda data: seen.append(gc.isenabled()))
    assert list(checked(decoder, 0, range(1))) == [None]
    assert seen == [False]
    assert gc.isenabled()


def _decoder(refuses: bool) -> Decoder:
    def run(data: bytes) -> None:
        if refuses:
            raise ConfigError("refused")

    return Decoder("bad", [b"abc"], run)


def _timer(decoder_s: list[float], unit_s: float) -> Callable[[Callable[[], object]], tuple[float, Exception | None]]:
    """The timer of ``runs`` on a machine of a given speed: each try of the decoder is followed by three units."""
    seconds = iter([one for each in decoder_s for one in (each, unit_s, unit_s, unit_s)])

    def timed(run: Callable[[], object]) -> tuple[float, Exception | None]:
        try:
            run()
        except Exception as error:
            return next(seconds), error
        return next(seconds), None

    return timed
