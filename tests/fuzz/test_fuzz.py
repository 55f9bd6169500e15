"""A fixed small part of the fuzzing, and proof that the rules are checked."""

from __future__ import annotations

import pytest

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


def test_memory_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    peaks = iter([0, runs.MEMORY_MAX + 1])
    monkeypatch.setattr(runs, "_peak_bytes", lambda: next(peaks))
    (finding,) = checked(Decoder("bad", [b"abc"], lambda data: None), 0, range(1))
    assert finding is not None
    assert "memory" in finding.what
