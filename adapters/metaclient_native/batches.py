"""Many actions in one call: cut into calls where order counts, grouped by region, their outcomes put in order again.

HBase runs a batch in no order: gets at once, puts and deletes together later, and those with one timestamp, under which
a delete hides a put whichever came first. So two different changes of one row go in two calls, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from metaclient.backend import Action, Outcome, PutPage
from metaclient.errors import BackendFault, ConnectionClosed, MetaClientError, Unsupported
from metaclient.model import Append, Check, Delete, Get, Increment, Put, RegionLocation, Result, RowMutations
from metaclient.runtime import Pending
from metaclient.wire.cell_arrays import cells_per_row, joined, libraries, numbers, sizes, together
from metaclient.wire.rpc.cellblock import PutWriter, encode_page
from metaclient.wire.rpc.framing import Response
from metaclient.wire.rpc.messages import ACTION, CONDITION, MULTI_RESPONSE
from metaclient.wire.rpc.mutations import condition_message
from metaclient.wire.rpc.protobuf import ProtocolError, decode, delimited, encode, varint
from metaclient.wire.rpc.queries import get_message, result_from
from metaclient_native import errors
from metaclient_native.calls import mutation_param, region_prefix

if TYPE_CHECKING:
    import pyarrow

__all__ = ["MultiCall", "PageCall", "Steps", "in_order", "is_all_done", "no_place", "picked"]


#: What a MultiResponse has at its end, always, and empty.
_NO_STATISTICS = b"\x1a\x00"
#: Changes that may stand beside others of their kind, also of one row.
_FREE: tuple[set[type], ...] = ({Put}, {Delete}, set())
#: Numbers that take one byte, and those that take two: of more actions than the latter answers are decoded.
_ONE_BYTE, _TWO_BYTES = 1 << 7, 1 << 14


@cache
def _results() -> bytes:
    """What is answered for puts or deletes that were done, number by number."""
    return b"".join(b"\x0a" + delimited(b"\x08" + varint(number) + b"\x12\x00") for number in range(_TWO_BYTES))


def _done(count: int) -> bytes:
    """The RegionActionResult of so many puts or deletes that were all done, in their order."""
    size = 6 * count + max(0, count - _ONE_BYTE)
    return b"\x0a" + varint(size) + _results()[:size]


def is_all_done(answer: bytes, counts: Sequence[int]) -> bool:
    """Whether a MultiResponse says of so many puts or deletes a region that they were done: most answers do."""
    if any(count > _TWO_BYTES for count in counts):
        return False
    done = b"".join([_done(count) for count in counts])
    return answer == done + _NO_STATISTICS or answer == done


def no_place() -> Unsupported:
    return Unsupported("HBase's own RPC addresses servers: say which one (a RegionLocation)")


def in_order(actions: Sequence[Action]) -> list[list[int]]:
    """Indexes of the actions, cut into calls that must follow one another."""
    if {type(action.operation) for action in actions} - {Get} in _FREE:
        return [list(range(len(actions)))]
    calls: list[list[int]] = [[]]
    changed: dict[bytes, type] = {}
    for index, action in enumerate(actions):
        operation = action.operation
        if not isinstance(operation, Get):
            kind = type(operation)
            before = changed.get(operation.row)
            if before is not None and (before is not kind or kind in (Increment, Append, RowMutations)):
                calls.append([])
                changed.clear()
            changed[operation.row] = kind
        calls[-1].append(index)
    return calls


def picked(result: Result, operation: object) -> Result:
    """Only the columns that were changed: 3.0 answers the whole row to a change that it has seen before."""
    match operation:
        case Increment(amounts=pairs) | Append(values=pairs):
            wanted = {column for column, _ in pairs}
            cells = [cell for cell in result.cells if cell.column in wanted]
            return result if len(cells) == len(result.cells) else result._replace(cells=cells)
    return result


class _Group:
    """One RegionAction: the actions that it is made of, and what is written so far."""

    __slots__ = ("actions", "cells", "count", "indexes", "is_atomic", "name")

    def __init__(self, name: bytes, *, is_atomic: bool) -> None:
        self.name = name
        self.is_atomic = is_atomic
        self.indexes: list[int] = []
        self.count = 0  # of Actions: of several mutations of one row each is one
        self.actions: list[bytes] = []
        self.cells: list[bytes] = []  # in the block they stand as in the message

    def add(self, action: bytes) -> None:
        self.actions += (b"\x1a", varint(len(action)), action)
        self.count += 1

    def param(self, condition: bytes) -> bytes:
        atomic = b"\x10\x01" if self.is_atomic else b""
        body = b"".join((region_prefix(self.name), atomic, *self.actions, condition))
        return b"\x0a" + varint(len(body)) + body


class MultiCall:
    """One Multi: its message and cells, and what its answer means for each action."""

    def __init__(
        self, actions: Sequence[Action], *, nonce_group: int, check: Check | None = None, what: str = "batch"
    ) -> None:
        self._actions = actions
        self._what = what
        self._groups: list[_Group] = []
        self._writer = PutWriter()
        self._has_nonce = False
        self._is_silent = True  # puts and deletes: done is all that there is to say
        by_region: dict[bytes, _Group] = {}
        for index, action in enumerate(actions):
            if action.place is None:
                raise no_place()
            name, operation = action.place.region_name, action.operation
            if isinstance(operation, RowMutations):
                group = self._new_group(name, is_atomic=True)
                for part in operation.mutations:
                    self._add(group, part)
            else:
                group = by_region.get(name) or by_region.setdefault(name, self._new_group(name))
                self._add(group, operation)
            group.indexes.append(index)
        condition = b"" if check is None else b"\x22" + delimited(encode(CONDITION, condition_message(check)))
        nonces = b"\x10" + varint(nonce_group) if self._has_nonce else b""
        self.param = b"".join([*(group.param(condition) for group in self._groups), nonces])
        self.cells = b"".join([cells for group in self._groups for cells in group.cells])

    def _new_group(self, name: bytes, *, is_atomic: bool = False) -> _Group:
        group = _Group(name, is_atomic=is_atomic)
        self._groups.append(group)
        return group

    def _add(self, group: _Group, operation: Any) -> None:
        number = group.count
        if isinstance(operation, Get):
            self._is_silent = False
            group.add(encode(ACTION, {"index": number, "get": get_message(operation)}))
            return
        mutation, cells = mutation_param(operation, self._writer)
        group.add(b"\x08%b\x12%b%b" % (varint(number), varint(len(mutation)), mutation))
        group.cells.append(cells)
        if isinstance(operation, Increment | Append):
            self._is_silent = False
            self._has_nonce = self._has_nonce or operation.nonce is not None

    # -- the answer ------------------------------------------------------------------------------------------------

    def outcomes(self, response: Response) -> list[Outcome]:
        """An outcome for each action, in the order in which they were given."""
        data, at, size = response.data, response.end, len(response.data)
        counts = [group.count for group in self._groups]
        if self._is_silent and at == size and is_all_done(data[response.at : at], counts):
            return [None] * len(self._actions)
        answers = decode(MULTI_RESPONSE, data, response.at, response.end).get("regionActionResult", [])
        if len(answers) != len(self._groups):
            raise ProtocolError(f"{len(answers)} results for {len(self._groups)} regions of a batch")
        made: list[Outcome] = [self._unanswered(action) for action in self._actions]
        for group, answer in zip(self._groups, answers, strict=True):
            indexes = group.indexes
            if "exception" in answer:
                for index in indexes:
                    made[index] = self._error(answer["exception"], index)
                continue
            if group.is_atomic:
                made[indexes[0]] = None
            for one in answer.get("resultOrException", ()):
                number = one.get("index", 0)
                if not group.is_atomic and number >= len(indexes):
                    raise ProtocolError(f"a result for action {number} of {len(indexes)}")
                index = indexes[0 if group.is_atomic else number]
                outcome, at = self._outcome(one, index, data, at, size)
                if not group.is_atomic or isinstance(outcome, MetaClientError):
                    made[index] = outcome
        if at != size:
            raise ProtocolError(f"the answer to a batch has {size - at} bytes of cells too many")
        return made

    def processed(self, response: Response) -> bool:
        """Of one checked RowMutations: whether it was applied."""
        outcome = self.outcomes(response)[0]
        if isinstance(outcome, MetaClientError):
            raise outcome
        answer = decode(MULTI_RESPONSE, response.data, response.at, response.end)
        first = answer["regionActionResult"][0]
        return bool(first.get("processed", answer.get("processed", False)))

    def _outcome(self, one: dict[str, Any], index: int, data: bytes, at: int, size: int) -> tuple[Outcome, int]:
        operation = self._actions[index].operation
        if "exception" in one:
            return self._error(one["exception"], index), at
        result, at = result_from(one.get("result", {}), operation.row, data, at, size)
        if isinstance(operation, Get | Increment | Append):
            return picked(result, operation), at
        return None, at

    def _error(self, exception: dict[str, Any], index: int) -> MetaClientError:
        action = self._actions[index]
        made = errors.from_batch(exception, self._what, is_write=not isinstance(action.operation, Get))
        made.place = action.place
        return made

    def _unanswered(self, action: Action) -> MetaClientError:
        is_write = not isinstance(action.operation, Get)
        return BackendFault(f"{self._what}: the server answered nothing for one action", may_have_applied=is_write)


class PageCall:
    """One Multi of a page of puts, so many at each region: as a :class:`MultiCall` of these puts would be."""

    def __init__(self, page: PutPage, places: Sequence[tuple[RegionLocation | None, int]]) -> None:
        self._page = page
        self._places = places
        self.cells = bytes(encode_page(page))
        actions = _page_actions(page, [rows for _, rows in places])
        parts: list[bytes | memoryview] = []
        begin = 0
        for place, rows in places:
            if place is None:
                raise no_place()
            name, written = region_prefix(place.region_name), together(actions.slice(begin, rows))
            parts += (b"\x0a", varint(len(name) + len(written)), name, written)
            begin += rows
        self.param = b"".join(parts)

    def done(self, response: Response) -> None:
        """The first error that it tells of is raised."""
        at, end, data = response.at, response.end, response.data
        if end == len(data) and is_all_done(data[at:end], [rows for _, rows in self._places]):
            return
        places = [place for place, rows in self._places for _ in range(rows)]
        actions = [Action(place, put) for place, put in zip(places, self._page.puts(), strict=True)]
        for outcome in MultiCall(actions, nonce_group=0).outcomes(response):
            if isinstance(outcome, MetaClientError):
                raise outcome


def _page_actions(page: PutPage, counts: Sequence[int]) -> pyarrow.LargeBinaryArray:
    """An Action for each row, numbered for each of the regions that have so many of them.

    Their mutations differ in the rows, at the beginning, and in the number of cells, at the end.
    """
    _, arrow = libraries()
    (first,) = page.part(0, 1).puts()
    like, _ = mutation_param(first, PutWriter())
    between = like[1 + len(varint(len(first.row))) + len(first.row) : -len(varint(len(first.cells)))]
    numbered = arrow.concat_arrays([_varints_to(count).slice(0, count) for count in counts])
    cell_counts = varints(cells_per_row(page))
    mutation = joined(b"\x0a", varints(sizes(page.rows)), page.rows, between, cell_counts)
    action = joined(b"\x08", numbered, b"\x12", varints(sizes(mutation)), mutation)
    return joined(b"\x1a", varints(sizes(action)), action)


def varints(values: Any) -> pyarrow.LargeBinaryArray:
    """Each number of a numpy array as a varint."""
    highest = int(values.max(initial=0))
    if highest < _ONE_BYTE:
        return numbers(values.astype("u1"))
    return _varints_to(highest).take(libraries()[1].array(values))


def _varints_to(highest: int) -> pyarrow.LargeBinaryArray:
    """All of them up to this one, and some more."""
    return _varints(highest.bit_length())


@cache
def _varints(bits: int) -> pyarrow.LargeBinaryArray:
    """All that have at most so many bits; those of a row's length have 15."""
    _, arrow = libraries()
    return arrow.array([varint(number) for number in range(1 << bits)], arrow.large_binary())


class Steps:
    """Calls of one batch that follow one another. What comes after a failure in the same row is not sent."""

    def __init__(
        self,
        send: Callable[[Sequence[Action]], Pending[Sequence[Outcome]]],
        actions: Sequence[Action],
        steps: list[list[int]],
    ) -> None:
        self._send = send
        self._actions = actions
        self._steps = steps
        self._outcomes: list[Outcome] = [None] * len(actions)
        self._failed: dict[bytes, MetaClientError] = {}

    def begin(self, answer: Pending[Sequence[Outcome]]) -> Pending[Sequence[Outcome]]:
        """``answer`` is completed when the last call is."""
        self._go_on(answer)
        return answer

    def _go_on(self, answer: Pending[Sequence[Outcome]]) -> None:
        while self._steps:
            indexes = [index for index in self._steps.pop(0) if not self._is_barred(index)]
            if not indexes:
                continue
            try:
                call = self._send([self._actions[index] for index in indexes])
            except MetaClientError as error:
                self._take(indexes, [error] * len(indexes))
                continue
            call.on_done(partial(self._done, indexes, answer))
            return
        answer.complete(self._outcomes)

    def _done(self, indexes: list[int], answer: Pending[Sequence[Outcome]], call: Pending[Sequence[Outcome]]) -> None:
        error = call.error()
        if error is None:
            self._take(indexes, call.result())
        elif isinstance(error, MetaClientError) and not isinstance(error, ConnectionClosed):
            self._take(indexes, [error] * len(indexes))
        else:
            answer.fail(error)
            return
        self._go_on(answer)

    def _take(self, indexes: list[int], outcomes: Sequence[Outcome]) -> None:
        for index, outcome in zip(indexes, outcomes, strict=True):
            self._outcomes[index] = outcome
            operation = self._actions[index].operation
            if isinstance(outcome, MetaClientError) and not isinstance(operation, Get):
                self._failed.setdefault(operation.row, outcome)

    def _is_barred(self, index: int) -> bool:
        """A change of a row whose change before has failed would overtake it when that is tried again."""
        operation = self._actions[index].operation
        error = None if isinstance(operation, Get) else self._failed.get(operation.row)
        if error is None:
            return False
        made = type(error)(str(error))
        made.place = self._actions[index].place
        self._outcomes[index] = made
        return True
