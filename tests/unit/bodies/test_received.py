"""What a received message says, as programs see it."""

from __future__ import annotations

import struct

from postroad.describe.received import ReceivedMessage
from tests.packets import by_hand, properties
from tests.security_vectors import SIGNED_AND_ENCRYPTED


def test_a_message_says_what_its_body_and_extension_say() -> None:
    extension = b'{"rbs2-msg-type": "Shop.Order, Shop"}'
    packet = by_hand(properties=properties(body=struct.pack("<i", 5), body_type=3, extension=extension))
    message = ReceivedMessage(packet, 1, 0)
    assert message.decoded() == {
        "body_kind": "activex",
        "body_text": "5",
        "headers": {"rbs2-msg-type": "Shop.Order, Shop"},
        "system": "rebus",
        "message_type": "Shop.Order",
    }
    assert message.headers == {"rbs2-msg-type": "Shop.Order, Shop"}
    described = message.describe(decode=True)
    assert described == message.describe() | message.decoded()


def test_an_encrypted_body_is_bytes() -> None:
    decoded = ReceivedMessage(SIGNED_AND_ENCRYPTED, 1, 0).decoded()
    assert (decoded["body_kind"], decoded["body_text"]) == ("bytes", None)
