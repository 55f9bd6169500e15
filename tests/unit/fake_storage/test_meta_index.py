"""An index of hbase:meta shows all rows of its region, or raises; it never shows a part of them as the whole."""

from collections.abc import Callable, Sequence

import pytest

from metaclient.backend import MetaScan
from metaclient.errors import NotServingRegion
from metaclient.model import Cell, Get, Result, Scan
from metaclient.runtime import SimRuntime
from metaclient_fake.storage.meta_index import MetaIndex

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

    def get(self, get: Get) -> Result:
        return self._answer()

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
