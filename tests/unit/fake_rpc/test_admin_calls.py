"""Admin calls of the native backend that change a table or the balancer, against the fake's RPC front."""

from collections.abc import Callable, Iterator

import pytest

from metaclient.backend import ReplicationAdmin
from metaclient.errors import RequestRefused
from metaclient.model import FamilyDescriptor, TableDescriptor
from metaclient.replication_peers import PeerConfig, PeerState
from metaclient.runtime import ThreadRuntime
from metaclient_fake import FakeCluster
from metaclient_native import NativeBackend
from metaclient_native.admin import Admin

CALL_S = 60.0


@pytest.fixture
def backend() -> Iterator[NativeBackend]:
    runtime = ThreadRuntime()
    with FakeCluster(servers=2) as cluster:
        cluster.serve(thrift1_port=None, thrift2_port=None, rpc_port=0)
        cluster.create_table(TableDescriptor(b"t", (FamilyDescriptor(b"f"), FamilyDescriptor(b"g"))), [b"m"])
        backend = NativeBackend(f"hbase+rpc://127.0.0.1:{cluster.rpc_port}", runtime=runtime)
        yield backend
        backend.close()
    runtime.close()


@pytest.fixture
def admin(backend: NativeBackend) -> Admin:
    return backend.admin


def _families(admin: Admin) -> dict[bytes, int]:
    described = admin.describe_table(b"t", admin._runtime.now() + CALL_S)
    return {family.name: family.max_versions for family in described.families}


def test_modified_table_loses_the_families_that_its_descriptor_lacks(admin: Admin) -> None:
    until = admin._runtime.now() + CALL_S
    admin.modify_table(TableDescriptor(b"t", (FamilyDescriptor(b"f", max_versions=4), FamilyDescriptor(b"h"))), until)
    assert _families(admin) == {b"f": 4, b"h": 1}


def test_modified_family_leaves_the_others_as_they_are(admin: Admin) -> None:
    until = admin._runtime.now() + CALL_S
    admin.add_family(b"t", FamilyDescriptor(b"h", max_versions=2), until)
    admin.modify_family(b"t", FamilyDescriptor(b"f", max_versions=7), until)
    admin.delete_family(b"t", b"g", until)
    assert _families(admin) == {b"f": 7, b"h": 2}


def test_balancer_that_is_off_does_not_run(admin: Admin) -> None:
    until = admin._runtime.now() + CALL_S
    before = admin.set_balancer(False, until)
    assert not admin.balance(until)
    assert admin.set_balancer(True, until) is False
    assert admin.balance(until)
    assert admin.set_balancer(before, until) is True


@pytest.mark.parametrize(
    "call",
    [
        lambda peers, until: peers.remove_peer("nobody", until),
        lambda peers, until: peers.set_peer_state("nobody", PeerState.ENABLED, until),
        lambda peers, until: peers.set_peer_state("nobody", PeerState.DISABLED, until),
        lambda peers, until: peers.update_peer("nobody", PeerConfig(cluster_key="west:2181:/hbase"), until),
        lambda peers, until: peers.peer("nobody", until),
    ],
    ids=["remove", "enable", "disable", "update", "get"],
)
def test_unknown_peer_has_hbases_class_and_text(
    backend: NativeBackend, call: Callable[[ReplicationAdmin, float], object]
) -> None:
    """HBase 2.6.1: ReplicationPeerNotFoundException, whose text is the bare id."""
    with pytest.raises(RequestRefused) as caught:
        call(backend.replication_admin, backend.admin._runtime.now() + CALL_S)
    assert str(caught.value).partition(": ")[2] == "ReplicationPeerNotFoundException: nobody"
