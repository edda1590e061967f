"""Default descriptors of queues and managers, and the edits of an access list."""

from __future__ import annotations

import pytest

from postroad.security.access import (
    ADMINISTRATORS,
    ANONYMOUS,
    Token,
    allowed,
    default_manager_descriptor,
    default_queue_descriptor,
    deny,
    grant,
    revoke,
)
from postroad.security.descriptors import EVERYONE, Ace, AceType, Acl, OtherAce, SecurityDescriptor, Sid
from postroad.security.rights import QueueManagerRight, QueueRight
from postroad.security.sddl import format_sddl, parse_sddl
from tests.unit.security import vectors

ANN = Sid.parse("S-1-5-21-1-2-3-1001")
BOB = Sid.parse("S-1-5-21-1-2-3-1002")
GUEST = Sid.parse("S-1-5-21-1-2-3-501")
MACHINE = Sid.parse("S-1-5-21-1-2-3-1100")
WRITE = QueueRight.WRITE_MESSAGE.value


@pytest.mark.spec("DM-3.1.7.1.3.1-03", "DM-3.1.7.1.3.1-05", "DM-3.1.7.1.3.1-06")
def test_the_default_of_a_domain_user_byte_by_byte() -> None:
    assert default_queue_descriptor(vectors.OWNER).encode() == vectors.DEFAULT


@pytest.mark.spec("DM-3.1.7.1.3.1-03")
def test_without_srmp_everyone_only_sees_the_queue() -> None:
    assert format_sddl(default_queue_descriptor(ANN, srmp=False)) == f"O:{ANN}D:(A;;0x20020;;;WD)(A;;0xf003f;;;{ANN})"


@pytest.mark.spec("DM-3.1.7.1.3.1-06")
def test_the_machine_stands_before_the_owner() -> None:
    assert format_sddl(default_queue_descriptor(ANN, machine=MACHINE)) == (
        f"O:{ANN}D:(A;;0x20024;;;WD)(A;;0x4;;;AN)(A;;0x20020;;;{MACHINE})(A;;0xf003f;;;{ANN})"
    )


@pytest.mark.spec("DM-3.1.7.1.3.1-01", "DM-3.1.7.1.3.1-04")
@pytest.mark.parametrize("creator", [None, ANONYMOUS, EVERYONE])
def test_a_creator_who_is_no_user_leaves_the_queue_to_everyone(creator: Sid | None) -> None:
    assert format_sddl(default_queue_descriptor(creator)) == "O:AND:(A;;0xf003f;;;WD)(A;;0x4;;;AN)"
    assert format_sddl(default_queue_descriptor(creator, srmp=False)) == "O:AND:(A;;0xf003f;;;WD)"


@pytest.mark.spec("DM-3.1.7.1.3.1-01", "DM-3.1.7.1.3.1-04")
def test_who_is_a_domain_user_can_be_asked() -> None:
    descriptor = default_queue_descriptor(ANN, srmp=False, is_domain_user=lambda sid: sid != ANN)
    assert format_sddl(descriptor) == "O:AND:(A;;0xf003f;;;WD)"
    assert default_queue_descriptor(BOB, is_domain_user=lambda sid: sid != ANN).owner == BOB


@pytest.mark.spec("DM-3.1.7.1.3.1-04")
def test_a_guest_owns_a_queue_that_is_open_to_everyone() -> None:
    assert format_sddl(default_queue_descriptor(GUEST, srmp=False)) == f"O:{GUEST}D:(A;;0xf003f;;;WD)"


@pytest.mark.spec("DM-3.1.7.1.3.1-01", "DM-3.1.7.1.3.1-02")
def test_a_supplied_owner_and_supplied_lists_are_kept() -> None:
    supplied = parse_sddl(f"O:{BOB}G:BUD:P(A;;0x4;;;AU)S:(AU;FA;0x4;;;WD)")
    assert default_queue_descriptor(ANN, supplied=supplied) == supplied
    without_owner = parse_sddl("D:(A;;0x4;;;AU)")
    assert format_sddl(default_queue_descriptor(ANN, supplied=without_owner)) == f"O:{ANN}D:(A;;0x4;;;AU)"
    without_dacl = parse_sddl(f"O:{BOB}")
    assert default_queue_descriptor(ANN, supplied=without_dacl) == default_queue_descriptor(BOB)
    empty = default_queue_descriptor(ANN, supplied=SecurityDescriptor(dacl=Acl()))
    assert empty.dacl == Acl()


def test_generic_rights_of_a_supplied_list_become_rights_of_a_queue() -> None:
    supplied = parse_sddl(f"O:{BOB}D:(A;;GA;;;AU)")
    assert format_sddl(default_queue_descriptor(ANN, supplied=supplied)) == f"O:{BOB}D:(A;;0xf003f;;;AU)"


def test_the_default_of_a_queue_in_the_configuration() -> None:
    descriptor = default_queue_descriptor()
    assert format_sddl(descriptor) == "O:BAD:(A;;0x20024;;;WD)(A;;0x4;;;AN)(A;;0xf003f;;;BA)"
    for token in (Token.anonymous(), Token.everyone(), Token.of_user(ANN)):
        assert allowed(descriptor, token, WRITE)
        assert not allowed(descriptor, token, QueueRight.PEEK_MESSAGE)
        assert not allowed(descriptor, token, QueueRight.CHANGE_QUEUE_PERMISSIONS)


@pytest.mark.spec("DM-3.1.1.1-05")
def test_the_default_of_a_manager() -> None:
    descriptor = default_manager_descriptor(ANN, machine=MACHINE)
    assert format_sddl(descriptor) == f"O:{ANN}D:(A;;0x20020;;;WD)(A;;0xf00f7;;;{MACHINE})(A;;0xf00f7;;;{ANN})"
    assert allowed(descriptor, Token.of_user(ANN), QueueManagerRight.CREATE_QUEUE)
    assert not allowed(descriptor, Token.of_user(BOB), QueueManagerRight.CREATE_QUEUE)
    foreign = default_manager_descriptor(foreign=True)
    assert format_sddl(foreign) == "O:BAD:(A;;0x20024;;;WD)(A;;0xf00f7;;;BA)"
    assert allowed(foreign, Token.of_user(BOB), QueueManagerRight.CREATE_QUEUE)


def edited(sddl: str, *edits: tuple[object, Sid, int]) -> str:
    descriptor = parse_sddl(sddl.format(ann=ANN, bob=BOB))
    for edit, who, mask in edits:
        assert callable(edit)
        descriptor = edit(descriptor, who, mask)
    return format_sddl(descriptor).replace(str(ANN), "ann").replace(str(BOB), "bob")


def test_a_grant_comes_behind_the_entries_that_deny() -> None:
    assert edited("D:", (grant, ANN, 4)) == "D:(A;;0x4;;;ann)"
    assert edited("D:(D;;0x2;;;WD)", (grant, ANN, 4)) == "D:(D;;0x2;;;WD)(A;;0x4;;;ann)"
    assert edited("D:(A;;0x2;;;WD)(D;;0x2;;;AN)", (grant, ANN, 4)) == "D:(A;;0x2;;;WD)(D;;0x2;;;AN)(A;;0x4;;;ann)"


def test_a_denial_comes_before_the_entries_that_allow() -> None:
    assert edited("D:(A;;0x4;;;WD)", (deny, ANN, 4)) == "D:(D;;0x4;;;ann)(A;;0x4;;;WD)"
    assert edited("D:(D;;0x1;;;AN)(A;;0x4;;;WD)", (deny, ANN, 4)) == "D:(D;;0x1;;;AN)(D;;0x4;;;ann)(A;;0x4;;;WD)"
    assert edited("D:(A;;0x4;;;WD)(D;;0x1;;;AN)", (deny, ANN, 4)) == "D:(D;;0x4;;;ann)(A;;0x4;;;WD)(D;;0x1;;;AN)"


def test_a_grant_does_not_lift_a_denial() -> None:
    text = edited("D:", (grant, ANN, 4), (deny, ANN, 4), (grant, ANN, 4))
    assert text == "D:(D;;0x4;;;ann)(A;;0x4;;;ann)"
    assert not allowed(parse_sddl(text.replace("ann", str(ANN))), Token.of_user(ANN), 4)


def test_rights_of_one_name_gather_in_one_entry() -> None:
    assert edited("D:", (grant, ANN, 4), (grant, BOB, 2), (grant, ANN, 2)) == "D:(A;;0x6;;;ann)(A;;0x2;;;bob)"
    assert edited("D:", (deny, ANN, 4), (deny, BOB, 2), (deny, ANN, 2)) == "D:(D;;0x6;;;ann)(D;;0x2;;;bob)"


def test_an_entry_for_children_gets_no_more_rights() -> None:
    assert edited("D:(A;IO;0x2;;;{ann})", (grant, ANN, 4)) == "D:(A;IO;0x2;;;ann)(A;;0x4;;;ann)"


def test_an_entry_before_a_denial_gets_no_more_rights() -> None:
    """Another entry is added after the denial, because the one before it would override the denial."""
    assert edited("D:(A;;0x2;;;{ann})(D;;0x4;;;WD)", (grant, ANN, 4)) == ("D:(A;;0x2;;;ann)(D;;0x4;;;WD)(A;;0x4;;;ann)")
    assert edited("D:(A;;0x2;;;WD)(D;;0x1;;;{ann})", (deny, ANN, 2)) == "D:(D;;0x2;;;ann)(A;;0x2;;;WD)(D;;0x1;;;ann)"


def test_own_entries_come_before_inherited_ones() -> None:
    inherited = "(D;ID;0x4;;;WD)(A;ID;0x6;;;ann)"
    assert edited("D:(D;ID;0x4;;;WD)(A;ID;0x6;;;{ann})", (grant, ANN, 4)) == f"D:(A;;0x4;;;ann){inherited}"
    assert edited("D:(D;ID;0x4;;;WD)(A;ID;0x6;;;{ann})", (deny, ANN, 2)) == f"D:(D;;0x2;;;ann){inherited}"


def test_where_everything_is_allowed() -> None:
    """Without a DACL, a grant has nothing to add, and a denial leaves the rest to everyone."""
    assert edited("O:BA", (grant, ANN, 4)) == "O:BA"
    assert edited("O:BA", (revoke, ANN, 4)) == "O:BA"
    assert edited("O:BA", (deny, ANN, 4)) == "O:BAD:(D;;0x4;;;ann)(A;;0xf003f;;;WD)"
    manager = deny(SecurityDescriptor(), ANN, 4, full=0xF00F7)
    assert format_sddl(manager) == f"D:(D;;0x4;;;{ANN})(A;;0xf00f7;;;WD)"


def test_revoking_takes_rights_out_of_both_kinds_of_entries() -> None:
    before = "D:(D;;0x6;;;{ann})(D;;0x4;;;{bob})(A;;0x7;;;{ann})(A;;0x4;;;{ann})(A;;0x4;;;WD)"
    assert edited(before, (revoke, ANN, 4)) == "D:(D;;0x2;;;ann)(D;;0x4;;;bob)(A;;0x3;;;ann)(A;;0x4;;;WD)"
    assert edited(before, (revoke, ANN, 0xF003F)) == "D:(D;;0x4;;;bob)(A;;0x4;;;WD)"
    assert edited("D:(A;;0x4;;;{ann})", (revoke, ANN, 4)) == "D:"  # an empty list, which allows nothing


def test_edits_leave_everything_else_alone() -> None:
    other = OtherAce(5, b"\x01\x02\x03\x04")
    before = SecurityDescriptor(ANN, ADMINISTRATORS, Acl((other,)), Acl((Ace(AceType.AUDIT, 4, ANN),)))
    after = revoke(deny(grant(before, BOB, 4), BOB, 2), BOB, 6)
    assert after == before
    assert revoke(SecurityDescriptor(dacl=before.sacl), ANN, 4).dacl == before.sacl
