"""Loads the protocols: our own texts beside this file, and Thrift 1 for clients as happybase brings it."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

import thriftpy2

__all__ = ["THRIFT1_FILE", "THRIFT2_FILE", "thrift1", "thrift1_gateway", "thrift1_service", "thrift2"]

THRIFT1_FILE = Path(__file__).with_name("hbase1.thrift")
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


@cache
def thrift1_gateway() -> ModuleType:
    """Thrift 1 as HBase's gateway speaks it: what happybase's copy has, ``canRetry``, and the calls it lacks."""
    return thriftpy2.load(str(THRIFT1_FILE), module_name="metaclient_hbase1_thrift")


@cache
def thrift1_service() -> type:
    """happybase's service with one call more: ``getThriftServerType``, which a gateway answers by itself."""
    theirs, ours = thrift1().Hbase, thrift1_gateway().Hbase
    added = "getThriftServerType"
    members = {f"{added}_{part}": getattr(ours, f"{added}_{part}") for part in ("args", "result")}
    return type("Hbase", (theirs,), {**members, "thrift_services": [*theirs.thrift_services, added]})
