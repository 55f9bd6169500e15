"""The micro-batch that runs, read from a checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from metaclient import ConfigError

pytest.importorskip("pyarrow", reason="needs the extra 'spark'")

from spark_connector.streaming.checkpoint import BatchTime, batch_time

ENTRY = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":%d,"conf":{}}\n{"ts":5}\n'


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "offsets"
    folder.mkdir()
    for number in (0, 2, 9, 10):
        (folder / str(number)).write_text(ENTRY % (1000 + number))
        (folder / f".{number}.crc").write_bytes(b"crc")
    return tmp_path


def test_the_latest_batch_is_the_one_that_runs(checkpoint: Path) -> None:
    assert batch_time(str(checkpoint)) == BatchTime(10, 1010)
    assert batch_time(f"file://{checkpoint}") == BatchTime(10, 1010)
    assert batch_time(f"file:{checkpoint}/") == BatchTime(10, 1010)


@pytest.mark.parametrize("missing", [None, ""])
def test_without_a_checkpoint_there_is_advice(missing: str | None) -> None:
    with pytest.raises(ConfigError, match=r"checkpointLocation.*hbase\.spark\.write\.timestamp"):
        batch_time(missing)


@pytest.mark.parametrize("text", ["", "v1\n", "v1\n{}\n", 'v1\n{"batchTimestampMs":null}\n', "v1\n{broken\n"], ids=repr)
def test_an_entry_that_is_none_is_an_error(checkpoint: Path, text: str) -> None:
    (checkpoint / "offsets" / "11").write_text(text)
    with pytest.raises(ConfigError, match="cannot be read from checkpoint"):
        batch_time(str(checkpoint))


def test_places_that_cannot_be_read(tmp_path: Path) -> None:
    for place in (str(tmp_path / "none"), "nosuch://host/x", "relative/path"):
        with pytest.raises(ConfigError, match="cannot be read from checkpoint"):
            batch_time(place)
    (tmp_path / "offsets").mkdir()
    with pytest.raises(ConfigError, match="cannot be read from checkpoint"):
        batch_time(str(tmp_path))
