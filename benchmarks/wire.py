"""What a packet costs in the codec: the lazy view compared with an eager decode, framing and encoding."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from benchmarks.harness import best_of, microseconds, print_table
from postroad.wire import (
    BaseHeader,
    Framer,
    MessagePropertiesHeader,
    MessageView,
    QueueField,
    TransactionHeader,
    TxSequenceId,
    UserHeader,
    UserMessage,
    decode_packet,
)
from postroad.wire.constants import BodyType, QueueCode, SecurityFlags, SenderIdType
from postroad.wire.headers import SecurityHeader

PACKET_SIZE = 1024
PACKETS_IN_CHUNK = 64
SOURCE = UUID("11223344-5566-7788-99aa-bbccddeeff00")
QUEUE = UUID("a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf")
SID = bytes.fromhex("010500000000000515000000ad4a9ebd36d9fa3d63a656dae8030000")


def filled(message: UserMessage) -> UserMessage:
    """The same message, with a body of the length that makes the packet 1 KiB."""
    body = b"x" * (PACKET_SIZE - len(message.encode()))
    return replace(message, properties=replace(message.properties, body=body))


EXPRESS = filled(
    UserMessage(
        BaseHeader(flags=3, time_to_reach_queue=345_600),
        UserHeader(SOURCE, 1, QueueField(QueueCode.PRIVATE_ON_DESTINATION, 4), QUEUE, sent_time=1_700_000_000),
        MessagePropertiesHeader(body_type=BodyType.VT_LPWSTR),
    )
)
TRANSACTIONAL = filled(
    UserMessage(
        BaseHeader(time_to_reach_queue=345_600),
        UserHeader(SOURCE, 1, QueueField(QueueCode.PUBLIC, guid=QUEUE), sent_time=1_700_000_000, flags=0x20),
        MessagePropertiesHeader(body_type=BodyType.VT_LPWSTR),
        TransactionHeader(TxSequenceId(7, 9), 1, 0, 0x0012345C),
    )
)
DIRECT = filled(
    UserMessage(
        BaseHeader(flags=3, time_to_reach_queue=345_600),
        UserHeader(
            SOURCE, 1, QueueField(QueueCode.DIRECT, direct_name=r"OS:a04bm02\private$\orders"), sent_time=1_700_000_000
        ),
        MessagePropertiesHeader(label="mqsender label", body_type=BodyType.VT_LPWSTR),
        security=SecurityHeader(SenderIdType.SID | SecurityFlags.SECURITY_DATA, SID),
    )
)
MESSAGES = {
    "private": EXPRESS,
    "public, transaction": TRANSACTIONAL,
    "direct, sender id": DIRECT,
}


def read_fields(view: MessageView) -> None:
    """Reads what a session and a queue need of every message that arrives."""
    _ = view.message_class
    _ = view.base_flags
    _ = view.user_flags
    _ = view.priority
    _ = view.recoverable
    _ = view.identifier
    _ = view.queue_manager_address_bytes
    _ = view.destination_bytes
    _ = view.transaction_fields
    _ = view.sent_time
    _ = view.time_to_reach_queue
    _ = view.time_to_be_received
    _ = view.ack_flags


def measured(name: str, message: UserMessage) -> tuple[str, ...]:
    packet = message.encode()
    assert len(packet) == PACKET_SIZE
    chunk = packet * PACKETS_IN_CHUNK
    framer = Framer()
    lazy = best_of(lambda: read_fields(MessageView(packet)))
    eager = best_of(lambda: UserMessage.decode(packet))
    times = (
        best_of(lambda: MessageView(packet)),
        lazy,
        eager,
        best_of(lambda: decode_packet(packet)),
        best_of(lambda: framer.feed(chunk)) / PACKETS_IN_CHUNK,
        best_of(message.encode),
    )
    opened, read, decoded, described, framed, encoded = map(microseconds, times)
    return name, opened, read, decoded, f"{eager / lazy:.1f}", described, framed, encoded


def main() -> None:
    print_table(
        f"The codec: microseconds a packet of {PACKET_SIZE} bytes, best round",
        ("destination", "open", "read", "eager", "ratio", "kind", "frame", "encode"),
        [measured(name, message) for name, message in MESSAGES.items()],
        "read: open a lazy view and read the 13 fields that a session and a queue need. "
        f"ratio: eager to read. kind: decode_packet. frame: in chunks of {PACKETS_IN_CHUNK} packets.",
    )


if __name__ == "__main__":
    main()
