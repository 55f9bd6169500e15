"""The memory of committed entries is exact as long as it has room, and never takes an unknown entry for a repeat."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaclient.changes.repeats import Repeats
from metaclient.changes.state import FileState, dump_state, load_state, store_of
from metaclient.errors import ConfigError


@given(st.lists(st.integers(0, 40), max_size=60))
def test_memory_is_a_set_of_numbers(numbers: list[int]) -> None:
    repeats = Repeats()
    for number in numbers:
        repeats.add("r", number)
    assert [number for number in range(42) if repeats.has("r", number)] == sorted(set(numbers))
    runs = repeats.dump().get("r", [])
    assert all(two[0] > one[1] + 1 for one, two in pairwise(runs))  # adjacent ones are joined


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 60)), max_size=80))
def test_full_memory_forgets_and_never_invents(added: list[tuple[str, int]]) -> None:
    repeats = Repeats(runs_max=6, runs_max_of_region=4)
    for region, number in added:
        repeats.add(region, number)
        assert repeats.has(region, number) or repeats.forgotten
    known = {(region, number) for region in "abc" for number in range(61) if repeats.has(region, number)}
    assert known <= set(added)
    assert sum(map(len, repeats.dump().values())) <= 6


def test_gap_is_not_a_repeat() -> None:
    repeats = Repeats()
    repeats.add("r", 4)
    repeats.add("r", 9)
    assert not repeats.has("r", 7)


def test_state_survives_a_restart(tmp_path: Path) -> None:
    store = store_of(tmp_path / "state")
    assert isinstance(store, FileState)
    assert store.load() is None
    repeats = Repeats()
    for number in (1, 2, 5):
        repeats.add("r", number)
    store.save(dump_state("n", repeats))
    again = Repeats()
    load_state("n", store.load(), again)
    assert again.dump() == {"r": [[1, 2], [5, 5]]}
    assert [path.name for path in tmp_path.iterdir()] == ["state"]  # nothing is left beside it


@pytest.mark.parametrize(
    "data",
    [
        b"\xff",
        b"[]",
        b'{"version": 2, "name": "n", "regions": {}}',
        b'{"version": 1, "name": "other", "regions": {}}',
        b'{"version": 1, "name": "n", "regions": {"r": [[5, 1]]}}',
        b'{"version": 1, "name": "n", "regions": {"r": [[1]]}}',
        b'{"version": 1, "name": "n"}',
    ],
)
def test_state_of_something_else_is_an_error_and_not_an_empty_state(data: bytes) -> None:
    with pytest.raises(ConfigError, match="'n'"):
        load_state("n", data, Repeats())


def test_state_in_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        FileState(tmp_path / "nowhere" / "state").save(b"{}")
    with pytest.raises(TypeError, match="'state'"):
        store_of(7)  # type: ignore[arg-type]


def test_saved_state_is_json() -> None:
    assert json.loads(dump_state("n", Repeats())) == {"version": 1, "name": "n", "regions": {}}
