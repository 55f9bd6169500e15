"""A client of the cluster in this process that has a user: each call needs the rights that HBase asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from metaclient.backend import Action, Outcome, ReplicationAdmin, ScanPage
from metaclient.config.tokens import Token
from metaclient.errors import Unsupported
from metaclient.model import (
    Check,
    Get,
    Identity,
    Mutation,
    RegionLocation,
    Result,
    Scan,
    ServerName,
    TableDescriptor,
)
from metaclient.table_schema import TableChange
from metaclient_fake.backend import FakeBackend
from metaclient_fake.grants import CHANGE, Right

if TYPE_CHECKING:
    from metaclient_fake.cluster import FakeCluster

__all__ = ["UserBackend"]


class _SimpleIdentity:
    """The identity of a client that named its user."""

    def __init__(self, user: str) -> None:
        self._user = user

    def whoami(self, deadline: float) -> Identity:
        return Identity(self._user, "SIMPLE")

    def delegation_token(self, deadline: float) -> Token:
        raise Unsupported(
            "a connection inside the process needs no token: front.issue_token() of serve(rpc_port=0, is_secure=True) "
            "makes one for clients of the RPC front"
        )


class UserBackend(FakeBackend):
    """The SPI for a user of the cluster; see :meth:`FakeCluster.grant`."""

    def __init__(self, cluster: FakeCluster, user: str, *, party: str) -> None:
        super().__init__(cluster, party=party)
        self.user = user
        self._grants = cluster.grants

    @property
    def identity(self) -> _SimpleIdentity:
        return _SimpleIdentity(self.user)

    # -- data --------------------------------------------------------------------------------------------------

    def get(self, place: RegionLocation | None, table: bytes, get: Get, deadline: float) -> Result:
        self._grants.check(self.user, [Right.READ], table)
        return super().get(place, table, get, deadline)

    def mutate(self, place: RegionLocation | None, table: bytes, mutation: Mutation, deadline: float) -> Result | None:
        self._grants.check(self.user, [Right.WRITE], table)
        return super().mutate(place, table, mutation, deadline)

    def check_and_mutate(
        self, place: RegionLocation | None, table: bytes, check: Check, mutation: Mutation, deadline: float
    ) -> bool:
        self._grants.check(self.user, [Right.READ], table)
        self._grants.check(self.user, [Right.WRITE], table)
        return super().check_and_mutate(place, table, check, mutation, deadline)

    def batch(
        self, server: ServerName | None, table: bytes, actions: Sequence[Action], deadline: float
    ) -> Sequence[Outcome]:
        """Run the actions that the user may do; the outcome of the others is AccessDenied."""
        denied = [self._grants.denial(self.user, action.operation, table) for action in actions]
        allowed = [action for action, error in zip(actions, denied, strict=True) if error is None]
        done = iter(super().batch(server, table, allowed, deadline) if allowed else ())
        return [next(done) if error is None else error for error in denied]

    def scan_open(self, place: RegionLocation | None, table: bytes, scan: Scan, deadline: float) -> ScanPage:
        self._grants.check(self.user, [Right.READ], table)
        return super().scan_open(place, table, scan, deadline)

    # -- admin -------------------------------------------------------------------------------------------------

    def table_names(self, deadline: float) -> Sequence[bytes]:
        return self._grants.visible(self.user, super().table_names(deadline))

    def describe_table(self, table: bytes, deadline: float) -> TableDescriptor:
        self._grants.check(self.user, CHANGE, table)
        return super().describe_table(table, deadline)

    def create_table(self, descriptor: TableDescriptor, splits: Sequence[bytes], deadline: float) -> None:
        self._grants.check(self.user, CHANGE, descriptor.name)
        super().create_table(descriptor, splits, deadline)
        self._grants.own(self.user, descriptor.name)

    def delete_table(self, table: bytes, deadline: float) -> None:
        self._grants.check(self.user, CHANGE, table)
        super().delete_table(table, deadline)

    def enable_table(self, table: bytes, deadline: float) -> None:
        self._grants.check(self.user, CHANGE, table)
        super().enable_table(table, deadline)

    def disable_table(self, table: bytes, deadline: float) -> None:
        self._grants.check(self.user, CHANGE, table)
        super().disable_table(table, deadline)

    def compact_table(self, table: bytes, major: bool, deadline: float) -> None:
        self._grants.check(self.user, CHANGE, table)
        super().compact_table(table, major, deadline)

    def alter_table(self, table: bytes, change: TableChange, deadline: float) -> None:
        self._grants.check(self.user, CHANGE, table)
        super().alter_table(table, change, deadline)

    def truncate_table(self, table: bytes, preserve_splits: bool, deadline: float) -> None:
        self._grants.check(self.user, CHANGE, table)
        super().truncate_table(table, preserve_splits, deadline)

    def create_namespace(self, name: str, deadline: float) -> None:
        self._grants.check(self.user, [Right.ADMIN])
        super().create_namespace(name, deadline)

    def delete_namespace(self, name: str, deadline: float) -> None:
        self._grants.check(self.user, [Right.ADMIN])
        super().delete_namespace(name, deadline)

    @property
    def replication_admin(self) -> ReplicationAdmin:
        self._grants.check(self.user, [Right.ADMIN])
        return super().replication_admin
