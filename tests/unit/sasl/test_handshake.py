"""The handshake and the wrapped stream against a scripted server: cuts, refusals, lengths, and splits of frames."""

from __future__ import annotations

import contextlib
import random
import tracemalloc
from collections import Counter

import pytest

from metaclient.config.security import Protection
from metaclient.errors import AuthenticationFailed, MetaClientError, ServerUnreachable
from metaclient.protobuf import ProtocolError
from metaclient.wire.sasl.digest_layers import DigestLayer
from metaclient.wire.sasl.digest_md5 import DigestClient, DigestServer
from metaclient.wire.sasl.gssapi import GssClient
from metaclient.wire.sasl.handshake import Negotiated, negotiate
from metaclient.wire.sasl.mechanism import Mechanism
from metaclient.wire.sasl.messages import (
    TOKEN_BYTES_MAX,
    SaslRefused,
    encode_challenge,
    encode_refusal,
    encode_token,
)
from metaclient.wire.sasl.stream import SaslStream
from tests.unit.sasl.scripted_stream import ScriptedStream

PREAMBLE = b"HBas\x00\x52"
SWITCH = bytes.fromhex("00000000ffffffa8")
DEADLINE = 10.0
MUTATIONS = 100_000
#: The last ones, whose memory is measured, because that takes time.
MEASURED = 2_000
#: More than one handshake may keep: a token of 1 MB and copies of it.
MEMORY_BYTES_MAX = 8 * 1024 * 1024


def digest(*protections: Protection) -> tuple[DigestClient, DigestServer]:
    chosen = protections or (Protection.AUTHENTICATION,)
    return DigestClient("u", "p", cnonce="c", protections=chosen), DigestServer(lambda user: "p", nonce="n")


def answering(server: DigestServer) -> ScriptedStream:
    """A server that completes the handshake."""

    def answer(data: bytes) -> list[bytes]:
        if data.startswith(PREAMBLE):
            return [encode_challenge(server.challenge())]
        return [encode_challenge(server.evaluate(data[4:]))]

    return ScriptedStream(is_open=True, answer=answer)


def run(stream: ScriptedStream, mechanism: Mechanism) -> Negotiated:
    return negotiate(stream, mechanism, preamble=PREAMBLE, now=stream.now, deadline=DEADLINE)


def layers(cipher: str | None = "rc4") -> tuple[DigestLayer, DigestLayer]:
    return tuple(DigestLayer(b"s" * 16, cipher=cipher, is_client=one) for one in (True, False))  # type: ignore[return-value]


class StubContext:
    """A security context that completes after one round; wrapped data has a mark before it."""

    def __init__(self) -> None:
        self.is_complete = False
        self.wrapped: list[tuple[bytes, bool]] = []

    def step(self, token: bytes | None) -> bytes:
        self.is_complete = token == b"AP-REP"
        return b"AP-REQ" if token is None else b""

    def wrap(self, data: bytes, *, encrypts: bool) -> bytes:
        self.wrapped.append((data, encrypts))
        return b"W" + data

    def unwrap(self, data: bytes) -> bytes:
        if data[:1] != b"W":
            raise ProtocolError("changed")
        return data[1:]


class NoLock:
    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...


# -- the handshake -------------------------------------------------------------------------------------------------


def test_first_write_holds_the_preamble_and_an_empty_token() -> None:
    client, server = digest()
    stream = answering(server)
    assert run(stream, client) is Negotiated.AUTHENTICATED
    assert stream.written[0] == PREAMBLE + bytes(4)
    assert len(stream.written) == 2  # nothing follows the server's proof


def test_server_that_is_not_secure_asks_for_simple() -> None:
    assert run(ScriptedStream(SWITCH), digest()[0]) is Negotiated.SIMPLE


@pytest.mark.parametrize("text", ["Mismatched response.", None])
def test_refusal_in_the_first_or_second_round_has_class_and_text(text: str | None) -> None:
    refusal = encode_refusal("javax.security.sasl.SaslException", text)
    _client, server = digest()
    for pieces in ([refusal], [encode_challenge(server.challenge()), refusal], [refusal[:9], refusal[9:]]):
        with pytest.raises(SaslRefused, match=text or "no reason given") as caught:
            run(ScriptedStream(*pieces), digest()[0])
        assert caught.value.java_class_name == "javax.security.sasl.SaslException"


def test_end_at_each_byte_of_the_handshake_is_a_clean_error() -> None:
    client, server = digest()
    whole = encode_challenge(server.challenge())
    response = client.step(server.challenge()) or b""
    whole += encode_challenge(server.evaluate(response))
    for size in range(len(whole)):
        for pieces in ([whole[:size]], [whole[at : at + 1] for at in range(size)]):
            with pytest.raises(ServerUnreachable, match="closed the connection"):
                run(ScriptedStream(*[piece for piece in pieces if piece]), digest()[0])


def test_silent_server_ends_the_handshake_at_its_deadline() -> None:
    stream = ScriptedStream(is_open=True)
    with pytest.raises(ServerUnreachable, match="did not answer in time"):
        run(stream, digest()[0])
    assert stream.now_s == DEADLINE


@pytest.mark.parametrize("size", ["00200000", "ffffffff", "80000000", "ffffffa7"])
def test_challenge_with_an_impossible_length_is_no_challenge(size: str) -> None:
    with pytest.raises(ProtocolError, match="a challenge of"):
        run(ScriptedStream(bytes.fromhex("00000000" + size) + b"x" * 100), digest()[0])


def test_unknown_status_is_no_handshake() -> None:
    with pytest.raises(ProtocolError, match="no status"):
        run(ScriptedStream(b"HTTP/1.1 400"), digest()[0])


def test_server_that_never_stops_challenging_is_left() -> None:
    class Endless:
        is_complete = False
        layer = None

        def begin(self) -> bytes:
            return b""

        def step(self, challenge: bytes) -> bytes:
            return b"more"

    with pytest.raises(AuthenticationFailed, match="more than 8 challenges"):
        run(ScriptedStream(*[encode_challenge(b"again")] * 100), Endless())


class GssTalk:
    """A handshake by GSSAPI with a stub of a security context."""

    @staticmethod
    def client() -> GssClient:
        return GssClient(StubContext(), make_lock=NoLock, protections=tuple(Protection))

    @staticmethod
    def talk(mask: int = 7) -> bytes:
        return encode_challenge(b"AP-REP") + encode_challenge(b"W" + bytes((mask, 1, 0, 0)))


def _digest_talk() -> bytes:
    client, server = digest(*Protection)
    response = client.step(server.challenge()) or b""
    return encode_challenge(server.challenge()) + encode_challenge(server.evaluate(response))


@pytest.mark.parametrize("is_kerberos", [False, True], ids=["token", "kerberos"])
def test_every_length_of_every_challenge_raises_only_our_errors(is_kerberos: bool) -> None:
    """The length of each challenge is replaced by numbers around it, around the limits, and by all powers of two."""
    talk = GssTalk.talk() if is_kerberos else _digest_talk()
    at = 4
    lengths = {1 << shift for shift in range(32)} | set(range(300)) | {0xFFFFFFFF, 0xFFFFFFA8}
    while at < len(talk):
        own = int.from_bytes(talk[at : at + 4], "big")
        for length in lengths | {own - 1, own + 1, TOKEN_BYTES_MAX, TOKEN_BYTES_MAX + 1}:
            data = talk[:at] + (length & 0xFFFFFFFF).to_bytes(4, "big") + talk[at + 4 :]
            client = GssTalk.client() if is_kerberos else digest(*Protection)[0]
            stream = ScriptedStream(data)
            with contextlib.suppress(MetaClientError):
                run(stream, client)
            assert stream.asked <= TOKEN_BYTES_MAX
        at += 4 + own + 4


def test_hundred_thousand_mutated_handshakes_raise_only_our_errors_and_keep_no_memory() -> None:
    rng = random.Random(3)
    seeds = [_digest_talk(), GssTalk.talk(), encode_refusal("a.B", "text"), SWITCH]
    outcomes: Counter[str] = Counter()
    try:
        for number in range(MUTATIONS):
            if number == MUTATIONS - MEASURED:
                tracemalloc.start()
            data = bytearray(b"".join(rng.choices(seeds, k=rng.randrange(1, 3))))
            for _ in range(rng.randrange(1, 4)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            client = GssTalk.client() if number % 2 else digest(*Protection)[0]
            try:
                run(ScriptedStream(bytes(data[: rng.randrange(1, len(data) + 1)])), client)
                outcomes["done"] += 1
            except MetaClientError as error:
                outcomes[type(error).__name__] += 1
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert {"ServerUnreachable", "AuthenticationFailed", "SaslRefused", "ProtocolError"} <= set(outcomes), outcomes
    assert peak < MEMORY_BYTES_MAX


# -- GSSAPI --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [1, 2, 4, 7])
@pytest.mark.parametrize("wanted", [(one,) for one in Protection] + [(Protection.PRIVACY, Protection.AUTHENTICATION)])
def test_gssapi_takes_the_first_own_protection_that_the_server_offers(
    mask: int, wanted: tuple[Protection, ...]
) -> None:
    context = StubContext()
    client = GssClient(context, make_lock=NoLock, protections=wanted)
    assert client.begin() == b"AP-REQ"
    assert client.step(b"AP-REP") == b""  # the empty token is sent
    expected = next((one for one in wanted if one.mask & mask), None)
    offer = b"W" + bytes((mask, 1, 0, 0))
    if expected is None:
        offered = next(one.value for one in Protection if one.mask & mask)
        with pytest.raises(AuthenticationFailed, match=f"{offered}.*hbase.rpc.protection"):
            client.step(offer)
        assert not client.is_complete
        return
    buffer = b"\0\0\0" if expected is Protection.AUTHENTICATION else b"\1\0\0"
    assert client.step(offer) == b"W" + bytes((expected.mask,)) + buffer
    assert context.wrapped[-1][1] is False  # the choice itself is never encrypted
    assert client.is_complete
    assert (client.layer is None) is (expected is Protection.AUTHENTICATION)
    if client.layer is not None:
        client.layer.wrap(b"data")
        assert context.wrapped[-1] == (b"data", expected is Protection.PRIVACY)
        assert client.layer.unwrap(b"Wdata") == b"data"


def test_gssapi_offer_of_a_wrong_size_is_refused() -> None:
    client = GssClient(StubContext(), make_lock=NoLock)
    client.begin()
    client.step(b"AP-REP")
    with pytest.raises(AuthenticationFailed, match="3 bytes instead of 4"):
        client.step(b"W123")


# -- the stream after it -------------------------------------------------------------------------------------------


def read_all(stream: SaslStream, size_max: int = 1 << 16) -> bytes:
    data = b""
    while more := stream.read(size_max, DEADLINE):
        assert len(more) <= size_max
        data += more
    return data


@pytest.mark.parametrize("size_max", [1, 7, 65536])
def test_frames_split_over_wraps_and_many_in_one_wrap_are_the_same_bytes(size_max: int) -> None:
    ours, theirs = layers()
    rng = random.Random(size_max)
    content = [rng.randbytes(rng.randrange(0, 50)) for _ in range(40)]
    sent = b"".join(encode_token(theirs.wrap(one)) for one in content)
    pieces = []
    while sent:
        size = rng.randrange(1, 30)
        pieces.append(sent[:size])
        sent = sent[size:]
    raw = ScriptedStream(*pieces)
    assert read_all(SaslStream(raw, ours, raw.now), size_max) == b"".join(content)


def test_written_data_is_one_wrapped_message() -> None:
    ours, theirs = layers()
    raw = ScriptedStream(is_open=True)
    stream = SaslStream(raw, ours, raw.now)
    stream.write(b"abc", DEADLINE)
    (written,) = raw.written
    assert int.from_bytes(written[:4], "big") == len(written) - 4
    assert theirs.unwrap(written[4:]) == b"abc"


def test_unwrapped_rest_is_not_silence() -> None:
    ours, theirs = layers()
    raw = ScriptedStream(encode_token(theirs.wrap(b"abcdef")), is_open=True)
    stream = SaslStream(raw, ours, raw.now)
    assert stream.read(4, DEADLINE) == b"abcd"
    assert not stream.is_silent()
    assert stream.read(4, DEADLINE) == b"ef"
    assert stream.is_silent()


@pytest.mark.parametrize("is_wrapped", [False, True], ids=["authentication", "privacy"])
def test_refusal_after_the_last_token_is_no_frame(is_wrapped: bool) -> None:
    refusal = encode_refusal("javax.security.sasl.SaslException", "not authorized")
    for pieces in ([refusal], [refusal[at : at + 1] for at in range(len(refusal))]):
        raw = ScriptedStream(*pieces)
        stream = SaslStream(raw, layers()[0] if is_wrapped else None, raw.now)
        with pytest.raises(SaslRefused, match="not authorized"):
            stream.read(65536, DEADLINE)


def test_refusal_whose_text_is_cut_off_says_so() -> None:
    raw = ScriptedStream(encode_refusal("a.B", "not authorized")[:-3])
    with pytest.raises(SaslRefused, match="before its reason was complete"):
        SaslStream(raw, None, raw.now).read(65536, DEADLINE)


def test_without_a_layer_only_the_first_read_looks_at_the_data() -> None:
    raw = ScriptedStream(b"\0", b"\0\0\5abcde", b"\0\0\0\1x", is_open=True)
    stream = SaslStream(raw, None, raw.now)
    assert stream.read(65536, DEADLINE) == b"\0\0\0\5abcde"
    assert stream.read == raw.read
    assert stream.read(65536, DEADLINE) == b"\0\0\0\1x"


def test_end_and_silence_are_passed_on() -> None:
    for is_open, expected in ((False, b""), (True, None)):
        raw = ScriptedStream(is_open=is_open)
        assert SaslStream(raw, layers()[0], raw.now).read(10, DEADLINE) == expected


def test_wrapped_message_over_the_limit_is_refused_before_it_is_read() -> None:
    raw = ScriptedStream(b"\x7f\xff\xff\xff" + b"x" * 100)
    with pytest.raises(ProtocolError, match="the limit is"):
        SaslStream(raw, layers()[0], raw.now).read(10, DEADLINE)
