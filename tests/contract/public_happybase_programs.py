"""What six public programs and libraries do with happybase, written anew after them; each names its repository.

A function gets the module (happybase itself, or metaclient in its place) and the address of a Thrift 1 gateway, and
returns what the program would see.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any
from zlib import crc32

import happybase  # noqa: F401  # it registers the module Hbase_thrift
import Hbase_thrift
from thriftpy2.transport import TTransportException

__all__ = ["PROGRAMS"]

Address = dict[str, Any]


def feature_store(library: Any, at: Address) -> object:
    """feast-dev/feast, sdk/python/feast/infra: an online store of features; it closes connections that it borrowed."""
    pool = library.ConnectionPool(size=2, protocol="binary", transport="buffered", **at)
    name = "feast_driver_stats"

    def exists() -> bool:
        with pool.connection() as connection:
            return name.encode() in connection.tables()

    if not exists():
        with pool.connection() as connection:
            connection.create_table(name, {"default": {}})
    with pool.connection() as connection:
        batch = connection.table(name).batch()  # sent after the connection went back
    for driver in (1004, 1005):
        batch.put(
            f"{driver:x}#stats".encode(),
            {"default:trips": b"%d" % driver, "default:event_ts": struct.pack(">L", 1_600_000_000)},
        )
    batch.send()
    with pool.connection() as connection:
        rows = connection.table(name).rows([b"3ec#stats", b"none#stats", b"3ed#stats"], None, None, False)
    seen = [{column.decode().split(":")[1]: value for column, value in row.items()} for _, row in rows]
    with pool.connection() as connection:
        connection.close()
    with pool.connection() as connection:
        connection.delete_table(name, disable=True)
    return seen, exists()


def crawl_frontier(library: Any, at: Address) -> object:
    """scrapinghub/frontera, frontera/contrib/backends/hbase: a queue of requests by score, read through filter text."""
    connection = library.Connection(table_prefix="crawler", table_prefix_separator="_", **at)
    if b"queue" in connection.tables():
        connection.delete_table(b"queue", disable=True)
    connection.create_table(b"queue", {"f": {"max_versions": 1, "block_cache_enabled": 1}})
    table = connection.table(b"queue")
    with table.batch(transaction=True) as batch:
        for number in range(20):
            host = crc32(b"host%d" % (number % 3))
            batch.put(f"{number % 2}_0.{number:02d}", {f"f:0.{number:03d}": b"%d" % host, b"f:t": str(number)})
    wanted = "PrefixFilter ('1_') AND SingleColumnValueFilter ('f', 't', <=, 'binary:5')"
    queue: dict[bytes, list[bytes]] = {}
    for key, data in table.scan(limit=8, batch_size=256, filter=wanted):
        for column, value in data.items():
            if column != b"f:t":
                queue.setdefault(value, []).append(key)
    with table.batch(transaction=True) as batch:
        for row in {row for rows in queue.values() for row in rows}:
            batch.delete(row)
    left = sum(1 for _ in table.scan())
    connection.delete_table(b"queue", disable=True)
    connection.close()
    return sorted(queue.values()), left


def image_index(library: Any, at: Address) -> object:
    """ColumbiaDVMM/ColumbiaImageSearch: rows of a list of hashes by a pool, again after transport errors."""
    pool = library.ConnectionPool(size=4, timeout=60_000, **at)
    with pool.connection() as connection:
        connection.create_table("images_sha1", {"info": {}})
        for number in range(10):
            connection.table("images_sha1").put(f"SHA{number}", {"info:featnorm": str(number), "info:s3_url": "s3://x"})

    def rows(keys: list[str]) -> list[Any]:
        for _ in range(2):
            try:
                with pool.connection() as connection:
                    return list(connection.table("images_sha1").rows(keys, columns=["info:featnorm"]))
            except TTransportException:  # "TSocket read 0 bytes", "[Errno 32] Broken pipe"
                continue
        return []

    found = [(key, dict(row)) for key, row in rows(["SHA1", "SHA7", "SHA77"])]
    with pool.connection() as connection:
        connection.delete_table("images_sha1", disable=True)
    return found


def exported_table(library: Any, at: Address) -> object:
    """306235911/test_crawler, src/dealer/hbase: a table as text; the connection is opened, closed and opened again."""
    connection = library.Connection(autoconnect=False, **at)
    connection.open()
    connection.create_table("testtable", {"cf": {}})
    table = connection.table("testtable")
    for number in range(3):
        table.put(f"row-{number}", {"cf:text": "ключ"})
    connection.close()
    connection.open()
    lines = [f"{key.decode()} {data[b'cf:text'].decode()}" for key, data in table.scan()]
    connection.delete_table("testtable", disable=True)
    connection.close()
    return lines


def social_network(library: Any, at: Address) -> object:
    """mori0217/python-test, section12: a lesson: tables, puts of several columns, scans by prefix and column."""
    connection = library.Connection(**at)
    connection.open()
    try:
        connection.create_table(b"sns", {"blog": {}})
        connection.create_table(b"sns", {"blog": {}})
    except Hbase_thrift.AlreadyExists:
        is_refused = True
    table = connection.table(b"sns")
    table.put(b"user1", {b"blog:bitcoin": b"1", b"blog:soccer": b"2"})
    table.put(b"user2", {b"blog:soccer": b"3"})
    seen = [
        [(key, dict(row)) for key, row in table.scan()],
        [(key, dict(row)) for key, row in table.scan(row_prefix=b"user1")],
        [(key, dict(row)) for key, row in table.scan(columns=[b"blog:soccer"])],
    ]
    connection.disable_table(b"sns")
    connection.delete_table(b"sns")
    return seen, is_refused


def handler(library: Any, at: Address) -> object:
    """oimq/hahaHba: a handler of tables: exists, create, put, pop, scan, rows; wrong names are caught by IOError."""
    connection = library.Connection(**at)

    def exists(name: str) -> bool:
        return name.encode() in connection.tables()

    if exists("haha"):
        connection.delete_table("haha", disable=True)
    connection.create_table("haha", {"cf1": {"max_versions": 2}, "cf2": {}})
    table = connection.table("haha")
    for number in range(4):
        table.put(f"k{number}", {"cf1:a": str(number), "cf2:b": "x"})
    table.put("k0", {})
    table.delete("k1")
    table.delete("k2", columns=["cf2:b"])
    table.counter_inc("k3", "cf1:n", 5)
    try:
        connection.table("nohaha").row("k0")
    except Hbase_thrift.IOError as error:
        caught = "nohaha" in str(error)
    seen = [(key, dict(row)) for key, row in table.scan(sorted_columns=True)]
    families = sorted(table.families())
    connection.delete_table("haha", disable=True)
    connection.close()
    return seen, families, caught, connection.transport.is_open()


PROGRAMS: tuple[Callable[[Any, Address], object], ...] = (
    feature_store,
    crawl_frontier,
    image_index,
    exported_table,
    social_network,
    handler,
)
