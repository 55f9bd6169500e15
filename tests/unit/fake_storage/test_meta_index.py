"""An index of hbase:meta shows all rows of its region, or raises; it never shows a part of them as the whole."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing

import pytest

from metaclient.backend import MetaScan
from metaclient.errors import NotServingRegion
from metaclient.model import LATEST_TIMESTAMP, Cell, Delete, FamilyDescriptor, Put, Result, Scan, TableDescriptor
from metaclient.runtime import SimRuntime
from metaclient_fake.storage import Region
from metaclient_fake.storage.meta_index import MetaIndex
from metaclient_fake.storage.scanner import RowReader
from tests.unit.fake_storage.bench import Bench

ROW = b"t,,1700000000000.6c64d4b6d6a9a6b6d6a9a6b6d6a9a6b6."
WHOLE = MetaScan(b"", b"", False, 10)


class ClosingRegion:
    """A region with one row that refuses as many reads as it is told to, as one that closes does."""

    def __init__(self) -> None:
        self.refuses = 0
        self.value = b"rs1:16020"

    def _answer(self) -> Result:
        if self.refuses:
            self.refuses -= 1
            raise NotServingRegion("the region is closing")
        return Result(ROW, (Cell(b"info:server", 1, self.value),))

    def row_reader(self) -> AbstractContextManager["ClosingRegion"]:
        return closing(self)

    def row(self, row: bytes) -> Sequence[Cell]:
        return self._answer().cells

    def scanner(self, scan: Scan) -> "ClosingRegion":
        return self

    def next(self, max_rows: int, max_bytes: int) -> tuple[Sequence[Result], bool]:
        return [self._answer()], True

    def close(self) -> None:
        pass


def mark_nothing(index: MetaIndex) -> None:
    """The first read builds the index."""


def mark_row(index: MetaIndex) -> None:
    index.page(WHOLE)
    index.mark([ROW])


@pytest.mark.parametrize("mark", [mark_nothing, mark_row])
def test_reader_that_waits_for_a_refused_read_of_meta_does_not_take_its_remains_for_the_whole(
    mark: Callable[[MetaIndex], None],
) -> None:
    """Found by seed 732: a lookup was told that hbase:meta had no region of a table that existed."""
    region = ClosingRegion()
    index = MetaIndex(region, SimRuntime())  # type: ignore[arg-type]  # only what an index reads
    mark(index)
    region.refuses, region.value = 1, b"rs2:16020"
    with pytest.raises(NotServingRegion):
        index.page(WHOLE)
    assert [row.columns for row in index.page(WHOLE)] == [{b"info:server": b"rs2:16020"}]


LEFT, RIGHT, MERGED = b"t,,1.aa.", b"t,m,1.bb.", b"t,,2.cc."


def served(row: bytes, server: bytes) -> Put:
    return Put(row, (Cell(b"info:server", LATEST_TIMESTAMP, server),))


@pytest.fixture
def index_of_two_regions(bench: Bench) -> tuple[Region, MetaIndex]:
    """Return a region whose rows LEFT and RIGHT have changed since the index has read them."""
    bench.table = TableDescriptor(b"t", (FamilyDescriptor(b"info"),))
    region = bench.open()
    index = MetaIndex(region, bench.runtime)
    region.batch([served(row, b"rs1") for row in (LEFT, RIGHT)])
    index.page(WHOLE)
    with index.changing([LEFT, RIGHT]):
        region.batch([served(row, b"rs2") for row in (LEFT, RIGHT)])
    return region, index


def merge(region: Region) -> None:
    region.batch([Delete(LEFT), Delete(RIGHT), served(MERGED, b"rs3")])


def rows_of(index: MetaIndex) -> list[bytes]:
    return [row.row for row in index.page(WHOLE)]


def test_merge_is_seen_whole_before_its_rows_are_marked(index_of_two_regions: tuple[Region, MetaIndex]) -> None:
    """Found by seed 2637: both regions of a table were seen as removed, and their merged region was not there yet."""
    region, index = index_of_two_regions
    with index.changing([LEFT, RIGHT, MERGED]):
        merge(region)
        assert rows_of(index) == [MERGED]
    assert rows_of(index) == [MERGED]


def test_merge_between_two_reads_of_rows_is_not_seen_in_part(
    index_of_two_regions: tuple[Region, MetaIndex], monkeypatch: pytest.MonkeyPatch
) -> None:
    region, index = index_of_two_regions
    read = RowReader.row

    def read_then_merge(reader: RowReader, row: bytes) -> Sequence[Cell]:
        cells = read(reader, row)
        if row == LEFT:
            merge(region)
        return cells

    with monkeypatch.context() as patched:
        patched.setattr(RowReader, "row", read_then_merge)
        assert rows_of(index) == [LEFT, RIGHT]
    index.mark([LEFT, RIGHT, MERGED])
    assert rows_of(index) == [MERGED]


def test_change_of_unknown_rows_is_seen_whole_while_it_lasts(index_of_two_regions: tuple[Region, MetaIndex]) -> None:
    region, index = index_of_two_regions
    other = b"t,x,3.dd."
    with index.changing():
        merge(region)
        assert rows_of(index) == [MERGED]
        region.batch([served(other, b"rs1")])
        assert rows_of(index) == [MERGED, other]
    assert rows_of(index) == [MERGED, other]


def test_change_that_fails_marks_its_rows_because_it_may_have_been_applied(
    index_of_two_regions: tuple[Region, MetaIndex],
) -> None:
    region, index = index_of_two_regions
    with pytest.raises(NotServingRegion), index.changing([LEFT, RIGHT, MERGED]):
        assert rows_of(index) == [LEFT, RIGHT]
        merge(region)
        raise NotServingRegion("the region closes after the write")
    assert rows_of(index) == [MERGED]
