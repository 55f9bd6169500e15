"""Marks of tests that need a release of Spark. They are skipped on earlier ones, where other tests expect a refusal."""

from __future__ import annotations

import pyspark
import pytest

__all__ = ["HAS_READ_LIMITS", "HAS_SINKS", "RELEASE", "needs_read_limits", "needs_sinks"]

RELEASE = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
#: Streams are written to Python sources by Arrow batches (DataSourceStreamArrowWriter).
HAS_SINKS = RELEASE >= (4, 1)
#: The limits of a trigger reach Python sources (SupportsTriggerAvailableNow, ReadLimit).
HAS_READ_LIMITS = RELEASE >= (4, 2)

needs_sinks = pytest.mark.skipif(not HAS_SINKS, reason="Spark writes streams to Python sources from 4.1 on")
needs_read_limits = pytest.mark.skipif(
    not HAS_READ_LIMITS, reason="Spark limits triggers of Python sources from 4.2 on"
)
