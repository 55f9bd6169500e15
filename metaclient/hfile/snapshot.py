"""Reads a snapshot from HBase's root folder: its manifest, its store files wherever they are, and their merged cells.

A manifest lists the regions of the table and the store files of each family. A file is in the table's folder, or in the
archive after a compaction or a deletion. Its name may be a link to a file of another table (``table=region-file``, in
tables that were cloned from a snapshot), or a reference to one half of a file of a region that has split
(``file.region``); a reference may refer to a link.

Refused by name: snapshots of HBase 0.94's layout, MOB families, NEW_VERSION_BEHAVIOR, and the features of files that
:mod:`.reader` refuses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from metaclient import keys
from metaclient.errors import ConfigError
from metaclient.hfile.errors import CorruptFile, FileMissing, refuse
from metaclient.hfile.files import StoragePath
from metaclient.hfile.key_values import SEQUENCE, TAGS
from metaclient.hfile.order import concatenated, merge_rows
from metaclient.hfile.reader import HFile, open_hfile, row_of_key
from metaclient.hfile.visible import CellSelection, FamilyRules, visible_cells
from metaclient.metarow import REGION_INFO
from metaclient.model import RegionInfo, TableDescriptor
from metaclient.protobuf import BYTES, SIGNED, TEXT, UNSIGNED, Message, ProtocolError, decode
from metaclient.wire.cell_arrays import COLUMNS, libraries
from metaclient.wire.rpc.admin_messages import SNAPSHOT, TABLE_SCHEMA
from metaclient.wire.rpc.names import region_info_from
from metaclient.wire.rpc.schemas import table_schema_from

if TYPE_CHECKING:
    import pyarrow

__all__ = [
    "MANIFEST",
    "SnapshotRegion",
    "StoreFile",
    "StoredSnapshot",
    "decode_manifest",
    "read_region",
    "read_snapshot",
    "snapshot_names",
]

#: snapshot.manifest.size.limit is 64 MB.
MANIFEST_BYTES_MAX = 256 * 1024 * 1024
_FOLDER = ".hbase-snapshot"
#: SnapshotManifestV2
_VERSION = 2
_TOP = 0
_REFERENCE = Message("Reference", (1, "splitkey!", BYTES), (2, "range!", UNSIGNED))
_STORE_FILE = Message("StoreFile", (1, "name!", TEXT), (2, "reference", _REFERENCE), (3, "file_size", UNSIGNED))
_FAMILY_FILES = Message("FamilyFiles", (1, "family_name!", BYTES), (2, "store_files*", _STORE_FILE))
_REGION = Message(
    "SnapshotRegionManifest",
    (1, "version", SIGNED),
    (2, "region_info!", REGION_INFO),
    (3, "family_files*", _FAMILY_FILES),
)
MANIFEST = Message("SnapshotDataManifest", (1, "table_schema!", TABLE_SCHEMA), (2, "region_manifests*", _REGION))
_LINK = re.compile(r"(?:(?P<namespace>[^=]+)=)?(?P<table>[^=]+)=(?P<region>[0-9a-f]{32})-(?P<file>[0-9a-f_SeqId]+)")
_REFERRED = re.compile(r"(?P<file>.+)\.(?P<region>[0-9a-f]{32})")
_SEQUENCE_OF_NAME = re.compile(r"_SeqId_(\d+)_")


@dataclass(frozen=True, slots=True)
class StoreFile:
    """A store file of a snapshot: the paths at which it may be, and the rows of it that belong to the region."""

    paths: tuple[StoragePath, ...]
    start: bytes = b""
    stop: bytes = b""
    bytes: int = 0

    @property
    def name(self) -> str:
        """The name of the file itself, without links and references."""
        return self.paths[0].name


@dataclass(frozen=True, slots=True)
class SnapshotRegion:
    """A region of a snapshot, and its store files by family."""

    info: RegionInfo
    files: tuple[tuple[bytes, tuple[StoreFile, ...]], ...]

    @property
    def bytes(self) -> int:
        """The bytes of its files."""
        return sum(file.bytes for _, files in self.files for file in files)


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """A snapshot of a table; its regions are sorted by key and without split parents."""

    name: str
    table: TableDescriptor
    created_ms: int
    regions: tuple[SnapshotRegion, ...]


def snapshot_names(root: StoragePath) -> list[str]:
    """Return the names of the snapshots below HBase's root folder."""
    return [name for name in root.child(_FOLDER).names() if not name.startswith(".")]


def read_snapshot(root: StoragePath, name: str) -> StoredSnapshot:
    """Return the snapshot of this name; ConfigError, with the names that there are, if there is none."""
    folder = root.child(_FOLDER, name)
    if "/" in name or name.startswith(".") or not folder.child(".snapshotinfo").is_file():
        there = ", ".join(snapshot_names(root)[:20]) or "none"
        raise ConfigError(
            f"there is no snapshot {name!r} below {root}: root must be HBase's hbase.rootdir; there are: {there}"
        )
    where = f"snapshot {name!r}"
    described = _described(folder, where)
    table, regions = decode_manifest(root, _manifest_of(folder, where), where)
    return StoredSnapshot(name, table, described.get("creation_time", 0), tuple(regions))


def _described(folder: StoragePath, where: str) -> dict[str, Any]:
    try:
        described = decode(SNAPSHOT, folder.child(".snapshotinfo").read(MANIFEST_BYTES_MAX))
    except ProtocolError as error:
        raise CorruptFile(f"{where} has a damaged description: {error}") from error
    if described.get("version", 0) < _VERSION:
        raise refuse(where, "has the layout of HBase 0.94", "take a new snapshot")
    return described


def _manifest_of(folder: StoragePath, where: str) -> bytes:
    path = folder.child("data.manifest")
    if not path.is_file():
        raise refuse(where, "has no data.manifest", "it is not finished, or HBase could not put it together")
    return path.read(MANIFEST_BYTES_MAX)


def decode_manifest(root: StoragePath, data: bytes, where: str) -> tuple[TableDescriptor, list[SnapshotRegion]]:
    """Return the table of a manifest, and its regions in the order of their keys, without split parents."""
    try:
        found = decode(MANIFEST, data)
        regions = [_region(root, one, where) for one in found.get("region_manifests", ())]
        table = table_schema_from(found["table_schema"])
    except (ProtocolError, KeyError, UnicodeDecodeError) as error:
        raise CorruptFile(f"{where} has a damaged manifest: {error!r}") from error
    whole = [region for region in regions if not region.info.is_split_parent and not region.info.replica_id]
    return table, sorted(whole, key=lambda region: region.info.start_key)


def _region(root: StoragePath, manifest: Mapping[str, Any], where: str) -> SnapshotRegion:
    info = region_info_from(manifest["region_info"])
    files = tuple(
        (
            one["family_name"],
            tuple(_store_file(root, info, one["family_name"], file, where) for file in one.get("store_files", ())),
        )
        for one in manifest.get("family_files", ())
    )
    return SnapshotRegion(info, files)


def _store_file(root: StoragePath, info: RegionInfo, family: bytes, file: Mapping[str, Any], where: str) -> StoreFile:
    name, region, table = file["name"], info.encoded_name, info.table
    start = stop = b""
    reference = file.get("reference")
    if reference is not None:
        referred = _REFERRED.fullmatch(name)
        if referred is None:
            raise CorruptFile(f"{where} has a reference without the name of a region: {name}")
        row = row_of_key(where, reference["splitkey"])
        start, stop = (row, b"") if reference["range"] == _TOP else (b"", row)
        name, region = referred["file"], referred["region"]
    link = _LINK.fullmatch(name)
    if link is not None:
        namespace = link["namespace"]
        table = (f"{namespace}:" if namespace else "").encode() + link["table"].encode()
        region, name = link["region"], link["file"]
    if "/" in name:
        raise CorruptFile(f"{where} has a store file with the name {name!r}")
    return StoreFile(_places(root, table, region, family, name), start, stop, file.get("file_size", 0))


def _places(root: StoragePath, table: bytes, region: str, family: bytes, name: str) -> tuple[StoragePath, ...]:
    """Return the places where HBase may keep a file: the table's folder, and the archive."""
    namespace, colon, qualifier = table.partition(b":")
    if not colon:
        namespace, qualifier = b"default", table
    below = ("data", namespace.decode(), qualifier.decode(), region, family.decode(), name)
    return root.child(*below), root.child("archive", *below)


# -- cells ---------------------------------------------------------------------------------------------------------


def read_region(
    region: SnapshotRegion,
    rules: Mapping[bytes, FamilyRules],
    selection: CellSelection,
    *,
    start: bytes = b"",
    stop: bytes = b"",
) -> Iterator[pyarrow.RecordBatch]:
    """Yield the visible cells of a region's rows from ``start`` to ``stop``, merged over its files, in whole rows.

    FileMissing if a file is neither in the table's folder nor in the archive: the snapshot was deleted in between.
    """
    where = f"region {region.info.encoded_name} of the snapshot"
    families = selection.families()
    wanted = [file for name, files in region.files if families is None or name in families for file in files]
    with ExitStack() as stack:
        opened = [(file, stack.enter_context(_opened(file))) for file in wanted]
        opened.sort(key=lambda one: _age(*one))
        is_merged = len(opened) > 1
        streams = [_batches(file, source, start, stop, with_sequence=is_merged) for file, source in opened]
        has_tags = any(source.tags_max for _, source in opened)
        aligned = [_aligned(stream, has_tags=has_tags) for stream in streams]
        for parts in merge_rows(aligned, _newest_first):
            found = visible_cells(parts, rules, selection, where)
            if found.num_rows:
                yield found


@contextmanager
def _opened(file: StoreFile) -> Iterator[HFile]:
    """Yield a file, opened at the first of its places where it is."""
    with ExitStack() as stack:
        for path in file.paths:
            try:
                source = stack.enter_context(open_hfile(path))
            except FileMissing:
                continue
            yield source
            return
    raise FileMissing(
        f"store file {file.name} of the snapshot is missing; its places are {' and '.join(map(str, file.paths))}. "
        "HBase deletes files after a snapshot was deleted; or root is not the hbase.rootdir of the snapshot"
    )


def _age(file: StoreFile, source: HFile) -> tuple[int, str]:
    """Return the key by which files are sorted, the oldest first (StoreFileComparators.SEQ_ID)."""
    return _loaded_sequence(file) or source.max_sequence_id, file.name


def _loaded_sequence(file: StoreFile) -> int | None:
    """Return the sequence id of a bulk-loaded file, which all its cells have; None of other files."""
    found = _SEQUENCE_OF_NAME.search(file.name)
    return None if found is None else int(found[1])


def _batches(
    file: StoreFile, source: HFile, start: bytes, stop: bytes, *, with_sequence: bool
) -> Iterator[pyarrow.RecordBatch]:
    """Yield the rows of a file that belong to the region. Sequence ids are only needed to merge files."""
    np, arrow = libraries()
    if not keys.overlaps(start, stop, file.start, file.stop):
        return
    sequence = _loaded_sequence(file)
    first, end = max(start, file.start), keys.earlier_end(stop, file.stop)
    for batch in source.batches(first, end, with_sequence=with_sequence and sequence is None):
        if sequence is not None:
            at = batch.schema.names.index(SEQUENCE)
            numbers = arrow.array(np.full(batch.num_rows, sequence, dtype=np.int64))
            batch = batch.set_column(at, SEQUENCE, numbers)
        yield batch


def _aligned(batches: Iterator[pyarrow.RecordBatch], *, has_tags: bool) -> Iterator[pyarrow.RecordBatch]:
    """Yield the batches with the columns that the files of a region have together."""
    _, arrow = libraries()
    for batch in batches:
        if has_tags and TAGS not in batch.schema.names:
            batch = batch.append_column(TAGS, arrow.array([b""] * batch.num_rows, arrow.binary()))
        yield batch if has_tags else batch.select([*COLUMNS, SEQUENCE])


def _newest_first(parts: Sequence[tuple[int, pyarrow.RecordBatch]]) -> list[pyarrow.RecordBatch]:
    """Return the batches that must be merged; parts whose rows follow each other become one batch.

    ``parts`` are those of the files in the order of their age, the oldest first.
    """
    ordered = sorted((part for _, part in parts), key=lambda part: part["row"][0].as_py())
    if all(one["row"][-1].as_py() < two["row"][0].as_py() for one, two in pairwise(ordered)):
        return [concatenated(ordered)]
    return [part for _, part in reversed(parts)]
