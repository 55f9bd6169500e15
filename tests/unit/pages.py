"""Pages of puts for property tests."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import strategies as st

from metaclient.backend import PutPage
from metaclient.model import LATEST_TIMESTAMP, Durability

COLUMNS = [(b"cf:a",), (b"cf:a", b"cf:100%b", b"d:"), tuple(b"cf:%d" % number for number in range(9))]
STAMPS = st.sampled_from([0, 1, 0x25252525, 1_700_000_000_000, LATEST_TIMESTAMP])


@st.composite
def put_pages(draw: st.DrawFn, min_rows: int = 0) -> PutPage:
    """Rows in order, values and columns that are missing, arrays that are slices of longer ones."""
    columns = draw(st.sampled_from(COLUMNS))
    values = st.none() | st.binary(max_size=4) | st.sampled_from([b"x" * 130, b"\x00" * 300])
    cells = st.tuples(*[values] * len(columns)).filter(lambda row: row != (None,) * len(columns))
    keys = st.binary(min_size=1, max_size=3) | st.sampled_from([b"r" * 127, b"r" * 128, b"r" * 32767])
    rows = sorted(draw(st.lists(st.tuples(keys, STAMPS, cells), min_size=min_rows, max_size=6)), key=lambda row: row[0])
    begin = draw(st.integers(0, len(rows) - min_rows))
    binary = pa.large_binary()
    whole = PutPage(
        pa.array([key for key, _, _ in rows], binary),
        pa.array([stamp for _, stamp, _ in rows], pa.int64()),
        columns,
        tuple(pa.array([row[index] for _, _, row in rows], binary) for index in range(len(columns))),
        draw(st.sampled_from(Durability)),
        draw(st.sampled_from([None, 1, 86_400_000])),
    )
    return whole.part(begin, len(rows))
