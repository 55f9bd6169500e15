"""Java programs, Maven's retries, gateways and heaps of a local HBase, without a JVM: the programs are scripts."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from metaclient.errors import ConfigError, MetaClientError, Unsupported
from metaclient.model import ServerName
from metaclient_local_hbase import LocalHBase
from metaclient_local_hbase.admin import SOURCE, Admin
from metaclient_local_hbase.jars import FETCHES_MAX, jar_folder
from metaclient_local_hbase.programs import java_command, run_java
from metaclient_local_hbase.settings import command


@pytest.fixture
def fake_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands first on the path, for programs of that name."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/bin:/usr/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def program(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


# -- Java programs -------------------------------------------------------------------------------------------------


def test_sources_are_shipped_with_the_package() -> None:
    assert SOURCE.name == "AdminCalls.java"
    assert "class AdminCalls" in SOURCE.read_text(encoding="utf-8")
    assert java_command(SOURCE, "a", "b")[-3:] == [str(SOURCE), "a", "b"]


def test_admin_calls_hand_over_their_arguments_and_read_the_answer(fake_program: Path, tmp_path: Path) -> None:
    program(fake_program, "java", f'echo "$@" >> {tmp_path}/said; echo \'{{"daughters": ["x", "y"], "was": true}}\'')
    admin = Admin("127.0.0.1:2181")
    assert admin.split(b"t", b"r\x00\xff") == ["x", "y"]
    assert admin.switch_balancer(False) is True
    admin.move("abc", ServerName("h", 1, 2))
    said = (tmp_path / "said").read_text(encoding="utf-8").splitlines()
    assert [line.split("AdminCalls.java ")[1] for line in said] == [
        r"127.0.0.1:2181 split t r\x00\xFF",
        "127.0.0.1:2181 balancer off",
        "127.0.0.1:2181 move abc h,1,2",
    ]


def test_long_rows_are_handed_over_whole(fake_program: Path, tmp_path: Path) -> None:
    program(fake_program, "java", f'echo "$@" > {tmp_path}/said; echo \'{{"daughters": []}}\'')
    Admin("127.0.0.1:2181").split(b"t", b"r" * 200)
    assert (tmp_path / "said").read_text(encoding="utf-8").split()[-1] == "r" * 200


def test_failing_program_is_told_in_one_line_with_the_rest_in_detail(fake_program: Path) -> None:
    program(fake_program, "java", "echo 'log4j: noise' >&2; echo 'Exception in thread: no such region' >&2; exit 1")
    with pytest.raises(MetaClientError, match=r"AdminCalls.java .*no such region") as caught:
        Admin("127.0.0.1:2181").flush(b"t")
    assert "log4j" in (caught.value.detail or "")


def test_java_without_a_compiler_says_what_to_install(fake_program: Path) -> None:
    program(fake_program, "java", "echo 'Module jdk.compiler not found' >&2; exit 1")
    with pytest.raises(Unsupported, match="jdk-headless"):
        run_java(SOURCE, "servers")


# -- Maven ---------------------------------------------------------------------------------------------------------


def test_maven_is_asked_again_when_a_repository_hiccups(fake_program: Path, tmp_path: Path) -> None:
    program(fake_program, "java", "exit 0")
    program(
        fake_program,
        "mvn",
        f"echo x >> {tmp_path}/tries; [ $(wc -l < {tmp_path}/tries) -gt 1 ] || exit 1; mkdir lib; touch lib/hbase.jar",
    )
    assert [path.name for path in jar_folder("2.6.1").iterdir()] == ["hbase.jar"]
    assert len((tmp_path / "tries").read_text(encoding="utf-8").split()) == 2


def test_maven_that_goes_on_failing_is_told_and_leaves_nothing(fake_program: Path, tmp_path: Path) -> None:
    program(fake_program, "java", "exit 0")
    program(fake_program, "mvn", f"echo x >> {tmp_path}/tries; echo '[ERROR] no route'; exit 1")
    with pytest.raises(MetaClientError, match="no route"):
        jar_folder("2.6.1")
    assert len((tmp_path / "tries").read_text(encoding="utf-8").split()) == FETCHES_MAX
    assert not list((tmp_path / "cache").rglob("*.jar"))


# -- gateways and heaps --------------------------------------------------------------------------------------------


def test_gateways_are_all_in_the_url(tmp_path: Path) -> None:
    cluster = LocalHBase(folder=tmp_path / "c", gateways=3)
    ports = {one["name"]: one["port"] for one in cluster.status()["processes"]}
    assert cluster.thrift2_url == "thrift2://" + ",".join(
        f"127.0.0.1:{ports[name]}" for name in ("thrift2", "thrift2-2", "thrift2-3")
    )


@pytest.mark.parametrize("count", [0, -1, "2"])
def test_wrong_number_of_gateways_is_refused(tmp_path: Path, count: object) -> None:
    with pytest.raises(ConfigError, match="gateways must be a number"):
        LocalHBase(folder=tmp_path / "c", gateways=count)  # type: ignore[arg-type]


def test_regions_have_the_heap_and_the_others_little(tmp_path: Path) -> None:
    layout = LocalHBase(folder=tmp_path / "c", heap_mb=768)._layout
    heaps = {
        one.name: next(word for word in command(layout, one, "jars") if word.startswith("-Xmx"))
        for one in layout.processes
    }
    assert heaps["rs1"] == heaps["master"] == "-Xmx768m"
    assert heaps["zookeeper"] == "-Xmx128m"
    assert heaps["thrift1"] == heaps["thrift2"] == "-Xmx256m"
