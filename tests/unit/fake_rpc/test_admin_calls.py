"""Admin calls of the native backend that change a table or the balancer, against the fake's RPC front."""

from collections.abc import Iterator

import pytest

from metaclient.model import FamilyDescriptor, TableDescriptor
from metaclient.runtime import ThreadRuntime
from metaclient_fake import FakeCluster
from metaclient_native import NativeBackend
from metaclient_native.admin import Admin

CALL_S = 60.0


@pytest.fixture
def admin() -> Iterator[Admin]:
    runtime = ThreadRuntime()
    with FakeCluster(servers=2) as cluster:
        cluster.serve(thrift1_port=None, thrift2_port=None, rpc_port=0)
        cluster.create_table(TableDescriptor(b"t", (FamilyDescriptor(b"f"), FamilyDescriptor(b"g"))), [b"m"])
        backend = NativeBackend(f"hbase+rpc://127.0.0.1:{cluster.rpc_port}", runtime=runtime)
        yield backend.admin
        backend.close()
    runtime.close()


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
