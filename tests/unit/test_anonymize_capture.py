"""scripts/anonymize_capture: nothing of the original remains, and the packets say the same in other words."""

from __future__ import annotations

import random
from dataclasses import replace
from io import BytesIO
from ipaddress import ip_address
from itertools import pairwise
from pathlib import Path
from struct import pack
from typing import Any
from uuid import UUID

import pytest

from postroad.describe.capture import CaptureFile, DecodedPacket
from postroad.describe.capture.pcap import Frame, read_pcap, read_pcapng
from postroad.security.descriptors import Sid
from postroad.wire import (
    BaseHeader,
    EstablishConnection,
    MessagePropertiesHeader,
    Ping,
    QueueField,
    TransactionHeader,
    TxSequenceId,
    UserHeader,
    UserMessage,
)
from postroad.wire.constants import FormatType, QueueCode, SecurityFlags
from postroad.wire.headers import (
    AddressHeader,
    DebugHeader,
    FormatNameElement,
    MultiQueueFormatHeader,
    SecurityHeader,
    SoapHeader,
)
from scripts.anonymize_capture import Replacements, anonymize, checksum, main, read
from tests import frames
from tests.captures import ACK, FOLDER, SYN, ethernet, ipv4, ipv6, pcap, pcapng, ping_frame, segment, tcp
from tests.captures.expectations import decoded

NAMES = {
    "host": "fabrikam-mail07",
    "queue": "PayrollOfZoe",
    "label": "Lohn für Zoë Quux 🎉",
    "body": '<pay><to name="Zoe Quux">Sesame Street 12</to></pay>',
    "header": "NServiceBus.OriginatingEndpoint=Payroll.Senders",
    "element": r"OS:fabrikam-mail07\private$\SalariesQ",
    "certificate": "CN=Zoe Quux, O=Fabrikam",
}
SID = "S-1-5-21-3623811015-3361044348-30300820-1013"
SOURCE, MANAGER, CONNECTOR = (
    UUID(int=0x1234567890ABCDEF << 60),
    UUID(int=0xFEDCBA987654321 << 64),
    UUID(int=0xBEEF << 99),
)
CLIENT, SERVER = "10.11.12.13", "192.168.7.250"


def message(**headers: object) -> UserMessage:
    user = UserHeader(
        SOURCE,
        77,
        QueueField(QueueCode.DIRECT, direct_name=rf"TCP:{SERVER}\private$\{NAMES['queue']}"),
        MANAGER,
        admin_queue=QueueField(QueueCode.DIRECT, direct_name=rf"OS:{NAMES['host']}\private$\acks"),
        response_queue=QueueField(QueueCode.PRIVATE_ON_OTHER, 5, MANAGER),
        connector_type=CONNECTOR,
        flags=0x20,
    )
    properties = MessagePropertiesHeader(
        NAMES["body"].encode("utf-16-le"),
        NAMES["label"],
        NAMES["header"].encode(),
        correlation_id=SOURCE.bytes_le + pack("<I", 76),
        padding=b"\x51" * 24,
    )
    return UserMessage(BaseHeader(reserved=0x5A), user, properties, **headers)  # type: ignore[arg-type]


FULL = message(
    transaction=TransactionHeader(TxSequenceId(1, 2), 3, 2, connector_qm_guid=CONNECTOR),
    security=SecurityHeader(
        SecurityFlags.AUTHENTICATED | 1,
        Sid.parse(SID).encode(),
        b"session key",
        b"signature",
        NAMES["certificate"].encode(),
        b"\1\0\0\0P\0r\0o\0v\0\0\0",
        padding=b"\x52" * 20,
    ),
    debug=DebugHeader(MANAGER),
    soap=SoapHeader(f"<to>{NAMES['host']}</to>", f"<sid>{SID}</sid>"),
    multi_queue=MultiQueueFormatHeader(
        AddressHeader(
            (
                FormatNameElement(FormatType.DIRECT, direct_name=NAMES["element"]),
                FormatNameElement(FormatType.PUBLIC, MANAGER),
            )
        ),
        signature=b"another signature",
    ),
).encode()
BINARY = replace(message(), properties=MessagePropertiesHeader(b"\0\1\2Quux\xff" * 9, "x")).encode()
OPENING = EstablishConnection(SOURCE, MANAGER, 5, padding=b"Quux" * 128).encode()


def capture(directory: Path, data: list[bytes]) -> Path:
    file = directory / "original.pcap"
    file.write_bytes(pcap(data))
    return file


def published(file: Path) -> Path:
    result = file.with_name("published.pcap")
    assert main([str(file), str(result)]) == 0
    return result


def between(payload: bytes = b"", sequence: int = 0, flags: int = ACK) -> bytes:
    return segment(payload, sequence, flags=flags, source=(CLIENT, 49759), destination=(SERVER, 1801))


def stream(*packets: bytes, size: int = 100) -> list[bytes]:
    data = b"".join(packets)
    parts = [between(data[at : at + size], 100 + at) for at in range(0, len(data), size)]
    return [between(sequence=99, flags=SYN), *parts]


def packets(file: Path) -> list[DecodedPacket]:
    with file.open("rb") as opened:
        return [item for item in CaptureFile(opened).items() if isinstance(item, DecodedPacket)]


def secrets() -> list[bytes]:
    words = {word for text in NAMES.values() for word in text.replace("\\", " ").split() if len(word) > 3} - {
        "private$"
    }
    words |= {"fabrikam", "mail07", "payroll", "quux", "zoe", "salariesq", "sesame", "3623811015", SERVER, CLIENT}
    forms = [form for word in words for form in (word, word.lower(), word.upper(), word.casefold())]
    found = [each.encode(kind) for each in forms for kind in ("utf-8", "utf-16-le")]
    found += [each.bytes_le for each in (SOURCE, MANAGER, CONNECTOR)] + [each.bytes for each in (SOURCE, MANAGER)]
    found += [ip_address(each).packed for each in (CLIENT, SERVER)]
    found += [pack("<I", number) for number in (3623811015, 3361044348, 30300820)]
    return [*found, bytes.fromhex("020000000002"), b"\x51\x51", b"\x52\x52", b"session key", b"signature", b"Prov"]


def test_nothing_of_the_original_remains(tmp_path: Path) -> None:
    ping = Ping(9, MANAGER).encode()
    strangers = [
        segment(b"GET /quux HTTP/1.1\r\n\r\n", 5, source=(CLIENT, 2000), destination=(SERVER, 80)),
        ethernet(b"quux", 0x0806),
    ]
    original = capture(tmp_path, [*stream(OPENING, FULL, BINARY, FULL), ping_frame(ping), *strangers])
    before = original.read_bytes()
    assert any(each in before for each in secrets())
    assert all(each in FULL for each in (b"\x51\x51", b"\x52\x52"))  # padding, which can hold anything
    after = published(original).read_bytes()
    assert [each for each in secrets() if each in after] == []


def test_the_packets_say_the_same_in_other_words(tmp_path: Path) -> None:
    original = capture(tmp_path, [*stream(OPENING, FULL, BINARY, FULL), ping_frame(Ping(9, MANAGER).encode())])
    result = published(original)
    before, after = decoded(original), decoded(result)
    assert [(each["packet"], each["size"], each["time"]) for each in after] == [
        (each["packet"], each["size"], each["time"]) for each in before
    ]
    kept = ("message_id", "flags", "packet_size", "message_size", "body_type", "sent_time", "sequence_number", "cookie")
    for old, new in zip(before, after, strict=True):
        for name, header in old["headers"].items():
            for key in header.keys() & set(kept):
                assert new["headers"][name][key] == header[key]
        assert len(str(new.get("label"))) == len(str(old.get("label")))
    first, second = after[1], after[3]
    assert first["headers"] == second["headers"]  # the same original, the same replacement
    source = first["source_manager"]
    assert after[0]["headers"]["establish_connection_header"]["client_guid"] == source
    assert first["correlation_id"] == f"{{{source}}}\\76"
    assert after[4]["headers"]["ping"]["queue_manager"] == first["headers"]["user_header"]["queue_manager_address"]
    to = first["headers"]["user_header"]["destination_queue"]["direct_name"]
    assert after[1]["to"].split(":")[0] == to[4:].split("\\")[0]  # the address in the name is that of the frame
    assert "\\private$\\" in to
    assert first["sender_id"].startswith("S-1-5-21-")
    assert len(first["sender_id"]) == len(SID)
    assert first["sender_id"] in first["headers"]["soap_header"]["body"]


def test_text_stays_text_of_its_kind() -> None:
    new = Replacements(b"k" * 32)
    assert len(new.body(b'{"paid": true, "to": null}')) == 26
    assert new.body(b'{"paid": true}').endswith(b'": true}')
    made = new.text("<order><to>Zoe</to></order>")
    assert made[1:6] == made[-6:-1] != "order"
    assert new.body(bytes(5)) == bytes(5)
    assert new.body("für €5 🎉".encode()) != "für €5 🎉".encode()
    assert len(new.body("für €5 🎉".encode())) == len("für €5 🎉".encode())
    assert new.text("Orders orders ORDERS").lower().split()[0:1] * 3 == new.text("Orders orders ORDERS").lower().split()
    assert new.text("order_queue$ private$ TCP") == "order_queue$ private$ TCP"
    assert new.word("ab12") != Replacements(b"x" * 32).word("ab12")


@pytest.mark.parametrize("text", ["10.0.0.5", "192.168.17.250", "8.8.8.8", "fe80::1", "2001:db8::7:1", "234.1.1.1"])
def test_an_address_in_a_text_is_the_one_of_its_frame(text: str) -> None:
    new = Replacements(b"k" * 32)
    made = new.text(f"TCP:{text}\\q")[4:-2]
    assert len(made) == len(text)
    assert made != text
    assert ip_address(made).packed == new.address(ip_address(text).packed)
    assert ip_address(made).is_multicast == ip_address(text).is_multicast


def test_late_repeated_and_missing_segments(tmp_path: Path) -> None:
    opening, first, *rest = stream(FULL, FULL, size=300)
    shuffled = [opening, rest[0], first, first, *rest[1:]]
    result = published(capture(tmp_path, shuffled))
    first_packet, second_packet = packets(result)
    assert first_packet.data == second_packet.data
    result.unlink()
    broken = published(capture(tmp_path, [opening, first, *rest[1:]]))
    assert not any(each in broken.read_bytes() for each in secrets())


def test_checksums_are_right(tmp_path: Path) -> None:
    sixth = ethernet(ipv6(tcp(FULL[:1000], 5)), 0x86DD)
    result = published(capture(tmp_path, [*stream(OPENING, FULL, size=333), ping_frame(frames.PINGS[0]), sixth]))
    with result.open("rb") as opened:
        found = [each.data[14:] for each in read_pcap(opened) if hasattr(each, "data")]
    for data in found:
        if data[0] >> 4 == 4:
            assert checksum(data[:20]) == 0
            pseudo = data[12:20] + pack(">HH", data[9], len(data) - 20)
            assert checksum(pseudo + data[20:]) == 0
        else:
            assert checksum(data[8:40] + pack(">IHH", len(data) - 40, 0, 6) + data[40:]) == 0


def test_what_is_not_a_packet_becomes_zeros(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    published(capture(tmp_path, [between(b"Zoe Quux" * 10, 100)]))
    assert "80 bytes could not be read as packets and are zeros now" in capsys.readouterr().out


def test_our_own_capture(tmp_path: Path) -> None:
    file = tmp_path / "session.pcapng"
    file.write_bytes((FOLDER / "session.pcapng").read_bytes())
    before, after = decoded(file), decoded(published(file))
    assert [each["packet"] for each in after] == [each["packet"] for each in before]
    assert [each["size"] for each in after] == [each["size"] for each in before]
    assert changes(after) == changes(before)


def changes(found: list[dict[str, Any]]) -> list[bool]:
    """Whether each packet goes to the queue of the one before it."""
    return [one.get("destination_queue") == other.get("destination_queue") for one, other in pairwise(found)]


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"no capture at all", "must be a capture"),
        (pcap([segment(FULL, 5)])[:-4], "breaks off"),
        (pcap([ethernet(ipv4(b"", 1))]), "no frame on TCP 1801"),
    ],
)
def test_a_file_that_is_no_capture(
    tmp_path: Path, content: bytes, fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    assert main([str(file), str(tmp_path / "out")]) == 1
    assert fault in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert main([str(file), str(file)]) == 2


def test_pcapng_and_a_file_with_several_link_types(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(pcapng([segment(FULL, 5)]))
    kept, counts = anonymize(read(file), Replacements())
    assert (len(kept), counts.packets) == (1, 1)


def test_damage_is_no_error() -> None:
    whole = (FOLDER / "session.pcapng").read_bytes()
    chance = random.Random(7)
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(chance.randrange(1, 40)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        frames = [each for each in read_pcapng(BytesIO(bytes(data))) if isinstance(each, Frame)]
        kept, counts = anonymize(frames, Replacements())
        assert len(kept) + counts.left_out == len(frames)


def test_a_short_segment_and_an_unknown_link() -> None:
    short = ethernet(ipv4(tcp(b"x" * 40), total=30))
    frames = [Frame(1, 0, 1, 5, short), Frame(2, 0, 73, 5, short)]
    kept, counts = anonymize(frames, Replacements())
    assert (len(kept), counts.left_out) == (1, 1)
