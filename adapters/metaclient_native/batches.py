"""Many actions in one Multi call: split into steps where order matters, grouped by region, with an outcome per action.

HBase does not keep the order of a batch: gets run at once, puts and deletes run together later and get one timestamp,
under which a delete hides a put, whichever came first. So two different changes of one row are sent in two calls, the
second one after the response to the first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, lru_cache, partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from metaclient.backend import Action, Outcome, PutPage
from metaclient.errors import BackendFault, MetaClientError, Unsupported
from metaclient.model import Append, Check, Delete, Get, Increment, Put, RegionLocation, Result, RowMutations
from metaclient.protobuf import ProtocolError, decode, delimited, encode, read_varint, varint
from metaclient.runtime import Pending
from metaclient.wire.cell_arrays import cells_per_row, joined, libraries, numbers, sizes, together
from metaclient.wire.rpc.cellblock import PutWriter, encode_page
from metaclient.wire.rpc.framing import Response
from metaclient.wire.rpc.messages import (
    ACTION,
    GET,
    MULTI_REQUEST,
    MULTI_RESPONSE,
    MUTATION,
    REGION_ACTION,
    REGION_ACTION_RESULT,
    RESULT_OR_EXCEPTION,
)
from metaclient.wire.rpc.mutations import condition_message
from metaclient.wire.rpc.queries import get_message, result_from
from metaclient.wire.rpc.row_layout import decode_page
from metaclient_native import errors
from metaclient_native.calls import encode_mutation, encode_region

if TYPE_CHECKING:
    import pyarrow

__all__ = [
    "MultiCall",
    "PageCall",
    "Steps",
    "decode_counts",
    "encode_options",
    "explain_missing_place",
    "is_all_done",
    "pick_changed_columns",
    "split_into_steps",
]


#: The empty field at the end of every MultiResponse (regionStatistics).
_NO_STATISTICS = encode(MULTI_RESPONSE, {"regionStatistics": b""})
_RESULT, _REGION_RESULT = REGION_ACTION_RESULT.tag("resultOrException"), MULTI_RESPONSE.tag("regionActionResult")
_REGION_ACTION, _NONCE_GROUP = MULTI_REQUEST.tag("regionAction"), MULTI_REQUEST.tag("nonceGroup")
_ACTION, _ATOMIC = REGION_ACTION.tag("action"), encode(REGION_ACTION, {"atomic": True})
_INDEX, _MUTATION, _ROW = ACTION.tag("index"), ACTION.tag("mutation"), MUTATION.tag("row")
_ACTION_OF_MUTATION = _INDEX + b"%b" + _MUTATION + b"%b%b"
_ACTION_OF_GET = _INDEX + b"%b" + ACTION.tag("get") + b"%b" + GET.tag("row") + b"%b%b%b"
#: An empty row in a Get, which is its first field.
_EMPTY_ROW = GET.tag("row") + b"\0"
#: The field ``result`` of a ResultOrException -> its number of cells in the cell block, or None if it has other fields
#: or is stale. There are few, and a search for the bytes is cheaper than decoding.
_counts: dict[bytes, int | None] = {}
_COUNTS_MAX = 1024
_COUNTED = {"associated_cell_count", "stale"}
#: Kinds of changes that one call may hold several of for one row.
_FREE: tuple[set[type], ...] = ({Put}, {Delete}, set())
#: Varints below these take one byte, or at most two. Responses to more actions than the second are always decoded.
_ONE_BYTE, _TWO_BYTES = 1 << 7, 1 << 14


@cache
def _results() -> bytes:
    """Return the ResultOrExceptions of successful puts or deletes, by their index."""
    results = (encode(RESULT_OR_EXCEPTION, {"index": number, "result": b""}) for number in range(_TWO_BYTES))
    return b"".join(_RESULT + delimited(result) for result in results)


def _done(count: int) -> bytes:
    """Return the RegionActionResult of ``count`` successful puts or deletes, in their order."""
    size = 6 * count + max(0, count - _ONE_BYTE)
    return _REGION_RESULT + varint(size) + _results()[:size]


def is_all_done(answer: bytes, counts: Sequence[int]) -> bool:
    """Return True if a MultiResponse reports success for all puts or deletes; ``counts`` are their numbers per region.

    Most responses do, and a comparison of bytes is cheaper than decoding.
    """
    if any(count > _TWO_BYTES for count in counts):
        return False
    done = b"".join([_done(count) for count in counts])
    return answer == done + _NO_STATISTICS or answer == done


@lru_cache(maxsize=64)
def encode_options(get: Get) -> bytes:
    """Return the fields of a Get after its row, which must be empty."""
    return encode(GET, get_message(get))[len(_EMPTY_ROW) :]


@cache
def _numbered() -> tuple[bytes, ...]:
    """Return the field ``index`` of the first ResultOrExceptions of a region."""
    return tuple(encode(RESULT_OR_EXCEPTION, {"index": number}) for number in range(_TWO_BYTES))


def _decode_counts(data: bytes, at: int, end: int, expected: int) -> list[int] | None:
    """Return the numbers of cells of the results in a RegionActionResult at ``data[at:end]``.

    None unless it has a result for each of the ``expected`` gets, in their order, and nothing else.
    """
    if expected > _TWO_BYTES:
        return None
    if (alike := _decode_alike_counts(data, at, end, expected)) is not None:
        return alike
    found: list[int] = []
    tag = _RESULT[0]
    for number in _numbered()[:expected]:
        if at + 2 > end or data[at] != tag or data[at + 1] >= _ONE_BYTE or not data.startswith(number, at + 2):
            return None
        stop = at + 2 + data[at + 1]
        body = data[at + 2 + len(number) : stop]
        count = _counts[body] if body in _counts else _learn_count(body)
        if count is None:
            return None
        found.append(count)
        at = stop
    return found if at == end else None


def decode_counts(response: Response, gets: Sequence[int]) -> list[int] | None:
    """Return the numbers of cells of all results, if a MultiResponse has nothing else; ``gets`` are counts per region.

    None for a response that must be decoded: one with an error, a stale row, or results in another order.
    """
    data, at, end = response.data, response.at, response.end
    counts: list[int] = []
    for expected in gets:
        if not data.startswith(_REGION_RESULT, at):
            return None
        size, begin = read_varint(data, at + len(_REGION_RESULT), end)
        at = begin + size
        found = _decode_counts(data, begin, at, expected) if at <= end else None
        if found is None:
            return None
        counts += found
    return counts if data[at:end] in (b"", _NO_STATISTICS) else None


def _decode_alike_counts(data: bytes, at: int, end: int, expected: int) -> list[int] | None:
    """Return the numbers of cells of the results if all have the number of the first one, without a look at each."""
    size = data[at + 1] if at + 1 < end else _ONE_BYTE
    if size >= _ONE_BYTE - 1 or end - at != (2 + size) * expected + max(0, expected - _ONE_BYTE):
        return None
    body = data[at + 4 : at + 2 + size]
    if not data.startswith(_alike_results(body, expected.bit_length())[: end - at], at):
        return None
    count = _counts[body] if body in _counts else _learn_count(body)
    return None if count is None else [count] * expected


@lru_cache(maxsize=16)
def _alike_results(body: bytes, bits: int) -> bytes:
    """Return ResultOrExceptions that have these bytes after their index, by their index; at least 2**bits - 1."""
    return b"".join([_RESULT + delimited(number + body) for number in _numbered()[: 1 << bits]])


def _learn_count(body: bytes) -> int | None:
    if len(_counts) >= _COUNTS_MAX:
        _counts.clear()
    fields = decode(RESULT_OR_EXCEPTION, body)
    result = fields.get("result", {})
    is_plain = fields.keys() == {"result"} and result.keys() <= _COUNTED and not result.get("stale")
    count = max(0, result.get("associated_cell_count", 0)) if is_plain else None
    _counts[body] = count
    return count


def explain_missing_place() -> Unsupported:
    """Return the error for a call without a location."""
    return Unsupported("HBase's own RPC addresses servers: pass a RegionLocation")


def split_into_steps(actions: Sequence[Action]) -> list[list[int]]:
    """Return the indexes of the actions per step; each step is sent after the response to the one before."""
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


def pick_changed_columns(result: Result, operation: object) -> Result:
    """Return the result with the changed columns only: 3.0 answers a retried change with the whole row."""
    match operation:
        case Increment(amounts=pairs) | Append(values=pairs):
            wanted = {column for column, _ in pairs}
            cells = [cell for cell in result.cells if cell.column in wanted]
            return result if len(cells) == len(result.cells) else result._replace(cells=cells)
    return result


class _Group:
    """One RegionAction under construction: the indexes of its actions, and their bytes."""

    __slots__ = ("actions", "cells", "count", "indexes", "is_atomic", "name")

    def __init__(self, name: bytes, *, is_atomic: bool) -> None:
        self.name = name
        self.is_atomic = is_atomic
        self.indexes: list[int] = []
        self.count = 0  # of Actions; each mutation of a RowMutations is one
        self.actions: list[bytes] = []
        self.cells: list[bytes] = []  # in the order of the actions

    def add(self, action: bytes) -> None:
        self.actions += (_ACTION, varint(len(action)), action)
        self.count += 1

    def param(self, condition: bytes) -> bytes:
        atomic = _ATOMIC if self.is_atomic else b""
        body = b"".join((encode_region(self.name), atomic, *self.actions, condition))
        return _REGION_ACTION + varint(len(body)) + body


class MultiCall:
    """One Multi call: its message, its cell block, and the outcome of each action, decoded from the response."""

    def __init__(
        self, actions: Sequence[Action], *, nonce_group: int, check: Check | None = None, what: str = "batch"
    ) -> None:
        self._actions = actions
        self._what = what
        self._groups: list[_Group] = []
        self._writer = PutWriter()
        self._has_nonce = False
        self._has_results = False  # of gets, increments and appends; puts and deletes only succeed or fail
        self._has_only_gets = True
        self._like: Get | None = None  # the last get, and its encoded fields after the row
        self._options = b""
        by_region: dict[bytes, _Group] = {}
        for index, action in enumerate(actions):
            if action.place is None:
                raise explain_missing_place()
            name, operation = action.place.region_name, action.operation
            if isinstance(operation, RowMutations):
                group = self._new_group(name, is_atomic=True)
                for part in operation.mutations:
                    self._add(group, part)
            else:
                group = by_region.get(name) or by_region.setdefault(name, self._new_group(name))
                self._add(group, operation)
            group.indexes.append(index)
        condition = b"" if check is None else encode(REGION_ACTION, {"condition": condition_message(check)})
        nonces = _NONCE_GROUP + varint(nonce_group) if self._has_nonce else b""
        self.param = b"".join([*(group.param(condition) for group in self._groups), nonces])
        self.cells = b"".join([cells for group in self._groups for cells in group.cells])

    def _new_group(self, name: bytes, *, is_atomic: bool = False) -> _Group:
        group = _Group(name, is_atomic=is_atomic)
        self._groups.append(group)
        return group

    def _add(self, group: _Group, operation: Any) -> None:
        number = group.count
        if isinstance(operation, Get):
            self._has_results = True
            row, options = operation.row, self._options_of(operation)
            size = varint(len(row))
            body = varint(len(row) + len(size) + len(options) + 1)
            group.add(_ACTION_OF_GET % (varint(number), body, size, row, options))
            return
        self._has_only_gets = False
        mutation, cells = encode_mutation(operation, self._writer)
        group.add(_ACTION_OF_MUTATION % (varint(number), varint(len(mutation)), mutation))
        group.cells.append(cells)
        if isinstance(operation, Increment | Append):
            self._has_results = True
            self._has_nonce = self._has_nonce or operation.nonce is not None

    def _options_of(self, get: Get) -> bytes:
        """Return the fields of a Get after its row. Most gets of a batch differ only in their rows."""
        known = self._like
        if (
            known is None
            or get.columns is not known.columns
            or get.max_versions != known.max_versions
            or get.max_timestamp != known.max_timestamp
            or get.min_timestamp != known.min_timestamp
            or get.filter != known.filter
            or get.existence_only != known.existence_only
        ):
            self._like = get
            self._options = encode_options(replace(get, row=b""))
        return self._options

    # -- the response ---------------------------------------------------------------------------------------------

    def decode_outcomes(self, response: Response) -> list[Outcome]:
        """Return the outcome of each action, in the order in which they were given."""
        data, at, size = response.data, response.end, len(response.data)
        counts = [group.count for group in self._groups]
        if not self._has_results and at == size and is_all_done(data[response.at : at], counts):
            return [None] * len(self._actions)
        if self._has_only_gets and (results := self._decode_gets(response)) is not None:
            return results
        answers = decode(MULTI_RESPONSE, data, response.at, response.end).get("regionActionResult", [])
        if len(answers) != len(self._groups):
            raise ProtocolError(f"the response to a batch has {len(answers)} results for {len(self._groups)} regions")
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
                    raise ProtocolError(f"the response to a batch has a result for action {number} of {len(indexes)}")
                index = indexes[0 if group.is_atomic else number]
                outcome, at = self._outcome(one, index, data, at, size)
                if not group.is_atomic or isinstance(outcome, MetaClientError):
                    made[index] = outcome
        if at != size:
            raise ProtocolError(f"the response to a batch has {size - at} bytes of cells too many")
        return made

    def _decode_gets(self, response: Response) -> list[Outcome] | None:
        """Return the results of the gets, if the response holds nothing but the number of cells of each."""
        data, end = response.data, response.end
        counts = decode_counts(response, [group.count for group in self._groups])
        if counts is None:
            return None
        made: list[Outcome] = [None] * len(self._actions)
        results = decode_page(data, end, len(data), counts)
        for index, result in zip(chain.from_iterable(group.indexes for group in self._groups), results, strict=True):
            made[index] = result if result.cells else result._replace(row=self._actions[index].operation.row)
        return made

    def decode_processed(self, response: Response) -> bool:
        """Return True if the single, checked RowMutations was applied; raise its error if it failed."""
        self.raise_first_error(response)
        answer = decode(MULTI_RESPONSE, response.data, response.at, response.end)
        first = answer["regionActionResult"][0]
        return bool(first.get("processed", answer.get("processed", False)))

    def raise_first_error(self, response: Response) -> None:
        """Raise the first error among the outcomes."""
        for outcome in self.decode_outcomes(response):
            if isinstance(outcome, MetaClientError):
                raise outcome

    def _outcome(self, one: dict[str, Any], index: int, data: bytes, at: int, size: int) -> tuple[Outcome, int]:
        operation = self._actions[index].operation
        if "exception" in one:
            return self._error(one["exception"], index), at
        result, at = result_from(one.get("result", {}), operation.row, data, at, size)
        if isinstance(operation, Get | Increment | Append):
            return pick_changed_columns(result, operation), at
        return None, at

    def _error(self, exception: dict[str, Any], index: int) -> MetaClientError:
        action = self._actions[index]
        made = errors.translate_batch_error(exception, self._what, is_write=not isinstance(action.operation, Get))
        made.place = action.place
        return made

    def _unanswered(self, action: Action) -> MetaClientError:
        is_write = not isinstance(action.operation, Get)
        return BackendFault(f"{self._what}: the response has no result for one action", may_have_applied=is_write)


class PageCall:
    """One Multi call of a page of puts: the bytes that a :class:`MultiCall` of these puts has.

    ``places`` are the regions with the number of rows of each, in the order of the page.
    """

    def __init__(self, page: PutPage, places: Sequence[tuple[RegionLocation | None, int]]) -> None:
        self._page = page
        self._places = places
        self.cells = bytes(encode_page(page))
        actions = _page_actions(page, [rows for _, rows in places])
        parts: list[bytes | memoryview] = []
        begin = 0
        for place, rows in places:
            if place is None:
                raise explain_missing_place()
            name, written = encode_region(place.region_name), together(actions.slice(begin, rows))
            parts += (_REGION_ACTION, varint(len(name) + len(written)), name, written)
            begin += rows
        self.param = b"".join(parts)

    def raise_first_error(self, response: Response) -> None:
        """Raise the first error among the outcomes of the puts."""
        at, end, data = response.at, response.end, response.data
        if end == len(data) and is_all_done(data[at:end], [rows for _, rows in self._places]):
            return
        places = [place for place, rows in self._places for _ in range(rows)]
        actions = [Action(place, put) for place, put in zip(places, self._page.puts(), strict=True)]
        MultiCall(actions, nonce_group=0).raise_first_error(response)


def _page_actions(page: PutPage, counts: Sequence[int]) -> pyarrow.LargeBinaryArray:
    """Return an encoded Action per row; ``counts`` are the numbers of rows per region, and each region counts from 0.

    The mutations differ only in their rows, which come first, and in their numbers of cells, which come last.
    """
    _, arrow = libraries()
    (first,) = page.part(0, 1).puts()
    like, _ = encode_mutation(first, PutWriter())
    between = like[1 + len(varint(len(first.row))) + len(first.row) : -len(varint(len(first.cells)))]
    numbered = arrow.concat_arrays([_encode_varints_to(count).slice(0, count) for count in counts])
    cell_counts = encode_varints(cells_per_row(page))
    mutation = joined(_ROW, encode_varints(sizes(page.rows)), page.rows, between, cell_counts)
    action = joined(_INDEX, numbered, _MUTATION, encode_varints(sizes(mutation)), mutation)
    return joined(_ACTION, encode_varints(sizes(action)), action)


def encode_varints(values: Any) -> pyarrow.LargeBinaryArray:
    """Return each number of a numpy array as a varint."""
    highest = int(values.max(initial=0))
    if highest < _ONE_BYTE:
        return numbers(values.astype("u1"))
    return _encode_varints_to(highest).take(libraries()[1].array(values))


def _encode_varints_to(highest: int) -> pyarrow.LargeBinaryArray:
    """Return the varints of 0 to at least ``highest``."""
    return _list_varints(highest.bit_length())


@cache
def _list_varints(bits: int) -> pyarrow.LargeBinaryArray:
    """Return the varints of all numbers with at most ``bits`` bits; the length of a row has 15."""
    _, arrow = libraries()
    return arrow.array([varint(number) for number in range(1 << bits)], arrow.large_binary())


class Steps:
    """The calls of one batch, each sent after the response to the one before.

    After a change of a row has failed, later changes of that row are not sent.
    """

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
        """Send the first call, and complete ``answer`` after the last one."""
        self._send_next(answer)
        return answer

    def _send_next(self, answer: Pending[Sequence[Outcome]]) -> None:
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
        elif isinstance(error, MetaClientError) and not error.ends_connection:
            self._take(indexes, [error] * len(indexes))
        else:
            answer.fail(error)
            return
        self._send_next(answer)

    def _take(self, indexes: list[int], outcomes: Sequence[Outcome]) -> None:
        for index, outcome in zip(indexes, outcomes, strict=True):
            self._outcomes[index] = outcome
            operation = self._actions[index].operation
            if isinstance(outcome, MetaClientError) and not isinstance(operation, Get):
                self._failed.setdefault(operation.row, outcome)

    def _is_barred(self, index: int) -> bool:
        """Return True, and set the outcome, if an earlier change of the row failed: its retry would be overtaken."""
        operation = self._actions[index].operation
        error = None if isinstance(operation, Get) else self._failed.get(operation.row)
        if error is None:
            return False
        made = type(error)(str(error))
        made.place = self._actions[index].place
        self._outcomes[index] = made
        return True
