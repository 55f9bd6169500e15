"""Decides the steps of a move, a split and a merge (TransitRegionStateProcedure, Split- and MergeTableRegionProcedure).

All copies of a parent close together, then the daughters get references to its files, then hbase:meta changes in one
batch, then the daughters open: primaries on the parent's server, secondaries elsewhere.
"""

from __future__ import annotations

from metaclient import keys
from metaclient.errors import RequestRefused
from metaclient.model import META_TABLE, RegionInfo, ServerName
from metaclient_fake.master.barrier_rows import end_barrier
from metaclient_fake.master.master import Master
from metaclient_fake.master.region_states import RegionGroup, RegionNode, RegionState

__all__ = ["clean_parents", "merge", "move", "reopen", "split"]

_REFUSED = "org.apache.hadoop.hbase.client.DoNotRetryRegionException"


def move(master: Master, node: RegionNode, target: ServerName | None) -> None:
    """Close a copy and open it at ``target``; if that server is unknown, it opens elsewhere (HBase 2.6.1)."""
    _check_open(node)
    if node.info.table == META_TABLE:
        with master.meta_lock:
            _move(master, node, target)
        return
    _move(master, node, target)


def _move(master: Master, node: RegionNode, target: ServerName | None) -> None:
    source = node.server
    assert source is not None, f"{node} is open nowhere"
    if target is None:
        target = _elsewhere(master, node, source)
    if target == source:
        return
    master.assignment.unassign([node], target)
    # It is closed, so it must be opened somewhere: if all servers have died meanwhile, assign waits for one.
    is_there = target in master.live or not master.live
    master.assignment.assign([node], {node.name: target if is_there else _elsewhere(master, node, source)})


def _elsewhere(master: Master, node: RegionNode, source: ServerName) -> ServerName:
    if not master.live:
        raise RequestRefused(f"region {node.encoded} cannot move: no server is alive", detail=_REFUSED)
    return master.assignment.place([node], avoid=source)[node.name]


def reopen(master: Master, node: RegionNode) -> None:
    """Close a copy and open it again on the same server."""
    _check_open(node)
    server = node.server
    assert server is not None, f"{node} is open nowhere"
    if node.info.table == META_TABLE:
        with master.meta_lock:
            master.assignment.unassign([node])
            master.assignment.assign([node], {node.name: server})
        return
    master.assignment.unassign([node])
    master.assignment.assign([node], {node.name: server})


def split(master: Master, node: RegionNode, at: bytes | None) -> tuple[RegionInfo, RegionInfo]:
    """Split a region before row ``at``, by default in the middle of its data; return both daughters."""
    group = _whole(master, node)
    border = at if at is not None else _middle(master, group)
    _check_border(group.info, border)
    region_id = max(master.runtime.time_ms(), group.info.region_id + 1)
    table, copies = group.info.table, len(group.nodes)
    left = RegionGroup(RegionInfo(table, group.info.start_key, border, region_id), copies)
    right = RegionGroup(RegionInfo(table, border, group.info.end_key, region_id), copies)
    server = _close(master, group, RegionState.SPLITTING)
    master.filesystem.split(group.info, left.info, right.info, border)
    master.meta.split(group, left, right, end_barrier(master, group.info))
    group.primary.become(RegionState.SPLIT)
    with master.lock:
        master.states.remove(group)
        master.states.parents[group.primary.name] = (group, master.runtime.now())
        master.states.add(left)
        master.states.add(right)
    _open_daughters(master, [left, right], server)
    return left.info, right.info


def merge(master: Master, left: RegionNode, right: RegionNode) -> RegionInfo:
    """Merge two adjacent regions; return the merged one."""
    first, second = sorted((_whole(master, left), _whole(master, right)), key=lambda group: group.start_key)
    if first is second or first.info.table != second.info.table or first.info.end_key != second.info.start_key:
        raise RequestRefused(
            f"Unable to merge non-adjacent regions {first.primary.encoded} and {second.primary.encoded}",
            detail="org.apache.hadoop.hbase.exceptions.MergeRegionException",
        )
    region_id = max(master.runtime.time_ms(), first.info.region_id + 1, second.info.region_id + 1)
    info = RegionInfo(first.info.table, first.info.start_key, second.info.end_key, region_id)
    merged = RegionGroup(info, len(first.nodes))
    # A split parent's row inside of the new range would be found before the merged region's, which starts earlier.
    clean_parents(master, 0.0, within=info)
    server = _close(master, first, RegionState.MERGING)
    _close(master, second, RegionState.MERGING)
    master.filesystem.merge(first.info, second.info, info)
    master.meta.merge([first, second], merged, [end_barrier(master, group.info) for group in (first, second)])
    with master.lock:
        for group in (first, second):
            group.primary.become(RegionState.MERGED)
            master.states.remove(group)
        master.states.add(merged)
    for group in (first, second):
        master.filesystem.delete_region(group.info, master.runtime.now())
    _open_daughters(master, [merged], server)
    return info


def clean_parents(master: Master, older_than_s: float, within: RegionInfo | None = None) -> int:
    """Delete rows and directories of split parents whose daughters have no references to them (CatalogJanitor)."""
    now = master.runtime.now()
    old = [
        group
        for group, since in list(master.states.parents.values())
        if now - since >= older_than_s and (within is None or _overlaps(group.info, within))
    ]
    done = [group for group in old if not _is_referred_to(master, group)]
    for group in done:
        del master.states.parents[group.primary.name]
        master.filesystem.delete_region(group.info, now)
    master.meta.delete_regions(done)
    return len(done)


def _overlaps(one: RegionInfo, other: RegionInfo) -> bool:
    return one.table == other.table and keys.overlaps(one.start_key, one.end_key, other.start_key, other.end_key)


def _is_referred_to(master: Master, parent: RegionGroup) -> bool:
    """Return True if regions in the parent's range still have references to its files."""
    if parent.info.table not in master.tables:
        return False
    return any(
        master.filesystem.region(group.info).has_references()
        for group in master.states.table(parent.info.table)
        if _overlaps(parent.info, group.info)
    )


def _check_open(node: RegionNode) -> None:
    if node.state is not RegionState.OPEN:
        raise RequestRefused(f"region {node.encoded} is {node.state.value}, not OPEN", detail=_REFUSED)


def _whole(master: Master, node: RegionNode) -> RegionGroup:
    """Return the group of a primary all of whose copies are open."""
    if node.info.table == META_TABLE:
        raise RequestRefused("hbase:meta can be neither split nor merged", detail=_REFUSED)
    if node.info.replica_id:
        raise RequestRefused(f"{node.encoded} is a secondary: name its primary", detail=_REFUSED)
    master.check_enabled(node.info.table)
    _check_open(node)  # the procedure before this one may have split or merged it
    group = master.states.group_of(node)
    for copy in group.nodes:
        _check_open(copy)
    return group


def _middle(master: Master, group: RegionGroup) -> bytes:
    assert group.primary.server is not None, "an open region is somewhere"
    server = master.live_server_of(group.primary)
    region = server.regions.get(group.primary.name) if server else None
    border = region.split_point() if region is not None else None
    if border is None:
        raise RequestRefused(f"region {group.primary.encoded} has no row to split it at: give one", detail=_REFUSED)
    return border


def _check_border(info: RegionInfo, border: bytes) -> None:
    if not border or border == info.start_key or not info.contains(border):
        raise RequestRefused(
            f"{keys.printable(border)} does not lie inside of the region "
            f"[{keys.printable(info.start_key)}, {keys.printable(info.end_key)})",
            detail=_REFUSED,
        )


def _close(master: Master, group: RegionGroup, state: RegionState) -> ServerName | None:
    """Close all copies; return the primary's last server."""
    server = group.primary.server
    group.primary.become(state)
    master.assignment.close_for_good(group.nodes)
    return server


def _open_daughters(master: Master, groups: list[RegionGroup], server: ServerName | None) -> None:
    wanted = {group.primary.name: server for group in groups if server is not None}
    master.assignment.assign((node for group in groups for node in group.nodes), wanted)
