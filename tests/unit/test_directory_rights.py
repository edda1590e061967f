"""A queue's access list as Active Directory keeps it: control access rights for messages, its own for the rest."""

from __future__ import annotations

import pytest

from postroad.errors import RemoteProtocolError
from postroad.security.access import AUTHENTICATED_USERS, Token, allowed, default_queue_descriptor
from postroad.security.descriptors import EVERYONE, Ace, AceFlag, AceType, Acl, OtherAce, SecurityDescriptor, Sid
from postroad.security.directory_rights import DirectoryRight, directory_descriptor, queue_descriptor
from postroad.security.rights import QueueRight

CLERK = Sid.parse("S-1-5-21-1-2-3-1105")
WRITER = Sid.parse("S-1-5-21-1-2-3-1106")
SEND = "06bd3202-df3e-11d1-9c86-006008764d0e"
SINGLE = [QueueRight(1 << bit) for bit in (0, 1, 2, 3, 4, 5, 16, 17, 18, 19)]


def _list(*aces: Ace | OtherAce) -> SecurityDescriptor:
    return SecurityDescriptor(dacl=Acl(aces))


def _aces(descriptor: SecurityDescriptor) -> tuple[Ace | OtherAce, ...]:
    assert descriptor.dacl is not None
    return descriptor.dacl.aces


@pytest.mark.parametrize("right", SINGLE, ids=str)
def test_each_right_that_is_denied_comes_back(right: QueueRight) -> None:
    written = directory_descriptor(_list(Ace(AceType.DENY, right.value, CLERK)))
    assert _aces(queue_descriptor(written)) == (Ace(AceType.DENY, right.value, CLERK),)


@pytest.mark.parametrize(
    "right",
    [
        QueueRight.RECEIVE_MESSAGE,
        QueueRight.RECEIVE_JOURNAL_MESSAGE,
        QueueRight.QUEUE_GENERIC_ALL,
        *SINGLE[1:3],
        *SINGLE[4:],
    ],
    ids=str,
)
def test_each_right_that_is_granted_comes_back(right: QueueRight) -> None:
    back = queue_descriptor(directory_descriptor(_list(Ace(AceType.ALLOW, right.value, CLERK))))
    clerk = Token.of_user(CLERK)
    for each in SINGLE:
        assert allowed(back, clerk, each.value) == bool(each & right), each


def test_who_may_see_the_properties_may_not_write_to_the_directory() -> None:
    # the same bit, 0x20, means "see the properties" for MSMQ and "write properties" for the directory
    (written,) = _aces(directory_descriptor(_list(Ace(AceType.ALLOW, QueueRight.GET_QUEUE_PROPERTIES.value, EVERYONE))))
    assert isinstance(written, Ace)
    assert written.mask == DirectoryRight.READ_PROPERTY


def test_nobody_but_the_writer_may_change_the_object_of_a_queue_without_a_list() -> None:
    aces = _aces(directory_descriptor(SecurityDescriptor(), WRITER))
    plain = {ace.sid: ace.mask for ace in aces if isinstance(ace, Ace)}
    assert plain[EVERYONE] == DirectoryRight.READ_PROPERTY | DirectoryRight.READ_CONTROL
    assert plain[WRITER] & DirectoryRight.WRITE_PROPERTY


def test_the_writer_comes_before_an_entry_that_denies_everyone() -> None:
    aces = _aces(directory_descriptor(_list(Ace(AceType.DENY, 0xF003F, EVERYONE)), WRITER))
    assert isinstance(aces[0], Ace)
    assert (aces[0].sid, aces[0].type) == (WRITER, AceType.ALLOW)


def test_the_default_list_lets_everyone_send() -> None:
    back = queue_descriptor(directory_descriptor(default_queue_descriptor(CLERK)))
    assert allowed(back, Token.everyone(), QueueRight.WRITE_MESSAGE.value)
    assert not allowed(back, Token.everyone(), QueueRight.RECEIVE_MESSAGE.value)
    assert allowed(back, Token.of_user(CLERK), QueueRight.QUEUE_GENERIC_ALL.value)


def test_the_schemas_default_list_lets_users_see_and_not_send() -> None:
    # D:(A;;RPLCLORC;;;AU), of the class mSMQQueue
    back = queue_descriptor(_list(Ace(AceType.ALLOW, 0x20094, AUTHENTICATED_USERS)))
    clerk = Token.of_user(CLERK)
    assert allowed(back, clerk, (QueueRight.GET_QUEUE_PROPERTIES | QueueRight.GET_QUEUE_PERMISSIONS).value)
    for right in (QueueRight.WRITE_MESSAGE, QueueRight.PEEK_MESSAGE, QueueRight.SET_QUEUE_PROPERTIES):
        assert not allowed(back, clerk, right.value)


@pytest.mark.parametrize("mask", [0xF01FF, 0x10000000, 0x100], ids=["full", "generic", "every control access right"])
def test_full_control_includes_the_messages(mask: int) -> None:
    back = queue_descriptor(_list(Ace(AceType.ALLOW, mask, CLERK)))
    assert allowed(back, Token.of_user(CLERK), (QueueRight.RECEIVE_MESSAGE | QueueRight.WRITE_MESSAGE).value)


def test_entries_that_say_nothing_about_the_queue_are_left_out() -> None:
    sid = CLERK.encode()
    title = bytes.fromhex("00" * 16)  # of an attribute
    found = queue_descriptor(
        _list(
            OtherAce(0x05, (0x20).to_bytes(4, "little") + (1).to_bytes(4, "little") + title + sid),  # one attribute
            OtherAce(0x05, (0x100).to_bytes(4, "little") + (1).to_bytes(4, "little") + title + sid),  # another right
            OtherAce(0x05, (0x100).to_bytes(4, "little") + (1).to_bytes(4, "little")),  # cut
            OtherAce(0x05, b"\1\0\0\0"),  # cut
            OtherAce(0x09, b"\1\0\0\0"),  # conditional
            Ace(AceType.ALLOW, 0xF01FF, CLERK, AceFlag.INHERIT_ONLY),
            Ace(AceType.AUDIT, 0xF01FF, CLERK),
        )
    )
    assert _aces(found) == ()


def test_an_entry_that_denies_and_cannot_be_read_is_a_fault_of_the_list() -> None:
    for body in (b"", bytes(8), bytes(4) + b"\1\0\0\0" + bytes(8), bytes(8) + b"\1\5\0\0\0\0\0\1"):
        with pytest.raises(RemoteProtocolError):
            queue_descriptor(SecurityDescriptor(dacl=Acl((OtherAce(6, body),))))
        assert queue_descriptor(SecurityDescriptor(dacl=Acl((OtherAce(5, body),)))).dacl == Acl()
    for kind in (0x0A, 0x0C):
        with pytest.raises(RemoteProtocolError):
            queue_descriptor(SecurityDescriptor(dacl=Acl((OtherAce(kind, bytes(20)),))))
