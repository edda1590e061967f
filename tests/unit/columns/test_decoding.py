"""Columns that are decoded in batches say the same about each message as a message decoded alone."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.columns import ERROR, PROPERTIES, decode
from postroad.describe.received import ReceivedMessage
from postroad.errors import RemoteProtocolError
from postroad.message import Composer, Message
from postroad.names import parse_format_name
from postroad.wire import UserMessage
from postroad.wire.constants import BaseFlags, BodyType
from postroad.wire.octets import whole_text
from tests import strategies
from tests.messages import FINAL_ACK, FULL, INTERNAL, ORDER_ACK, PLAIN
from tests.packets import OTHER, SOURCE
from tests.security_vectors import SIGNATURES, SIGNED_AND_ENCRYPTED, vector
from tests.vectors import V1

REASON = 0xC002
DESTINATIONS = (
    r"DIRECT=OS:alpha\private$\orders",
    r"DIRECT=HTTP://alpha/msmq/private$/orders",
    "PRIVATE=a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf\\a",
    "PUBLIC=a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf",
)
ANSWERS = (None, f"PRIVATE={SOURCE}\\b", f"PRIVATE={OTHER}\\c", *DESTINATIONS)


def one_by_one(packet: bytes | None, reason: int) -> dict[str, object]:
    """What the row of a packet must be."""
    nothing: dict[str, object] = dict.fromkeys((*PROPERTIES, ERROR))
    if packet is None:
        return nothing
    message = ReceivedMessage(packet, 0, 0, 0, reason)
    try:
        described = message.describe()
    except RemoteProtocolError as fault:
        return nothing | {ERROR: str(fault)}
    text = message.text_or_none
    described |= {
        "body": message.body,
        "body_text": None if text is None else whole_text(text),
        "extension": message.extension,
        "sent_at": message.sent_at,
    }
    return nothing | {name: described[name] for name in PROPERTIES}


def check(packets: list[bytes | None], reasons: list[int] | None = None) -> None:
    reasons = reasons or [0] * len(packets)
    columns = decode(pa.array(packets, pa.binary()), reason=pa.array(reasons, pa.int32()))
    for name, kind in PROPERTIES.items():
        assert columns[name].type == kind
        columns[name].validate(full=True)
    found = pa.table(columns).to_pylist()
    assert found == [one_by_one(packet, reason) for packet, reason in zip(packets, reasons, strict=True)]


def plain(message: UserMessage) -> bytes:
    base = replace(message.base, flags=message.base.flags & ~BaseFlags.TRACING)
    return UserMessage(base, message.user, message.properties, message.transaction).encode()


texts = st.text(max_size=30) | st.text(st.characters(max_codepoint=0x7F), max_size=30)
bodies = st.one_of(
    st.binary(max_size=80),
    texts,
    texts.map(lambda text: text.encode("utf-16-le", "surrogatepass")),
    texts.map(lambda text: text.encode("utf-16", "surrogatepass")),
    texts.map(lambda text: b"\xef\xbb\xbf" + text.encode("utf-8", "surrogatepass")),
    texts.map(lambda text: ("x" * 40 + text).encode("utf-8", "surrogatepass")),
)
messages = st.builds(
    Message,
    bodies,
    label=st.text(st.characters(exclude_characters="\0"), max_size=20),
    priority=st.integers(0, 7),
    recoverable=st.booleans(),
    body_type=st.sampled_from([0, *(int(each) for each in BodyType), 0xFFFFFFFF]),
    app_tag=st.sampled_from((0, 7, 0xFFFFFFFF)),
    correlation_id=st.none() | st.binary(min_size=20, max_size=20),
    response_queue=st.sampled_from(ANSWERS),
    admin_queue=st.sampled_from(ANSWERS),
    ack=st.sampled_from((0, 15)),
    dead_letter_queue=st.sampled_from((None, r"private$\dead")),
    trace=st.sampled_from((None, UUID(int=7))),
    extension=st.binary(max_size=10),
    connector_type=st.none() | st.just(OTHER),
)
composed = st.builds(
    lambda message, destination, number, transactional: Composer(SOURCE, parse_format_name(destination)).compose(
        message, number, 1_700_000_000 + number % 1000, transactional=transactional
    ),
    messages,
    st.sampled_from(DESTINATIONS),
    strategies.u32,
    st.booleans(),
)
plain_packets = strategies.user_messages.map(plain)
anything = st.one_of(
    st.none(),
    composed,
    plain_packets,
    strategies.damaged(plain_packets, base_header=True),
    strategies.damaged(composed, base_header=True),
    strategies.packets,
    strategies.damaged_packets,
    st.binary(max_size=100),
)


@given(st.lists(st.tuples(anything, st.sampled_from((0, 0, REASON))), max_size=8))
def test_a_batch_says_what_each_message_says(rows: list[tuple[bytes | None, int]]) -> None:
    check([packet for packet, _ in rows], [reason for _, reason in rows])


@given(st.lists(composed, min_size=1, max_size=8))
def test_messages_of_applications(packets: list[bytes]) -> None:
    check(list(packets))


@given(st.lists(strategies.damaged(composed | plain_packets, base_header=True), min_size=1, max_size=6))
def test_damaged_packets_have_the_fault_that_they_have_alone(packets: list[bytes]) -> None:
    check(list(packets))


def test_every_kind_of_packet() -> None:
    others = [each.encode() for each in (*INTERNAL, ORDER_ACK, FINAL_ACK)]
    check(
        [PLAIN.encode(), FULL.encode(), None, *others, b"", PLAIN.encode()],
        [0, REASON, 0, *[0] * len(others), 0, REASON],
    )


def test_the_security_of_messages_has_columns() -> None:
    packets = pa.array([V1, *(vector(name, "packet") for name, _, _ in SIGNATURES), SIGNED_AND_ENCRYPTED], pa.binary())
    found = decode(packets)
    assert found["hash"].to_pylist()[:-1] == [None, *(word for _, _, word in SIGNATURES)]
    assert [each is not None for each in found["cipher"].to_pylist()] == [False] * 6 + [True]
    assert found["authentication_level"].to_pylist() == [0] * 7


def test_no_packets_at_all() -> None:
    check([])
    check([None, b"", b"x"])


def test_a_part_of_an_array_and_chunks() -> None:
    packets = [PLAIN.encode(), FULL.encode(), PLAIN.encode(), None]
    part = pa.array(packets, pa.binary())[1:3]
    assert decode(part)["id"].to_pylist() == [one_by_one(packet, 0)["id"] for packet in packets[1:3]]
    chunks = pa.chunked_array([pa.array(packets[:1], pa.binary()), pa.array(packets[1:], pa.binary())])
    assert decode(chunks)["body"].to_pylist() == [b"abc", b"abc", b"abc", None]


def test_only_what_is_asked_for_is_decoded() -> None:
    packets = pa.array([PLAIN.encode()], pa.binary())
    assert list(decode(packets, columns=["label", "id"])) == ["label", "id"]
    with pytest.raises(KeyError):
        decode(packets, columns=["nothing"])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"plain",
        b"tab\tline\r\n",
        b"\0",
        b"a\0",
        b"a\0b\0",
        b"a\0b",
        b"a\0\0\1",
        b"\x7f",
        "é".encode(),
        "x\x85".encode(),
        "x\xa0y".encode(),
        b"\xc2",
        b"\xff\xfea\0",
        b"\xfe\xff\0a",
        b"\xef\xbb\xbfa",
        b"\xef\xbb\xbf\1",
        b"x" * 100 + b"\1",
        b"x" * 100 + b"\xc3",
        b"x" * 100 + "ü".encode(),
        bytes(range(256)),
    ],
)
def test_bodies_beside_each_other(body: bytes) -> None:
    composer = Composer(SOURCE, parse_format_name(DESTINATIONS[0]))
    kinds = (0, 8, 17, 30, 31)
    beside = (b"text", "ümlaut".encode(), b"\1\2\3", b"")
    packets = [composer.compose(Message(each, body_type=kind), 1, 1) for each in (body, *beside) for kind in kinds]
    check([*packets[: len(kinds)]])
    check([*packets])
