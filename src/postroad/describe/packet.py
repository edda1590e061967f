"""Any packet as JSON: its kind, its content, and every field of its headers."""

from __future__ import annotations

from postroad.describe.message import message_json
from postroad.describe.sections import Section, describe_headers, describe_ping
from postroad.wire import FinalAck, MessageView, OrderAck, Packet, Ping


def packet_kind(packet: Packet | Ping) -> str:
    """The specification's name: UserMessage, OrderAck, SessionAck, Ping and so on."""
    return "UserMessage" if isinstance(packet, MessageView) else type(packet).__name__


def packet_json(data: bytes, packet: Packet | Ping) -> dict[str, object]:
    """`packet` is the decoded `data`. A message, also an ordering acknowledgment, has its message fields."""
    described: dict[str, object] = {"packet": packet_kind(packet)}
    if isinstance(packet, Ping):
        return described | {"headers": sections_json(describe_ping(packet))}
    if isinstance(packet, MessageView):
        described |= message_json(packet)
    elif isinstance(packet, OrderAck | FinalAck):
        described |= message_json(MessageView(data)) | {"ordering": ordering_json(packet)}
    return described | {"headers": sections_json(describe_headers(data))}


def ordering_json(ack: OrderAck | FinalAck) -> dict[str, object]:
    """The body of an OrderAck or a FinalAck, [MS-MQQB] 2.2.4 and 2.2.5."""
    described: dict[str, object] = {
        "sequence_id": {"ordinal": ack.sequence_id.ordinal, "time_stamp": ack.sequence_id.time_stamp},
        "sequence_number": ack.sequence_number,
        "previous_sequence_number": ack.previous_sequence_number,
    }
    if isinstance(ack, FinalAck):
        described |= {
            "source_guid": str(ack.source_guid),
            "acknowledged_message_id": ack.acknowledged_message_id,
        }
    return described


def sections_json(sections: list[Section]) -> dict[str, object]:
    return {section.key: section.json() for section in sections}
