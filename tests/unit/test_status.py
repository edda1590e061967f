"""HRESULT values, [MS-MQMQ] 2.4 and 1.7: their numbers. Our own numbers do not collide with them."""

from __future__ import annotations

import pytest

from postroad.errors import CUSTOMER_BIT, PostroadError, Status, VendorStatus

CODES = {
    "MQ-2.4-03": ("ERROR", 0xC00E0001),
    "MQ-2.4-04": ("QUEUE_NOT_FOUND", 0xC00E0003),
    "MQ-2.4-05": ("QUEUE_EXISTS", 0xC00E0005),
    "MQ-2.4-06": ("INVALID_PARAMETER", 0xC00E0006),
    "MQ-2.4-07": ("INVALID_HANDLE", 0xC00E0007),
    "MQ-2.4-08": ("OPERATION_CANCELLED", 0xC00E0008),
    "MQ-2.4-09": ("SHARING_VIOLATION", 0xC00E0009),
    "MQ-2.4-10": ("NO_DS", 0xC00E0013),
    "MQ-2.4-11": ("ILLEGAL_QUEUE_PATHNAME", 0xC00E0014),
    "MQ-2.4-13": ("IO_TIMEOUT", 0xC00E001B),
    "MQ-2.4-14": ("ILLEGAL_CURSOR_ACTION", 0xC00E001C),
    "MQ-2.4-15": ("MESSAGE_ALREADY_RECEIVED", 0xC00E001D),
    "MQ-2.4-16": ("ILLEGAL_FORMATNAME", 0xC00E001E),
    "MQ-2.4-17": ("UNSUPPORTED_FORMATNAME_OPERATION", 0xC00E0020),
    "MQ-2.4-18": ("ACCESS_DENIED", 0xC00E0025),
    "MQ-2.4-19": ("INSUFFICIENT_RESOURCES", 0xC00E0027),
    "MQ-2.4-20": ("UNSUPPORTED_ACCESS_MODE", 0xC00E0045),
    "MQ-2.4-21": ("QUEUE_NOT_AVAILABLE", 0xC00E004B),
    "MQ-2.4-22": ("TRANSACTION_USAGE", 0xC00E0050),
    "MQ-2.4-26": ("REMOTE_MACHINE_NOT_AVAILABLE", 0xC00E0069),
    "MQ-2.4-27": ("MESSAGE_NOT_FOUND", 0xC00E0088),
    "MQ-2.4-28": ("MESSAGE_NOT_AUTHENTICATED", 0xC00E009B),
}
# Their rows ask for a situation: another test has it, or nothing here returns the code yet.
NUMBERS = [
    ("INFORMATION_OPERATION_PENDING", 0x400E0006),
    ("BUFFER_OVERFLOW", 0xC00E001A),
    ("TRANSACTION_SEQUENCE", 0xC00E0051),
    ("STALE_HANDLE", 0xC00E0056),
    ("QUEUE_DELETED", 0xC00E005A),
    ("MESSAGE_LOCKED_UNDER_TRANSACTION", 0xC00E009C),
]
NOT_OF_MSMQ = {each for each in Status if each.name.startswith("STATUS_")}


def error_classes(root: type[PostroadError]) -> set[type[PostroadError]]:
    return {root}.union(*map(error_classes, root.__subclasses__()))


@pytest.mark.parametrize(
    ("name", "value"),
    [*NUMBERS, *(pytest.param(*code, id=code[0], marks=pytest.mark.spec(row)) for row, code in CODES.items())],
)
def test_each_code_has_its_number(name: str, value: int) -> None:
    assert Status[name] == value


@pytest.mark.spec("MQ-2.4-01")
def test_success_is_0_information_starts_with_400e_and_errors_with_c00e() -> None:
    assert Status["OK"].value == 0
    for status in set(Status) - {Status.OK} - NOT_OF_MSMQ:
        assert status >> 16 == (0x400E if status.name.startswith("INFORMATION") else 0xC00E)


@pytest.mark.spec("MQ-2.4-30")
def test_the_codes_that_the_sister_specifications_add() -> None:
    assert Status["INFORMATION_REMOTE_CANCELED_BY_CLIENT"].value == 0x400E03E9
    assert Status["STATUS_NOT_FOUND"].value == 0xC0000225


@pytest.mark.spec("MQ-1.7-01", "RR-1.8-01")
def test_the_customer_bit_marks_our_own_codes_and_no_other() -> None:
    assert CUSTOMER_BIT == 0x20000000
    assert len(VendorStatus) > 0
    assert all(status & 0x20000000 for status in VendorStatus)
    assert not any(status & 0x20000000 for status in Status)


@pytest.mark.spec("MQ-1.7-01", "RR-1.8-01")
def test_every_error_has_a_code_of_either_kind() -> None:
    classes = error_classes(PostroadError)
    assert len(classes) > 10
    assert {type(error.status) for error in classes} == {Status, VendorStatus}
