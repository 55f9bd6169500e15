"""Loads the Thrift interfaces: the files of this folder, and Thrift 1 for clients from happybase."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any

import thriftpy2

__all__ = ["THRIFT1_FILE", "THRIFT2_FILE", "server_type", "thrift1", "thrift1_gateway", "thrift2"]

THRIFT1_FILE = Path(__file__).with_name("hbase1.thrift")
THRIFT2_FILE = Path(__file__).with_name("hbase2.thrift")
#: The call that both services have; happybase's copy of Thrift 1 lacks it.
_SERVER_TYPE = """
enum TThriftServerType { ONE = 1, TWO = 2 }
service ServerType { TThriftServerType getThriftServerType() }
"""


@cache
def thrift2() -> ModuleType:
    """Return the module of Thrift 2's structs and its service ``THBaseService``; parsed once (85 ms)."""
    return thriftpy2.load(str(THRIFT2_FILE), module_name="metaclient_hbase2_thrift")


@cache
def thrift1() -> ModuleType:
    """Return the module of Thrift 1's structs and its service ``Hbase``."""
    import_module("happybase")  # it makes the module below
    return import_module("Hbase_thrift")


@cache
def server_type() -> Any:
    """Return the service that has only ``getThriftServerType``."""
    return thriftpy2.load_fp(StringIO(_SERVER_TYPE), "metaclient_server_type_thrift").ServerType


@cache
def thrift1_gateway() -> ModuleType:
    """Return Thrift 1 as in HBase's gateway: happybase's copy, with ``canRetry`` and the calls that it lacks."""
    return thriftpy2.load(str(THRIFT1_FILE), module_name="metaclient_hbase1_thrift")
