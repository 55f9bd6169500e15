"""The checkers of the attacks report each violation. These tests are part of `make test`."""

from __future__ import annotations

import threading

import pytest

from metaclient import MetaClientError
from tests.attack import conftest
from tests.attack.conftest import nothing_leaks
from tests.attack.workload import COLUMN, Workload, value_of

ROW = b"r00-00"


class Table:
    """A table that returns what it is told to, and acknowledges every put."""

    def __init__(self, answer: bytes | Exception | None) -> None:
        self._answer = answer

    def table(self, name: str) -> Table:
        return self

    def put(self, row: bytes, data: object) -> None: ...

    def row(self, row: bytes) -> dict[bytes, bytes]:
        if isinstance(self._answer, Exception):
            raise self._answer
        return {} if self._answer is None else {COLUMN: self._answer}


def wrong_after_one_put(answer: bytes | Exception | None) -> list[str]:
    made = Workload(Table(answer), 0)  # type: ignore[arg-type]  # what it uses of a connection
    made._timed(made._put, ROW)
    made._timed(made._check, ROW)
    return made.report.wrong


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "has 0, acknowledged is 1"),
        (value_of(ROW, 0), "has 0, acknowledged is 1"),
        (value_of(ROW, 2), "has 2, acknowledged is 1, attempted 1"),
        (value_of(b"r00-01", 1), "the value of b'r00-01' was returned"),
        (KeyError("field"), "KeyError"),
    ],
    ids=["lost", "old", "invented", "another row", "foreign error"],
)
def test_wrong_answer_is_reported(answer: bytes | Exception | None, words: str) -> None:
    (wrong,) = wrong_after_one_put(answer)
    assert words in wrong


@pytest.mark.parametrize("answer", [value_of(ROW, 1), MetaClientError("no answer")], ids=["right", "error of ours"])
def test_right_answer_is_not_reported(answer: bytes | Exception) -> None:
    assert wrong_after_one_put(answer) == []


def test_row_that_cannot_be_read_after_the_attack_is_reported() -> None:
    made = Workload(Table(MetaClientError("no answer")), 0)  # type: ignore[arg-type]  # as above
    made.check_all()
    assert len(made.report.wrong) == len(made._rows)


def test_leaked_thread_and_file_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter([5, 7])
    monkeypatch.setattr(conftest, "_SETTLED_S", 0.0)
    monkeypatch.setattr(conftest, "_open_files", lambda: next(counts))
    is_over = threading.Event()
    thread = threading.Thread(target=is_over.wait, name="leaked", daemon=True)
    with pytest.raises(AssertionError, match=r"thread leaked.*2 open files"), nothing_leaks():
        thread.start()
    is_over.set()
    thread.join(5.0)
