"""MESSAGE_CLASS_VALUES, [MS-MQMQ] 2.2.18.1.6: the numbers of the classes, and their names for people."""

from __future__ import annotations

import pytest

from postroad.errors import PostroadError
from postroad.message import Composer, Message
from postroad.names import PublicName
from postroad.wire import MessageView
from postroad.wire.constants import MessageClass, class_name
from tests.packets import OTHER, SOURCE, by_hand, properties

REPORT = ("REPORT", 0x0001)  # its row asks for a report that carries it, as in binary/test_tracing.py
CLASSES = {
    "MQ-2.2.18.1.6-01": ("NORMAL", 0x0000),
    "MQ-2.2.18.1.6-03": ("ACK_REACH_QUEUE", 0x0002),
    "MQ-2.2.18.1.6-04": ("ORDER_ACK", 0x00FF),
    "MQ-2.2.18.1.6-05": ("ACK_RECEIVE", 0x4000),
    "MQ-2.2.18.1.6-06": ("NACK_BAD_DST_Q", 0x8000),
    "MQ-2.2.18.1.6-07": ("NACK_DELETED", 0x8001),
    "MQ-2.2.18.1.6-08": ("NACK_REACH_QUEUE_TIMEOUT", 0x8002),
    "MQ-2.2.18.1.6-09": ("NACK_Q_EXCEED_QUOTA", 0x8003),
    "MQ-2.2.18.1.6-10": ("NACK_ACCESS_DENIED", 0x8004),
    "MQ-2.2.18.1.6-11": ("NACK_HOP_COUNT_EXCEEDED", 0x8005),
    "MQ-2.2.18.1.6-12": ("NACK_BAD_SIGNATURE", 0x8006),
    "MQ-2.2.18.1.6-13": ("NACK_BAD_ENCRYPTION", 0x8007),
    "MQ-2.2.18.1.6-14": ("NACK_NOT_TRANSACTIONAL_Q", 0x8009),
    "MQ-2.2.18.1.6-15": ("NACK_NOT_TRANSACTIONAL_MSG", 0x800A),
    "MQ-2.2.18.1.6-16": ("NACK_UNSUPPORTED_CRYPTO_PROVIDER", 0x800B),
    "MQ-2.2.18.1.6-17": ("NACK_Q_DELETED", 0xC000),
    "MQ-2.2.18.1.6-18": ("NACK_Q_PURGED", 0xC001),
    "MQ-2.2.18.1.6-19": ("NACK_RECEIVE_TIMEOUT", 0xC002),
    "MQ-2.2.18.1.6-20": ("NACK_RECEIVE_REJECTED", 0xC004),
}


def composed(message_class: int) -> bytes:
    return Composer(SOURCE, PublicName(OTHER)).compose(Message(message_class=message_class), 1, 2)


@pytest.mark.parametrize(
    ("name", "value"),
    [REPORT, *(pytest.param(*item, id=item[0], marks=pytest.mark.spec(row)) for row, item in CLASSES.items())],
)
def test_each_class_has_its_number(name: str, value: int) -> None:
    assert MessageClass[name] == value
    assert MessageView(by_hand(properties=properties(message_class=value))).message_class == MessageClass[name]
    assert class_name(value) == name.lower().replace("_", "-")


def test_no_other_class_is_predefined() -> None:
    assert {member.value for member in MessageClass} == {value for _, value in (REPORT, *CLASSES.values())}


@pytest.mark.spec("MQ-2.2.18.1.6-22", "MQ-2.2.19.3-14")
def test_a_class_uses_the_bits_of_0xe1ff_alone() -> None:
    assert not {0x8008, 0xC003} & {member.value for member in MessageClass}
    for value in (*(value for _, value in (REPORT, *CLASSES.values())), 0x0100, 0x2000, 0xE1FF):
        assert MessageView(composed(value)).message_class == value
    for value in (0x0200, 0x0400, 0x0800, 0x1000, 0x8200, 0xFFFF):
        with pytest.raises(PostroadError, match="class"):
            composed(value)


def test_a_class_that_nobody_named_has_a_number_for_a_name() -> None:
    assert class_name(0x0100) == "class-0x0100"
