"""One served cluster for all tests of a file; each makes tables of its own."""

from collections.abc import Iterator
from itertools import count

import pytest

from metaclient.model import FamilyDescriptor, TableDescriptor
from metaclient_fake import FakeCluster
from metaclient_fake.front.serving import Front

_numbers = count(1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(servers=3, meta_replicas=3) as made:
        made.serve(status_port=0)
        yield made


@pytest.fixture
def front(cluster: FakeCluster) -> Front:
    assert cluster.front is not None
    return cluster.front


@pytest.fixture
def table(cluster: FakeCluster) -> bytes:
    """A table of two regions, each with a replica, whose family keeps three versions."""
    name = b"t%d" % next(_numbers)
    cluster.create_table(TableDescriptor(name, (FamilyDescriptor(b"cf", 3),), region_replication=2), [b"m"])
    return name
