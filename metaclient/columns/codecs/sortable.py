"""Floats as unsigned numbers in the same order (OrderedBytes, Phoenix): all bits or the sign bit are inverted."""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

__all__ = ["float_of_sortable", "floats_of_sortable", "sortable_of_float"]

_FORMS = {4: (">f", ">I"), 8: (">d", ">Q")}


def sortable_of_float(value: float, width: int) -> int:
    """Return the unsigned number of a float of 4 or 8 bytes; NaN becomes Java's NaN."""
    form, whole = _FORMS[width]
    bits: int = struct.unpack(whole, struct.pack(form, math.nan if math.isnan(value) else value))[0]
    top = 1 << (8 * width - 1)
    return bits ^ (2 * top - 1) if bits & top else bits | top


def float_of_sortable(number: int, width: int) -> float:
    form, whole = _FORMS[width]
    top = 1 << (8 * width - 1)
    bits = number ^ top if number & top else number ^ (2 * top - 1)
    value: float = struct.unpack(form, struct.pack(whole, bits))[0]
    return value


def floats_of_sortable(numbers: np.ndarray, width: int) -> np.ndarray:
    """Return the floats of an array of unsigned numbers in the machine's byte order."""
    import numpy as np

    top = numbers.dtype.type(1 << (8 * width - 1))
    bits: np.ndarray = np.where(numbers & top, numbers ^ top, ~numbers)
    return bits.view(f"f{width}")
