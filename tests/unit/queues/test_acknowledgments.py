"""Administration acknowledgments, [MS-MQQB] 3.1.7.15: when one is sent, where to, and what it contains."""

from __future__ import annotations

from collections.abc import Callable
from struct import pack
from uuid import UUID

import pytest

from postroad.errors import PostroadError, QuotaExceeded
from postroad.message import Message, ack_flags
from postroad.names import FormatName, PrivateName, parse_format_name
from postroad.queues.delivery import INSECURE_NACKS
from postroad.security.relay import ANY_HOST
from postroad.wire.constants import MessageClass
from postroad.wire.queue_names import destination_name, response_name
from postroad.wire.view import MessageView
from tests.packets import by_hand, direct_name, patched, properties, u32
from tests.unit.queues.harness import ACKS, DEADLETTER, ELSEWHERE, IDENTIFIER, LEDGER, ORDERS, Harness

FOREIGN = UUID("a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf")
ADDRESS = UUID("01020304-0506-0708-090a-0b0c0d0e0f10")
SOURCE = UUID("11223344-5566-7788-99aa-bbccddeeff00")
ALL = "full"


def asking(ack: str = ALL, **options: object) -> Message:
    whole: dict[str, object] = {"label": "a", "recoverable": True, "admin_queue": ACKS, "ack": ack} | options
    return Message(b"body", **whole)  # type: ignore[arg-type]


def acknowledgments(harness: Harness) -> list[MessageView]:
    return harness.messages(ACKS)


# When

EVENTS: dict[int, Callable[[Harness, Message], None]] = {}


def event(message_class: int) -> Callable[[Callable[[Harness, Message], None]], Callable[[Harness, Message], None]]:
    """Makes a manager send an acknowledgment of this class."""

    def register(happens: Callable[[Harness, Message], None]) -> Callable[[Harness, Message], None]:
        EVENTS[message_class] = happens
        return happens

    return register


@event(0x0002)
def reach_queue(harness: Harness, message: Message) -> None:
    harness.send(ORDERS, message)


@event(0x4000)
def receive(harness: Harness, message: Message) -> None:
    harness.send(ORDERS, message)
    harness.receive(ORDERS)


@event(0x8001)
def purge_on_the_way(harness: Harness, message: Message) -> None:
    harness.send(ELSEWHERE, message)
    harness.purge(ELSEWHERE)


@event(0x8002)
def not_reached_in_time(harness: Harness, message: Message) -> None:
    message.time_to_reach_queue = 5
    harness.send(ELSEWHERE, message)
    harness.wait(6)


@event(0x8003)
def full(harness: Harness, message: Message) -> None:
    harness.manager.queues.change(harness.manager.tick, harness.queue(ORDERS), 0, quota_kb=0)
    with pytest.raises(QuotaExceeded):
        harness.send(ORDERS, message)
    harness.tick()


@event(0x8009)
def transactional_to_a_plain_queue(harness: Harness, message: Message) -> None:
    with pytest.raises(PostroadError):
        harness.send(ORDERS, message, transaction=harness.manager.begin())
    harness.tick()


@event(0x800A)
def plain_to_a_transactional_queue(harness: Harness, message: Message) -> None:
    with pytest.raises(PostroadError):
        harness.send(LEDGER, message)
    harness.tick()


@event(0xC000)
def delete(harness: Harness, message: Message) -> None:
    harness.send(ORDERS, message)
    harness.delete(ORDERS)


@event(0xC001)
def purge(harness: Harness, message: Message) -> None:
    harness.send(ORDERS, message)
    harness.purge(ORDERS)


@event(0xC002)
def not_received_in_time(harness: Harness, message: Message) -> None:
    message.time_to_be_received = 5
    harness.send(ORDERS, message)
    harness.wait(6)


WORDS = {0x0002: "reach-queue", 0x4000: "receive", 0x8000: "nack-reach-queue", 0xC000: "nack-receive"}


def word_for(message_class: int) -> str:
    return WORDS.get(message_class) or WORDS[message_class & 0xC000]


@pytest.mark.spec(
    "QB-3.1.7.15-03",
    "MQ-2.2.19.3-07",
    "MQ-2.2.19.3-08",
    "MQ-2.2.19.3-09",
    "MQ-2.2.19.3-10",
    "DM-3.1.7.2.1-02",
    "DM-3.1.7.1.7-01",
    "MQ-2.3.1.13-01",
)
@pytest.mark.parametrize("message_class", EVENTS)
def test_each_event_is_acknowledged_once_by_its_class_to_those_who_asked(harness: Harness, message_class: int) -> None:
    EVENTS[message_class](harness, asking(word_for(message_class)))
    assert harness.classes(ACKS) == [message_class]


@pytest.mark.spec("MQ-2.2.19.3-07", "MQ-2.2.19.3-08", "MQ-2.2.19.3-09", "MQ-2.2.19.3-10")
@pytest.mark.parametrize("message_class", EVENTS)
def test_no_acknowledgment_is_sent_unasked(harness: Harness, message_class: int) -> None:
    others = ",".join(word for word in WORDS.values() if word != word_for(message_class))
    EVENTS[message_class](harness, asking(others))
    assert message_class not in harness.classes(ACKS)


@pytest.mark.spec("QB-3.1.7.15-03")
@pytest.mark.parametrize("message_class", [each for each in MessageClass if each & 0x8000])
def test_every_negative_class_can_be_said(message_class: MessageClass) -> None:
    harness = Harness(insecure_nacks=True)
    harness.create(ORDERS)
    harness.create(ACKS)
    harness.send(ORDERS, asking("nack-reach-queue,nack-receive"))
    harness.manager.delivery.acknowledge(harness.messages(ORDERS)[0], message_class, harness.now)
    harness.tick()
    assert harness.classes(ACKS) == [message_class]


@pytest.mark.spec("QB-3.1.7.15-02")
@pytest.mark.parametrize("insecure_nacks", [True, False])
def test_five_classes_reveal_too_much_to_a_stranger(insecure_nacks: bool) -> None:
    harness = Harness(insecure_nacks=insecure_nacks)
    harness.create(ORDERS)
    harness.create(ACKS)
    harness.send(ORDERS, asking("nack-reach-queue,nack-receive"))
    negative = [each for each in MessageClass if each & 0x8000]
    for message_class in negative:
        harness.manager.delivery.acknowledge(harness.messages(ORDERS)[0], message_class, harness.now)
    harness.tick()
    kept_back = set() if insecure_nacks else {0x8000, 0x8004, 0x8006, 0x8007, 0x800B}
    assert set(harness.classes(ACKS)) == set(negative) - kept_back
    assert {0x8000, 0x8004, 0x8006, 0x8007, 0x800B} == INSECURE_NACKS


def test_the_acknowledgment_of_an_arrival_comes_before_that_of_the_receive(harness: Harness) -> None:
    harness.ask(harness.open(ORDERS))
    harness.send(ORDERS, asking("reach-queue,receive", recoverable=False))
    assert harness.classes(ACKS) == [0x0002, 0x4000]


def test_an_acknowledgment_and_its_event_are_written_together(harness: Harness) -> None:
    harness.promise(ORDERS, asking("reach-queue"))
    harness.fail()
    assert (harness.labels(ORDERS), harness.classes(ACKS)) == ([], [])


# Whether


@pytest.mark.spec("QB-3.1.7.15-01", "MQ-2.2.19.2-27")
def test_no_acknowledgment_is_sent_without_an_administration_queue(harness: Harness) -> None:
    harness.send(ORDERS, asking(admin_queue=None), Message(label="b", admin_queue=ACKS))
    without, unasked = harness.messages(ORDERS)
    assert (without.ack_flags, without.user_flags & 0xE000) == (0, 0)
    assert (unasked.ack_flags, unasked.user_flags & 0xE000) == (0, 0)
    packet = by_hand(properties=properties(flags=0x0F))  # from a manager that asks and does not say whom to tell
    harness.manager.delivery.arrive(harness.queue(ORDERS), packet, MessageView(packet), harness.now)
    harness.tick()
    harness.receive(ORDERS, 3)
    assert (harness.labels(ACKS), harness.manager.queues.outgoing) == ([], {})


@pytest.mark.spec("QB-3.1.7.15-15")
@pytest.mark.parametrize(
    "admin_queue",
    [
        rf"PRIVATE={IDENTIFIER}\ff",  # not there
        r"DIRECT=OS:alpha\private$\missing",
        rf"DIRECT=OS:alpha\{LEDGER}",  # transactional
        rf"DIRECT=OS:alpha\{ORDERS};journal",  # nobody sends there
        r"DIRECT=OS:alpha\private$\order_queue$",
    ],
)
def test_an_acknowledgment_that_cannot_be_sent_is_dropped(harness: Harness, admin_queue: str) -> None:
    before = {queue: queue.count for queue in harness.manager.queues}
    harness.send(ORDERS, asking(admin_queue=admin_queue))
    assert harness.receive(ORDERS) == ["a"]
    assert {queue: queue.count for queue in harness.manager.queues} == before


@pytest.mark.spec("QB-3.1.7.15-15")
def test_an_administration_queue_that_is_full_gets_no_more(harness: Harness) -> None:
    harness.manager.queues.change(harness.manager.tick, harness.queue(ACKS), 0, quota_kb=0)
    harness.send(ORDERS, asking())
    assert (harness.labels(ORDERS), harness.labels(ACKS)) == (["a"], [])


@pytest.mark.parametrize(("number", "told"), [(2, 0), (3, 0), (4, 0), (5, 1), (6, 1)])
def test_another_managers_fifth_queue_is_one_like_others(harness: Harness, number: int, told: int) -> None:
    """[MS-MQQB] note 62 names only 2, 3 and 4. Queue 5 is internal to us, and to no other manager."""
    harness.send(rf"PRIVATE={FOREIGN}\{number:x}", asking("nack-reach-queue", time_to_reach_queue=5))
    harness.wait(10)
    assert len(acknowledgments(harness)) == told


def test_a_name_that_no_grammar_admits_is_told_nothing(harness: Harness) -> None:
    packet = by_hand(direct_name("OS:alpha\\a") + direct_name("nonsense"), 0xFC00, properties=properties(flags=0x0F))
    harness.manager.delivery.arrive(harness.queue(ORDERS), packet, MessageView(packet), harness.now)
    harness.tick()
    assert harness.manager.queues.outgoing == {}


# Where to


@pytest.mark.spec("QB-3.1.7.15-04", "QB-3.1.7.15-05", "QB-3.1.7.15-06", "QB-3.1.7.15-07", "QB-3.1.7.15-08")
@pytest.mark.parametrize(
    ("code", "field", "destination"),
    [
        (2, u32(0x1F), PrivateName(FOREIGN, 0x1F)),
        (3, u32(0x1F), PrivateName(ADDRESS, 0x1F)),
        (5, SOURCE.bytes_le, parse_format_name(f"PUBLIC={SOURCE}")),
        (6, SOURCE.bytes_le + u32(0x1F), PrivateName(SOURCE, 0x1F)),
        (7, direct_name(r"OS:gamma\private$\acks"), parse_format_name(r"DIRECT=OS:gamma\private$\acks")),
    ],
)
def test_an_acknowledgment_goes_where_the_message_says(code: int, field: bytes, destination: FormatName) -> None:
    harness = Harness()
    harness.use(relay=(ANY_HOST,))
    harness.manager.queues.identifier = UUID(int=1)  # none of the managers in the packet is this one
    harness.create(ORDERS)
    packet = by_hand(u32(8) + field, 3 << 10 | code << 13, properties=properties(flags=0x01))
    packet = patched(packet, 16, FOREIGN.bytes_le)
    harness.manager.delivery.arrive(harness.queue(ORDERS), packet, MessageView(packet), harness.now)
    harness.tick()
    assert list(harness.manager.queues.outgoing) == [destination]
    (acknowledgment,) = harness.queue(str(destination)).everything()
    assert destination_name(MessageView(acknowledgment.packet)) == destination


# What is in it


@pytest.mark.spec("QB-3.1.7.15-09", "MQ-2.2.19.3-16")
@pytest.mark.parametrize("message_class", EVENTS)
def test_it_is_correlated_with_the_message(harness: Harness, message_class: int) -> None:
    before = harness.manager.counters.take_message_ids(1)
    EVENTS[message_class](harness, asking(word_for(message_class)))
    (view,) = acknowledgments(harness)
    assert view.correlation_id == IDENTIFIER.bytes_le + u32(before + 1)


@pytest.mark.spec("QB-3.1.7.15-10")
@pytest.mark.parametrize(
    ("flags", "field", "name"),
    [
        (3 << 10, u32(0x1F), PrivateName(ADDRESS, 0x1F)),
        (5 << 10, FOREIGN.bytes_le, parse_format_name(f"PUBLIC={FOREIGN}")),
        (7 << 10, direct_name(rf"OS:alpha\{ORDERS}"), parse_format_name(rf"DIRECT=OS:alpha\{ORDERS}")),
    ],
)
def test_its_response_queue_is_the_destination(harness: Harness, flags: int, field: bytes, name: FormatName) -> None:
    admin = direct_name(rf"OS:alpha\{ACKS}")
    packet = by_hand(field + admin, flags | 7 << 13, properties=properties(flags=0x01))
    harness.manager.delivery.arrive(harness.queue(ORDERS), packet, MessageView(packet), harness.now)
    harness.tick()
    (view,) = acknowledgments(harness)
    assert response_name(view) == name


@pytest.mark.spec("QB-3.1.7.15-11")
@pytest.mark.parametrize("recoverable", [True, False])
def test_it_is_as_durable_as_the_message(harness: Harness, recoverable: bool) -> None:
    harness.send(ORDERS, asking("reach-queue", recoverable=recoverable))
    (view,) = acknowledgments(harness)
    assert view.recoverable is recoverable


@pytest.mark.spec("QB-3.1.7.15-12")
def test_it_asks_for_nothing_itself(harness: Harness) -> None:
    message = asking(journal=True, dead_letter=True, time_to_be_received=60, time_to_reach_queue=60)
    harness.send(ORDERS, message)
    (view,) = acknowledgments(harness)
    assert (view.ack_flags, view.time_to_reach_queue, view.time_to_be_received) == (0, 0xFFFFFFFF, 0xFFFFFFFF)
    assert (view.positive_journaling, view.negative_journaling) == (False, False)
    assert (view.privacy_level, view.encrypted, view.security_header) == (0, False, None)
    assert (view.transactional, view.source_queue_manager) == (False, IDENTIFIER)


@pytest.mark.spec("QB-3.1.7.15-13", "QB-3.1.7.15-14")
@pytest.mark.parametrize("message_class", EVENTS)
def test_a_negative_one_has_the_body_and_a_positive_one_has_none(harness: Harness, message_class: int) -> None:
    EVENTS[message_class](harness, asking(word_for(message_class), body_type=8, extension=b"extension"))
    (view,) = acknowledgments(harness)
    expected = (b"", 0) if message_class in (0x0002, 0x4000) else (b"body", 8)
    assert (view.body, view.body_type, view.message_size) == (*expected, len(expected[0]))


@pytest.mark.spec("QB-3.1.7.15-13")
def test_an_encrypted_body_is_not_sent_back(harness: Harness) -> None:
    security = pack("<HHHHII", 0x20, 0, 4, 0, 0, 0) + b"key!"
    packet = by_hand(
        direct_name(rf"OS:alpha\{ORDERS}") + direct_name(rf"OS:alpha\{ACKS}"),
        7 << 10 | 7 << 13 | 0x00080000,
        security,
        properties=properties(body=b"0123456789abcdef", message_size=3, flags=0x08),
    )
    view = MessageView(packet)
    assert view.encrypted
    harness.manager.delivery.arrive(harness.queue(ORDERS), packet, view, harness.now)
    harness.purge(ORDERS)
    (acknowledgment,) = acknowledgments(harness)
    assert (acknowledgment.message_class, acknowledgment.body) == (0xC001, b"")


# The flags


@pytest.mark.spec("DM-3.1.1.12-23")
@pytest.mark.parametrize(
    ("word", "bit"),
    [("none", 0), ("reach-queue", 0x01), ("receive", 0x02), ("nack-reach-queue", 0x04), ("nack-receive", 0x08)],
)
def test_each_word_is_one_bit_of_the_packet(harness: Harness, word: str, bit: int) -> None:
    harness.send(ORDERS, asking(word))
    assert harness.messages(ORDERS)[0].ack_flags == bit
    assert Message().ack == 0


@pytest.mark.spec("DM-3.1.1.12-24")
def test_words_together_are_the_bits_together() -> None:
    assert ack_flags("nack-reach-queue") == 0x04
    assert ack_flags("reach-queue,nack-reach-queue") == 0x05
    assert ack_flags("nack-reach-queue,nack-receive") == 0x0C
    assert ack_flags("nack-reach-queue, receive, nack-receive") == 0x0E
    assert ack_flags("full") == 0x0F


def test_a_dead_letter_is_acknowledged_once(harness: Harness) -> None:
    harness.send(ORDERS, asking("nack-receive", dead_letter=True))
    harness.purge(ORDERS)
    harness.receive(DEADLETTER)
    assert harness.classes(ACKS) == [0xC001]
