"""Types of pandas for columns with nulls."""

from __future__ import annotations

from typing import Any

__all__ = ["nullable_types"]


def nullable_types() -> dict[Any, Any]:
    """Return pandas' nullable types of Arrow's whole numbers and booleans."""
    import pandas
    import pyarrow as pa

    return {
        pa.bool_(): pandas.BooleanDtype(),
        pa.int8(): pandas.Int8Dtype(),
        pa.int16(): pandas.Int16Dtype(),
        pa.int32(): pandas.Int32Dtype(),
        pa.int64(): pandas.Int64Dtype(),
    }
