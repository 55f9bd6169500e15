"""Store files with SNAPPY, LZ4 and ZSTD, by the codecs of HBase's module ``hbase-compression-aircompressor``.

HBase's own classes write and read the files; no cluster is started.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from metaclient.hfile import FileSettings, HFileWriter, StoragePath, open_hfile
from metaclient.hfile.compression import WRITABLE
from metaclient_local_hbase import missing_tools
from metaclient_local_hbase.jars import COMPRESSION_JARS, GATEWAY_VERSION, class_path, jar_folder
from tests.live.load import left_out
from tests.unit.hfile.cells import page_of

pytestmark = pytest.mark.live

PROGRAM = Path(__file__).parent / "java" / "StoreFileCodecs.java"
PRINTER = "org.apache.hadoop.hbase.io.hfile.HFilePrettyPrinter"
CODECS = {"SNAPPY": "SnappyCodec", "LZ4": "Lz4Codec", "ZSTD": "ZstdCodec"}
ROWS = 20_000
WAIT_S = 240.0


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command of a JVM with HBase's jars, the codecs, and the properties that choose them."""
    left_out(missing_tools())
    for jars in (GATEWAY_VERSION, COMPRESSION_JARS):
        jar_folder(jars)
    named = "".join(
        f"<property><name>hbase.io.compress.{name.lower()}.codec</name>"
        f"<value>org.apache.hadoop.hbase.io.compress.aircompressor.{codec}</value></property>"
        for name, codec in CODECS.items()
    )
    folder = tmp_path_factory.mktemp("conf")
    for site in ("core-site.xml", "hbase-site.xml"):
        (folder / site).write_text(f"<configuration>{named}</configuration>", encoding="utf-8")
    return ["java", "-cp", f"{folder}:{class_path(GATEWAY_VERSION)}:{class_path(COMPRESSION_JARS)}"]


def value_of(row: int) -> bytes:
    return b"v%d" % (row % 100) + b"x" * (row % 40)


def test_files_of_hbases_codecs_are_read(java: list[str], tmp_path: Path) -> None:
    command = [*java, str(PROGRAM), str(tmp_path), str(ROWS), *CODECS]
    subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=True)
    for name in CODECS:
        with open_hfile(StoragePath.of(str(tmp_path / name))) as file:
            assert file.trailer.compression == name
            batches = list(file.batches())
        assert [row for batch in batches for row in batch["row"].to_pylist()] == [b"row%08d" % n for n in range(ROWS)]
        assert [one for batch in batches for one in batch["value"].to_pylist()] == [value_of(n) for n in range(ROWS)]


@pytest.mark.parametrize("name", sorted(WRITABLE & CODECS.keys()))
def test_files_with_a_codec_are_read_by_hbase(java: list[str], tmp_path: Path, name: str) -> None:
    path = StoragePath.of(str(tmp_path / name))
    with path.output() as sink:
        writer = HFileWriter(sink, FileSettings(b"d", compression=name))
        writer.append_page(page_of([b"row%08d" % n for n in range(ROWS)], {b"d:q": [value_of(n) for n in range(ROWS)]}))
        writer.close()
    command = [*java, PRINTER, "-f", path.uri, "-m", "-k", "-v"]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=True).stdout
    assert f"compression={name.lower()}" in printed
    assert f"Scanned kv count -> {ROWS}" in printed
    assert "WARNING" not in printed  # keys out of order
