"""The event log of a run: text that two runs of one seed have in common to the last character."""

from __future__ import annotations

from collections.abc import Iterator

from postroad.simulation.loop import STARTED, Loop
from postroad.wire.framer import Framer
from postroad.wire.internal import ConnectionParameters, EstablishConnection, SessionAck
from postroad.wire.ordering import FinalAck, OrderAck
from postroad.wire.packets import Packet, decode_packet
from postroad.wire.view import MessageView


class Log:
    """Keeps nothing unless it is `wanted`. Times are seconds since the start."""

    def __init__(self, loop: Loop, *, wanted: bool) -> None:
        self.wanted = wanted
        self.lines: list[str] = []
        self._loop = loop

    def note(self, who: str, what: str) -> None:
        if self.wanted:
            self.lines.append(f"{self._loop.now - STARTED:12.6f}  {who:<8}  {what}")


def packet_lines(data: bytes) -> Iterator[str]:
    """One line for each packet that a session has written."""
    for packet in Framer().feed(data):
        yield describe(decode_packet(packet))


def describe(packet: Packet) -> str:
    match packet:
        case EstablishConnection():
            return "establish connection"
        case ConnectionParameters():
            return "connection parameters"
        case SessionAck():
            header = packet.session
            return (
                f"session ack {header.ack_sequence_number}, "
                f"stored {header.recoverable_msg_ack_seq_number}/{header.recoverable_msg_ack_flags:#x}"
            )
        case OrderAck():
            return f"order ack {packet.sequence_id.value:#x} up to {packet.sequence_number}"
        case FinalAck():
            return f"final ack {packet.final_class:#06x} of message {packet.acknowledged_message_id}"
        case MessageView():
            return _message(packet)


def _message(view: MessageView) -> str:
    words = [f"message {view.message_id}"]
    if view.message_class:
        words.append(f"class {view.message_class:#06x}")
    if (fields := view.transaction_fields) is not None:
        words.append(f"number {fields[3]} after {fields[4]} of {fields[2] << 32 | fields[1]:#x}")
    else:
        words.append("recoverable" if view.recoverable else "express")
    if view.session_header is not None:
        words.append("with a session ack")
    return ", ".join(words)
