"""A message as JSON: the keys that users rely on, and what each one says."""

from __future__ import annotations

import json
from base64 import b64decode
from struct import pack

import pytest
from hypothesis import given

from postroad.describe import message_json, rfc3339, rfc3339_ns
from postroad.describe.packets import cipher_word, hash_word
from postroad.security.algorithms import CIPHERS, HASHES
from postroad.wire import MessageView, UserMessage
from postroad.wire.constants import EncryptionAlgorithm, HashAlgorithm
from postroad.wire.security_patch import with_security
from tests.frames import EVERY_HEADER
from tests.packets import ADDRESS, OTHER, SOURCE, by_hand, direct_name, patched, properties, u32
from tests.security_vectors import SIGNATURES, SIGNED_AND_ENCRYPTED, vector
from tests.strategies import user_messages
from tests.vectors import FRAME_7, V1, V2

KEYS = {
    "id",
    "class",
    "class_name",
    "label",
    "body_type",
    "priority",
    "delivery",
    "correlation_id",
    "sent_at",
    "source_manager",
    "destination_queue",
    "admin_queue",
    "response_queue",
    "dead_letter_queue",
    "extension_base64",
    "app_tag",
    "hops",
    "authenticated",
    "encrypted",
    "sender_id",
    "first_in_transaction",
    "last_in_transaction",
    "transaction_id",
    "authentication_level",
    "hash",
    "cipher",
}
DIRECT = 7 << 10
SECURITY = 0x00080000


def described(packet: bytes) -> dict[str, object]:
    return message_json(MessageView(packet))


def security(flags: int, sender_id: bytes = b"", key: bytes = b"") -> bytes:
    """A SecurityHeader whose two items fill whole words."""
    return pack("<HHHHII", flags, len(sender_id), len(key), 0, 0, 0) + sender_id + key


def test_an_express_message() -> None:
    assert described(V1) == {
        "id": "{11223344-5566-7788-99aa-bbccddeeff00}\\1",
        "class": 0,
        "class_name": "normal",
        "label": "t",
        "body": "abc",
        "body_type": 0,
        "priority": 3,
        "delivery": "express",
        "correlation_id": None,
        "sent_at": "2023-09-12T06:06:56Z",
        "source_manager": "11223344-5566-7788-99aa-bbccddeeff00",
        "destination_queue": "PRIVATE=01020304-0506-0708-090a-0b0c0d0e0f10\\4",
        "admin_queue": "DIRECT=OS:hh\\a",
        "response_queue": "DIRECT=OS:hh\\a",
        "dead_letter_queue": None,
        "extension_base64": None,
        "app_tag": 0,
        "hops": 0,
        "authenticated": False,
        "encrypted": False,
        "sender_id": None,
        "first_in_transaction": False,
        "last_in_transaction": False,
        "transaction_id": None,
        "authentication_level": 0,
        "hash": None,
        "cipher": None,
    }


def test_a_transactional_message() -> None:
    message = described(V2)
    assert message["delivery"] == "transactional"
    assert message["destination_queue"] == "PUBLIC=a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf"
    assert (message["first_in_transaction"], message["last_in_transaction"]) == (True, True)
    assert message["transaction_id"] == 0x12345


@pytest.mark.spec("MQ-2.2.20.6-04")
def test_a_captured_message_with_its_senders_sid() -> None:
    message = described(FRAME_7)
    assert message["sender_id"] == "S-1-5-21-3181267629-1039849782-3663111779-1000"
    assert message["destination_queue"] == "DIRECT=OS:a04bm02\\q"
    assert (message["label"], message["body"], message["body_type"]) == ("mqsender label", "a" * 1000, 8)


def test_a_recoverable_message() -> None:
    assert described(by_hand(user_flags=0x20 | 5))["delivery"] == "recoverable"
    assert described(by_hand(user_flags=0x20 | 5))["hops"] == 5


def test_an_acknowledgment_names_the_message_it_is_about() -> None:
    correlation = OTHER.bytes_le + u32(17)
    message = described(by_hand(properties=properties(message_class=0x8003, correlation_id=correlation)))
    assert (message["class"], message["class_name"]) == (0x8003, "nack-q-exceed-quota")
    assert message["correlation_id"] == f"{{{OTHER}}}\\17"


@pytest.mark.parametrize(
    ("body", "body_type", "key", "value"),
    [
        (b"<a/>", 0, "body", "<a/>"),
        (b"\xff\xfe<\0a\0", 0, "body", "<a"),
        (b"\x00\x01\x02", 0, "body_base64", "AAEC"),
        ("é".encode("utf-16-le"), 8, "body", "é"),
        (b"odd", 8, "body_base64", "b2Rk"),
        (b"text", 17, "body_base64", "dGV4dA=="),
        (b"", 0, "body", ""),
    ],
)
def test_a_body_is_text_or_bytes(body: bytes, body_type: int, key: str, value: str) -> None:
    message = described(by_hand(properties=properties(body=body, body_type=body_type)))
    assert message[key] == value
    assert len(message.keys() & {"body", "body_base64"}) == 1


def test_an_encrypted_body_is_bytes() -> None:
    header = security(0x0020, key=bytes(16))
    packet = by_hand(
        user_flags=SECURITY, after_names=header, properties=properties(body=b"ciphertext..", message_size=5)
    )
    message = described(packet)
    assert message["encrypted"] is True
    assert b64decode(str(message["body_base64"])) == b"ciphertext.."


def test_an_extension() -> None:
    assert described(by_hand(properties=properties(extension=b"\x01\x02\x03")))["extension_base64"] == "AQID"


@pytest.mark.parametrize(
    ("sender_id", "flags", "shown"),
    [
        (bytes.fromhex("010100000000000512000000"), 1, "S-1-5-18"),
        (bytes.fromhex("020100000000000512000000"), 1, "020100000000000512000000"),
        (SOURCE.bytes_le, 2, str(SOURCE)),
    ],
)
def test_senders(sender_id: bytes, flags: int, shown: str) -> None:
    message = described(by_hand(user_flags=SECURITY, after_names=security(flags, sender_id)))
    assert message["sender_id"] == shown
    assert message["authenticated"] is False


@pytest.mark.parametrize(("level", "authenticated"), [(0, False), (1, True), (3, True), (5, True), (9, False)])
def test_the_mark_of_an_authenticated_message(level: int, authenticated: bool) -> None:
    message = described(by_hand(user_flags=SECURITY, after_names=security(level << 8 | 2, SOURCE.bytes_le)))
    assert (message["authentication_level"], message["authenticated"]) == (level, authenticated)


def test_the_bit_of_an_old_sender_authenticates_nothing() -> None:
    message = described(by_hand(user_flags=SECURITY, after_names=security(0x0012, SOURCE.bytes_le)))
    assert (message["authentication_level"], message["authenticated"]) == (0, False)


def test_a_message_that_arrived_encrypted_says_so_though_it_is_stored_plain() -> None:
    header = security(0, key=bytes(16))
    packet = by_hand(user_flags=SECURITY, after_names=header, properties=properties(body=b"plain"))
    message = described(packet)
    assert (message["encrypted"], message["body"]) == (True, "plain")
    assert described(by_hand(user_flags=SECURITY, after_names=security(2, SOURCE.bytes_le)))["encrypted"] is False


@pytest.mark.parametrize(("name", "version", "word"), SIGNATURES)
def test_the_hash_of_a_signed_message(name: str, version: str, word: str) -> None:
    message = described(vector(name, "packet"))
    assert (message["hash"], message["cipher"]) == (word, None)


def test_the_cipher_of_an_encrypted_message() -> None:
    message = described(SIGNED_AND_ENCRYPTED)
    assert message["encrypted"] is True
    assert message["cipher"] in CIPHERS
    assert message["hash"] in HASHES


def test_the_words_of_algorithms_are_those_of_the_configuration() -> None:
    def packet(hashing: int, cipher: int) -> MessageView:
        return MessageView(
            with_security(MessageView(SIGNED_AND_ENCRYPTED), 0x61, hash_algorithm=hashing, encryption_algorithm=cipher)
        )

    assert {hash_word(packet(number, 0)) for number in HashAlgorithm} == set(HASHES)
    assert {cipher_word(packet(0, number)) for number in EncryptionAlgorithm} == set(CIPHERS)
    assert (hash_word(packet(0, 0)), cipher_word(packet(0, 0))) == (None, None)


@pytest.mark.parametrize(
    ("code", "name", "shown"),
    [
        (2, u32(0xBEEF), f"PRIVATE={SOURCE}\\beef"),
        (3, u32(0xBEEF), f"PRIVATE={ADDRESS}\\beef"),
        (5, OTHER.bytes_le, f"PUBLIC={OTHER}"),
        (6, OTHER.bytes_le + u32(0xBEEF), f"PRIVATE={OTHER}\\beef"),
        (7, direct_name("TCP:10.0.0.5\\private$\\q"), "DIRECT=TCP:10.0.0.5\\private$\\q"),
        (7, direct_name("no such name"), "DIRECT=no such name"),
        (7, direct_name("half \ud800"), "DIRECT=half \ufffd"),
    ],
)
def test_queue_names(code: int, name: bytes, shown: str) -> None:
    message = described(by_hand(name, code << 13 | 1 << 16))
    assert (message["destination_queue"], message["admin_queue"], message["response_queue"]) == (None, shown, shown)


@pytest.mark.parametrize(
    ("admin", "code", "manager"),
    [
        (OTHER.bytes_le + u32(1), 6, str(OTHER)),
        (direct_name("OS:a\\q"), 7, "00000000-0000-0000-0000-000000000000"),
        (direct_name("no such name"), 7, "00000000-0000-0000-0000-000000000000"),
    ],
)
def test_a_response_queue_on_the_administration_queues_manager(admin: bytes, code: int, manager: str) -> None:
    message = described(by_hand(admin + u32(9), code << 13 | 4 << 16))
    assert message["response_queue"] == f"PRIVATE={manager}\\9"


def test_half_a_surrogate_pair_is_replaced_and_a_whole_one_kept() -> None:
    assert described(by_hand(properties=properties("a\ud800b😀")))["label"] == "a\ufffdb😀"


@given(user_messages)
def test_every_message_has_every_key_and_can_be_written(packet: UserMessage) -> None:
    message = described(packet.encode())
    assert message.keys() - {"body", "body_base64"} == KEYS
    assert json.loads(json.dumps(message, ensure_ascii=False).encode()) == message


def test_every_header_at_once() -> None:
    assert described(EVERY_HEADER).keys() - {"body", "body_base64"} == KEYS


def test_times() -> None:
    assert rfc3339(0) == "1970-01-01T00:00:00Z"
    assert rfc3339(0xFFFFFFFF) == "2106-02-07T06:28:15Z"
    assert rfc3339(1 << 60) is None
    assert rfc3339_ns(1_700_000_000_000_000_000) == "2023-11-14T22:13:20.000000Z"
    assert rfc3339_ns(1_700_000_000_123_456_000) == "2023-11-14T22:13:20.123456Z"
    assert rfc3339_ns(1_700_000_000_123_456_789) == "2023-11-14T22:13:20.123456789Z"
    assert rfc3339_ns(-1) == "1969-12-31T23:59:59.999999999Z"


def test_sent_at_is_the_packets_own_time() -> None:
    assert described(patched(V1, 52, u32(86400)))["sent_at"] == "1970-01-02T00:00:00Z"
