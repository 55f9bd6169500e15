"""Reads the id and the time of the running micro-batch from the query's checkpoint.

Spark writes a batch's offsets, and the value of ``current_timestamp()`` in it, to ``CHECKPOINT/offsets/ID`` before it
runs the batch. A batch that is run again, in this run of the query or after a restart, has the same entry. Therefore
the sink writes the same cells with the same timestamps.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from metaclient.errors import ConfigError

__all__ = ["BatchTime", "batch_time"]

#: Hadoop's names of file systems -> pyarrow's names.
_SCHEMES = {"s3a": "s3", "s3n": "s3"}
_ADVICE = (
    "give the sink .option('checkpointLocation', ...) that the driver can read, or hbase.spark.write.timestamp as "
    "milliseconds, to which the batch id is added"
)


class BatchTime(NamedTuple):
    """The id of a micro-batch, and its time in milliseconds."""

    id: int
    timestamp: int


def batch_time(checkpoint: str | None) -> BatchTime:
    """Return the latest batch of a checkpoint: the batch whose sink is being created."""
    from pyarrow import fs

    if not checkpoint:
        raise ConfigError(
            f"a stream into HBase needs the id of its batches, so that a replay writes the same cells: {_ADVICE}"
        )
    try:
        files, root = _opened(checkpoint)
        names = [info.base_name for info in files.get_file_info(fs.FileSelector(f"{root}/offsets"))]
        latest = max(int(name) for name in names if name.isdigit())
        with files.open_input_stream(f"{root}/offsets/{latest}") as stream:
            text = stream.read().decode()
        return BatchTime(latest, _timestamp(text))
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ConfigError(
            f"the running batch cannot be read from checkpoint {checkpoint!r} ({type(error).__name__}: {error}): "
            + _ADVICE
        ) from error


def _opened(checkpoint: str) -> tuple[Any, str]:
    from pyarrow import fs

    scheme, sign, rest = checkpoint.partition("://")
    if sign:
        checkpoint = f"{_SCHEMES.get(scheme, scheme)}://{rest}"
    elif checkpoint.startswith("file:"):
        checkpoint = checkpoint.removeprefix("file:")
    found, root = fs.FileSystem.from_uri(checkpoint)
    return found, str(root).rstrip("/")


def _timestamp(text: str) -> int:
    """Return the time of an entry of the offset log, which has a version, a line of metadata, and a line per source."""
    for line in text.splitlines():
        if line.startswith("{"):
            return int(json.loads(line)["batchTimestampMs"])
    raise ValueError("an entry of the offset log has no batchTimestampMs")
