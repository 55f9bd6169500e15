"""ClientService of one region server: Get, Mutate, Multi, Scan, and bulk loads (``bulk_loads``).

hbase:meta's region has the same methods but another order of rows, and addresses in its cells; see ``meta_rows``.

DIVERGENCES: no heartbeats and no partial rows because of size (a page ends with the row that exceeds its size); a Scan
that requests no rows when it is opened is opened by the first ``next``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cachetools import TTLCache

from metaclient import keys
from metaclient.backend import Action, Outcome, ScanPage
from metaclient.errors import (
    AccessDenied,
    MetaClientError,
    NotServingRegion,
    RegionUnavailable,
    RequestRefused,
    ScannerLost,
)
from metaclient.model import (
    Delete,
    Get,
    Put,
    RegionInfo,
    RegionLocation,
    Result,
    RowMutations,
    Scan,
)
from metaclient.protobuf import ProtocolError, decode, encode
from metaclient.row_limit import RowLimit
from metaclient.wire.rpc import messages
from metaclient.wire.rpc.cellblock import encode_cells, encode_results
from metaclient.wire.rpc.mutations import Simple, condition_from, mutation_from
from metaclient.wire.rpc.queries import get_from, result_message, scan_from
from metaclient.wire.rpc.security_messages import EXEC_SERVICE_REQUEST, EXEC_SERVICE_RESPONSE, WHO_AM_I_RESPONSE
from metaclient_fake.front.rpc.addresses import Addresses
from metaclient_fake.front.rpc.bulk_loads import bulk_load_methods
from metaclient_fake.front.rpc.channel import Answer, Incoming
from metaclient_fake.front.rpc.errors import thrown
from metaclient_fake.front.rpc.meta_rows import MetaRows, replica_of_meta
from metaclient_fake.grants import Right
from metaclient_fake.server.data_calls import DataCalls
from metaclient_fake.server.region_server import RegionServer
from metaclient_fake.server.scanners import ScannerHandle

if TYPE_CHECKING:
    from metaclient_fake.backend import FakeBackend

__all__ = ["ClientService"]

#: A scan whose request names no number of rows reads one.
_ROWS_DEFAULT = 1
_ROWS_MAX = 0x7FFFFFFF


class ClientService:
    """The data calls of the server at ``host``, for all its incarnations."""

    def __init__(self, backend: FakeBackend, host: str, addresses: Addresses) -> None:
        self._backend = backend
        self._host = host
        self._addresses = addresses
        self._meta = MetaRows(backend, addresses)
        cluster = backend.cluster
        # Handles are kept longer than the scanners, so that the server itself answers calls on an expired scanner.
        self._scanners: TTLCache[int, ScannerHandle | _Unopened] = TTLCache(
            cluster.config.scanners_max, 2 * cluster.config.scanner_lease_s, timer=cluster.runtime.now
        )
        self._lock = cluster.runtime.lock()  # guards the map
        self._methods: Mapping[str, Callable[[Incoming], Answer]] = {
            "Get": self._get,
            "Mutate": self._mutate,
            "Multi": self._multi,
            "Scan": self._scan,
            "ExecService": self._exec_service,
            **bulk_load_methods(backend, host),
        }
        self._grants = cluster.grants

    def method(self, name: str) -> Callable[[Incoming], Answer] | None:
        return self._methods.get(name)

    def may_wait(self, name: str) -> bool:
        return name == "BulkLoadHFile"

    @property
    def _server(self) -> RegionServer:
        return self._backend.cluster.servers_by_host[self._host]

    def _check(self, call: Incoming, region_name: bytes, *rights: Right) -> None:
        """Raise AccessDenied unless the user has all these rights on the table of a region."""
        if self._grants.is_enforced:
            for right in rights:
                self._grants.check(call.identity.username, [right], _table(region_name))

    def _exec_service(self, call: Incoming) -> Answer:
        """Answer AuthenticationService, a coprocessor of HBase (TokenProvider of 2.6)."""
        request = decode(EXEC_SERVICE_REQUEST, call.param)
        asked, identity = request["call"], call.identity
        if asked["service_name"] != "AuthenticationService":
            raise RequestRefused(
                f"No registered coprocessor service found for {asked['service_name']} in region "
                f"{keys.printable(_region(request))}",
                detail="org.apache.hadoop.hbase.exceptions.UnknownProtocolException",
            )
        if asked["method_name"] == "WhoAmI":
            value = encode(WHO_AM_I_RESPONSE, {"username": identity.username, "auth_method": identity.method})
        elif identity.method == "SIMPLE":
            value = b""  # as TokenProvider without security: there is no token
        else:
            raise AccessDenied(
                "Token generation only allowed for Kerberos authenticated clients", detail=AccessDenied.java_class
            )
        pair = {"name": asked["service_name"], "value": value}
        return Answer(encode(EXEC_SERVICE_RESPONSE, {"region": request["region"], "value": pair}))

    # -- rows --------------------------------------------------------------------------------------------------

    def _get(self, call: Incoming) -> Answer:
        request = decode(messages.GET_REQUEST, call.param)
        name = _region(request)
        self._check(call, name, Right.READ)
        if request["get"].get("closest_row_before"):
            raise RequestRefused(
                "Get with closest_row_before is not supported any more",
                detail="org.apache.hadoop.hbase.exceptions.UnknownProtocolException",
            )
        get = get_from(request["get"])
        replica_id = replica_of_meta(name)
        if replica_id is None:
            result = self._backend.at_server(self._server.name, DataCalls.get, name, get, deadline=call.deadline)
        else:
            result = self._meta.get(self._server.name, replica_id, get, call.deadline)
        param = encode(messages.GET_RESPONSE, {"result": result_message(result, with_cells=not call.has_codec)})
        return Answer(param, encode_cells(result.row, result.cells) if call.has_codec else b"")

    def _mutate(self, call: Incoming) -> Answer:
        request = decode(messages.MUTATE_REQUEST, call.param)
        name = _region(request)
        mutation, _ = mutation_from(request["mutation"], call.cells, 0)
        condition = request.get("condition")
        self._check(call, name, *([Right.WRITE] if condition is None else [Right.READ, Right.WRITE]))
        server, deadline = self._server.name, call.deadline
        nonce_group = request.get("nonce_group", 0)
        if condition is not None:
            check = condition_from(condition)
            done = self._backend.at_server(
                server,
                DataCalls.check_and_mutate,
                name,
                check,
                mutation,
                nonce_group,
                deadline=deadline,
                is_write=True,
            )
            return Answer(encode(messages.MUTATE_RESPONSE, {"processed": done}))
        result = self._backend.at_server(
            server, DataCalls.mutate, name, mutation, nonce_group, deadline=deadline, is_write=True
        )
        if result is None:
            return Answer(encode(messages.MUTATE_RESPONSE, {"processed": True}))
        if _wants_no_result(request["mutation"]):
            result = Result(result.row)
        message = {"result": result_message(result, with_cells=not call.has_codec)}
        cells = encode_cells(result.row, result.cells) if call.has_codec else b""
        return Answer(encode(messages.MUTATE_RESPONSE, message), cells)

    # -- batches -----------------------------------------------------------------------------------------------

    def _multi(self, call: Incoming) -> Answer:
        """Run a Multi, region after region; the failure of one region does not affect the others."""
        request = decode(messages.MULTI_REQUEST, call.param)
        results: list[dict[str, Any]] = []
        blocks: list[bytes] = []
        nonce_group = request.get("nonceGroup", 0)
        at = 0
        for region_action in request.get("regionAction", ()):
            name = _region(region_action)
            operations, at = _operations(region_action, call.cells, at)
            condition = region_action.get("condition") or request.get("condition")
            try:
                if region_action.get("atomic"):
                    answer = self._atomic(name, operations, condition, call)
                else:
                    answer = self._independent(name, operations, region_action, call, blocks, nonce_group)
            except RegionUnavailable as error:
                answer = {"exception": thrown(error, self._addresses).pair()}
            results.append(answer)
        processed = next((one["processed"] for one in results if "processed" in one), None)
        message: dict[str, Any] = {"regionActionResult": results, "processed": processed, "regionStatistics": {}}
        return Answer(encode(messages.MULTI_RESPONSE, message), b"".join(blocks))

    def _atomic(
        self, name: bytes, operations: Sequence[Get | Simple], condition: Mapping[str, Any] | None, call: Incoming
    ) -> dict[str, Any]:
        """Apply RowMutations atomically, if the condition holds."""
        writes = [one for one in operations if isinstance(one, Put | Delete)]
        if len(writes) != len(operations) or not writes:
            raise RequestRefused("the fake supports atomic batches of puts and deletes only")
        mutations = RowMutations(writes[0].row, tuple(writes))
        server, deadline = self._server.name, call.deadline
        try:
            self._check(call, name, *([Right.WRITE] if condition is None else [Right.READ, Right.WRITE]))
            if condition is None:
                method = DataCalls.mutate
                self._backend.at_server(server, method, name, mutations, deadline=deadline, is_write=True)
                processed = True
            else:
                processed = self._backend.at_server(
                    server,
                    DataCalls.check_and_mutate,
                    name,
                    condition_from(condition),
                    mutations,
                    deadline=deadline,
                    is_write=True,
                )
        except RegionUnavailable:
            raise
        except MetaClientError as error:
            return {"exception": thrown(error, self._addresses).pair()}
        entries = [{"index": index, "result": {}} for index in range(len(operations))]
        return {"resultOrException": entries, "processed": processed}

    def _independent(
        self,
        name: bytes,
        operations: Sequence[Get | Simple],
        region_action: Mapping[str, Any],
        call: Incoming,
        blocks: list[bytes],
        nonce_group: int,
    ) -> dict[str, Any]:
        outcomes = self._outcomes(name, operations, call, nonce_group)
        absent = [outcome for outcome in outcomes if isinstance(outcome, NotServingRegion)]
        if absent and len(absent) == len(outcomes):
            raise absent[0]
        entries: list[dict[str, Any]] = []
        for action, outcome in zip(region_action["action"], outcomes, strict=True):
            entry: dict[str, Any] = {"index": action.get("index", 0)}
            if isinstance(outcome, MetaClientError):
                entry["exception"] = thrown(outcome, self._addresses).pair()
            elif outcome is None or ("mutation" in action and _wants_no_result(action["mutation"])):
                entry["result"] = {}
            else:
                entry["result"] = result_message(outcome, with_cells=not call.has_codec)
                if call.has_codec:
                    blocks.append(encode_cells(outcome.row, outcome.cells))
            entries.append(entry)
        return {"resultOrException": entries}

    def _outcomes(
        self, name: bytes, operations: Sequence[Get | Simple], call: Incoming, nonce_group: int
    ) -> Sequence[Outcome]:
        """Run the operations that the user may do; the outcome of the others is AccessDenied."""
        user, table = call.identity.username, _table(name)
        denied = [self._grants.denial(user, operation, table) for operation in operations]
        place = RegionLocation(_ANY, self._server.name, region_name=name)
        actions = [
            Action(place, operation) for operation, error in zip(operations, denied, strict=True) if error is None
        ]
        if not actions:
            return [error for error in denied if error is not None]
        is_write = any(not isinstance(action.operation, Get) for action in actions)
        done: Sequence[Outcome] = self._backend.at_server(
            self._server.name, DataCalls.batch, actions, nonce_group, deadline=call.deadline, is_write=is_write
        )
        if len(actions) == len(operations):
            return done
        rest = iter(done)
        return [next(rest) if error is None else error for error in denied]

    # -- scans -------------------------------------------------------------------------------------------------

    def _scan(self, call: Incoming) -> Answer:
        request = decode(messages.SCAN_REQUEST, call.param)
        if "scanner_id" not in request:
            return self._open(request, call)
        scanner_id = request["scanner_id"]
        with self._lock:
            known = self._scanners.get(scanner_id)
        if known is None:
            raise ScannerLost(f"Unknown scanner '{scanner_id}'", detail=ScannerLost.java_class)
        if request.get("close_scanner"):
            self._close(scanner_id, known)
            return Answer(encode(messages.SCAN_RESPONSE, {"scanner_id": scanner_id, "more_results": False}))
        rows = request.get("number_of_rows", _ROWS_DEFAULT)
        if request.get("renew"):
            self._renew(scanner_id, known, request, call.deadline)
            return Answer(encode(messages.SCAN_RESPONSE, {"scanner_id": scanner_id}))
        if isinstance(known, _Unopened):
            page = self._page_of(known.name, replace(known.scan, caching=max(1, rows)), call)
            return self._answer(page, scanner_id, request, call)
        handle = replace(known, sequence=request.get("next_call_seq", known.sequence))
        if replica_of_meta(known.region_name) is not None:
            page = self._meta.next(handle, max(1, rows), call.deadline)
        else:
            method = DataCalls.scan_next
            page = self._backend.at_server(known.server, method, handle, max(1, rows), deadline=call.deadline)
        return self._answer(page, scanner_id, request, call)

    def _open(self, request: Mapping[str, Any], call: Incoming) -> Answer:
        if "region" not in request or "scan" not in request:
            raise RequestRefused("Missing required input: scannerId", detail="java.lang.IllegalArgumentException")
        name = _region(request)
        self._check(call, name, Right.READ)
        is_closed_at_once = bool(request.get("close_scanner"))
        rows = request.get("number_of_rows", 0 if is_closed_at_once else _ROWS_DEFAULT)
        scan = scan_from(request["scan"], limit=request.get("limit_of_rows", 0), caching=min(rows, _ROWS_MAX))
        bytes_max = request["scan"].get("max_result_size") or scan.max_result_bytes
        scan = replace(scan, max_result_bytes=bytes_max)
        if not rows:
            scanner_id = self._backend.cluster.next_scanner_id()
            if not is_closed_at_once:
                self._keep(scanner_id, _Unopened(name, scan))
            message = {"scanner_id": scanner_id, "more_results": True, "more_results_in_region": True}
            return Answer(encode(messages.SCAN_RESPONSE, {**message, "ttl": self._ttl_ms()}))
        page = self._page_of(name, scan, call)
        return self._answer(page, None, request, call)

    def _page_of(self, name: bytes, scan: Scan, call: Incoming) -> ScanPage:
        if replica_of_meta(name) is not None:
            return self._meta.open(self._server.name, name, scan, call.deadline)
        return self._backend.at_server(self._server.name, DataCalls.scan_open, name, scan, deadline=call.deadline)

    def _answer(self, page: ScanPage, scanner_id: int | None, request: Mapping[str, Any], call: Incoming) -> Answer:
        """Return the response for a page; keep its scanner for the next page, or remove it."""
        is_open = page.scanner is not None
        if is_open and request.get("close_scanner"):
            self._close(-1, page.scanner)
            is_open = False
        if scanner_id is None and isinstance(page.scanner, ScannerHandle):
            scanner_id = page.scanner.scanner_id
        is_first = "scanner_id" not in request
        if scanner_id is None:
            scanner_id = self._backend.cluster.next_scanner_id()
        if is_open:
            self._keep(scanner_id, page.scanner)
        else:
            with self._lock:
                self._scanners.pop(scanner_id, None)
        message: dict[str, Any] = {
            "scanner_id": scanner_id,
            "more_results": not _is_at_limit(page, request.get("limit_of_rows", 0)),
            "more_results_in_region": not page.is_end_of_region,
            "stale": page.is_stale or None,
        }
        if is_first:
            message["ttl"] = self._ttl_ms()
        if not call.has_codec:
            message["results"] = [result_message(row, with_cells=True) for row in page.rows]
            return Answer(encode(messages.SCAN_RESPONSE, message))
        message["cells_per_result"] = [len(row.cells) for row in page.rows]
        message["partial_flag_per_result"] = [row.is_partial for row in page.rows]
        return Answer(encode(messages.SCAN_RESPONSE, message), encode_results(page.rows))

    def _ttl_ms(self) -> int:
        return round(self._backend.cluster.config.scanner_lease_s * 1000)

    def _keep(self, scanner_id: int, scanner: object) -> None:
        assert isinstance(scanner, ScannerHandle | _Unopened)
        with self._lock:
            self._scanners[scanner_id] = scanner

    def _renew(self, scanner_id: int, known: object, request: Mapping[str, Any], deadline: float) -> None:
        """Renew the lease of a scanner; it counts as a call."""
        if isinstance(known, ScannerHandle):
            handle = replace(known, sequence=request.get("next_call_seq", known.sequence))
            known = self._backend.at_server(known.server, DataCalls.scan_renew, handle, deadline=deadline)
        self._keep(scanner_id, known)

    def _close(self, scanner_id: int, scanner: object) -> None:
        with self._lock:
            self._scanners.pop(scanner_id, None)
        if isinstance(scanner, ScannerHandle):
            self._backend.scan_close(scanner, self._backend.cluster.runtime.now())


class _Unopened:
    """A scan whose first rows were not requested yet."""

    __slots__ = ("name", "scan")

    def __init__(self, name: bytes, scan: Scan) -> None:
        self.name = name
        self.scan = scan


#: A placeholder in a location of which only the region's name is used.
_ANY = RegionInfo(b"hbase:none")


def _is_at_limit(page: ScanPage, rows: int) -> bool:
    """Return True if a page ends at the limit of ``rows``; 0 = there is none."""
    if not rows:
        return False
    limit = RowLimit(rows)
    limit.take(page.rows)
    return limit.left <= 0 or (page.scanner is None and not page.is_end_of_region)


def _region(message: Mapping[str, Any]) -> bytes:
    """Return the full region name; encoded names are not supported, as in HBase."""
    name: bytes = message["region"]["value"]
    return name


def _table(region_name: bytes) -> bytes:
    return region_name.partition(b",")[0]


def _operations(region_action: Mapping[str, Any], block: bytes, at: int) -> tuple[list[Get | Simple], int]:
    found: list[Get | Simple] = []
    for action in region_action.get("action", ()):
        if "get" in action:
            found.append(get_from(action["get"]))
        elif "mutation" in action:
            mutation, at = mutation_from(action["mutation"], block, at)
            found.append(mutation)
        else:
            raise ProtocolError("an action that is neither a get nor a mutation")
    return found, at


def _wants_no_result(message: Mapping[str, Any]) -> bool:
    """Return True if the client has set Mutation.setReturnResults(false)."""
    return any(one["name"] == "_rr_" and one.get("value") == b"\x00" for one in message.get("attribute", ()))
