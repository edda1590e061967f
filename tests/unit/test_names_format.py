"""Format names other than direct ones, [MS-MQMQ] 2.1.3 to 2.1.7."""

from __future__ import annotations

from ipaddress import IPv4Address
from uuid import UUID

import pytest

from postroad.errors import IllegalFormatName, IllegalQueueFormat, Status
from postroad.names import (
    ConnectorName,
    DirectName,
    DistributionListName,
    FormatName,
    MachineName,
    MsmqVersion,
    MulticastName,
    MultipleElementName,
    ObjectId,
    PrivateName,
    PublicName,
    QueueFormat,
    QueueSuffixType,
    parse_format_name,
)

TEXT = "11223344-5566-7788-99AA-BBCCDDEEFF00"
GUID = UUID(TEXT)


def refused(text: str, version: MsmqVersion = MsmqVersion.V6, strict: bool = False) -> IllegalFormatName:
    with pytest.raises(IllegalFormatName) as caught:
        parse_format_name(text, version, strict)
    return caught.value


@pytest.mark.spec("MQ-2.1.3-01")
def test_a_public_name_is_a_bare_guid() -> None:
    name = parse_format_name(f"PUBLIC={TEXT}")
    assert name == PublicName(GUID)
    assert str(name) == f"PUBLIC={TEXT.lower()}"
    assert refused(f"PUBLIC={{{TEXT}}}").position == 7
    assert refused(f"PUBLIC={TEXT[:-1]}").position == 42
    assert refused(f"PUBLIC={TEXT}0").position == 43
    assert refused(f"PUBLIC={TEXT.replace('-', '')}").position == 15
    assert refused(f"PUBLIC={TEXT.replace('-', '', 1)}0").position == 15
    assert refused("PUBLIC=").position == 7


@pytest.mark.spec("MQ-2.1.3-02")
def test_hexadecimal_digits_have_no_case() -> None:
    small, large = parse_format_name(f"public={TEXT.lower()}"), parse_format_name(f"PUBLIC={TEXT}")
    assert small == large
    assert hash(small) == hash(large)
    assert isinstance(small, PublicName)
    assert small.guid.bytes_le == GUID.bytes_le
    assert refused(f"PUBLIC={TEXT.replace('A', 'G', 1)}").position == 28


@pytest.mark.spec("MQ-2.1.3-03")
def test_a_guid_is_little_endian_on_the_wire() -> None:
    name = parse_format_name(f"PUBLIC={TEXT}")
    assert isinstance(name, PublicName)
    assert name.guid.bytes_le == bytes.fromhex("443322116655887799aabbccddeeff00")


@pytest.mark.spec("MQ-2.1.3-04")
def test_the_journal_of_a_public_queue_is_named_though_the_grammar_has_no_word_for_it() -> None:
    name = QueueFormat(1, 0x81, GUID).to_format_name()
    assert str(name) == f"PUBLIC={TEXT.lower()};JOURNAL"
    assert parse_format_name(str(name)) == name == PublicName(GUID, journal=True)
    assert parse_format_name(f"PUBLIC={TEXT}", strict=True) == PublicName(GUID)
    assert refused(str(name), strict=True).position == 43
    for suffix in ("DEADLETTER", "sub", "", "JOURNAL;JOURNAL", "JOURNALS"):
        refused(f"PUBLIC={TEXT};{suffix}")


@pytest.mark.spec("MQ-2.1.4-01")
def test_a_private_name_is_a_guid_and_a_hexadecimal_number() -> None:
    name = parse_format_name(f"PRIVATE={TEXT}\\A")
    assert name == parse_format_name(f"private={TEXT}\\0000000a") == PrivateName(GUID, 10)
    assert str(name) == f"PRIVATE={TEXT.lower()}\\a"
    journal = parse_format_name(f"PRIVATE={TEXT}\\FFFFFFFF;JOURNAL", strict=True)
    assert journal == PrivateName(GUID, 0xFFFFFFFF, journal=True)
    assert journal.suffix is QueueSuffixType.JOURNAL
    assert refused(f"PRIVATE={TEXT}\\123456789").position == 53
    for tail in ("", "\\", "\\g", "\\-1", "\\1;", "\\1;DEADXACT", "\\1;sub", "\\1 ", "\\0x1"):
        refused(f"PRIVATE={TEXT}{tail}")


@pytest.mark.spec("MQ-2.1.4-02")
def test_a_private_name_is_an_object_id() -> None:
    name = parse_format_name(f"PRIVATE={TEXT}\\1f")
    assert isinstance(name, PrivateName)
    assert name.object_id == ObjectId(lineage=GUID, uniquifier=0x1F)
    assert PrivateName.from_object_id(name.object_id) == name


def test_the_number_of_a_private_queue_has_32_bits() -> None:
    for number in (-1, 2**32):
        with pytest.raises(IllegalFormatName):
            PrivateName(GUID, number)


@pytest.mark.spec("MQ-2.1.5-01")
def test_a_distribution_list_is_a_guid_and_perhaps_a_domain() -> None:
    plain = parse_format_name(f"DL={TEXT}")
    assert isinstance(plain, DistributionListName)
    assert (plain.guid, plain.domain) == (GUID, None)
    name = parse_format_name(f"dl={TEXT}@Dom.example")
    assert isinstance(name, DistributionListName)
    assert (name.guid, name.domain) == (GUID, "Dom.example")
    assert str(name) == f"DL={TEXT.lower()}@Dom.example"
    longest = parse_format_name(f"DL={TEXT}@{'d' * 255}")
    assert isinstance(longest, DistributionListName)
    assert longest.domain == "d" * 255
    assert refused(f"DL={TEXT}@").position == 40
    assert refused(f"DL={TEXT}@{'d' * 256}").position == 295
    assert refused(f"DL={TEXT}@do main").position == 42
    refused(f"DL={TEXT};JOURNAL")


@pytest.mark.spec("MQ-2.1.5-02")
def test_the_domain_of_a_distribution_list_is_a_hint() -> None:
    one, other = parse_format_name(f"DL={TEXT}@one"), parse_format_name(f"DL={TEXT}@other")
    assert isinstance(one, DistributionListName)
    assert isinstance(other, DistributionListName)
    assert one.guid == other.guid
    assert one == other
    assert hash(one) == hash(other)


@pytest.mark.parametrize("domain", ["", "a,b", "a b", "d" * 256])
def test_no_code_can_make_a_domain_that_does_not_parse(domain: str) -> None:
    with pytest.raises(IllegalFormatName):
        DistributionListName(GUID, domain)


@pytest.mark.spec("MQ-2.1.6-01")
def test_a_machine_name_is_a_guid_and_needs_a_suffix_to_be_a_queue() -> None:
    name = parse_format_name(f"MACHINE={TEXT}")
    assert name == MachineName(GUID)
    with pytest.raises(IllegalQueueFormat) as caught:
        QueueFormat.from_format_name(name)
    assert caught.value.status is Status.ILLEGAL_FORMATNAME
    for suffix in (1, 2, 3):
        assert QueueFormat(4, 0x80 | suffix, GUID).to_format_name() == MachineName(GUID, QueueSuffixType(suffix))


@pytest.mark.spec("MQ-2.1.6-02")
def test_a_connector_name_is_a_guid() -> None:
    name = parse_format_name(f"CONNECTOR={TEXT}")
    assert name == ConnectorName(GUID)
    assert QueueFormat.from_format_name(name).m_qft == 5
    transactional = parse_format_name(f"connector={TEXT};xactonly")
    assert transactional == ConnectorName(GUID, xact_only=True)
    assert transactional != name
    assert not transactional.is_read_only
    refused(f"CONNECTOR={TEXT};XACTONLY", strict=True)
    refused(f"CONNECTOR={TEXT};JOURNAL")


@pytest.mark.spec("MQ-2.1.6-03")
def test_a_multicast_name_needs_a_port() -> None:
    assert parse_format_name("multicast=234.1.1.1:8001") == MulticastName(IPv4Address("234.1.1.1"), 8001)
    error = refused("MULTICAST=234.1.1.1")
    assert (error.position, error.fault) == (19, "a multicast name must have a port, as in MULTICAST=234.1.1.1:8001")
    for address in ("234.1.1.1:", "234.1.1:8001", "234.1.1.1.1:8001", "234.1.1.1:80a", "234.1.1.1:8001;JOURNAL", "h:1"):
        refused(f"MULTICAST={address}")


@pytest.mark.spec("MQ-2.1.6-04")
def test_a_multicast_address_starts_with_224_to_239() -> None:
    for address in ("224.0.0.0", "229.1.1.1", "230.1.1.1", "239.255.255.255"):
        assert str(parse_format_name(f"MULTICAST={address}:1")) == f"MULTICAST={address}:1"
    for address in ("223.1.1.1", "240.1.1.1", "23.1.1.1", "0.0.0.0"):
        assert refused(f"MULTICAST={address}:1").position == 10


@pytest.mark.spec("MQ-2.1.6-05")
def test_the_octets_of_a_multicast_address() -> None:
    assert refused("MULTICAST=234.256.1.1:1").position == 14
    assert refused("MULTICAST=234.01.1.1:1").position == 14
    assert refused("MULTICAST=234.1.1.00:1").position == 18
    assert refused("MULTICAST=234.1.1.1000:1").position == 18
    assert str(parse_format_name("MULTICAST=234.0.99.255:1")) == "MULTICAST=234.0.99.255:1"


@pytest.mark.spec("MQ-2.1.6-06")
def test_the_port_of_a_multicast_name() -> None:
    for port in (0, 9, 10, 25, 999, 8001, 59999, 65535):
        name = parse_format_name(f"MULTICAST=234.1.1.1:{port}")
        assert isinstance(name, MulticastName)
        assert name.port == port
    for text in ("65536", "99999", "100000", "08001", "9" * 5000):
        assert refused(f"MULTICAST=234.1.1.1:{text}").position == 20


@pytest.mark.spec("MQ-2.1.6-07")
def test_multicast_came_with_version_3() -> None:
    for version in MsmqVersion:
        if version < MsmqVersion.V3:
            assert "3.0" in refused("MULTICAST=234.1.1.1:8001", version).fault
        else:
            assert isinstance(parse_format_name("MULTICAST=234.1.1.1:8001", version), MulticastName)


@pytest.mark.parametrize(("address", "port"), [("10.0.0.1", 1), ("234.1.1.1", 65536), ("234.1.1.1", -1)])
def test_no_code_can_make_a_multicast_name_that_does_not_parse(address: str, port: int) -> None:
    with pytest.raises(IllegalFormatName):
        MulticastName(IPv4Address(address), port)


@pytest.mark.spec("MQ-2.1.6-08")
@pytest.mark.parametrize(("word", "suffix_and_flags"), [("JOURNAL", 0x81), ("DEADLETTER", 0x82), ("DEADXACT", 0x83)])
def test_the_suffixes_of_a_machine_name(word: str, suffix_and_flags: int) -> None:
    name = parse_format_name(f"MACHINE={TEXT};{word}")
    assert name == parse_format_name(f"machine={TEXT};{word.lower()}") == MachineName(GUID, QueueSuffixType[word])
    assert str(name) == f"MACHINE={TEXT.lower()};{word}"
    assert QueueFormat.from_format_name(name) == QueueFormat(4, suffix_and_flags, GUID)
    refused(f"MACHINE={TEXT};{word}", strict=True)


def test_a_machine_name_has_no_other_suffix() -> None:
    for tail in (";XACTONLY", ";", "x", ";JOURNALS"):
        assert refused(f"MACHINE={TEXT}{tail}").position == 44
    with pytest.raises(IllegalFormatName):
        MachineName(GUID, QueueSuffixType.XACTONLY)


@pytest.mark.spec("MQ-2.1.7-01")
def test_a_list_is_split_at_its_commas_in_order() -> None:
    name = parse_format_name(f"DIRECT=OS:h\\q,PUBLIC={TEXT},DL={TEXT}")
    assert isinstance(name, MultipleElementName)
    assert name.elements == (DirectName.from_wire(r"OS:h\q"), PublicName(GUID), DistributionListName(GUID))
    assert str(name) == f"DIRECT=OS:h\\q,PUBLIC={TEXT.lower()},DL={TEXT.lower()}"
    assert refused(rf"DIRECT=OS:h\q, PUBLIC={TEXT}").position == 14
    assert refused(r"DIRECT=OS:h\q,").position == 14
    assert refused(r",DIRECT=OS:h\q").position == 0
    assert refused(r"DIRECT=OS:h\q,,DIRECT=OS:h\q").position == 14


def test_a_list_of_one_is_that_name() -> None:
    assert isinstance(parse_format_name(r"DIRECT=OS:h\q"), DirectName)
    with pytest.raises(IllegalFormatName):
        MultipleElementName((PublicName(GUID),))


@pytest.mark.spec("MQ-2.1.7-02")
def test_what_a_list_may_hold() -> None:
    elements = [r"DIRECT=OS:h\q", f"PUBLIC={TEXT}", f"PRIVATE={TEXT}\\1", f"DL={TEXT}", f"CONNECTOR={TEXT}"]
    elements.append("MULTICAST=234.1.1.1:8001")
    name = parse_format_name(",".join(elements))
    assert isinstance(name, MultipleElementName)
    assert len(name.elements) == 6
    assert refused(f"DIRECT=OS:h\\q,MACHINE={TEXT}").position == 14
    assert refused(f"MACHINE={TEXT},DIRECT=OS:h\\q").position == 0


@pytest.mark.spec("MQ-2.1.7-03")
@pytest.mark.parametrize(
    "element",
    [
        r"DIRECT=OS:h\q;JOURNAL",
        r"DIRECT=OS:h\SYSTEM$;JOURNAL",
        r"DIRECT=OS:h\SYSTEM$;DEADLETTER",
        r"DIRECT=OS:h\SYSTEM$;DEADXACT",
        f"PRIVATE={TEXT}\\1;JOURNAL",
        f"PUBLIC={TEXT};JOURNAL",
        f"MACHINE={TEXT};DEADXACT",
    ],
)
def test_a_list_cannot_hold_what_nobody_can_send_to(element: str) -> None:
    error = refused(f"{element},PUBLIC={TEXT}")
    assert (error.position, error.status) == (0, Status.ILLEGAL_FORMATNAME)
    assert refused(f"PUBLIC={TEXT},{element}").position == 44
    name = parse_format_name(element)
    with pytest.raises(IllegalFormatName):
        MultipleElementName((name, PublicName(GUID)))


def test_a_list_holds_no_list() -> None:
    inner = MultipleElementName((PublicName(GUID), PrivateName(GUID, 1)))
    with pytest.raises(IllegalFormatName):
        MultipleElementName((inner, PublicName(GUID)))


@pytest.mark.spec("MQ-2.1.7-05")
def test_every_comma_parts_two_names_but_in_version_1() -> None:
    text = r"DIRECT=OS:h\a,DIRECT=OS:h\b"
    assert isinstance(parse_format_name(text), MultipleElementName)
    assert isinstance(parse_format_name(text, MsmqVersion.V2), MultipleElementName)
    assert refused(r"DIRECT=OS:h\a,b").position == 14
    name = parse_format_name(r"DIRECT=OS:h\a,b", MsmqVersion.V1)
    assert isinstance(name, DirectName)
    assert name.tail.name == "a,b"


@pytest.mark.parametrize("text", ["", "orders", "PUBLIC", f"PUBLIK={TEXT}", f" PUBLIC={TEXT}", "=", f"={TEXT}"])
def test_a_name_of_no_kind_is_refused_at_its_start(text: str) -> None:
    assert refused(text).position == 0


def test_names_of_different_kinds_are_never_equal() -> None:
    names: list[FormatName] = [PublicName(GUID), MachineName(GUID), ConnectorName(GUID), DistributionListName(GUID)]
    assert len(set(names)) == 4
