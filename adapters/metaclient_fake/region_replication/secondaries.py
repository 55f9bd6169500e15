"""Decides how a server's secondaries are updated, by pushed edits or by files, and when they may be read.

With region replication: reads stay off after an open until the markers of the primary show that no edit is missing
(:mod:`metaclient_fake.region_replication.read_gate`); the primary is notified of the open, and again until the markers
come. Without it: RegionReplicaFlushHandler (reads stay off until the primary has flushed its memstore) and
StorefileRefresherChore (new files are listed after the period; failures are tolerated until the archive could have
deleted the listed files, then reads go off; the next success turns them on again).

DIVERGENCES: the request for a flush is repeated until it succeeds; HBase aborts the server after some retries.
A directory that has not changed is not read again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from metaclient.errors import ConnectionClosed, MetaClientError, NotServingRegion, Overloaded
from metaclient.model import META_TABLE, RegionInfo
from metaclient.runtime import Runtime
from metaclient_fake.config.cluster import ClusterConfig
from metaclient_fake.region_replication import (
    Acknowledged,
    ReadGate,
    Replay,
    Replayed,
    has_memstore_replication,
    is_on,
)
from metaclient_fake.storage import Region, RegionDirectory, StoreFile
from metaclient_fake.storage.meta_index import MetaIndex, Tear
from metaclient_fake.storage.stand_ins import EmptyRegion, Hosted
from metaclient_fake.storage.wal import LoggedEntry

__all__ = ["Secondaries"]


#: A primary that did not answer is notified again after this time (hbase.client.pause) ...
_TELL_AGAIN_S = 0.1
#: ... and one that did, if its marker has not come by then.
_MARKER_AWAITED_S = 1.0


class _Secondary:
    """One secondary; ``reads_after`` and ``empty_until`` are the instants it waits for, None when it does not wait."""

    __slots__ = (
        "complete_as_of",
        "directory",
        "empty_until",
        "index",
        "is_pushed_to",
        "listed",
        "name",
        "reads_after",
        "refreshed_at",
        "region",
        "replay",
        "tell_after",
    )

    def __init__(
        self, name: bytes, region: Region, directory: RegionDirectory, now: float, *, replay: Replay, is_pushed_to: bool
    ) -> None:
        self.name = name
        self.region = region
        self.directory = directory
        self.replay = replay
        self.is_pushed_to = is_pushed_to
        #: The instant from which the primary may be notified (again) that this replica waits for a marker.
        self.tell_after = now
        self.listed: tuple[StoreFile, ...] | None = None
        self.refreshed_at = now
        #: All edits acknowledged before this instant are in the listed files; None when that is not known.
        self.complete_as_of: float | None = None
        self.index: MetaIndex | None = None
        self.reads_after: float | None = None
        self.empty_until: float | None = None

    @property
    def is_meta(self) -> bool:
        return self.region.info.table == META_TABLE


class Secondaries:
    """The secondaries of one server; ``online`` is the server's map, in which an empty one has a stand-in."""

    def __init__(
        self,
        runtime: Runtime,
        config: ClusterConfig,
        online: dict[bytes, Hosted],
        *,
        flush_primary: Callable[[RegionInfo], bool],
        tell_primary: Callable[[RegionInfo], None],
        on_waiting: Callable[[], None],
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._online = online
        self._flush_primary = flush_primary
        self._tell_primary = tell_primary
        self._on_waiting = on_waiting
        self._meta: dict[bytes, _Secondary] = {}
        self._user: dict[bytes, _Secondary] = {}
        #: The secondaries that wait; usually none, and then the chore does not run.
        self.waiting: dict[bytes, _Secondary] = {}
        #: A fault: no file can be listed.
        self.refresh_fails = False

    # -- coming and going --------------------------------------------------------------------------------------

    def opened(self, name: bytes, region: Region, directory: RegionDirectory, index: MetaIndex | None) -> None:
        """Add a region that was just opened; its reads stay off while it must wait."""
        now, config = self._runtime.now(), self._config
        is_pushed_to = is_on(config.replication, region.descriptor)
        waits = config.wait_for_primary_flush and (not is_pushed_to or has_memstore_replication(region.descriptor))
        gate = ReadGate(frozenset(family.name for family in region.descriptor.families), is_open=not waits)
        replay = Replay(region, self._runtime, gate)
        made = _Secondary(name, region, directory, now, replay=replay, is_pushed_to=is_pushed_to)
        made.index = index
        (self._meta if made.is_meta else self._user)[name] = made
        self._online[name] = region
        if config.secondary_reopens_empty_s:
            self._pretend_empty(made, config.secondary_reopens_empty_s)
        if config.meta_rows_torn_s and index is not None:
            index.tear(Tear(now + config.secondary_reopens_empty_s + config.meta_rows_torn_s))
        if waits or config.reads_disabled_s:
            self._disable_reads(made, config.reads_disabled_s or 0.0)
            self._look_at(made, self._runtime.now())

    def closed(self, name: bytes) -> None:
        for known in (self._meta, self._user, self.waiting):
            known.pop(name, None)

    def clear(self) -> None:
        for known in (self._meta, self._user, self.waiting):
            known.clear()

    def _find(self, name: bytes) -> _Secondary | None:
        return self._user.get(name) or self._meta.get(name)

    # -- what primaries push -----------------------------------------------------------------------------------

    def replay(self, name: bytes, epoch: int, entries: Sequence[LoggedEntry], deadline: float) -> None:
        """Apply a batch, and enable reads if one of its markers allows it."""
        secondary = self._find(name)
        if secondary is None:
            raise NotServingRegion("the secondary is not online here")
        if secondary.index is None:
            changed = secondary.replay.apply(epoch, entries, deadline)
        else:
            with secondary.index.changing():
                changed = secondary.replay.apply(epoch, entries, deadline)
                _mark(secondary.index, secondary.region, changed)
        secondary.refreshed_at = self._runtime.now()
        secondary.complete_as_of = _later(secondary.complete_as_of, changed.files_as_of)
        if secondary.reads_after is not None:
            self._look_at(secondary, self._runtime.now())

    def _tell(self, secondary: _Secondary, now: float) -> None:
        """Notify the primary that this replica has opened: in a task, because the primary may not answer."""
        if now < secondary.tell_after:
            return
        secondary.tell_after = float("inf")  # until this one has been answered

        def tell() -> None:
            wait_s = _TELL_AGAIN_S
            try:
                self._tell_primary(secondary.region.info)
                wait_s = _MARKER_AWAITED_S
            except MetaClientError:
                pass  # the primary is down, moving, or partitioned: the chore notifies it again
            finally:
                secondary.tell_after = self._runtime.now() + wait_s

        try:
            self._runtime.start(tell, name="replica-opened")
        except (Overloaded, ConnectionClosed):
            secondary.tell_after = now + _TELL_AGAIN_S

    # -- the refresher -----------------------------------------------------------------------------------------

    def refresh(self, *, meta: bool) -> None:
        """Refresh the secondaries of hbase:meta, or those of user tables; read-only tables do not change."""
        for secondary in list((self._meta if meta else self._user).values()):
            if not secondary.region.descriptor.is_read_only:
                self._refresh(secondary)

    def refresh_one(self, name: bytes) -> bool:
        """Refresh one region now; return False if it is not here or the files cannot be listed."""
        secondary = self._find(name)
        return secondary is not None and self._refresh(secondary)

    def _refresh(self, secondary: _Secondary) -> bool:
        if self.refresh_fails:
            period = self._config.meta_refresh_period_s if secondary.is_meta else self._config.refresh_s
            silent_s = self._runtime.now() - secondary.refreshed_at
            if silent_s > self._config.storage.archive_ttl_s - period:
                secondary.region.reads_enabled = False
            return False
        self._read_directory(secondary)
        if secondary.reads_after is None:
            secondary.region.reads_enabled = True
        return True

    def _read_directory(self, secondary: _Secondary) -> None:
        as_of = secondary.directory.complete_as_of  # read before the files are listed
        # Listed before the region lists them: a file that is added in between is noticed at the next refresh.
        listed = secondary.directory.all_files()
        secondary.refreshed_at = self._runtime.now()
        if listed != secondary.listed:
            if secondary.index is None:
                secondary.region.refresh_store_files()
            else:
                with secondary.index.changing():
                    secondary.region.refresh_store_files()
                    secondary.index.mark_files(listed)
            secondary.listed = listed
        secondary.complete_as_of = _later(secondary.complete_as_of, as_of)

    def refreshed_at(self) -> dict[bytes, float]:
        """Return the instant of each secondary's last refresh."""
        return {
            name: secondary.refreshed_at
            for known in (self._meta, self._user)
            for name, secondary in list(known.items())
        }

    def complete_as_of(self, name: bytes, known: Acknowledged | None) -> float | None:
        """Return an instant: all edits acknowledged before it can be read here now; None when none is known.

        ``known`` is the primary's earlier answer, if it pushes edits. The listed files give an instant, too.
        """
        secondary = self._find(name)
        if secondary is None or secondary.empty_until is not None:
            return None
        as_of = secondary.complete_as_of
        if known is None or (as_of is not None and as_of >= known.as_of):
            return as_of
        return known.as_of if secondary.replay.has_applied(known.epoch, known.sequence_id) else as_of

    # -- may it be read? ---------------------------------------------------------------------------------------

    @property
    def are_waiting(self) -> bool:
        """True if a secondary may not be read yet."""
        return any(secondary.reads_after is not None for secondary in list(self.waiting.values()))

    def look(self) -> None:
        """Enable reads of the waiting secondaries, or stop pretending they are empty, when their time has come."""
        if self.waiting:
            now = self._runtime.now()
            for secondary in list(self.waiting.values()):
                self._look_at(secondary, now)

    def _look_at(self, secondary: _Secondary, now: float) -> None:
        if secondary.empty_until is not None and secondary.empty_until <= now:
            secondary.empty_until = None
            if isinstance(self._online.get(secondary.name), EmptyRegion):
                self._online[secondary.name] = secondary.region
        if secondary.reads_after is not None and secondary.reads_after <= now:
            self._try_enable_reads(secondary)
        if secondary.empty_until is None and secondary.reads_after is None:
            self.waiting.pop(secondary.name, None)

    def _try_enable_reads(self, secondary: _Secondary) -> None:
        if secondary.is_pushed_to:
            if secondary.replay.gate.is_open:
                secondary.reads_after = None
                secondary.region.reads_enabled = True
            else:
                self._tell(secondary, self._runtime.now())
            return
        if self._config.wait_for_primary_flush and not self._flush_primary(secondary.region.info):
            return
        self._read_directory(secondary)
        secondary.reads_after = None
        secondary.region.reads_enabled = True

    def replay_of(self, name: bytes) -> Replay | None:
        """Return the replay of a secondary; None if it is not on this server."""
        secondary = self._find(name)
        return None if secondary is None else secondary.replay

    def is_empty(self, name: bytes) -> bool:
        """Return True if the secondary pretends to be empty."""
        return isinstance(self._online.get(name), EmptyRegion)

    # -- faults ------------------------------------------------------------------------------------------------

    def pretend_empty(self, name: bytes, seconds: float) -> None:
        secondary = self._find(name)
        assert secondary is not None, "the caller knows that it is here"
        self._pretend_empty(secondary, seconds)

    def disable_reads(self, name: bytes, seconds: float) -> None:
        secondary = self._find(name)
        assert secondary is not None, "the caller knows that it is here"
        self._disable_reads(secondary, seconds)

    def _pretend_empty(self, secondary: _Secondary, seconds: float) -> None:
        secondary.empty_until = self._runtime.now() + seconds
        self._online[secondary.name] = EmptyRegion(secondary.region)
        self._wait(secondary)

    def _disable_reads(self, secondary: _Secondary, seconds: float) -> None:
        secondary.region.reads_enabled = False
        secondary.reads_after = self._runtime.now() + seconds
        self._wait(secondary)

    def _wait(self, secondary: _Secondary) -> None:
        self.waiting[secondary.name] = secondary
        self._on_waiting()


def _mark(index: MetaIndex, region: Region, changed: Replayed) -> None:
    """Mark the rows that a batch has changed in the index of a copy of hbase:meta."""
    if changed.is_anew:
        index.mark_all()
    if changed.saw_files:
        index.mark_files([file for store in region.stores for file in store.files])
    if changed.entries:
        index.mark(changed.rows)


def _later(one: float | None, other: float | None) -> float | None:
    """Return the later of two instants of which either may be unknown."""
    return other if one is None else one if other is None else max(one, other)
