"""Decides in which order the actions of one batch run on a server (RSRpcServices.multi).

The actions run region by region. Within a region, gets run at once. Puts and deletes are collected, and applied
together before the next action of another kind (not a get) or at the end. So a get after a put of the same row does not
see it (HBase 2.6.1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from metaclient.backend import Action, Outcome
from metaclient.errors import MetaClientError
from metaclient.model import Append, Delete, Get, Increment, Mutation, Put, Result, RowMutations
from metaclient_fake.storage.stand_ins import Hosted

__all__ = ["run_batch"]


def run_batch(
    actions: Sequence[Action],
    *,
    find: Callable[[bytes], Hosted],
    get: Callable[[bytes, Hosted, Get], Result],
    mutate: Callable[[bytes, Mutation], Outcome],
    apply: Callable[[bytes, Hosted, Sequence[Put | Delete]], Sequence[Outcome]],
) -> list[Outcome]:
    """Return an outcome per action, in their order; if a region is not online here, all of its actions fail."""
    outcomes: list[Outcome] = [None] * len(actions)
    for region_name, indexes in _by_region(actions).items():
        try:
            hosted = find(region_name)
            held: list[int] = []
            for index in indexes:
                operation = actions[index].operation
                if isinstance(operation, Put | Delete):
                    held.append(index)
                    continue
                if not isinstance(operation, Get):
                    _apply_held(region_name, hosted, actions, held, outcomes, apply)
                outcomes[index] = _outcome_of(region_name, hosted, operation, get, mutate)
            _apply_held(region_name, hosted, actions, held, outcomes, apply)
        except MetaClientError as error:
            for index in indexes:
                outcomes[index] = error
    return outcomes


def _by_region(actions: Sequence[Action]) -> dict[bytes, list[int]]:
    by_region: dict[bytes, list[int]] = {}
    for index, action in enumerate(actions):
        assert action.place is not None, "a server is asked for places"
        by_region.setdefault(action.place.region_name, []).append(index)
    return by_region


def _outcome_of(
    region_name: bytes,
    hosted: Hosted,
    operation: Get | Increment | Append | RowMutations,
    get: Callable[[bytes, Hosted, Get], Result],
    mutate: Callable[[bytes, Mutation], Outcome],
) -> Outcome:
    try:
        return get(region_name, hosted, operation) if isinstance(operation, Get) else mutate(region_name, operation)
    except MetaClientError as error:
        return error


def _apply_held(
    region_name: bytes,
    hosted: Hosted,
    actions: Sequence[Action],
    held: list[int],
    outcomes: list[Outcome],
    apply: Callable[[bytes, Hosted, Sequence[Put | Delete]], Sequence[Outcome]],
) -> None:
    mutations = [operation for index in held if isinstance(operation := actions[index].operation, Put | Delete)]
    if mutations:
        for index, outcome in zip(held, apply(region_name, hosted, mutations), strict=True):
            outcomes[index] = outcome
    held.clear()
