"""QUEUE_FORMAT as a value, [MS-MQMQ] 2.2.6, 2.2.7 and 2.2.11."""

from __future__ import annotations

from uuid import UUID

import pytest

from postroad.errors import IllegalFormatName, IllegalQueueFormat, Status
from postroad.names import (
    ConnectorName,
    DirectName,
    DistributionListName,
    DlId,
    MulticastId,
    MulticastName,
    MultipleElementName,
    ObjectId,
    PrivateName,
    PublicName,
    QueueFormat,
    QueueFormatType,
    QueueSuffixType,
    parse_format_name,
)
from postroad.names.queue_format import Arm

GUID = UUID("11223344-5566-7788-99aa-bbccddeeff00")
ARMS: dict[int, Arm] = {
    0: None,
    1: GUID,
    2: ObjectId(GUID, 31),
    3: r"OS:h\private$\q",
    4: GUID,
    5: GUID,
    6: DlId(GUID, "dom"),
    7: MulticastId(0x010101EA, 8001),
    8: r"OS:h\private$\q;sub",
}


def accepted(suffix_and_flags: int) -> set[int]:
    """The values of m_qft that are valid with this m_SuffixAndFlags."""
    good = set()
    for m_qft, arm in ARMS.items():
        try:
            QueueFormat(m_qft, suffix_and_flags, arm)
        except IllegalQueueFormat:
            continue
        good.add(m_qft)
    return good


@pytest.mark.spec("MQ-2.2.6-01", "MQ-2.2.6-02")
def test_each_type_has_its_number_and_its_arm() -> None:
    assert [(member.name, member.value) for member in QueueFormatType] == [
        ("UNKNOWN", 0),
        ("PUBLIC", 1),
        ("PRIVATE", 2),
        ("DIRECT", 3),
        ("MACHINE", 4),
        ("CONNECTOR", 5),
        ("DL", 6),
        ("MULTICAST", 7),
        ("SUBQUEUE", 8),
    ]
    for m_qft, arm in ARMS.items():
        suffix_and_flags = 0x81 if m_qft == 4 else 0x05 if m_qft == 8 else 0x00
        assert QueueFormat(m_qft, suffix_and_flags, arm).format_type == m_qft
        for other in ARMS.values():
            if type(other) is not type(arm):
                with pytest.raises(IllegalQueueFormat):
                    QueueFormat(m_qft, suffix_and_flags, other)


@pytest.mark.parametrize(
    ("queue_format", "text"),
    [
        (QueueFormat(1, 0x00, GUID), f"PUBLIC={GUID}"),
        (QueueFormat(1, 0x81, GUID), f"PUBLIC={GUID};JOURNAL"),
        (QueueFormat(2, 0x00, ObjectId(GUID, 31)), f"PRIVATE={GUID}\\1f"),
        (QueueFormat(2, 0x81, ObjectId(GUID, 31)), f"PRIVATE={GUID}\\1f;JOURNAL"),
        (QueueFormat(3, 0x00, r"TCP:10.0.0.1\q"), r"DIRECT=TCP:10.0.0.1\q"),
        (QueueFormat(3, 0x81, r"OS:h\q;JOURNAL"), r"DIRECT=OS:h\q;JOURNAL"),
        (QueueFormat(3, 0x81, r"OS:h\SYSTEM$;JOURNAL"), r"DIRECT=OS:h\SYSTEM$;JOURNAL"),
        (QueueFormat(3, 0x82, r"OS:h\SYSTEM$;DEADLETTER"), r"DIRECT=OS:h\SYSTEM$;DEADLETTER"),
        (QueueFormat(3, 0x83, r"OS:h\SYSTEM$;DEADXACT"), r"DIRECT=OS:h\SYSTEM$;DEADXACT"),
        (QueueFormat(4, 0x81, GUID), f"MACHINE={GUID};JOURNAL"),
        (QueueFormat(4, 0x82, GUID), f"MACHINE={GUID};DEADLETTER"),
        (QueueFormat(4, 0x83, GUID), f"MACHINE={GUID};DEADXACT"),
        (QueueFormat(5, 0x00, GUID), f"CONNECTOR={GUID}"),
        (QueueFormat(5, 0x04, GUID), f"CONNECTOR={GUID};XACTONLY"),
        (QueueFormat(6, 0x00, DlId(GUID)), f"DL={GUID}"),
        (QueueFormat(6, 0x00, DlId(GUID, "dom")), f"DL={GUID}@dom"),
        (QueueFormat(7, 0x00, MulticastId(0x010101EA, 8001)), "MULTICAST=234.1.1.1:8001"),
        (QueueFormat(8, 0x05, r"OS:h\private$\q;sub"), r"DIRECT=OS:h\private$\q;sub"),
        (QueueFormat(8, 0x81, r"OS:h\q;sub;JOURNAL"), r"DIRECT=OS:h\q;sub;JOURNAL"),
    ],
)
def test_every_name_goes_both_ways(queue_format: QueueFormat, text: str) -> None:
    assert str(queue_format.to_format_name()) == text
    assert QueueFormat.from_format_name(parse_format_name(text)) == queue_format


@pytest.mark.spec("MQ-2.2.7-02")
@pytest.mark.parametrize("m_qft", [9, 255, -1])
def test_no_other_type(m_qft: int) -> None:
    with pytest.raises(IllegalQueueFormat):
        QueueFormat(m_qft, 0, None)


@pytest.mark.spec("MQ-2.2.7-03")
def test_suffix_and_flags_share_a_byte() -> None:
    queue_format = QueueFormat(1, 0x81, GUID)
    assert queue_format.flags == 0x80
    assert queue_format.suffix is QueueSuffixType.JOURNAL


@pytest.mark.spec("MQ-2.2.7-04")
def test_no_other_flags_and_no_other_suffixes() -> None:
    for flags in range(0x00, 0x100, 0x10):
        for suffix in range(0x10):
            if flags not in (0x00, 0x80) or suffix > 5:
                assert accepted(flags | suffix) == set()
    assert accepted(0x100) == set()


@pytest.mark.spec("MQ-2.2.7-05")
def test_suffix_none() -> None:
    assert accepted(0x00) == {0, 1, 2, 3, 5, 6, 7, 8}
    assert accepted(0x80) == set()


@pytest.mark.spec("MQ-2.2.7-06")
def test_suffix_journal() -> None:
    assert accepted(0x81) == {1, 2, 3, 4, 8}
    assert accepted(0x01) == set()


@pytest.mark.spec("MQ-2.2.7-07")
def test_suffix_deadletter() -> None:
    assert accepted(0x82) == {3, 4}
    assert accepted(0x02) == set()


@pytest.mark.spec("MQ-2.2.7-08")
def test_suffix_deadxact() -> None:
    assert accepted(0x83) == {3, 4}
    assert accepted(0x03) == set()


@pytest.mark.spec("MQ-2.2.7-09")
def test_suffix_xactonly() -> None:
    assert accepted(0x04) == accepted(0x84) == {5}
    assert QueueFormat(5, 0x84, GUID).to_format_name() == ConnectorName(GUID, xact_only=True)


@pytest.mark.spec("MQ-2.2.7-10")
def test_suffix_subqueue() -> None:
    assert accepted(0x05) == {8}
    assert accepted(0x85) == set()


@pytest.mark.spec("MQ-2.2.7-14")
@pytest.mark.parametrize("suffix_and_flags", [0x05, 0x00])
def test_a_subqueue_name_has_a_subqueue_in_its_text(suffix_and_flags: int) -> None:
    name = QueueFormat(8, suffix_and_flags, r"OS:h\private$\q;sub").to_format_name()
    assert isinstance(name, DirectName)
    assert name.tail.subqueue == "sub"
    with pytest.raises(IllegalQueueFormat):
        QueueFormat(8, suffix_and_flags, r"OS:h\private$\q").to_format_name()
    with pytest.raises(IllegalQueueFormat):
        QueueFormat(8, suffix_and_flags, r"OS:h\private$\q;JOURNAL").to_format_name()
    with pytest.raises(IllegalQueueFormat):
        QueueFormat(8, 0x81, r"OS:h\private$\q;JOURNAL").to_format_name()
    with pytest.raises(IllegalFormatName):
        QueueFormat(8, suffix_and_flags, r"h\private$\q;sub").to_format_name()


def test_a_direct_text_may_leave_its_suffix_to_the_byte() -> None:
    for m_qft, suffix_and_flags, text, whole in [
        (3, 0x81, r"OS:h\q", r"OS:h\q;JOURNAL"),
        (3, 0x82, r"OS:h\SYSTEM$", r"OS:h\SYSTEM$;DEADLETTER"),
        (3, 0x83, r"DIRECT=OS:h\SYSTEM$", r"OS:h\SYSTEM$;DEADXACT"),
        (8, 0x81, r"OS:h\q;sub", r"OS:h\q;sub;JOURNAL"),
    ]:
        assert QueueFormat(m_qft, suffix_and_flags, text).to_format_name() == DirectName.from_wire(whole)


@pytest.mark.parametrize(
    ("suffix_and_flags", "text"),
    [
        (0x00, r"OS:h\q;JOURNAL"),
        (0x00, r"OS:h\q;sub"),
        (0x00, r"OS:h\SYSTEM$;DEADXACT"),
        (0x81, r"OS:h\q;sub"),
    ],
)
def test_a_direct_text_does_not_contradict_the_byte(suffix_and_flags: int, text: str) -> None:
    with pytest.raises(IllegalQueueFormat):
        QueueFormat(3, suffix_and_flags, text).to_format_name()


def test_a_direct_queue_has_no_dead_letters() -> None:
    for suffix_and_flags in (0x82, 0x83):
        with pytest.raises(IllegalFormatName):
            QueueFormat(3, suffix_and_flags, r"OS:h\q").to_format_name()


@pytest.mark.spec("MQ-2.2.11-01")
def test_the_numbers_of_the_suffixes() -> None:
    assert [(member.name, member.value) for member in QueueSuffixType] == [
        ("NONE", 0),
        ("JOURNAL", 1),
        ("DEADLETTER", 2),
        ("DEADXACT", 3),
        ("XACTONLY", 4),
        ("SUBQUEUE", 5),
    ]


def test_what_it_cannot_carry_is_refused() -> None:
    with pytest.raises(IllegalQueueFormat):
        QueueFormat.from_format_name(MultipleElementName((PublicName(GUID), PrivateName(GUID, 1))))
    with pytest.raises(IllegalQueueFormat):
        QueueFormat(0, 0x00).to_format_name()
    with pytest.raises(IllegalFormatName):
        QueueFormat(7, 0x00, MulticastId(0x0100000A, 8001)).to_format_name()
    with pytest.raises(IllegalFormatName):
        QueueFormat(7, 0x00, MulticastId(0x010101EA, 65536)).to_format_name()


def test_an_empty_domain_is_no_domain() -> None:
    name = QueueFormat(6, 0x00, DlId(GUID, "")).to_format_name()
    assert isinstance(name, DistributionListName)
    assert name.domain is None


def test_the_octets_of_a_group_address_stand_in_order_on_the_wire() -> None:
    name = parse_format_name("MULTICAST=234.1.2.3:8001")
    assert isinstance(name, MulticastName)
    assert MulticastId.from_name(name).address.to_bytes(4, "little") == bytes([234, 1, 2, 3])


def test_an_error_says_which_rule_is_broken() -> None:
    with pytest.raises(IllegalQueueFormat) as caught:
        QueueFormat(4, 0x00, GUID)
    assert caught.value.status is Status.ILLEGAL_FORMATNAME
    assert str(caught.value) == (
        "QUEUE_FORMAT with m_qft 4, m_SuffixAndFlags 0x00: a MACHINE name cannot have the suffix NONE"
    )
