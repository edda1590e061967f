"""Access rights, [MS-MQMQ] 2.2.3 and 2.2.23 to 2.2.27: the bits of each mask and the sums that have names."""

from __future__ import annotations

from enum import IntFlag

import pytest

from postroad.errors import InvalidArgument
from postroad.security.rights import (
    MANAGER_MAPPING,
    QUEUE_MAPPING,
    QUEUE_RIGHT_WORDS,
    ConnectedNetworkRight,
    EnterpriseRight,
    QueueManagerRight,
    QueueRight,
    SecurityInformation,
    SiteRight,
    parse_queue_rights,
)


def single(mask: type[IntFlag]) -> dict[str, int]:
    """The rights that consist of one bit."""
    return {right.name or "": right.value for right in mask}


def composite(mask: type[IntFlag]) -> dict[str, int]:
    return {name: right.value for name, right in mask.__members__.items() if right.value & (right.value - 1)}


def standard(kind: str) -> dict[str, int]:
    return {
        f"DELETE_{kind}": 0x10000,
        f"GET_{kind}_PERMISSIONS": 0x20000,
        f"CHANGE_{kind}_PERMISSIONS": 0x40000,
        f"TAKE_{kind}_OWNERSHIP": 0x80000,
    }


def specific(mask: type[IntFlag]) -> dict[str, int]:
    return {name: value for name, value in single(mask).items() if value < 0x10000}


def common(mask: type[IntFlag]) -> dict[str, int]:
    return {name: value for name, value in single(mask).items() if value >= 0x10000}


@pytest.mark.spec("MQ-2.2.3-01")
def test_the_parts_of_a_security_descriptor() -> None:
    assert single(SecurityInformation) == {"OWNER": 1, "GROUP": 2, "DACL": 4, "SACL": 8}
    assert SecurityInformation.OWNER | SecurityInformation.DACL == 5


@pytest.mark.spec("MQ-2.2.23-01")
def test_rights_on_a_queue_manager() -> None:
    assert specific(QueueManagerRight) == {
        "DELETE_DEADLETTER_MESSAGE": 0x1,
        "PEEK_DEADLETTER_MESSAGE": 0x2,
        "CREATE_QUEUE": 0x4,
        "SET_MACHINE_PROPERTIES": 0x10,
        "GET_MACHINE_PROPERTIES": 0x20,
        "DELETE_JOURNAL_QUEUE_MESSAGE": 0x40,
        "PEEK_JOURNAL_QUEUE_MESSAGE": 0x80,
    }


@pytest.mark.spec("MQ-2.2.23-02")
def test_standard_rights_on_a_queue_manager() -> None:
    assert common(QueueManagerRight) == standard("MACHINE")


@pytest.mark.spec("MQ-2.2.23-03")
def test_sums_of_rights_on_a_queue_manager() -> None:
    assert composite(QueueManagerRight) == {
        "RECEIVE_DEADLETTER_MESSAGE": 0x3,
        "RECEIVE_JOURNAL_QUEUE_MESSAGE": 0xC0,
        "MACHINE_WORLD_RIGHTS": 0x20020,
        "MACHINE_GENERIC_READ": 0x200E3,
        "MACHINE_GENERIC_WRITE": 0x20024,
        "MACHINE_GENERIC_ALL": 0xF00F7,
    }


@pytest.mark.spec("MQ-2.2.24-02")
def test_rights_on_a_queue() -> None:
    assert specific(QueueRight) == {
        "DELETE_MESSAGE": 0x1,
        "PEEK_MESSAGE": 0x2,
        "WRITE_MESSAGE": 0x4,
        "DELETE_JOURNAL_MESSAGE": 0x8,
        "SET_QUEUE_PROPERTIES": 0x10,
        "GET_QUEUE_PROPERTIES": 0x20,
    }


@pytest.mark.spec("MQ-2.2.24-03")
def test_standard_rights_on_a_queue() -> None:
    assert common(QueueRight) == standard("QUEUE")


@pytest.mark.spec("MQ-2.2.24-04", "MQ-2.2.24-05")
def test_sums_of_rights_on_a_queue() -> None:
    assert composite(QueueRight) == {
        "RECEIVE_MESSAGE": 0x3,
        "RECEIVE_JOURNAL_MESSAGE": 0xA,
        "QUEUE_GENERIC_READ": 0x2002B,
        "QUEUE_GENERIC_WRITE": 0x20024,
        "QUEUE_GENERIC_ALL": 0xF003F,
    }


@pytest.mark.spec("MQ-2.2.25-01")
def test_rights_on_a_site() -> None:
    assert specific(SiteRight) == {
        "CREATE_FRS": 0x1,
        "CREATE_BSC": 0x2,
        "CREATE_MACHINE": 0x4,
        "SET_SITE_PROPERTIES": 0x10,
        "GET_SITE_PROPERTIES": 0x20,
    }
    assert common(SiteRight) == standard("SITE")
    assert composite(SiteRight) == {
        "SITE_GENERIC_READ": 0x20020,
        "SITE_GENERIC_WRITE": 0x20024,
        "SITE_GENERIC_ALL": 0xF0037,
    }


@pytest.mark.spec("MQ-2.2.26-01")
def test_rights_on_an_enterprise() -> None:
    assert specific(EnterpriseRight) == {
        "CREATE_USER": 0x1,
        "CREATE_SITE": 0x2,
        "CREATE_CN": 0x4,
        "SET_ENTERPRISE_PROPERTIES": 0x10,
        "GET_ENTERPRISE_PROPERTIES": 0x20,
    }
    assert common(EnterpriseRight) == standard("ENTERPRISE")
    assert composite(EnterpriseRight) == {
        "ENTERPRISE_GENERIC_READ": 0x20021,
        "ENTERPRISE_GENERIC_WRITE": 0x20027,
        "ENTERPRISE_GENERIC_ALL": 0xF0037,
    }


@pytest.mark.spec("MQ-2.2.27-01")
def test_rights_on_a_connected_network() -> None:
    assert specific(ConnectedNetworkRight) == {
        "CN_OPEN_CONNECTOR": 0x1,
        "SET_CN_PROPERTIES": 0x10,
        "GET_CN_PROPERTIES": 0x20,
    }
    assert common(ConnectedNetworkRight) == standard("CN")
    assert composite(ConnectedNetworkRight) == {"CN_GENERIC_READ": 0x20020, "CN_GENERIC_ALL": 0xF0031}


def test_generic_rights_on_a_queue_and_on_its_manager() -> None:
    assert [QUEUE_MAPPING.map(bit) for bit in (0x80000000, 0x40000000, 0x20000000, 0x10000000)] == [
        0x2002B,
        0x20024,
        0,
        0xF003F,
    ]
    assert [MANAGER_MAPPING.map(bit) for bit in (0x80000000, 0x40000000, 0x20000000, 0x10000000)] == [
        0x200E3,
        0x20024,
        0,
        0xF00F7,
    ]
    assert QUEUE_MAPPING.map(0x80010001) == 0x3002B  # specific rights stay
    assert QUEUE_MAPPING.map(0xF003F) == 0xF003F


@pytest.mark.spec("MQ-2.2.24-04")
def test_the_words_for_the_rights_on_a_queue() -> None:
    assert QUEUE_RIGHT_WORDS == {
        "write": 0x4,
        "peek": 0x2,
        "receive": 0x3,
        "purge": 0x3,
        "receive-journal": 0xA,
        "get-properties": 0x20,
        "set-properties": 0x10,
        "delete": 0x10000,
        "get-permissions": 0x20000,
        "set-permissions": 0x40000,
        "take-ownership": 0x80000,
        "full": 0xF003F,
    }
    assert parse_queue_rights(["write", "peek", "delete"]) == 0x10006


def test_a_word_that_is_not_a_right() -> None:
    with pytest.raises(InvalidArgument, match=r"^right must be one of write, peek, .*, full, got 'read'$"):
        parse_queue_rights(["write", "read"])
    for word, meant in (("recieve", "receive"), ("Peek", "peek"), ("send", "write")):
        with pytest.raises(InvalidArgument, match=rf"got '{word}'; did you mean {meant}\?$"):
            parse_queue_rights([word])
    with pytest.raises(InvalidArgument, match=r"^right must be at least one of write, .*, got none$"):
        parse_queue_rights([])
