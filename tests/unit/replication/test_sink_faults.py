"""The faults that a sink can show to a source: what the fake's source sends again, when, and on which connection.

``tests/live/test_sink_faults.py`` plays the same list to a real HBase and compares its calls with these.
"""

from __future__ import annotations

import pytest

from tests.unit.replication.fake_under_faults import calls_of_the_fake
from tests.unit.replication.scripted_sink import Edit, Entry, NormalizedCall, Reaction
from tests.unit.replication.sink_faults import REACTIONS

COLUMNS = ((b"cf:a", b"x"), (b"cf:b", b"y"))
SCOPES = ((b"cf", 1), (b"two", 2))


@pytest.fixture(scope="module", params=["2.6", "3.0"])
def calls(request: pytest.FixtureRequest) -> list[NormalizedCall]:
    with pytest.MonkeyPatch.context() as patch:
        return calls_of_the_fake(patch, behaviour=request.param)


def of_scene(calls: list[NormalizedCall], reaction: Reaction) -> list[NormalizedCall]:
    scene = next(number for number, reactions in enumerate(REACTIONS) if reaction in reactions)
    return [call for call in calls if call.scene == scene]


def pauses(calls: list[NormalizedCall]) -> list[int | None]:
    return [call.pause for call in calls]


def test_every_refusal_is_retried_after_growing_pauses_with_the_same_entries(calls: list[NormalizedCall]) -> None:
    """Also one that HBase marks as "do not retry"."""
    refused = of_scene(calls, Reaction.REFUSE)
    assert pauses(refused) == [None, 1, 2, 3]
    assert [call.timeout for call in refused] == [1, 1, 1, 1]
    assert len({call.entries for call in refused}) == 1
    assert len(refused[0].entries) == 3


def test_broken_connection_is_replaced_and_the_sink_stays(calls: list[NormalizedCall]) -> None:
    broken = of_scene(calls, Reaction.HANG_UP)
    assert pauses(broken) == [None, 1, 2]
    assert [call.is_on_same_connection for call in broken] == [True, False, False]
    assert [call.is_at_same_server for call in broken] == [True, True, True]


def test_hung_sink_gets_longer_timeouts_on_the_same_connection(calls: list[NormalizedCall]) -> None:
    hung = of_scene(calls, Reaction.HANG)
    assert [(call.pause, call.timeout) for call in hung] == [(None, 1), (1, 2), (2, 3)]
    assert all(call.is_on_same_connection for call in hung)


def test_late_answer_counts_for_nothing(calls: list[NormalizedCall]) -> None:
    """The answer came before the second call, but after the timeout of the first: the edits are sent twice."""
    late = of_scene(calls, Reaction.ANSWER_LATE)
    assert [(call.pause, call.timeout) for call in late] == [(None, 1), (1, 2)]
    assert late[0].entries == late[1].entries


def test_slow_answer_is_waited_for_and_the_next_batch_comes_after_it(calls: list[NormalizedCall]) -> None:
    slow = of_scene(calls, Reaction.ANSWER_SLOWLY)
    assert len(slow) == 1
    following = calls[calls.index(slow[0]) + 1 :]
    assert [[entry.number for entry in call.entries] for call in following] == [[7]]


def test_faults_change_no_entry_and_no_order(calls: list[NormalizedCall]) -> None:
    first_deliveries = list(dict.fromkeys(entry for call in calls for entry in call.entries))
    assert [entry.number for entry in first_deliveries] == list(range(8))
    expected = [
        *[(Edit(b"%d" % number, b"cf:q", 4, b"v", 5),) for number in range(3)],
        tuple([Edit(b"%d" % row, column, 4, value, 6) for row in range(3) for column, value in COLUMNS]),
        (Edit(b"0", b"cf:a", 12, b"", 7),),
        (Edit(b"1", b"cf:", 14, b"", 8),),
        (Edit(b"2", b"cf:n", 4, (3).to_bytes(8, "big"), None),),
        (Edit(b"3", b"cf:q", 4, b"meanwhile", 9),),
    ]
    assert first_deliveries == [
        Entry(number, SCOPES, cluster_ids=1, has_nonce=number == 6, edits=edits)
        for number, edits in enumerate(expected)
    ]
