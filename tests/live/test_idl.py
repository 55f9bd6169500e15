"""Our own IDL against the one in HBase's package: every method, struct, field and enum that we speak."""

from __future__ import annotations

import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import thriftpy2

from adapters.local_hbase import LocalHBase
from adapters.local_hbase.jars import GATEWAY_VERSION, class_path
from adapters.thrift.idl import thrift2

PATH_IN_JAR = "org/apache/hadoop/hbase/thrift2/hbase.thrift"


@pytest.fixture(scope="module")
def shipped(hbase: LocalHBase, tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The protocol as HBase ships it; the cluster has fetched its jars."""
    jars = Path(class_path(GATEWAY_VERSION)).parent
    target = tmp_path_factory.mktemp("idl") / "shipped.thrift"
    with zipfile.ZipFile(jars / f"hbase-thrift-{GATEWAY_VERSION}.jar") as jar:
        target.write_bytes(jar.read(PATH_IN_JAR))
    module: ModuleType = thriftpy2.load(str(target), module_name="shipped_thrift")
    return module


def shape(spec: Any) -> Any:
    """A field's type without the classes, which differ by module: numbers, and names of structs."""
    if isinstance(spec, tuple):
        return tuple(shape(one) for one in spec)
    if isinstance(spec, type):
        return spec.__name__
    return spec


def fields(struct: Any) -> dict[int, Any]:
    """Number -> type, name and what it is made of; `required` is left out: it is not on the wire."""
    return {number: shape(spec[:-1]) for number, spec in struct.thrift_spec.items()}


def of_kind(module: ModuleType, kind: str) -> dict[str, Any]:
    return {one.__name__: one for one in module.__thrift_meta__[kind]}


@pytest.mark.parametrize("kind", ["structs", "unions", "exceptions"])
def test_every_struct_of_ours_has_hbases_fields(shipped: ModuleType, kind: str) -> None:
    ours, theirs = of_kind(thrift2(), kind), of_kind(shipped, kind)
    assert ours
    assert {name: fields(one) for name, one in ours.items()} == {name: fields(theirs[name]) for name in ours}


def test_every_enum_of_ours_has_hbases_numbers(shipped: ModuleType) -> None:
    ours, theirs = of_kind(thrift2(), "enums"), of_kind(shipped, "enums")
    assert {name: one._NAMES_TO_VALUES for name, one in ours.items()} == {
        name: theirs[name]._NAMES_TO_VALUES for name in ours
    }


def test_every_method_of_ours_has_hbases_arguments_and_answers(shipped: ModuleType) -> None:
    ours, theirs = thrift2().THBaseService, shipped.THBaseService
    assert set(ours.thrift_services) <= set(theirs.thrift_services)
    for method in ours.thrift_services:
        for part in ("args", "result"):
            mine, real = (getattr(service, f"{method}_{part}") for service in (ours, theirs))
            assert fields(mine) == fields(real), f"{method}_{part}"


def test_the_comparison_sees_a_wrong_number(shipped: ModuleType, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.thrift"
    wrong.write_text("struct TColumn { 1: binary family, 3: binary qualifier }", encoding="utf-8")
    broken = of_kind(thriftpy2.load(str(wrong), module_name="wrong_thrift"), "structs")["TColumn"]
    assert fields(broken) != fields(of_kind(shipped, "structs")["TColumn"])
