r"""GUIDs as text, OBJECTID and message identifiers, [MS-MQMQ] 2.2.8 and 2.2.18.1.3."""

from __future__ import annotations

from uuid import UUID

import pytest

from postroad.errors import IllegalIdentifier, LocalProtocolError, Status
from postroad.names import MessageId, ObjectId, parse_guid

TEXT = "11223344-5566-7788-99aa-bbccddeeff00"
GUID = UUID(TEXT)
IMAGE = bytes.fromhex("443322116655887799aabbccddeeff0004030201")


def test_a_guid_is_read_and_printed() -> None:
    assert parse_guid(TEXT) == parse_guid(TEXT.upper()) == GUID
    assert str(MessageId(GUID, 1)) == f"{{{TEXT}}}\\1"


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("", 0),
        (f"{{{TEXT}}}", 0),
        (TEXT[:-1], 35),
        (TEXT + "0", 36),
        (TEXT + "\n", 36),
        (TEXT.replace("-", ""), 8),
        (f"urn:uuid:{TEXT}", 0),
        ("1122334g" + TEXT[8:], 7),
        ("１" + TEXT[1:], 0),
    ],
)
def test_nothing_else_is_a_guid(text: str, position: int) -> None:
    with pytest.raises(IllegalIdentifier) as caught:
        parse_guid(text)
    assert (caught.value.position, caught.value.status) == (position, Status.INVALID_PARAMETER)


@pytest.mark.spec("MQ-2.2.18.1.3-01")
def test_a_message_id_is_a_guid_and_an_ordinal_in_20_bytes() -> None:
    message_id = MessageId.from_bytes(memoryview(IMAGE))
    assert (message_id.guid, message_id.ordinal) == (GUID, 0x01020304)
    assert message_id.to_bytes() == IMAGE


@pytest.mark.parametrize("size", [0, 19, 21])
def test_no_other_size(size: int) -> None:
    with pytest.raises(LocalProtocolError):
        MessageId.from_bytes(bytes(size))


@pytest.mark.parametrize("number", [-1, 2**32])
def test_numbers_have_32_bits(number: int) -> None:
    with pytest.raises(LocalProtocolError):
        ObjectId(GUID, number)
    with pytest.raises(LocalProtocolError):
        MessageId(GUID, number)


def test_a_message_id_is_read_and_printed() -> None:
    message_id = MessageId(GUID, 4097)
    assert str(message_id) == rf"{{{TEXT}}}\4097"
    assert MessageId.parse(rf"{{{TEXT.upper()}}}\4097") == message_id
    assert MessageId.parse(rf"{{{TEXT}}}\4294967295").ordinal == 0xFFFFFFFF


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("", 0),
        (rf"{TEXT}\1", 0),
        (f"{{{TEXT}}}", 37),
        (f"{{{TEXT}\\1", 37),
        (f"{{{TEXT}}}1", 37),
        (f"{{{TEXT}}}\\", 39),
        (rf"{{{TEXT}}}\x", 39),
        (rf"{{{TEXT}}}\-1", 39),
        (rf"{{{TEXT}}}\1 ", 40),
        (rf"{{{TEXT}}}\4294967296", 39),
        (rf"{{{TEXT}}}\{'1' * 5000}", 39),
    ],
)
def test_nothing_else_is_a_message_id(text: str, position: int) -> None:
    with pytest.raises(IllegalIdentifier) as caught:
        MessageId.parse(text)
    assert caught.value.position == position
