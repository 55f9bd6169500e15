"""docs/configuration.md has every property that has an effect, with the default and the unit that it has."""

from __future__ import annotations

from pathlib import Path

from metaclient.config import Config, fields, hbase_names
from metaclient_fake.config.cluster import honoured_names
from metaclient_native.url import PROPERTIES as OF_NATIVE
from metaclient_thrift.url import PROPERTIES as OF_THRIFT

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")


def rows(heading: str) -> dict[str, list[str]]:
    """Property -> the other columns, of the table below a heading."""
    part = TEXT.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line.strip("|").split("|") for line in part.splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in line] for line in lines if len(line) == 6]
    return {first.strip("`"): others for first, *others in cells}


def test_every_field_of_the_client_is_listed_with_its_default_and_unit() -> None:
    listed = rows("The client")
    assert {cells[0].strip("`") for cells in listed.values()} == set(fields.SPECS)
    for key, (field, effect, default, hbase, unit) in listed.items():
        spec = fields.SPECS[field.strip("`")]
        assert key == (spec.key or f"metaclient.{field.strip('`')}")
        assert unit == (spec.unit if spec.key else spec.rule.own).name
        assert effect
        if default:
            assert getattr(Config.of({key: default}), field.strip("`")) == getattr(Config(), field.strip("`"))
        if spec.key and spec.hbase is not None:
            assert Config.of({key: hbase}) == Config.of({key: spec.hbase}).replace(properties={key: hbase})


def test_every_property_of_a_fake_cluster_is_listed() -> None:
    assert set(rows("A fake cluster")) == honoured_names()


def test_every_property_of_a_backend_and_every_deprecated_one_is_listed() -> None:
    for name in (*OF_NATIVE, *OF_THRIFT, *hbase_names.DEPRECATED, *hbase_names.OF_BACKENDS):
        assert f"`{name}`" in TEXT
