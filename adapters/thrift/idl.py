"""Loads the two protocols: Thrift 2 from our own text beside this file, Thrift 1 as happybase brings it."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

import thriftpy2

__all__ = ["THRIFT2_FILE", "thrift1", "thrift2"]

THRIFT2_FILE = Path(__file__).with_name("hbase2.thrift")


@cache
def thrift2() -> ModuleType:
    """The module of Thrift 2's structs and its service ``THBaseService``; parsed once (85 ms)."""
    return thriftpy2.load(str(THRIFT2_FILE), module_name="metaclient_hbase2_thrift")


@cache
def thrift1() -> ModuleType:
    """The module of Thrift 1's structs and its service ``Hbase``."""
    import_module("happybase")  # it makes the module below
    return import_module("Hbase_thrift")
