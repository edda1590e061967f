"""What a message costs in the SOAP codec. The yardstick is lxml, which only parses."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from lxml import etree

from benchmarks.harness import best_of, print_table
from postroad.soap.elements import (
    Attachments,
    DeliveryReceiptRequest,
    Envelope,
    Eod,
    Msmq,
    Path,
    Properties,
    Services,
    Stream,
    StreamId,
)
from postroad.soap.envelope import read_any, read_envelope, write_envelope
from postroad.soap.multipart import join_entity, split_entity
from postroad.soap.packets import packet_of
from postroad.soap.requests import envelope_of
from postroad.wire import MessageView, TxSequenceId

MANAGER = UUID("11223344-5566-7788-99aa-bbccddeeff00")
BODY = Attachments(b"x" * 1024)
SENT = 1_700_000_000
REGULAR = Envelope(
    Path("MSMQ:order 17", "http://beta/msmq/private$/orders", f"uuid:17@{MANAGER}"),
    Properties(SENT + 345_600, SENT),
    msmq=Msmq(0, 3, MANAGER, SENT + 345_600, body_type=8, hash_algorithm=0x8004),
)
STREAM = replace(
    REGULAR,
    services=Services(True, DeliveryReceiptRequest("http://alpha/msmq/private$/acks")),
    stream=Stream(StreamId(MANAGER, TxSequenceId(7, SENT)), 2, 1),
    msmq=Msmq(0, 0, MANAGER, SENT + 345_600, hash_algorithm=0x8004, dead_letter=True, eod=Eod(True, True)),
)
MESSAGES = {"regular": REGULAR, "stream": STREAM}


def measured(name: str, envelope: Envelope) -> tuple[str, ...]:
    octets = write_envelope(envelope)
    content_type, pieces = join_entity(octets, BODY, MANAGER, 1)
    entity = b"".join(pieces)
    packet = packet_of(read_envelope(octets), BODY, SENT)
    view = MessageView(packet)

    def take() -> bytes:
        text, attachments = split_entity(content_type, entity)
        return packet_of(read_envelope(text), attachments, SENT)

    def give() -> bytes:
        text = write_envelope(envelope_of(MessageView(packet), envelope.stream))
        return b"".join(join_entity(text, BODY, MANAGER, 1)[1])

    read = best_of(lambda: read_envelope(octets))
    yardstick = best_of(lambda: etree.fromstring(octets))
    times = (
        yardstick,
        read,
        best_of(lambda: read_any(octets)),
        best_of(lambda: write_envelope(envelope)),
        best_of(lambda: packet_of(envelope, BODY, SENT)),
        best_of(lambda: envelope_of(view, envelope.stream)),
        best_of(take),
        best_of(give),
    )
    figures = [f"{microseconds:.1f}" for microseconds in (1e6 * seconds for seconds in times)]
    return name, *figures, f"{read / yardstick:.1f}"


def main() -> None:
    print_table(
        "The SOAP codec: microseconds a message with a body of 1 KiB, best round",
        ("message", "lxml", "read", "any", "write", "in", "out", "take", "give", "ratio"),
        [measured(name, envelope) for name, envelope in MESSAGES.items()],
        "lxml: parses the envelope, no more. read: to checked values. any: the same, when it is not in the usual form. "
        "in: values to a packet. out: a packet to values. take: from an HTTP entity to the packet. "
        "give: from the packet to the entity. ratio: read to lxml.",
    )


if __name__ == "__main__":
    main()
