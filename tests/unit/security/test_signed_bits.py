"""Every bit of a signed packet is flipped. The packet is refused, or the bit is in a field that no signature covers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from postroad.errors import RemoteProtocolError
from postroad.security.algorithms import HASHES
from postroad.security.guard import Guard, Opened
from postroad.security.signatures import LISTED, UNSIGNED_FIELDS, VERSIONS, sign
from postroad.wire.constants import PROPERTIES_HEADER_SIZE, QueueCode
from postroad.wire.headers import TransactionHeader, TxSequenceId
from postroad.wire.queue_names import QueueField
from postroad.wire.user_message import UserMessage
from tests.security_vectors import CERTIFICATE, PLAIN, REGISTERED, RING, SENDER, SID, SIGNED_3_0, unsigned

_BASE_FLAGS = {"PR": 0x7, "IN": 0x8, "SH": 0x10, "DH": 0x20, "TR": 0x100}
_USER_FLAGS = {
    "RC": 0x1F, "DM": 0x60, "JN": 0x100, "JP": 0x200, "DQ": 0x1C00, "AQ": 0xE000, "RQ": 0x70000, "SH": 0x80000,
    "TH": 0x100000, "MP": 0x200000, "CQ": 0x400000, "MQ": 0x800000, "AH": 0x2000000, "HH": 0x10000000,
}  # fmt: skip
_SECURITY_FLAGS = {"ST": 0xF, "AU": 0x10, "EB": 0x20, "DE": 0x40, "AI": 0x80, "AS": 0xF00}


def _flag(table: dict[str, int], bit: int) -> str:
    return next((name for name, mask in table.items() if mask >> bit & 1), "reserved")


def fields(packet: bytes) -> dict[int, str]:
    """The field of every bit, by [MS-MQMQ]'s names. Computed from sizes, without our decoder of names and headers."""
    found: dict[int, str] = {}
    at = 0

    def put(name: str, size: int, table: dict[str, int] | None = None) -> int:
        nonlocal at
        for bit in range(8 * size):
            found[8 * at + bit] = f"{name}.{_flag(table, bit)}" if table else name
        at += size
        return int.from_bytes(packet[at - size : at], "little")

    def pad() -> None:
        put("padding", -at % 4)

    for name, size in (("VersionNumber", 1), ("Reserved", 1)):
        put(f"BaseHeader.{name}", size)
    put("BaseHeader.Flags", 2, _BASE_FLAGS)
    for name in ("Signature", "PacketSize", "TimeToReachQueue"):
        put(f"BaseHeader.{name}", 4)
    for name, size in (("SourceQueueManager", 16), ("QueueManagerAddress", 16)):
        put(f"UserHeader.{name}", size)
    for name in ("TimeToBeReceived", "SentTime", "MessageID"):
        put(f"UserHeader.{name}", 4)
    flags = put("UserHeader.Flags", 4, _USER_FLAGS)
    for name, shift in (("DestinationQueue", 10), ("AdminQueue", 13), ("ResponseQueue", 16)):
        code = flags >> shift & 7
        size = put(f"UserHeader.{name}.Count", 2) if code == 7 else {0: 0, 2: 4, 3: 4, 5: 16}[code]
        put(f"UserHeader.{name}", size)
        pad()
    put("UserHeader.ConnectorType", 16)
    if flags & _USER_FLAGS["TH"]:
        put("TransactionHeader", 20)
    put("SecurityHeader.Flags", 2, _SECURITY_FLAGS)
    sizes = [put("SecurityHeader.sizes", size) for size in (2, 2, 2, 4, 4)]
    for name, size in zip(
        ("SecurityID", "EncryptionKey", "Signature", "SenderCert", "ProviderInfo"), sizes, strict=True
    ):
        put(f"SecurityHeader.{name}", size)
        pad()
    for bit, name in enumerate(["Flags"] * 4 + ["Flags.reserved"] * 4):
        found[8 * at + bit] = f"MessagePropertiesHeader.{name}"
    at += 1
    start = at - 1
    label = put("MessagePropertiesHeader.LabelLength", 1)
    named = {}
    for name, size in (
        ("MessageClass", 2), ("CorrelationID", 20), ("BodyType", 4), ("ApplicationTag", 4), ("MessageSize", 4),
        ("AllocationBodySize", 4), ("PrivacyLevel", 4), ("HashAlgorithm", 4), ("EncryptionAlgorithm", 4),
        ("ExtensionSize", 4),
    ):  # fmt: skip
        named[name] = put(f"MessagePropertiesHeader.{name}", size)
    assert at == start + PROPERTIES_HEADER_SIZE
    put("MessagePropertiesHeader.Label", 2 * label)
    put("MessagePropertiesHeader.ExtensionData", named["ExtensionSize"])
    put("MessagePropertiesHeader.MessageBody", named["AllocationBodySize"])
    pad()
    if flags & _USER_FLAGS["MQ"]:
        for _ in range(3):
            size = put("MQFAddressHeader.HeaderSize", 4)
            put("MQFAddressHeader.HeaderID", 2)
            put("MQFAddressHeader.Reserved", 2)
            put("MQFAddressHeader.ElementCount", 4)
            put("MQFAddressHeader.FormatNameList", size - 12)
            pad()
        put("MQFSignatureHeader.ID", 2)
        put("MQFSignatureHeader.Reserved", 2)
        put("MQFSignatureHeader.Signature", put("MQFSignatureHeader.Size", 4))
        pad()
    assert at == len(packet)
    return found


def transactional(packet: bytes) -> bytes:
    return replace(UserMessage.decode(packet), transaction=TransactionHeader(TxSequenceId(1, 2), 3, 2)).encode()


def with_private_names(packet: bytes) -> bytes:
    message = UserMessage.decode(packet)
    admin, response = QueueField(QueueCode.PRIVATE_ON_SOURCE, 7), QueueField(QueueCode.PRIVATE_ON_DESTINATION, 8)
    return replace(message, user=replace(message.user, admin_queue=admin, response_queue=response)).encode()


def flips(packet: bytes) -> Iterator[tuple[int, bytes]]:
    for bit in range(8 * len(packet)):
        at = bit // 8
        yield bit, packet[:at] + bytes((packet[at] ^ 1 << bit % 8,)) + packet[at + 1 :]


def accepted(packet: bytes, guard: Guard) -> bool:
    try:
        return isinstance(opened := guard.open(packet, 0.0), Opened) and opened.authentication_level > 0
    except RemoteProtocolError:
        return False


@pytest.mark.spec("QB-3.1.5.8.3-05", "MQ-2.5.1-01", "MQ-2.5.2-01", "MQ-2.5.3-01", "MQ-2.2.20.6-07", "MQ-2.2.20.6-11")
@pytest.mark.parametrize("version", UNSIGNED_FIELDS)
def test_a_flipped_bit_is_refused_or_in_an_unsigned_field(version: str) -> None:
    plain = unsigned(SIGNED_3_0) if version == "3.0" else PLAIN
    guard = Guard(RING, REGISTERED, accepted_hashes=HASHES, accepted_versions=VERSIONS)
    found = set()
    for variant in (plain, transactional(plain), with_private_names(plain)):
        packet = sign(variant, SENDER, CERTIFICATE, version, "sha256", LISTED, SID)
        assert accepted(packet, guard)
        named = fields(packet)
        found |= {named[bit] for bit, changed in flips(packet) if accepted(changed, guard)}
    assert found == UNSIGNED_FIELDS[version]
