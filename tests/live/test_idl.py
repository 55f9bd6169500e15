"""Our own IDL against that in HBase's package, Thrift 1 and 2: every method, struct, field and enum that we speak."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import thriftpy2

from metaclient.wire.thrift.idl import thrift1_gateway, thrift2
from metaclient_local_hbase import missing_tools
from metaclient_local_hbase.jars import GATEWAY_VERSION, jar_folder
from tests.live.load import left_out

pytestmark = pytest.mark.essential


@dataclass(frozen=True)
class Protocol:
    """Ours, HBase's, and what the service is called in both."""

    ours: ModuleType
    shipped: ModuleType
    service: str


PATHS_IN_JAR = {
    "thrift1": ("org/apache/hadoop/hbase/thrift/Hbase.thrift", thrift1_gateway, "Hbase"),
    "thrift2": ("org/apache/hadoop/hbase/thrift2/hbase.thrift", thrift2, "THBaseService"),
}


@pytest.fixture(scope="module", params=PATHS_IN_JAR)
def protocol(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Protocol:
    """A protocol as we write it and as HBase ships it; its jars are enough, no cluster is started."""
    left_out(missing_tools())
    path, ours, service = PATHS_IN_JAR[request.param]
    target = tmp_path_factory.mktemp("idl") / f"{request.param}.thrift"
    with zipfile.ZipFile(jar_folder(GATEWAY_VERSION) / f"hbase-thrift-{GATEWAY_VERSION}.jar") as jar:
        target.write_bytes(jar.read(path))
    shipped: ModuleType = thriftpy2.load(str(target), module_name=f"shipped_{request.param}_thrift")
    return Protocol(ours(), shipped, service)


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
def test_every_struct_of_ours_has_hbases_fields(protocol: Protocol, kind: str) -> None:
    ours, theirs = of_kind(protocol.ours, kind), of_kind(protocol.shipped, kind)
    assert ours or kind == "unions"
    assert {name: fields(one) for name, one in ours.items()} == {name: fields(theirs[name]) for name in ours}


def test_every_enum_of_ours_has_hbases_numbers(protocol: Protocol) -> None:
    ours, theirs = of_kind(protocol.ours, "enums"), of_kind(protocol.shipped, "enums")
    assert {name: one._NAMES_TO_VALUES for name, one in ours.items()} == {
        name: theirs[name]._NAMES_TO_VALUES for name in ours
    }


def test_every_method_of_ours_has_hbases_arguments_and_answers(protocol: Protocol) -> None:
    ours, theirs = getattr(protocol.ours, protocol.service), getattr(protocol.shipped, protocol.service)
    missing = set(theirs.thrift_services) - set(ours.thrift_services)
    assert missing <= {"getSlowLogResponses", "clearSlowLogResponses"}, "for administrators, and of no use to a fake"
    assert set(ours.thrift_services) <= set(theirs.thrift_services)
    for method in ours.thrift_services:
        for part in ("args", "result"):
            mine, real = (getattr(service, f"{method}_{part}") for service in (ours, theirs))
            assert fields(mine) == fields(real), f"{method}_{part}"


def test_the_comparison_sees_a_wrong_number(protocol: Protocol, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.thrift"
    wrong.write_text("struct TColumn { 1: binary family, 3: binary qualifier }", encoding="utf-8")
    broken = of_kind(thriftpy2.load(str(wrong), module_name="wrong_thrift"), "structs")["TColumn"]
    assert fields(broken) != fields(of_kind(protocol.shipped, "structs")["TColumn"])
