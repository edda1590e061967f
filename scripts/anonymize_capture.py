"""Makes a capture fit to be published: `python -m scripts.anonymize_capture IN OUT`.

Replaces names, addresses, SIDs, GUIDs, labels, bodies, extensions, keys, signatures and certificates in the packets of
the binary protocol and in pings. A replacement has the length of the original. The same name, address or SID always
gets the same replacement within one file, and another one in the next file. Checksums are made right.

Everything else is left out: frames of other protocols, HTTP and RPC (their contents can hold any name), comments, and
the names of interfaces and computers in the file. Bytes on TCP 1801 that are not a packet become zeros. Kept are
times, sizes, flags, counters, message numbers, body types and application tags.
"""

from __future__ import annotations

import argparse
import re
import secrets
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from ipaddress import ip_address
from pathlib import Path
from struct import pack, pack_into, unpack_from
from uuid import UUID

from postroad.describe.capture import DecodedPacket, Origin, Skipped
from postroad.describe.capture.cutter import Cutter
from postroad.describe.capture.pcap import (
    PCAPNG_MAGIC,
    Datagram,
    Frame,
    Ports,
    Segment,
    internet_layer,
    is_known_link,
    network_layer,
    read_frame,
    read_pcap,
    read_pcapng,
)
from postroad.errors import RemoteProtocolError
from postroad.net import ports
from postroad.wire import ConnectionParameters, EstablishConnection, Ping, SessionAck, UserMessage, decode_packet
from postroad.wire.constants import MessageClass, SenderIdType
from postroad.wire.headers import AddressHeader, FormatNameElement, SecurityHeader
from postroad.wire.ordering import LABEL
from postroad.wire.queue_names import QueueField

# Words of the protocol itself, which say nothing about anyone.
_KEPT = frozenset(
    {
        *("tcp", "os", "spx", "ipx", "http", "https", "multicast", "direct", "public", "msmq", "private", "private$"),
        *("order_queue", "order_queue$", "journal", "deadletter", "deadxact", "xactdeadletter"),
        *("null", "true", "false"),  # so that JSON stays JSON
    }
)
_TOKEN = re.compile(
    r"(?P<guid>[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})"
    r"|(?P<sid>S-1(?:-\d{1,10}){2,16})"
    r"|(?P<v4>(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.]))"
    r"|(?P<v6>(?<!\w)(?=[0-9a-fA-F:]*:[0-9a-fA-F:]*:)[0-9a-fA-F:]{3,39}(?![\w:]))"
    r"|(?P<word>[A-Za-z0-9_]+)"
    r"|(?P<other>[^\x00-\x7f])"
)
_TEXT = frozenset(range(0x20, 0x7F)) | {9, 10, 13}
_LOOPBACK = 127
_MULTICAST = range(224, 240)
_TRIES = 64  # to find a replacement that no other word has; there are few words of one letter
_WELL_KNOWN_RID = 1000  # smaller sub-authorities are the same on every computer
_MAGIC_NS = 0xA1B23C4D


class Replacements:
    """The same original always gets the same replacement. Only someone with the key could guess originals."""

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key or secrets.token_bytes(32)
        self._words: dict[str, str] = {}
        self._taken: set[str] = set()

    def _digest(self, kind: str, original: bytes, size: int) -> bytes:
        parts = range(0, size, 64)
        return b"".join(
            blake2b(original, key=self._key, person=kind.encode(), salt=pack("<Q", part)).digest() for part in parts
        )[:size]

    def guid(self, value: UUID) -> UUID:
        return value if value.int == 0 else UUID(bytes=self._digest("guid", value.bytes, 16))

    def number(self, kind: str, value: int) -> int:
        """Another number with as many decimal digits."""
        low: int = 10 ** (len(str(value)) - 1)
        high: int = min(10 * low, 1 << 32)
        return low + int.from_bytes(self._digest(kind, pack("<Q", value), 8), "big") % (high - low)

    def word(self, word: str) -> str:
        """Another word of as many letters and digits. Upper and lower case stay where they were."""
        plain = word.casefold()
        if plain in _KEPT:
            return word
        if plain not in self._words:
            for attempt in range(_TRIES):
                found = self._drawn(plain, attempt)
                if found not in self._taken and found != plain and found not in _KEPT:
                    break
            self._taken.add(found)
            self._words[plain] = found
        return "".join(new.upper() if old.isupper() else new for old, new in zip(word, self._words[plain], strict=True))

    def _drawn(self, word: str, attempt: int) -> str:
        drawn = self._digest("word", f"{attempt} {word}".encode(), len(word))
        return "".join(
            each if each == "_" else chr(48 + byte % 10) if each.isdigit() else chr(97 + byte % 26)
            for each, byte in zip(word, drawn, strict=True)
        )

    def text(self, text: str) -> str:
        """Text with as many UTF-16 units, and as many bytes in UTF-8."""
        return _TOKEN.sub(self._token, text)

    def _token(self, match: re.Match[str]) -> str:
        text = match.group()
        match match.lastgroup:
            case "guid":
                found = str(self.guid(UUID(text)))
                return found.upper() if text.upper() == text else found
            case "sid":
                return self._sid_text(text)
            case "v4" | "v6":
                try:
                    return self._address_text(text)
                except ValueError:
                    return re.sub(r"\w+", lambda part: self.word(part.group()), text)
            case "word":
                return self.word(text)
            case _:
                width = len(text.encode("utf-8", "surrogatepass"))
                return {2: "\u00e9", 3: "\u20ac", 4: "\U0001f600"}[width]

    def _sid_text(self, text: str) -> str:
        _, revision, authority, *rest = text.split("-")
        return "-".join(["S", revision, authority, *(str(self._sub_authority(int(each))) for each in rest)])

    def _sub_authority(self, value: int) -> int:
        return value if value < _WELL_KNOWN_RID else self.number("sid", value)

    def sid(self, data: bytes) -> bytes:
        count = (len(data) - 8) // 4
        if len(data) < 8 or len(data) != 8 + 4 * data[1]:
            return self._digest("sid", data, len(data))
        return data[:8] + b"".join(pack("<I", self._sub_authority(each)) for each in unpack_from(f"<{count}I", data, 8))

    def address(self, data: bytes) -> bytes:
        """An IP address whose text is as long, so that an address in a queue's name and the one in the frame agree."""
        return self._v4(data) if len(data) == 4 else self._v6(data)

    def _v4(self, data: bytes) -> bytes:
        first = data[0]
        if first == _LOOPBACK or data in (bytes(4), b"\xff" * 4):
            return data
        drawn = self._digest("address", data, 8)
        octets = [_octet(each, byte) for each, byte in zip(data, drawn, strict=False)]
        if first in _MULTICAST:
            octets[0] = first
        elif octets[0] >= _MULTICAST.start or octets[0] == _LOOPBACK:
            octets[0] = 172
        return bytes(octets)

    def _v6(self, data: bytes) -> bytes:
        if data in (bytes(16), bytes(15) + b"\1"):
            return data
        drawn = unpack_from(">8H", self._digest("address", data, 16))
        groups = unpack_from(">8H", data)
        made = [_group(each, new) for each, new in zip(groups, drawn, strict=True)]
        if groups[0] >> 6 == 0xFE80 >> 6 or groups[0] >> 8 == 0xFF:  # addresses of a link, and of groups
            made[0] = groups[0]
        return pack(">8H", *made)

    def _address_text(self, text: str) -> str:
        found = str(ip_address(self.address(ip_address(text).packed)))
        if len(found) != len(text):
            raise ValueError(text)  # not the usual way to write this address
        return found

    def hardware(self, data: bytes) -> bytes:
        return b"\2" + self._digest("hardware", data, len(data) - 1) if any(data) else data

    def body(self, data: bytes) -> bytes:
        """Text with other words, in the same encoding. What is not text becomes zeros."""
        if data and all(byte in _TEXT or byte > 0x7F for byte in data):
            try:
                return self.text(data.decode()).encode()
            except UnicodeDecodeError:
                return bytes(len(data))
        if len(data) % 2 == 0 and any(data):
            try:
                text = data.decode("utf-16-le")
            except UnicodeDecodeError:
                return bytes(len(data))
            if all(each.isprintable() or each in "\t\r\n" for each in text.rstrip("\0")) and text.isascii():
                return self.text(text).encode("utf-16-le")
        return bytes(len(data))


def _octet(value: int, byte: int) -> int:
    if value < 10:
        return value and 1 + byte % 9
    return 10 + byte % 90 if value < 100 else 100 + byte % 156


def _group(value: int, drawn: int) -> int:
    """A group of an IPv6 address with as many hexadecimal digits."""
    low = 16 ** (len(f"{value:x}") - 1)
    return value and low + drawn % (15 * low)


# Packets


def other_packet(data: bytes, new: Replacements) -> bytes:
    """A packet of the binary protocol with everything replaced that says who and what. Raises RemoteProtocolError for
    bytes that are none."""
    packet = decode_packet(data)
    if isinstance(packet, ConnectionParameters | SessionAck):
        return packet.encode()
    if isinstance(packet, EstablishConnection):
        told = packet.padding in (bytes(512), b"\x5a" * 512)
        client, server = new.guid(packet.client_guid), new.guid(packet.server_guid)
        padding = packet.padding if told else bytes(512)
        return replace(packet, client_guid=client, server_guid=server, padding=padding).encode()
    return _message(UserMessage.decode(data), new).encode()


def _message(message: UserMessage, new: Replacements) -> UserMessage:
    user, properties = message.user, message.properties
    is_ordering = properties.label == LABEL and len(properties.body) >= 36
    body = new.body(properties.body)
    if message.security is not None and message.security.encrypted_body:
        body = bytes(len(properties.body))
    if is_ordering:
        body = properties.body[:16] + bytes(len(properties.body) - 16)
        if properties.message_class >= MessageClass.ACK_RECEIVE:
            source = new.guid(UUID(bytes_le=properties.body[16:32])).bytes_le
            body = properties.body[:16] + source + properties.body[32:36] + bytes(len(properties.body) - 36)
    correlation = new.guid(UUID(bytes_le=properties.correlation_id[:16])).bytes_le + properties.correlation_id[16:]
    transaction, debug, soap, queues = message.transaction, message.debug, message.soap, message.multi_queue
    return replace(
        message,
        user=replace(
            user,
            source_queue_manager=new.guid(user.source_queue_manager),
            queue_manager_address=new.guid(user.queue_manager_address),
            destination_queue=_queue(user.destination_queue, new),
            admin_queue=_queue(user.admin_queue, new),
            response_queue=_queue(user.response_queue, new),
            connector_type=user.connector_type and new.guid(user.connector_type),
            padding=b"",
        ),
        transaction=transaction
        and replace(
            transaction, connector_qm_guid=transaction.connector_qm_guid and new.guid(transaction.connector_qm_guid)
        ),
        security=message.security and _security(message.security, new),
        properties=replace(
            properties,
            label=LABEL if is_ordering else new.text(properties.label),
            extension=new.body(properties.extension),
            body=body,
            correlation_id=correlation,
            padding=b"",
        ),
        debug=debug and replace(debug, queue_identifier=debug.queue_identifier and new.guid(debug.queue_identifier)),
        soap=soap
        and replace(
            soap,
            header=None if soap.header is None else new.text(soap.header),
            body=None if soap.body is None else new.text(soap.body),
            padding=b"",
        ),
        multi_queue=queues
        and replace(
            queues,
            destination=_addresses(queues.destination, new),
            administration=_addresses(queues.administration, new),
            response=_addresses(queues.response, new),
            signature=bytes(len(queues.signature)),
            padding=b"",
        ),
    )


def _queue(queue: QueueField, new: Replacements) -> QueueField:
    return replace(queue, guid=new.guid(queue.guid), direct_name=new.text(queue.direct_name))


def _addresses(addresses: AddressHeader, new: Replacements) -> AddressHeader:
    return replace(addresses, elements=tuple(_element(each, new) for each in addresses.elements), padding=b"")


def _element(element: FormatNameElement, new: Replacements) -> FormatNameElement:
    name = None if element.direct_name is None else new.text(element.direct_name)
    return replace(element, guid=element.guid and new.guid(element.guid), direct_name=name)


def _security(header: SecurityHeader, new: Replacements) -> SecurityHeader:
    is_manager = header.sender_id_type is SenderIdType.QUEUE_MANAGER
    sender = header.security_id
    return replace(
        header,
        security_id=new.guid(UUID(bytes_le=sender)).bytes_le if is_manager else new.sid(sender) if sender else b"",
        encryption_key=bytes(len(header.encryption_key)),
        signature=bytes(len(header.signature)),
        sender_certificate=bytes(len(header.sender_certificate)),
        provider_info=bytes(len(header.provider_info)),
        padding=b"",
    )


def other_ping(data: bytes, new: Replacements) -> bytes:
    try:
        ping = Ping.decode(data)
    except RemoteProtocolError:
        return bytes(len(data))
    return replace(ping, queue_manager=new.guid(ping.queue_manager)).encode()


# Frames. A packet may be spread over several segments, so each direction is put together, replaced, and cut again.


@dataclass(slots=True)
class _Piece:
    """Where the payload of a segment is: in which frame, and at which byte of the stream."""

    frame: int
    position: int
    data: bytes


@dataclass(slots=True)
class _Direction:
    first: int  # the sequence number of position 0
    pieces: list[_Piece] = field(default_factory=list)


@dataclass(slots=True)
class Counts:
    """What was done, for the last line."""

    frames: int = 0
    left_out: int = 0
    packets: int = 0
    zeroed: int = 0


def anonymize(frames: list[Frame], new: Replacements) -> tuple[list[Frame], Counts]:
    """The frames that can be published, in their order."""
    counts = Counts()
    wanted = Ports(frozenset({ports.BINARY}), frozenset({ports.PING}))
    payloads: dict[int, bytes] = {}
    directions: dict[object, list[_Direction]] = {}
    for number, frame in enumerate(frames):
        found = read_frame(frame.link_type, frame.data, wanted) if is_known_link(frame.link_type) else None
        if isinstance(found, Datagram):
            payloads[number] = other_ping(found.payload, new)
            counts.packets += 1
        elif isinstance(found, Segment):
            opened = directions.setdefault(found.endpoints, [])
            start = (found.sequence + found.syn) % (1 << 32)
            if not opened or (found.syn and opened[-1].first != start):
                opened.append(_Direction(start))
            distance = (start - opened[-1].first + (1 << 31)) % (1 << 32) - (1 << 31)
            opened[-1].pieces.append(_Piece(number, distance, found.payload))
    for each in (direction for opened in directions.values() for direction in opened):
        for piece, data in _replaced(each.pieces, new, counts):
            payloads[piece.frame] = data
    kept = [replace(frame, data=_rewritten(frame, payloads[n], new)) for n, frame in enumerate(frames) if n in payloads]
    counts.frames, counts.left_out = len(kept), len(frames) - len(kept)
    return kept, counts


def _replaced(pieces: list[_Piece], new: Replacements, counts: Counts) -> Iterator[tuple[_Piece, bytes]]:
    """Each piece with its new payload."""
    run: list[_Piece] = []
    end = 0
    for piece in sorted(pieces, key=lambda each: each.position):
        if run and piece.position > end:
            yield from _run(run, new, counts)
            run = []
        end = max(end, piece.position + len(piece.data)) if run else piece.position + len(piece.data)
        run.append(piece)
    yield from _run(run, new, counts)


def _run(run: list[_Piece], new: Replacements, counts: Counts) -> Iterator[tuple[_Piece, bytes]]:
    """A part of a stream without a gap."""
    start = run[0].position if run else 0
    stream = bytearray(max((each.position + len(each.data) - start for each in run), default=0))
    for piece in reversed(run):
        stream[piece.position - start : piece.position - start + len(piece.data)] = piece.data
    cutter = Cutter()
    result = bytearray(len(stream))
    for item in [*cutter.feed(bytes(stream), Origin()), *cutter.finish()]:
        if isinstance(item, DecodedPacket):
            data = other_packet(item.data, new)
            assert len(data) == len(item.data)
            result[item.origin.offset : item.origin.offset + len(data)] = data
            counts.packets += 1
        else:
            counts.zeroed += item.size if isinstance(item, Skipped) else len(item.data)
    for piece in run:
        at = piece.position - start
        yield piece, bytes(result[at : at + len(piece.data)])


def _rewritten(frame: Frame, payload: bytes, new: Replacements) -> bytes:
    """The frame with other addresses and another payload, and with right checksums. What follows the payload is cut
    off."""
    data = bytearray(frame.data)
    at = network_layer(frame.link_type, frame.data)
    ip = None if at is None else internet_layer(frame.data, at)
    assert at is not None
    assert ip is not None  # read_frame has read it
    head = data[:at]
    if frame.link_type == 1:
        head[0:6], head[6:12] = new.hardware(bytes(head[0:6])), new.hardware(bytes(head[6:12]))
    elif frame.link_type in (113, 276):  # Linux cooked: the address of the sender, in 8 bytes
        place = slice(6, 14) if frame.link_type == 113 else slice(12, 20)
        head[place] = new.hardware(bytes(head[place]))
    size = len(ip.source)
    addresses = at + (12 if size == 4 else 8)
    source, destination = new.address(ip.source), new.address(ip.destination)
    data[addresses : addresses + 2 * size] = source + destination
    header = (data[ip.start + 12] >> 4) * 4 if ip.protocol == 6 else 8
    transport = data[ip.start : max(min(ip.end, len(data)), ip.start + header)]
    transport[header : header + len(payload)] = payload
    checksum_at = 16 if ip.protocol == 6 else 6
    pack_into(">H", transport, checksum_at, 0)
    pseudo = source + destination + pack(">IHH" if size == 16 else ">HH", *_pseudo(size, ip.protocol, len(transport)))
    pack_into(">H", transport, checksum_at, checksum(pseudo + transport) or (0xFFFF if ip.protocol == 17 else 0))
    if size == 4:
        first = (data[at] & 0x0F) * 4
        pack_into(">H", data, at + 10, 0)
        pack_into(">H", data, at + 10, checksum(bytes(data[at : at + first])))
    return bytes(head + data[at : ip.start] + transport)


def _pseudo(size: int, protocol: int, length: int) -> tuple[int, ...]:
    return (length, 0, protocol) if size == 16 else (protocol, length & 0xFFFF)


def checksum(data: bytes) -> int:
    """The checksum of IP, TCP and UDP."""
    if len(data) % 2:
        data += b"\0"
    total: int = sum(unpack_from(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def read(file: Path) -> list[Frame]:
    """The frames of a capture file. Raises ValueError for another file, or one that breaks off."""
    with file.open("rb") as stream:
        head = stream.read(4)
        stream.seek(0)
        try:
            items = list(read_pcapng(stream) if head == PCAPNG_MAGIC else read_pcap(stream))
        except KeyError:
            raise ValueError("must be a capture in the form pcap or pcapng") from None
    for item in items:
        if isinstance(item, Skipped):
            raise ValueError(item.reason)
    return [item for item in items if isinstance(item, Frame)]


def write(frames: list[Frame], file: Path) -> None:
    """A pcap file, which has room for nothing but frames."""
    kinds = {frame.link_type for frame in frames}
    if len(kinds) > 1:
        raise ValueError(f"must have frames of one link type, got {sorted(kinds)}; capture one interface at a time")
    parts = [pack("<IHHiIII", _MAGIC_NS, 2, 4, 0, 0, 262144, *kinds)]
    for frame in frames:
        seconds, fraction = divmod(frame.time_ns or 0, 1_000_000_000)
        parts.append(pack("<IIII", seconds, fraction, len(frame.data), len(frame.data)) + frame.data)
    file.write_bytes(b"".join(parts))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.anonymize_capture", description=__doc__.partition("\n")[0])
    parser.add_argument("capture", type=Path, metavar="IN")
    parser.add_argument("result", type=Path, metavar="OUT")
    given = parser.parse_args(arguments)
    if given.result.exists():
        print(f"{given.result}: exists already", file=sys.stderr)
        return 2
    try:
        kept, counts = anonymize(read(given.capture), Replacements())
        if not kept:
            raise ValueError("has no frame on TCP 1801 or UDP 3527, which are all that can be published")
        write(kept, given.result)
    except (OSError, ValueError) as fault:
        print(f"{given.capture}: {getattr(fault, 'strerror', None) or fault}", file=sys.stderr)
        return 1
    print(f"{counts.frames} frames with {counts.packets} packets written, {counts.left_out} frames left out")
    if counts.zeroed:
        print(f"{counts.zeroed} bytes could not be read as packets and are zeros now")
    return 0


if __name__ == "__main__":
    sys.exit(main())
