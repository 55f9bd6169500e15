"""Site files: their format, hostile and broken ones, substitution, and the line in each error."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from metaclient.config import Config
from metaclient.errors import ConfigError, ConfigWarning
from tests.unit.site_files import site


@pytest.fixture
def site_file(tmp_path: Path) -> Path:
    return tmp_path / "hbase-site.xml"


@pytest.mark.parametrize("kind", [str, Path, lambda path: path.parent, lambda path: str(path.parent)])
def test_site_file_or_its_folder(site_file: Path, kind: object) -> None:
    site_file.write_text(site(("hbase.rpc.timeout", "5000"), ("hbase.zookeeper.quorum", "zk1")))
    config = Config.of(kind(site_file), retries=1)  # type: ignore[operator]  # one of the callables above
    assert (config.rpc_timeout_s, config.retries) == (5.0, 1)
    assert dict(config.properties) == {"hbase.rpc.timeout": "5000", "hbase.zookeeper.quorum": "zk1"}


@pytest.mark.parametrize(
    ("body", "properties"),
    [
        ("", {}),
        ("<property><name>a</name><value>1</value></property>", {"a": "1"}),
        ("<property>\n <name> a\n</name>\n <value>\n1 </value>\n</property>", {"a": "1"}),
        ("<property><name>a</name><value/></property>", {"a": ""}),
        ("<property><name>a</name><value>x &amp; &#121; <![CDATA[<z>]]></value></property>", {"a": "x & y <z>"}),
        ("<property name='a' value='1'/>", {"a": "1"}),
        ("<property><value>1</value><name>a</name><description>d</description></property>", {"a": "1"}),
        ("<!-- c --><other><name>b</name><value>2</value></other>", {}),
        # the last one wins, unless an earlier one is final
        ("<property name='a' value='1'/><property name='a' value='2'/>", {"a": "2"}),
        ("<property name='a' value='1' final='true'/><property name='a' value='2'/>", {"a": "1"}),
        (
            "<property><name>a</name><value>1</value><final>true</final></property><property name='a' value='2'/>",
            {"a": "1"},
        ),
        ("<property name='a' value='1' final='false'/><property name='a' value='2'/>", {"a": "2"}),
        # ${name}
        ("<property name='a' value='${b}/x'/><property name='b' value='y'/>", {"a": "y/x", "b": "y"}),
        ("<property name='a' value='${b}'/><property name='b' value='${c}'/><property name='c' value='z'/>",
         {"a": "z", "b": "z", "c": "z"}),
        ("<property name='a' value='${unknown}/${b}'/><property name='b' value='y'/>",
         {"a": "${unknown}/y", "b": "y"}),
        ("<property name='a' value='${k${b}}'/><property name='b' value='1'/><property name='k1' value='v'/>",
         {"a": "v", "b": "1", "k1": "v"}),
        ("<property name='a' value='$b ${} ${ b} $'/><property name='b' value='1'/>",
         {"a": "$b ${} ${ b} $", "b": "1"}),
        (f"<property name='a' value='{'${b}' * 20}'/><property name='b' value='y'/>", {"a": "y" * 20, "b": "y"}),
        (f"<property name='a' value='{'${no}' * 50}'/>", {"a": "${no}" * 50}),
    ],
)  # fmt: skip
def test_site_file_format(site_file: Path, body: str, properties: dict[str, str]) -> None:
    site_file.write_text(f"<configuration>{body}</configuration>")
    assert dict(Config.of(site_file).properties) == properties


def test_a_substituted_value_is_what_counts(site_file: Path) -> None:
    site_file.write_text(site(("hbase.rpc.timeout", "${my.timeout}"), ("my.timeout", "5000")))
    assert Config.of(site_file).rpc_timeout_s == 5.0


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "iso-8859-1"])
def test_site_file_encodings(site_file: Path, encoding: str) -> None:
    declared = encoding.removesuffix("-sig")
    text = f'<?xml version="1.0" encoding="{declared}"?><configuration><property name="a" value="ü"/></configuration>'
    site_file.write_bytes(text.encode(encoding))
    assert Config.of(site_file).properties["a"] == "ü"


BILLION_LAUGHS = (
    '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>'
    "<configuration><property><name>a</name><value>&b;</value></property></configuration>"
)
OUTSIDE = (
    '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>'
    "<configuration><property><name>a</name><value>&a;</value></property></configuration>"
)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "broken XML: no element found"),
        ("rpc.timeout=5", 1, "broken XML: not well-formed"),
        ("<configuration>\n<property>\n</configuration>", 3, "broken XML: mismatched tag"),
        ("<configuration>\n", 2, "broken XML: no element found"),
        ("<configuration/>\n<configuration/>", 2, "broken XML: junk after document element"),
        ("<configuration>\n\n&nope;</configuration>", 3, "broken XML: undefined entity"),
        ('<?xml version="1.0" encoding="klingon"?><configuration/>', 1, "broken XML: "),
        ('<?xml version="1.0" encoding="utf-7"?><configuration/>', 1, "broken XML: "),
        ("<configuration>\x00</configuration>", 1, "broken XML: "),
        ("<a>" * 100_000, 1, "<a> in place of <configuration>"),
        ("<configuration>" + "<a>" * 100_000, 1, "broken XML: no element found"),
        ("<html>\n</html>", 1, "<html> in place of <configuration>; is it an hbase-site.xml?"),
        (BILLION_LAUGHS, 1, "a DOCTYPE is refused"),
        (OUTSIDE, 1, "a DOCTYPE is refused"),
        ('<?xml version="1.0"?>\n<!DOCTYPE configuration>\n<configuration/>', 2, "a DOCTYPE is refused"),
        ('<configuration>\n<xi:include href="x.xml"/></configuration>', 2, "an include is not followed"),
        ("<configuration>\n<property>\n<value>1</value></property></configuration>", 2, "no <name> in a property"),
        ("<configuration>\n<property><name> </name><value>1</value></property></configuration>", 2, "no <name>"),
        ("<configuration>\n\n<property><name>a</name></property></configuration>", 3, "no <value> in the property a"),
    ],
)
def test_hostile_or_broken_site_file_names_file_and_line(site_file: Path, text: str, line: int, message: str) -> None:
    site_file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        Config.of(site_file)
    assert str(caught.value).startswith(f"{site_file}:{line}: {message}")
    assert len(str(caught.value)) < 300 + len(str(site_file))


def test_refused_value_names_file_and_line(site_file: Path) -> None:
    site_file.write_text(site(("a", "1"), ("hbase.rpc.timeout", "soon")))
    with pytest.raises(ConfigError) as caught:
        Config.of(site_file)
    assert str(caught.value) == (
        f"hbase.rpc.timeout = 'soon' ({site_file}:4): not a number; "
        "allowed: a number of ms, more than 0 and at most 2592000000"
    )


def test_unknown_name_and_order_name_file_and_line(site_file: Path) -> None:
    site_file.write_text(site(("hbase.rpc.timeot", "1")))
    with pytest.warns(ConfigWarning, match=re.escape(f"hbase.rpc.timeot ({site_file}:3): no such property; did you")):
        assert Config.of(site_file) == Config()
    site_file.write_text(site(("metaclient.rpc_timeout", "1")))
    with pytest.raises(ConfigError, match=re.escape(f"metaclient.rpc_timeout ({site_file}:3): no such property")):
        Config.of(site_file)
    site_file.write_text(site(("hbase.client.locate.prefetch.limit", "5000")))
    with pytest.raises(ConfigError, match=re.escape(f"locate_prefetch = 5000 ({site_file}:3) is more than")):
        Config.of(site_file)


def test_unlimited_in_a_site_file_warns_with_file_and_line(site_file: Path) -> None:
    site_file.write_text(site(("hbase.client.operation.timeout", "0")))
    with pytest.warns(UserWarning, match=re.escape(f"({site_file}:3) is no limit in HBase; 24 hours")) as caught:
        assert Config.of(site_file).operation_timeout_s == 86_400.0
    assert len(caught) == 1, "the meta operation timeout follows without a warning of its own"


@pytest.mark.parametrize(
    "properties",
    [
        [("a", "${a}")],
        [("a", "${b}"), ("b", "${a}")],
        [("a", "x${a}")],
        [("a", "${b}" * 21), ("b", "y")],
        [(f"v{i}", f"${{v{i + 1}}}${{v{i + 1}}}") for i in range(40)] + [("v40", "ha")],
    ],
)
def test_substitution_loops_and_growth_end(site_file: Path, properties: list[tuple[str, str]]) -> None:
    site_file.write_text(site(*properties))
    with pytest.raises(ConfigError, match=rf"{re.escape(str(site_file))}:3\): \${{}} refers to itself, or is nested"):
        Config.of(site_file)


def test_substitution_cannot_fill_the_memory(site_file: Path) -> None:
    site_file.write_text(site(("big", "x" * 100_000), *((f"p{i}", "${big}" * 20) for i in range(1000))))
    with pytest.raises(ConfigError, match="bytes after substitution"):
        Config.of(site_file)


def test_too_large_a_file_is_not_read(site_file: Path) -> None:
    with site_file.open("wb") as file:
        file.truncate(5 << 20)
    with pytest.raises(ConfigError, match="more than 4194304 bytes"):
        Config.of(site_file)


def test_missing_files(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere.xml", tmp_path, tmp_path / ("n" * 5000), tmp_path / "nul\0"):
        with pytest.raises(ConfigError, match=r"^config = .*allowed: the path of an hbase-site.xml, or of its folder"):
            Config.of(str(path))
    with pytest.raises(ConfigError, match=r"no file .*hbase-site.xml"):
        Config.of(tmp_path)


def test_a_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "hbase-site.xml")
    with pytest.raises(ConfigError, match="no file"):
        Config.of(tmp_path)


def test_unreadable_file(site_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    site_file.write_text(site())
    monkeypatch.setattr(Path, "open", refuse)  # not chmod: root reads everything
    with pytest.raises(ConfigError, match="cannot be read: Permission denied; check its permissions"):
        Config.of(site_file)
