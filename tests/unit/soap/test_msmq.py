"""[MC-MQSRM] 2.2.6: the Msmq block, element by element."""

from __future__ import annotations

from uuid import UUID

import pytest

from postroad.soap.elements import Eod, Msmq, Provider
from postroad.soap.envelope import write_envelope
from postroad.soap.simple_types import base64_text, parse_date
from tests.soap_samples import ORDER, ORDER_MANAGER, added, changed, read, refused, without

GUID = UUID("fd74b8eb-2af7-4ac5-9405-074e315df392")


def msmq_of(text: str) -> Msmq:
    found = read(text).msmq
    assert found is not None
    return found


def with_element(element: str) -> Msmq:
    return msmq_of(added(ORDER, "Msmq", element))


@pytest.mark.spec("SRM-2.2.3-04", "SRM-2.2.6-02")
def test_the_namespace() -> None:
    assert msmq_of(ORDER).source_qm_guid == ORDER_MANAGER
    for other in ("urn:msmq", "msmq.namespace.xml/", "http://msmq.namespace.xml"):
        assert read(ORDER.replace("msmq.namespace.xml", other)).msmq is None
    assert b'<Msmq xmlns="msmq.namespace.xml">' in write_envelope(read(ORDER))


@pytest.mark.spec(
    "SRM-2.2.6.1-01", "SRM-2.2.6.2-01", "SRM-2.2.6.9-01", "SRM-2.2.6.13-01", "SRM-2.2.6.17-01", "SRM-3.1.7.2.4-19"
)
@pytest.mark.parametrize("name", ["Class", "Priority", "BodyType", "SourceQmGuid", "TTrq"])
def test_five_elements_have_to_be_there(name: str) -> None:
    assert refused(without(ORDER, name)).place == f"Msmq/{name}"
    smallest = ORDER
    for optional in ("Correlation", "App", "HashAlgorithm"):
        smallest = without(smallest, optional)
    assert write_envelope(read(smallest)) == smallest.encode()


@pytest.mark.spec("SRM-2.2.6.1-01")
@pytest.mark.parametrize("wrong", ["", "normal", "-1", "0x2", "65536"])
def test_the_class_is_a_number(wrong: str) -> None:
    assert refused(changed(ORDER, "<Class>0", f"<Class>{wrong}")).place == "Msmq/Class"


@pytest.mark.spec("SRM-2.2.6.1-02")
@pytest.mark.parametrize("number", [0, 2, 255, 16384, 32769, 49152, 49153, 49154, 49156, 65535])
def test_classes_are_decimal(number: int) -> None:
    text = changed(ORDER, "<Class>0", f"<Class>{number}")
    assert msmq_of(text).message_class == number
    assert write_envelope(read(text)) == text.encode()


@pytest.mark.spec("SRM-2.2.6.2-02")
def test_priorities() -> None:
    for priority in range(8):
        assert msmq_of(changed(ORDER, "<Priority>3", f"<Priority>{priority}")).priority == priority
    for wrong in ("8", "", "-1", "high", "4294967299"):
        assert refused(changed(ORDER, "<Priority>3", f"<Priority>{wrong}")).place == "Msmq/Priority"


@pytest.mark.spec("SRM-2.2.6.3-01", "SRM-2.2.6.4-01", "SRM-2.2.6.6-01", "SRM-3.1.7.2.4-20")
def test_the_empty_elements() -> None:
    assert not (msmq_of(ORDER).journal)
    assert not (msmq_of(ORDER).dead_letter)
    assert not (msmq_of(ORDER).trace)
    assert with_element("<Journal/>").journal
    assert with_element("<DeadLetter></DeadLetter>").dead_letter
    assert not with_element("<Deadletter/>").dead_letter
    assert with_element("<Trace/>").trace
    written = write_envelope(read(added(ORDER, "Msmq", "<Trace/><DeadLetter/><Journal/>"))).decode()
    assert "<Priority>3</Priority><Journal/><DeadLetter/><Correlation>" in written
    assert "</Correlation><Trace/>" in written


@pytest.mark.spec("SRM-2.2.6.5-01", "SRM-2.2.6.5-02")
def test_the_correlation() -> None:
    assert msmq_of(ORDER).correlation == bytes(20)
    assert base64_text(bytes(20)) == "AAAAAAAAAAAAAAAAAAAAAAAAAAA="
    assert msmq_of(without(ORDER, "Correlation")).correlation is None
    some = changed(ORDER, "AAAAAAAAAAAAAAAAAAAAAAAAAAA=", base64_text(bytes(range(20))))
    assert msmq_of(some).correlation == bytes(range(20))
    assert write_envelope(read(some)) == some.encode()
    for wrong in ("", "AAAA", "not base64", base64_text(bytes(19)), base64_text(bytes(21))):
        assert refused(changed(ORDER, "AAAAAAAAAAAAAAAAAAAAAAAAAAA=", wrong)).place == "Msmq/Correlation"


@pytest.mark.spec("SRM-2.2.6.7-01", "SRM-2.2.6.7-02")
def test_the_connector_type() -> None:
    assert msmq_of(ORDER).connector_type is None
    assert with_element(f"<ConnectorType>{GUID}</ConnectorType>").connector_type == GUID
    assert refused(added(ORDER, "Msmq", "<ConnectorType>1</ConnectorType>")).place == "Msmq/ConnectorType"


@pytest.mark.spec("SRM-2.2.6.8-01", "SRM-2.2.6.8-02", "SRM-2.2.6.10-01", "SRM-2.2.6.10-02", "SRM-2.2.6.9-02")
@pytest.mark.parametrize(
    ("name", "old"), [("App", "<App>0"), ("BodyType", "<BodyType>0"), ("HashAlgorithm", "<HashAlgorithm>32772")]
)
def test_numbers_of_32_bits(name: str, old: str) -> None:
    attribute = {"App": "app", "BodyType": "body_type", "HashAlgorithm": "hash_algorithm"}[name]
    for number in (0, 8, 36, 32772, 0xFFFFFFFF):
        text = changed(ORDER, old, f"<{name}>{number}")
        assert getattr(msmq_of(text), attribute) == number
        assert write_envelope(read(text)) == text.encode()
    for wrong in ("", "x", "-1", "4294967296", "18446744073709551615"):
        assert refused(changed(ORDER, old, f"<{name}>{wrong}")).place == f"Msmq/{name}"
    if name != "BodyType":
        assert getattr(msmq_of(without(ORDER, name)), attribute) is None


@pytest.mark.spec("SRM-2.2.6.11-01", "SRM-2.2.6.11-02", "SRM-2.2.6.11-03", "SRM-2.2.6.11-04", "SRM-3.1.5.1.1-27")
def test_exactly_once_delivery() -> None:
    assert msmq_of(ORDER).eod is None
    assert with_element("<Eod/>").eod == Eod()
    assert with_element("<Eod><First/></Eod>").eod == Eod(first=True)
    assert with_element("<Eod><Last/></Eod>").eod == Eod(last=True)
    connector = f"<ConnectorId>{GUID}</ConnectorId>"
    assert with_element(f"<Eod>{connector}<Last/><First/></Eod>").eod == Eod(True, True, GUID)
    assert refused(added(ORDER, "Msmq", "<Eod><ConnectorId>x</ConnectorId></Eod>")).place == "Msmq/Eod/ConnectorId"


@pytest.mark.spec("SRM-2.2.6.12-01", "SRM-2.2.6.12-02", "SRM-2.2.6.12-03")
def test_the_provider() -> None:
    assert msmq_of(ORDER).provider is None
    name = "Microsoft Base Cryptographic Provider v1.0"
    found = with_element(f"<Provider><Type>1</Type><Name>{name}</Name></Provider>").provider
    assert found == Provider(1, name)
    for inside, place in (
        ("", "Type"),
        ("<Type>1</Type>", "Name"),
        (f"<Name>{name}</Name>", "Type"),
        (f"<Type>x</Type><Name>{name}</Name>", "Type"),
    ):
        assert refused(added(ORDER, "Msmq", f"<Provider>{inside}</Provider>")).place == f"Msmq/Provider/{place}"


@pytest.mark.spec("SRM-2.2.6.13-02")
def test_the_source() -> None:
    text = changed(ORDER, f"<SourceQmGuid>{ORDER_MANAGER}", f"<SourceQmGuid>{GUID}")
    assert msmq_of(text).source_qm_guid == GUID
    assert write_envelope(read(text)) == text.encode()
    for wrong in ("", "machine", f"{{{GUID}}}"):
        assert refused(changed(text, str(GUID), wrong)).place == "Msmq/SourceQmGuid"


@pytest.mark.spec(
    "SRM-2.2.6.14-01", "SRM-2.2.6.14-02", "SRM-2.2.6.15-01", "SRM-2.2.6.15-02", "SRM-2.2.6.16-01", "SRM-2.2.6.16-02"
)
@pytest.mark.parametrize(
    ("name", "attribute"),
    [("DestinationMqf", "destination_mqf"), ("AdminMqf", "admin_mqf"), ("ResponseMqf", "response_mqf")],
)
def test_lists_of_queues(name: str, attribute: str) -> None:
    members = tuple(f"http://Machine{number}/msmq/private$/SimpleQ" for number in (1, 2, 3))
    assert getattr(msmq_of(ORDER), attribute) == ()
    for space in ("\n    ", "\r\n", "\t", " "):
        found = with_element(f"<{name}>{space}{space.join(members)}{space}</{name}>")
        assert getattr(found, attribute) == members
    assert getattr(with_element(f"<{name}>{members[0]}</{name}>"), attribute) == members[:1]
    for empty in (f"<{name}/>", f"<{name}> \n </{name}>"):
        assert refused(added(ORDER, "Msmq", empty)).place == f"Msmq/{name}"
    endless = " ".join(["http://a/msmq/q"] * 4097)
    assert "must have at most 4096 names" in refused(added(ORDER, "Msmq", f"<{name}>{endless}</{name}>")).fault


@pytest.mark.spec("SRM-2.2.6.17-02")
def test_the_time_to_reach_the_queue_is_an_instant() -> None:
    assert msmq_of(ORDER).ttrq == parse_date("20070723T031140", "")
    for wrong in ("", "345600", "P4D", "2007-07-23T03:11:40"):
        assert refused(changed(ORDER, "20070723T031140", wrong)).place == "Msmq/TTrq"
