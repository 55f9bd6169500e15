"""Names of properties and options: unknown, misspelt, without an effect, of another program."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from metaclient.config import Config, checked_properties, fields_given
from metaclient.config.hbase_properties import source_of
from metaclient.errors import ConfigError, ConfigWarning
from tests.unit.site_files import site

MODE = "hbase.locator.meta.replicas.mode"


@pytest.fixture
def site_file(tmp_path: Path) -> Path:
    return tmp_path / "hbase-site.xml"


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("rpc_timeot_s", "rpc_timeout_s"),
        ("rpc_timeout", "rpc_timeout_s"),
        ("metamode", "meta_mode"),
        ("operation_timeout_ms", "operation_timeout_s"),
    ],
)
def test_unknown_option_names_the_nearest(name: str, nearest: str) -> None:
    message = rf"^{name} \(keyword\): no such option; did you mean {nearest}\?$"
    mapping: dict[str, object] = {}
    for config in (None, mapping, Config()):
        with pytest.raises(ConfigError, match=message):
            Config.of(config, **{name: 1})
    with pytest.raises(ConfigError, match=message):
        Config().replace(**{name: 1})


@pytest.mark.parametrize("name", ["hbase_client_operation_timeout", "hbase.client.operation.timeout"])
def test_property_of_hbase_as_an_option_names_the_field_and_the_mapping(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Config.of(None, **{name: 2})
    assert "write operation_timeout_s=, or config={'hbase.client.operation.timeout': value}" in str(caught.value)


def test_unknown_option_with_nothing_near() -> None:
    with pytest.raises(ConfigError, match="nothing known is near; remove it"):
        Config.of(zzzzzzzz=1)
    with pytest.raises(ConfigError) as caught:
        Config.of(None, **{"z" * 100_000: 1})
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("private", ["_followers", "_sources"])
def test_private_names_are_no_options(private: str) -> None:
    with pytest.raises(ConfigError, match="no such option"):
        Config.of(None, **{private: {}})


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("hbase.client.operation.timeot", "hbase.client.operation.timeout"),
        ("hbase.client.retries", "hbase.client.retries.number"),
        ("hbase.locator.meta.replica.mode", MODE),
        ("hbase.rpc.timeouts", "hbase.rpc.timeout"),
        ("hbase.ipc.client.socket.timeout.conect", "hbase.ipc.client.socket.timeout.connect"),
        ("metaclient.rpc_timeout", "metaclient.rpc_timeout_s"),
        ("metaclient.meta_try_timeout", "metaclient.meta_try_timeout_s"),
    ],
)
def test_unknown_property_that_looks_like_ours_names_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"{name} (mapping): no such property; did you mean {nearest}?")):
        Config.of({name: "1"})


@pytest.mark.parametrize("name", ["metaclient.properties", "metaclient.", "hbase.client.", "servers", "zzz", "retrys"])
def test_no_such_property(name: str) -> None:
    with pytest.raises(ConfigError, match="no such property"):
        Config.of({name: "1"})


@pytest.mark.parametrize(
    "name",
    [
        "hbase.client.connection.metacache.invalidate-interval.ms",
        "hbase.client.registry.impl",
        "hbase.client.bootstrap.hedged.fanout",
        "hbase.client.master_registry.hedged.fanout",
        "hbase.client.bootstrap.refresh_interval_secs",
        "hbase.ipc.client.failed.servers.expiry",
        "hbase.ipc.client.connection.minIdleTimeBeforeClose",
        "hbase.ipc.client.specificThreadForWriting",
        "hbase.client.ipc.pool.size",
        "hbase.client.backpressure.enabled",
        "hbase.client.statistics.backoff-policy",
        "hbase.client.keyvalue.maxsize",  # of hbase-default.xml
        "hbase.client.localityCheck.threadPoolSize",
        "hbase.rpc.shortoperation.timeout",
        "hbase.client.header.tenant",  # the user names what follows the prefix
    ],
)
def test_client_property_without_effect_is_told_in_mappings_and_files(name: str, site_file: Path) -> None:
    with pytest.warns(ConfigWarning, match=re.escape(f"{name} (mapping) has no effect here")):
        config = Config.of({name: "as given"})
    assert dict(config.properties) == {name: "as given"}, "a backend of another package may read it"
    assert config.replace(properties={}) == Config()
    site_file.write_text(site((name, "as given")))
    with pytest.warns(ConfigWarning, match=re.escape(f"{name} ({site_file}:3) has no effect here")) as caught:
        Config.of(site_file)
    assert [Path(each.filename).name for each in caught] == [Path(__file__).name], "once, and where the caller is"


@pytest.mark.parametrize(
    "name",
    [
        "hbase.client.bootstrap.servers",  # of the native backend
        "hbase.client.netty.tls.enabled",
        "hbase.rpc.protection",
        "hbase.masters",
        "hbase.zookeeper.quorum",
        "zookeeper.znode.parent",
        "hbase.master.port",  # of servers
        "zookeeper.registry.async.get.timeout",
        "zookeeper.znode.metaserver",
        "hbase.status.listener.class",
        "hbase.meta.table.suffix",
        "hbase.region.replica.replication.catalog.enabled",
        "hbase.region.meta.replica.replication.enabled",
        "hbase.zookeeper.property.autopurge.purgeInterval",  # HBase hands on what follows the prefix
        "hbase.zookeeper.property.dataLogDir",
        "hbase.zookeeper.property.tickTime",
        "fs.defaultFS",  # of other programs
        "ipc.client.connect.max.retries",
        "hadoop.security.authentication",
        "phoenix.query.timeoutMs",
    ],
)
@pytest.mark.filterwarnings("error")
def test_other_property_is_kept_for_the_backends(name: str) -> None:
    config = Config.of({name: "as given"})
    assert dict(config.properties) == {name: "as given"}
    assert config.replace(properties={}) == Config()


#: What a site file of a real cluster holds, for all of its programs.
REAL_SITE = {
    "hbase.rootdir": "hdfs://ns1/hbase",
    "hbase.cluster.distributed": "true",
    "hbase.zookeeper.quorum": "zk1,zk2,zk3",
    "hbase.zookeeper.property.clientPort": "2181",
    "hbase.zookeeper.property.dataDir": "/var/zookeeper",
    "hbase.wal.provider": "asyncfs",
    "hbase.regionserver.handler.count": "60",
    "hbase.hregion.majorcompaction": "604800000",
    "hbase.coprocessor.region.classes": "com.example.Observer",
    "hbase.bucketcache.ioengine": "offheap",
    "hbase.rpc.tls.keystore.location": "/etc/hbase/keystore",
    "hbase.rpc.rows.warning.threshold": "5000",
    "hfile.block.cache.size": "0.4",
    "hadoop.proxyuser.hive.hosts": "*",
    "dfs.client.read.shortcircuit": "true",
    "dfs.replication": "3",
    "io.storefile.bloom.block.size": "131072",
    "phoenix.schema.isNamespaceMappingEnabled": "true",
    "com.example.hbase.quota": "7",
    "hbase.example.only.ours.to.know": "1",
}


@pytest.mark.filterwarnings("error")
def test_site_file_of_a_real_cluster_is_read_without_a_word(site_file: Path) -> None:
    site_file.write_text(site(*REAL_SITE.items()))
    config = Config.of(site_file)
    assert dict(config.properties) == REAL_SITE
    assert config.replace(properties={}) == Config()


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("hbase.meta.scaner.caching", "hbase.meta.scanner.caching"),
        ("hbase.meta.replica.cuont", "hbase.meta.replica.count"),
        ("hbase.zookeeper.quorom", "hbase.zookeeper.quorum"),
        ("hbase.zookeeper.property.clientport", "hbase.zookeeper.property.clientPort"),
        ("hbse.zookeeper.quorum", "hbase.zookeeper.quorum"),
        ("zookeper.znode.parent", "zookeeper.znode.parent"),
        ("hbase.regionserver.handlr.count", "hbase.regionserver.handler.count"),
    ],
)
def test_misspelt_name_outside_of_the_clients_prefixes_is_refused(name: str, nearest: str, site_file: Path) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"{name} (mapping): no such property; did you mean {nearest}?")):
        Config.of({name: "1"})
    site_file.write_text(site((name, "1")))
    with pytest.warns(ConfigWarning, match=re.escape(f"({site_file}:3): no such property; did you mean {nearest}?")):
        assert name not in Config.of(site_file).properties


def test_name_that_hbase_does_not_know_is_told_in_a_mapping() -> None:
    with pytest.warns(ConfigWarning, match=re.escape("hbase.example.only.ours (mapping) has no effect here")):
        assert Config.of({"hbase.example.only.ours": "1"}).properties["hbase.example.only.ours"] == "1"


@pytest.mark.filterwarnings("error")
def test_properties_of_a_config_are_judged_once() -> None:
    with pytest.warns(ConfigWarning):
        first = Config.of({"hbase.client.write.buffer": "1", "hbase.rpc.timeout": "5000"})
    again = Config.of(first.properties)
    assert again == first
    assert source_of(pickle.loads(pickle.dumps(again.properties)), "hbase.rpc.timeout") == "mapping"
    moved = checked_properties({"hbase.client.write.bufer": "1"}, "a driver")
    assert source_of(Config.of(moved).properties, "hbase.client.write.bufer") == "a driver"


def test_fields_given_counts_defaults_that_are_written_out() -> None:
    assert fields_given({"hbase.client.retries.number": 15, "hbase.rootdir": "/", "metaclient.pause_s": 1}) == {
        "retries",
        "pause_s",
    }


@pytest.mark.parametrize("name", ["hbase." + "x" * 1_000_000, "hbase." + "a.b" * 300_000])
def test_name_of_a_megabyte_does_not_take_a_minute(name: str) -> None:
    with pytest.warns(ConfigWarning):
        Config.of({name: "1"})
