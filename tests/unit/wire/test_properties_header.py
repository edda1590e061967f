"""MessagePropertiesHeader, [MS-MQMQ] 2.2.19.3: label, extension and body, and the numbers beside them."""

from __future__ import annotations

import pytest

from postroad.errors import LocalProtocolError
from postroad.wire import MessagePropertiesHeader, MessageView, UserMessage
from postroad.wire.constants import AckFlags
from postroad.wire.octets import Reader, Writer
from tests.messages import FINAL_ACK, ORDER_ACK
from tests.packets import TAG, by_hand, meaning, patched, properties, refusal, u32, utf16
from tests.vectors import FRAME_7, V1

HEADER_AT = 64  # where a packet made by hand has it
DEBUG = bytes(4)  # a DebugHeader without a queue


def decoded(packet: bytes) -> MessagePropertiesHeader:
    return UserMessage.decode(packet).properties


def encoded(value: MessagePropertiesHeader) -> bytes:
    writer = Writer()
    value.encode(writer)
    return writer.getvalue()


@pytest.mark.spec("MQ-2.2.19.3-01", "MQ-2.2.19.3-02")
def test_the_layout() -> None:
    value = MessagePropertiesHeader(
        body=b"bodybody",
        message_size=5,
        label="L",
        extension=b"extn",
        flags=0x01,
        message_class=0x0203,
        correlation_id=bytes(range(4, 24)),
        body_type=0x18171615,
        application_tag=0x1C1B1A19,
        privacy_level=0x201F1E1D,
        hash_algorithm=0x24232221,
        encryption_algorithm=0x28272625,
    )
    wire = (
        bytes([0x01, 0x02, 0x03, 0x02, *range(4, 24)])
        + bytes.fromhex("15161718 191a1b1c 05000000 08000000 1d1e1f20 21222324 25262728 04000000")
        + utf16("L")
        + b"extnbodybody"
    )
    assert encoded(value) == wire
    assert MessagePropertiesHeader.decode(Reader(wire, 0, len(wire))) == value
    view = MessageView(by_hand(properties=wire))
    assert view.ack_flags == value.flags
    assert view.message_class == value.message_class
    assert view.correlation_id == value.correlation_id
    assert view.body_type == value.body_type
    assert view.application_tag == value.application_tag
    assert view.message_size == 5
    assert view.privacy_level == value.privacy_level
    assert view.hash_algorithm == value.hash_algorithm
    assert view.encryption_algorithm == value.encryption_algorithm
    assert (view.label, view.extension, view.body) == ("L", b"extn", b"bodyb")


@pytest.mark.spec("MQ-2.2.19.3-01", "MQ-2.2.19.3-02")
def test_the_header_of_frame_7() -> None:
    assert FRAME_7[176:192].hex() == "00000000048000000168000000000000"
    assert decoded(FRAME_7) == MessagePropertiesHeader(
        body=b"a\0" * 1000,
        message_size=2000,
        label="mqsender label",
        flags=0x0F,
        body_type=8,
        hash_algorithm=0x8004,
        encryption_algorithm=0x6801,
    )


@pytest.mark.spec("MQ-2.2.19.3-03", "MQ-2.2.19.3-04", "MQ-2.2.19.3-05", "MQ-2.2.19.3-06")
@pytest.mark.parametrize(
    ("flag", "bit"),
    [
        (AckFlags.POSITIVE_ARRIVAL, 0x01),
        (AckFlags.POSITIVE_RECEIVE, 0x02),
        (AckFlags.NEGATIVE_ARRIVAL, 0x04),
        (AckFlags.NEGATIVE_RECEIVE, 0x08),
    ],
)
def test_the_four_acknowledgments_are_bits_0_to_3(flag: AckFlags, bit: int) -> None:
    assert encoded(MessagePropertiesHeader(flags=flag))[0] == bit
    assert AckFlags(MessageView(by_hand(properties=properties(flags=bit))).ack_flags) is flag


@pytest.mark.spec("MQ-2.2.19.3-11")
@pytest.mark.parametrize("bit", range(4, 8))
def test_an_unused_flag_is_ignored(bit: int) -> None:
    plain, odd = (by_hand(properties=properties("t", flags=flags)) for flags in (0x05, 0x05 | 1 << bit))
    assert meaning(odd, "ack_flags") == meaning(plain, "ack_flags")
    every_ack = ~AckFlags.RESERVED
    assert MessageView(odd).ack_flags & every_ack == MessageView(plain).ack_flags == 0x05


@pytest.mark.spec("MQ-2.2.19.3-11")
def test_no_unused_flag_is_sent() -> None:
    assert encoded(MessagePropertiesHeader())[0] == 0
    assert AckFlags.RESERVED.value == 0xF0
    assert all(flag.value & 0xF0 == 0 for flag in AckFlags if flag is not AckFlags.RESERVED)


# Label


@pytest.mark.spec("MQ-2.2.19.3-12", "MQ-2.2.19.3-32")
@pytest.mark.parametrize(
    ("label", "units"),
    [("x", 2), ("mqsender label", 0x0F), ("日本", 3), ("\U0001f4ee", 3), ("\ud800", 2), ("Āa", 3), ("x" * 249, 0xFA)],
)
def test_label_length_counts_utf16_units_and_the_terminator(label: str, units: int) -> None:
    wire = encoded(MessagePropertiesHeader(label=label, application_tag=TAG))
    assert wire[1] == units
    assert wire[56 : 56 + 2 * units] == utf16(label)
    assert MessageView(by_hand(properties=properties(label))).label == label
    assert decoded(by_hand(properties=properties(label))).label == label


@pytest.mark.spec("MQ-2.2.19.3-12", "MQ-2.2.19.3-32")
def test_a_label_has_at_most_250_units() -> None:
    packet = by_hand(properties=properties("x" * 250))
    assert packet[HEADER_AT + 1] == 0xFB
    assert refusal(packet).offset == HEADER_AT + 1
    with pytest.raises(LocalProtocolError, match="at most 249 characters, got 250"):
        encoded(MessagePropertiesHeader(label="x" * 250))
    with pytest.raises(LocalProtocolError, match="got 250"):
        encoded(MessagePropertiesHeader(label="\U0001f4ee" * 125))


@pytest.mark.spec("MQ-2.2.19.3-12", "MQ-2.2.19.3-32")
@pytest.mark.parametrize("label", ["61006200", "610000006200 0000", "0000 0000", "0061 0000 0061 0000"])
def test_a_label_ends_in_its_only_nul(label: str) -> None:
    text = bytes.fromhex(label)
    wire = patched(properties(extension=text), 1, bytes([len(text) // 2]))
    assert refusal(by_hand(properties=patched(wire, 52, u32(0)))).offset == HEADER_AT + 56
    with pytest.raises(LocalProtocolError, match="NUL"):
        encoded(MessagePropertiesHeader(label="a\0b"))


@pytest.mark.spec("MQ-2.2.19.3-13", "MQ-2.2.19.3-35")
def test_what_is_empty_takes_no_bytes() -> None:
    wire = encoded(MessagePropertiesHeader())
    assert len(wire) == 56
    assert wire[1] == 0
    view = MessageView(by_hand(properties=wire))
    assert (view.label, view.extension, view.body) == ("", b"", b"")
    body_alone = by_hand(properties=properties(body=b"body"))
    assert body_alone[HEADER_AT + 56 :] == b"body"
    assert MessageView(body_alone).body == b"body"


def test_a_lone_terminator_is_an_empty_label() -> None:
    packet = by_hand(properties=properties("", body=b"body"))
    assert packet[HEADER_AT + 1] == 1
    assert MessageView(packet).label == ""
    assert MessageView(packet).body == b"body"
    assert UserMessage.decode(packet).encode() == packet


def test_a_label_longer_than_its_packet_is_refused() -> None:
    assert refusal(by_hand(properties=patched(properties(), 1, b"\x02"))).offset == HEADER_AT + 56


# Sizes


@pytest.mark.spec("MQ-2.2.19.3-33", "MQ-2.2.19.3-34")
@pytest.mark.parametrize("extension", [b"", b"e", b"ex", b"ext", b"exte"])
@pytest.mark.parametrize("label", [None, "l", "la"])
def test_label_extension_and_body_follow_without_gaps(label: str | None, extension: bytes) -> None:
    wire = properties(label, extension, b"body")
    start = 56 + (0 if label is None else 2 * len(label) + 2)
    assert wire[start : start + len(extension) + 4] == extension + b"body"
    view = MessageView(by_hand(properties=wire))
    assert (view.label, view.extension, view.body) == (label or "", extension, b"body")
    value = MessagePropertiesHeader(
        b"body", label or "", extension, application_tag=TAG, hash_algorithm=0x8004, encryption_algorithm=0x6801
    )
    assert encoded(value) == wire.replace(b"\xbe", b"\0")


@pytest.mark.spec("MQ-2.2.19.3-34")
def test_the_body_of_frame_7_starts_at_offset_86() -> None:
    assert FRAME_7[136 + 86 :].startswith(b"a\0a\0")
    assert MessageView(FRAME_7).body == FRAME_7[136 + 86 : -2]


@pytest.mark.spec("MQ-2.2.19.3-19")
@pytest.mark.parametrize("size", [0, 1, 3, 4])
def test_message_size_is_the_size_of_the_body(size: int) -> None:
    wire = encoded(MessagePropertiesHeader(b"x" * size))
    assert wire[32:36] == u32(size)
    assert MessageView(by_hand(properties=wire)).body == b"x" * size


@pytest.mark.spec("MQ-2.2.19.3-19", "MQ-2.2.19.3-31")
@pytest.mark.parametrize("at", [36, 52])
@pytest.mark.parametrize("size", [5, 0x7FFFFFFF, 0xFFFFFFFF])
def test_a_size_beyond_the_packet_is_refused(at: int, size: int) -> None:
    wire = patched(properties(body=b"body"), at, u32(size))
    if at == 36:
        wire = patched(wire, 32, u32(size))
    assert refusal(by_hand(properties=wire)).offset == HEADER_AT + 32


@pytest.mark.spec("MQ-2.2.19.3-31")
def test_extension_size_is_the_size_of_the_extension() -> None:
    wire = encoded(MessagePropertiesHeader(extension=b"abc"))
    assert wire[52:56] == u32(3)
    assert MessageView(by_hand(properties=wire)).extension == b"abc"


@pytest.mark.spec("MQ-2.2.19.3-20")
def test_the_allocated_size_is_not_smaller_than_the_body() -> None:
    assert FRAME_7[168:176] == u32(0x7D0) * 2
    assert refusal(by_hand(properties=properties(body=b"body", message_size=5))).offset == HEADER_AT + 36
    view = MessageView(by_hand(properties=properties(body=b"body....", message_size=4)))
    assert (view.message_size, view.body) == (4, b"body")
    with pytest.raises(LocalProtocolError, match="MessageSize must be at most the 4 bytes of the body, got 5"):
        encoded(MessagePropertiesHeader(b"body", message_size=5))


@pytest.mark.spec("MQ-2.2.19.3-20", "MQ-2.2.19.3-21")
@pytest.mark.parametrize("allocated", range(4, 10))
def test_the_next_header_follows_the_allocated_region(allocated: int) -> None:
    wire = properties(body=b"x" * allocated, message_size=4)
    packet = by_hand(base_flags=0x0020, properties=wire, trailers=DEBUG)
    assert MessageView(packet).debug_header is not None
    assert decoded(packet).body == b"x" * allocated
    assert UserMessage.decode(packet).encode() == packet
    short = packet[:-4]
    assert refusal(patched(short, 8, u32(len(short))))


@pytest.mark.spec("MQ-2.2.19.3-36")
@pytest.mark.parametrize("size", range(9))
def test_the_end_is_padded_to_four_bytes(size: int) -> None:
    assert len(encoded(MessagePropertiesHeader(b"x" * size))) == 56 + -(-size // 4) * 4
    packet = by_hand(properties=properties(body=b"x" * size))
    assert MessageView(packet).body == b"x" * size
    assert len(FRAME_7) - 136 == 2088


@pytest.mark.spec("MQ-2.2.19.3-36")
def test_the_padding_means_nothing() -> None:
    assert V1[-4:-1] == b"abc"
    assert meaning(V1[:-1] + b"\xff") == meaning(V1)
    assert UserMessage.decode(V1[:-1] + b"\xff").encode() == V1[:-1] + b"\xff"


def test_a_header_that_is_cut_off() -> None:
    for size in range(0, 56, 4):
        assert refusal(by_hand(properties=properties()[:size])).fault == "MessagePropertiesHeader is cut off"


def test_bytes_behind_the_last_header_are_refused() -> None:
    assert refusal(by_hand(trailers=bytes(4))).offset == len(by_hand())


def test_a_correlation_id_has_20_bytes() -> None:
    with pytest.raises(LocalProtocolError, match="20 bytes, got 16"):
        encoded(MessagePropertiesHeader(correlation_id=bytes(16)))


# Body type


@pytest.mark.spec("MQ-2.2.19.3-17")
def test_an_unknown_body_type_passes_through_and_our_own_acknowledgments_have_none() -> None:
    for body_type in (0, 0x1F, 0x1011, 0xDEADBEEF):
        packet = by_hand(properties=properties(body_type=body_type))
        assert MessageView(packet).body_type == body_type
        assert UserMessage.decode(packet).encode() == packet
    for ack in (ORDER_ACK, FINAL_ACK):
        assert MessageView(ack.encode()).body_type == 0


@pytest.mark.spec("MQ-2.2.12-05")
def test_the_body_of_frame_7_is_a_bstr() -> None:
    view = MessageView(FRAME_7)
    assert view.body_type == 0x08
    assert view.body == b"a\0" * 1000
