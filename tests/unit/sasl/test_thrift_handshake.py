"""SASL on Thrift's connections against a scripted gateway: protections, refusals, every cut, mutated messages."""

from __future__ import annotations

import random
from contextlib import nullcontext
from struct import pack

import pytest

from metaclient.config.security import Protection
from metaclient.errors import AuthenticationFailed, MetaClientError, ServerUnreachable
from metaclient.protobuf import ProtocolError
from metaclient.wire.sasl.gssapi import GssClient
from metaclient.wire.sasl.stream import SaslStream
from metaclient.wire.sasl.thrift import PlainLayer, negotiate_thrift

MUTATIONS = 100_000


class Context:
    """A security context that completes after one answer; it wraps by reversing."""

    def __init__(self) -> None:
        self.is_complete = False

    def step(self, token: bytes | None) -> bytes:
        if token is None:
            return b"ap-req"
        if token != b"ap-rep":
            raise AuthenticationFailed("another answer")
        self.is_complete = True
        return b""

    def wrap(self, data: bytes, *, encrypts: bool) -> bytes:
        return data[::-1]

    def unwrap(self, data: bytes) -> bytes:
        if not data:
            raise ProtocolError("an empty message")
        return data[::-1]


class Scripted:
    """A stream that answers with fixed bytes, in pieces, and ends after them."""

    def __init__(self, answer: bytes, piece: int = 1 << 20) -> None:
        self._answer, self._piece = answer, piece
        self.sent = b""

    def read(self, size_max: int, deadline: float) -> bytes | None:
        size = min(size_max, self._piece)
        data, self._answer = self._answer[:size], self._answer[size:]
        return data

    def write(self, data: bytes, deadline: float) -> None:
        self.sent += data

    def is_silent(self) -> bool:
        return not self._answer

    def close(self) -> None: ...

    def leave_to_parent(self) -> None: ...


def message(status: int, data: bytes) -> bytes:
    return pack(">Bi", status, len(data)) + data


def talk(mask: int = 4) -> bytes:
    return message(2, b"ap-rep") + message(2, bytes((mask, 0, 255, 255))[::-1]) + message(5, b"")


def negotiate(stream: Scripted, *protections: Protection) -> GssClient:
    client = GssClient(Context(), make_lock=nullcontext, protections=protections or tuple(Protection))
    negotiate_thrift(stream, client, name=b"GSSAPI", now=lambda: 0.0, deadline=1.0)
    return client


@pytest.mark.parametrize("piece", [1, 3, 1 << 20])
@pytest.mark.parametrize("protection", list(Protection))
def test_handshake_takes_the_protection_of_the_gateway_and_frames_carry_data(
    protection: Protection, piece: int
) -> None:
    stream = Scripted(talk(protection.mask), piece)
    client = negotiate(stream)
    assert stream.sent.startswith(message(1, b"GSSAPI") + message(2, b"ap-req") + message(2, b""))
    assert (client.layer is None) == (protection is Protection.AUTHENTICATION)
    layer = client.layer or PlainLayer()
    wrapped = layer.wrap(b"a reply")
    below = Scripted(pack(">i", len(wrapped)) + wrapped, piece)
    data = SaslStream(below, layer, lambda: 0.0, may_be_refused=False)
    got = b""
    while part := data.read(3, 1.0):
        got += part
    assert got == b"a reply"
    data.write(b"a call", 1.0)
    assert below.sent == pack(">i", 6) + layer.wrap(b"a call")


def test_frame_of_one_byte_is_data_and_no_refusal_of_hbases_rpc() -> None:
    stream = SaslStream(Scripted(pack(">i", 1) + b"x"), PlainLayer(), lambda: 0.0, may_be_refused=False)
    assert stream.read(10, 1.0) == b"x"


@pytest.mark.parametrize("status", [3, 4])
@pytest.mark.parametrize("before", [b"", message(2, b"ap-rep")])
def test_refusal_has_the_text_of_the_gateway(status: int, before: bytes) -> None:
    with pytest.raises(AuthenticationFailed, match="GSS initiate failed"):
        negotiate(Scripted(before + message(status, b"GSS initiate\nfailed")))


def test_protection_that_the_gateway_does_not_offer_is_named() -> None:
    with pytest.raises(AuthenticationFailed, match="offers the protections authentication, and the client privacy"):
        negotiate(Scripted(talk(1)), Protection.PRIVACY)


def test_gateway_that_ends_early_has_not_proved_its_identity() -> None:
    with pytest.raises(AuthenticationFailed, match="before it proved its identity"):
        negotiate(Scripted(message(5, b"")))


def test_end_at_each_byte_is_unreachable() -> None:
    whole = talk()
    for size in range(len(whole)):
        with pytest.raises(ServerUnreachable, match="ended during authentication"):
            negotiate(Scripted(whole[:size]))


def test_gateway_that_never_stops_challenging_is_left() -> None:
    class Endless(GssClient):
        def step(self, challenge: bytes) -> bytes:
            return b"again"

    client = Endless(Context(), make_lock=nullcontext)
    with pytest.raises(AuthenticationFailed, match="more than 8 challenges"):
        negotiate_thrift(Scripted(message(2, b"x") * 100), client, name=b"GSSAPI", now=lambda: 0.0, deadline=1.0)


@pytest.mark.parametrize("head", ["0000000000", "0600000000", "ff00000001", "02ffffffff", "0200100001", "80010002"])
def test_bytes_that_are_no_message_are_no_handshake(head: str) -> None:
    with pytest.raises((ProtocolError, ServerUnreachable)):
        negotiate(Scripted(bytes.fromhex(head) + b"x" * 8))


def test_mutated_messages_raise_only_our_errors() -> None:
    dice = random.Random(0)
    outcomes: dict[str, int] = {}
    for _ in range(MUTATIONS):
        data = bytearray(talk(dice.choice((1, 2, 4, 7))))
        for _ in range(dice.randrange(1, 4)):
            match dice.randrange(3):
                case 0:
                    data[dice.randrange(len(data))] = dice.randrange(256)
                case 1:
                    del data[dice.randrange(len(data)) :]
                    data = data or bytearray(b"\0")
                case 2:
                    data[dice.randrange(len(data)) : 0] = dice.randbytes(dice.randrange(8))
        try:
            negotiate(Scripted(bytes(data), dice.choice((1, 7, 4096))))
            kind = "done"
        except MetaClientError as error:
            kind = type(error).__name__
        outcomes[kind] = outcomes.get(kind, 0) + 1
    assert {"ServerUnreachable", "AuthenticationFailed"} <= set(outcomes), outcomes
