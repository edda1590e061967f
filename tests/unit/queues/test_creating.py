"""Creating and naming queues, [MS-MQDMPR] 3.1.7.1.3 and 3.1.7.1.33, and their properties, [MS-MQMQ] 2.3.1."""

from __future__ import annotations

from dataclasses import asdict
from uuid import UUID

import pytest

from postroad.errors import IllegalPathName, InvalidArgument, QueueExists, QueueNotFound, UnsupportedFormatNameOperation
from postroad.names import PrivateName, PublicName
from postroad.queues.properties import QueueProperties, QueueType
from postroad.validation.queue_properties import QueuePrivacy
from postroad.wire.octets import NULL_GUID
from tests.unit.queues.harness import IDENTIFIER, JOURNAL, NAME, ORDERS, Harness, refused

SERVICE = UUID("a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf")
GIVEN: dict[str, object] = {
    "label": "what came in",
    "type_id": SERVICE,
    "journal": True,
    "quota_kb": 10,
    "journal_quota_kb": 20,
    "authenticate": True,
    "privacy": QueuePrivacy.BODY,
    "transactional": False,
    "multicast_address": "234.1.1.1:8001",
    "base_priority": 7,
}


@pytest.mark.spec("DM-3.1.7.1.3-01")
@pytest.mark.parametrize("path", ["", "orders", r"private$\a\b", r"private$\orders;journal", r"private$\orders;sub"])
def test_only_a_path_name_makes_a_queue(harness: Harness, path: str) -> None:
    before = list(harness.manager.queues)
    with pytest.raises(IllegalPathName):
        harness.create(path)
    assert list(harness.manager.queues) == before


@pytest.mark.parametrize("path", [r"beta\private$\orders", r".\system$;orders"])
def test_a_queue_is_made_on_its_own_manager_and_is_none_of_the_managers(harness: Harness, path: str) -> None:
    with pytest.raises(IllegalPathName):
        harness.create(path)


def test_a_path_is_given_once_whatever_its_case_and_its_computers_name(harness: Harness) -> None:
    for path in (ORDERS, r"PRIVATE$\Orders", rf"{NAME}\private$\orders", r".\private$\orders"):
        with pytest.raises(QueueExists):
            harness.create(path)


@pytest.mark.spec("DM-3.1.7.1.3-02", "DM-3.1.1.2-13")
def test_every_queue_but_a_subqueue_has_a_journal(harness: Harness) -> None:
    queue = harness.queue(ORDERS)
    subqueue = harness.manager.queues.subqueue(harness.manager.tick, queue, "aside", int(harness.now))
    assert queue.journal is harness.queue(rf"{ORDERS};journal")
    assert queue.subqueues == {"aside": subqueue}
    assert harness.queue(rf"{ORDERS};Aside") is subqueue
    assert subqueue.journal is None


@pytest.mark.spec("DM-3.1.7.1.3-03")
def test_a_queue_has_what_its_creator_said(harness: Harness) -> None:
    queue = harness.create("alpha\\Invoices", **GIVEN)
    properties = asdict(queue.properties)
    assert {name: properties[name] for name in GIVEN} == GIVEN
    assert queue.properties.path == "Invoices"
    assert queue.journal is not None
    assert queue.journal.properties.quota_kb == 20
    assert harness.create("alpha\\Ledger", transactional=True).properties.transactional


def test_what_nobody_said_is_the_default(harness: Harness) -> None:
    properties = harness.create(r"private$\plain").properties
    assert (properties.label, properties.type_id, properties.multicast_address) == ("", NULL_GUID, None)
    assert (properties.journal, properties.authenticate, properties.transactional) == (False, False, False)
    assert (properties.quota_kb, properties.journal_quota_kb) == (None, 1048576)
    assert (properties.privacy, properties.base_priority) == (QueuePrivacy.OPTIONAL, 0)


def test_the_specifications_number_for_no_quota_is_no_quota(harness: Harness) -> None:
    queue = harness.create(r"private$\plain", quota_kb=0xFFFFFFFF)
    assert queue.quota_bytes is None


@pytest.mark.spec("DM-3.1.7.1.3-04")
def test_a_new_queue_is_empty_and_knows_when_it_was_made(harness: Harness) -> None:
    queue = harness.create(r"private$\plain")
    assert (queue.active, queue.count, queue.total_bytes) == (False, 0, 0)
    assert (queue.descriptors, queue.subqueues, queue.waiting) == ([], {}, [])
    assert queue.properties.create_time == queue.properties.modify_time == int(harness.now)


@pytest.mark.spec("DM-3.1.7.1.3-05")
def test_the_form_of_its_path_is_the_type_of_a_queue(harness: Harness) -> None:
    assert harness.create(r"private$\a").properties.queue_type is QueueType.PRIVATE
    assert harness.create(r".\b").properties.queue_type is QueueType.PUBLIC
    assert harness.queue("system$;journal").properties.queue_type is QueueType.SYSTEM


@pytest.mark.spec("DM-3.1.7.1.3-06", "DM-3.1.1.2-03", "MQ-2.2.18.1.5.1-02")
def test_each_private_queue_has_a_number_of_its_own_and_is_found_by_it(harness: Harness) -> None:
    queues = [harness.create(rf"private$\q{number}") for number in range(100)]
    numbers = {queue.properties.private_queue_number for queue in harness.manager.queues} - {0}
    assert len(numbers) == sum(queue.properties.queue_type is QueueType.PRIVATE for queue in harness.manager.queues)
    for queue in queues:
        name = PrivateName(IDENTIFIER, queue.properties.private_queue_number)
        assert harness.manager.queues.format_name(queue) == name
        assert harness.manager.queues.find(name) is queue


def test_the_number_of_a_deleted_queue_is_not_given_to_the_next(harness: Harness) -> None:
    number = harness.create(r"private$\a").properties.private_queue_number
    harness.delete(r"private$\a")
    assert harness.create(r"private$\b").properties.private_queue_number != number


@pytest.mark.spec("MQ-2.3.1.1-01", "MQ-2.3.1.3-01", "DM-3.1.1-04")
def test_identifier_and_path_stay_what_they_were(harness: Harness) -> None:
    queue = harness.create(r".\invoices", identifier=SERVICE)
    assert harness.manager.queues.format_name(queue) == PublicName(SERVICE)
    assert harness.queue(f"PUBLIC={SERVICE}") is queue
    for change in ({"identifier": IDENTIFIER}, {"path": "others"}):
        with pytest.raises(InvalidArgument):
            harness.manager.queues.change(harness.manager.tick, queue, int(harness.now), **change)
    harness.manager.queues.change(harness.manager.tick, queue, int(harness.now) + 5, label="new")
    harness.tick()
    assert (queue.properties.identifier, queue.properties.path) == (SERVICE, "invoices")
    assert (queue.properties.label, queue.properties.modify_time) == ("new", int(harness.now) + 5)


@pytest.mark.spec("MQ-2.3.1.8-01")
def test_a_label_has_at_most_124_characters(harness: Harness) -> None:
    queue = harness.create(r"private$\long", label="x" * 124)
    with pytest.raises(InvalidArgument, match="label"):
        harness.create(r"private$\longer", label="x" * 125)
    with pytest.raises(InvalidArgument, match="label"):
        harness.manager.queues.change(harness.manager.tick, queue, int(harness.now), label="x" * 125)
    assert queue.properties.label == "x" * 124


@pytest.mark.spec("MQ-2.3.1.6-01")
def test_a_base_priority_is_16_bits_and_counts_for_public_queues_alone(harness: Harness) -> None:
    assert harness.create(r"private$\a", base_priority=5).properties.base_priority == 0
    for priority in (-32768, 32767):
        assert harness.create(rf".\p{priority}", base_priority=priority).properties.base_priority == priority
    for priority in (-32769, 32768):
        with pytest.raises(InvalidArgument, match="base_priority"):
            harness.create(r".\q", base_priority=priority)


@pytest.mark.spec("MQ-2.3.1.23-01")
def test_a_multicast_address_is_one_of_class_d_and_a_port(harness: Harness) -> None:
    harness.create(r"private$\a", multicast_address="234.1.1.1:8001")
    for address in ("10.0.0.1:8001", "234.1.1.1", "240.0.0.0:8001", "234.1.1.1:8001,MULTICAST=234.1.1.1:8002"):
        with pytest.raises(InvalidArgument, match="multicast_address"):
            harness.create(r"private$\b", multicast_address=address)


@pytest.mark.parametrize(
    "attribute",
    [{"quota_kb": -1}, {"journal_quota_kb": 1 << 32}, {"privacy": "secret"}, {"colour": "red"}, {"owner": 1}],
)
def test_what_no_queue_can_have_is_refused_by_its_name(harness: Harness, attribute: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(attribute))):
        harness.create(r"private$\a", **attribute)
    with pytest.raises(QueueNotFound):
        harness.queue(r"private$\a")


def test_a_change_is_made_as_a_whole_or_not_at_all(harness: Harness) -> None:
    queue = harness.queue(ORDERS)
    with pytest.raises(InvalidArgument):
        harness.manager.queues.change(harness.manager.tick, queue, 0, label="new", transactional=True)
    assert queue.properties.label == ""


@pytest.mark.spec("DM-3.1.1.2-09")
@pytest.mark.parametrize("queue_type", [QueueType.PRIVATE, QueueType.PUBLIC, QueueType.SYSTEM, QueueType.CONNECTOR])
def test_each_type_of_queue_is_kept(queue_type: QueueType) -> None:
    kept = QueueProperties(queue_type, "orders", SERVICE, privacy=QueuePrivacy.NONE).encode()
    assert QueueProperties.decode(kept, "a queue").queue_type is queue_type


@pytest.mark.spec("DM-3.1.3-08")
@pytest.mark.parametrize("suffix", ["JOURNAL", "DEADLETTER", "DEADXACT"])
def test_a_manager_has_three_queues_of_its_own(harness: Harness, suffix: str) -> None:
    queue = harness.queue(f"MACHINE={IDENTIFIER};{suffix}")
    assert queue.properties.queue_type is QueueType.SYSTEM
    assert queue is harness.queue(rf"DIRECT=OS:{NAME}\system$;{suffix}") is harness.queue(f";{suffix.lower()}")
    assert harness.open(f"MACHINE={IDENTIFIER};{suffix}").queue is queue


def test_a_computer_without_a_suffix_is_not_a_queue(harness: Harness) -> None:
    with refused(0xC00E0003):
        harness.open(f"MACHINE={IDENTIFIER}")


def test_every_queue_of_a_manager_has_a_format_name_that_finds_it(harness: Harness) -> None:
    harness.create(r".\public")
    queues = harness.manager.queues
    for queue in queues:
        assert queues.find(queues.format_name(queue)) is queue


def test_the_managers_journal_keeps_no_journal(harness: Harness) -> None:
    assert harness.queue(JOURNAL).journal is None


# strict_names


def test_strict_names_keep_to_the_printed_alphabet(harness: Harness) -> None:
    wide = harness.create("private$\\two words")
    harness.send("DIRECT=OS:elsewhere\\private$\\Größe", "a")
    harness.use(strict_names=True)
    for path in ("private$\\Größe", "private$\\three more words"):
        with pytest.raises(
            IllegalPathName, match=r"visible ASCII characters, because strict_names in \[manager\] is true"
        ):
            harness.create(path)
        with pytest.raises(UnsupportedFormatNameOperation, match="strict_names"):
            harness.send(f"DIRECT=OS:other\\{path}", "a")
    with pytest.raises(IllegalPathName, match="strict_names"):
        harness.manager.queues.subqueue(harness.manager.tick, wide, "Größe", 0)
    harness.create("private$\\gr!sse\x7f")
    # What is there already stays, and can be sent to.
    harness.send("private$\\two words", "b")
    assert harness.labels("private$\\two words") == ["b"]
    harness.send("DIRECT=OS:elsewhere\\private$\\Größe", "c")
    harness.use(strict_names=False)
    harness.create("private$\\Größe")


def test_names_that_differ_in_case_are_one_queue(harness: Harness) -> None:
    queue = harness.create("private$\\Заказы Größe")
    assert harness.queue("PRIVATE$\\ЗАКАЗЫ GRÖSSE".replace("SS", "ẞ")) is queue
    with pytest.raises(QueueExists):
        harness.create("private$\\ЗАКАЗЫ größe")
    harness.restart()
    assert harness.queue("private$\\заказы größe").properties.path == "private$\\Заказы Größe"
