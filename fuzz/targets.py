"""What is fuzzed, and with which seeds. A target accepts any bytes; an exception that leaves it is a bug.

Nothing here needs atheris, so a saved input can be replayed without it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

from fuzz import amqp, native, rpc
from postroad.errors import MalformedSoap, RemoteProtocolError
from postroad.soap.envelope import read_any, read_envelope, write_envelope
from postroad.soap.multipart import split_entity
from postroad.soap.packets import packet_of
from postroad.soap.requests import envelope_of
from postroad.wire import (
    EstablishConnection,
    FinalAck,
    Framer,
    MessageView,
    OrderAck,
    Ping,
    UserMessage,
    body_text,
    decode_packet,
)
from postroad.wire.constants import SESSION_HEADER_SIZE, SIGNATURE, VERSION
from postroad.wire.framer import MAX_BUFFERED
from postroad.wire.headers import BASE_LAYOUT, ProviderInfo
from postroad.wire.records import (
    PublicKeyBlob,
    SequenceInfo,
    SimpleBlob,
    decode_addresses,
    decode_public_keys,
    decode_user_certificates,
)
from tests.frames import FRAME_5, PINGS, SESSION_PACKETS
from tests.soap_samples import ALL, multipart
from tests.vectors import FRAME_8, V1, V2

Target = Callable[[bytes], None]

_PROPERTIES = [name for name, _ in inspect.getmembers(MessageView, lambda member: isinstance(member, property))]
_SESSION_OR_INTERNAL, _SESSION_ONLY = 0x18, 0x10


def fuzz_framer(data: bytes) -> None:
    """The first byte is the size of the chunks. Cut or whole, a stream gives the same packets and the same fault."""
    size, stream = (data[0] or 1, data[1:]) if data else (1, b"")
    whole, cut = Framer(), Framer()
    packets = whole.feed(stream)
    found = []
    for start in range(0, len(stream), size):
        found += cut.feed(stream[start : start + size])
        assert cut.buffered < MAX_BUFFERED
    assert found == packets
    assert str(cut.error) == str(whole.error)
    assert (cut.position, cut.buffered) == (whole.position, whole.buffered)
    for packet in packets:
        _decode(packet)


def fuzz_decoder(data: bytes) -> None:
    """One packet as it is, and again after a valid BaseHeader, so that the search gets past the first check."""
    _decode(data)
    if len(data) >= BASE_LAYOUT.size:
        _, reserved, flags, _, _, time_to_reach_queue = BASE_LAYOUT.unpack_from(data)
        behind = SESSION_HEADER_SIZE if flags & _SESSION_OR_INTERNAL == _SESSION_ONLY else 0
        size = max(len(data) - behind, 0)
        header = BASE_LAYOUT.pack(VERSION, reserved, flags, SIGNATURE, size, time_to_reach_queue)
        _decode(header + data[BASE_LAYOUT.size :])


def _decode(data: bytes) -> None:
    try:
        packet = decode_packet(data)
    except RemoteProtocolError:
        return
    if isinstance(packet, MessageView):
        for name in _PROPERTIES:
            getattr(packet, name)
        body_text(packet.body, packet.body_type)
        assert UserMessage.of(packet).encode() == data
    elif isinstance(packet, OrderAck | FinalAck):
        assert UserMessage.decode(data).encode() == data
    elif not isinstance(packet, EstablishConnection) or packet.operating_system & 0xFF == 0x10:
        assert packet.encode() == data


_SMALL: tuple[Callable[[bytes], object], ...] = (
    Ping.decode,
    PublicKeyBlob.decode,
    SimpleBlob.decode,
    ProviderInfo.decode,
    SequenceInfo.decode,
    decode_addresses,
    decode_public_keys,
    decode_user_certificates,
)


def fuzz_records(data: bytes) -> None:
    """The small structures outside of packets. Each either reads the bytes or refuses them."""
    for decode in _SMALL:
        try:
            decode(data)
        except RemoteProtocolError:
            continue


def fuzz_soap(data: bytes) -> None:
    """A request as it comes by HTTP, and the same bytes as an envelope. What was read keeps its meaning when
    written."""
    for content_type in _CONTENT_TYPES:
        try:
            octets, attachments = split_entity(content_type, data)
            envelope = read_envelope(octets)
            packet = packet_of(envelope, attachments, 0)
        except MalformedSoap:
            continue
        assert envelope == read_any(octets) == read_envelope(write_envelope(envelope))
        view = MessageView(packet)
        assert (view.body, view.extension) == (attachments.body or b"", attachments.extension or b"")
        write_envelope(envelope_of(view, envelope.stream))


_CONTENT_TYPES = ("text/xml", 'multipart/related; boundary="MSMQ - SOAP boundary, 53287"; type=text/xml')

TARGETS: dict[str, Target] = {
    "framer": fuzz_framer,
    "decoder": fuzz_decoder,
    "records": fuzz_records,
    "soap": fuzz_soap,
    **amqp.TARGETS,
    **rpc.TARGETS,
    **native.TARGETS,
}

_KEY = bytes.fromhex("0602000000a4000052534131400000000100010081828384858687f8")
_SESSION_KEY = bytes.fromhex("010200000168000000a400000102030405060708")
_PUBLIC_KEYS = bytes.fromhex("20000000010000000400000008000000010000007000710072000000") + b"key!"
_ADDRESSES = bytes.fromhex("040001007f00000110000500000102030405060708090a0b0c0d0e0f")

SEEDS: dict[str, tuple[bytes, ...]] = {
    "framer": (
        *(b"\x07" + packet for packet in SESSION_PACKETS),
        b"\x40" + V2 + FRAME_8 + V1,
        b"\x01" + FRAME_5 * 3,
    ),
    "decoder": SESSION_PACKETS,
    "records": (*PINGS, _KEY, _SESSION_KEY, _PUBLIC_KEYS, _ADDRESSES),
    "soap": (*(text.encode() for text in ALL), *(multipart(text.encode(), b"body")[1] for text in ALL)),
    **amqp.SEEDS,
    **rpc.SEEDS,
    **native.SEEDS,
}
