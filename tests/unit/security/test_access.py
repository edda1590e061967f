"""The access check, [MS-DTYP] 2.5.3.2, compared with vectors and with a second check, written from the pseudocode."""

from __future__ import annotations

from random import Random

import pytest
from impacket.ldap import ldaptypes

from postroad.security.access import (
    ADMINISTRATORS,
    ANONYMOUS,
    AUTHENTICATED_USERS,
    Token,
    allowed,
    is_account,
)
from postroad.security.descriptors import EVERYONE, OWNER_RIGHTS, Ace, AceType, Acl, SecurityDescriptor, Sid
from postroad.security.rights import QUEUE_MAPPING, QueueRight
from postroad.security.sddl import parse_sddl
from tests.unit.security import vectors
from tests.unit.security.evaluator import evaluate, evaluate_bit_by_bit, read

ANN = Sid.parse("S-1-5-21-1-2-3-1001")
BOB = Sid.parse("S-1-5-21-1-2-3-1002")
CLERKS = Sid.parse("S-1-5-21-1-2-3-2001")
DRIVERS = Sid.parse("S-1-5-21-1-2-3-2002")
WRITE = QueueRight.WRITE_MESSAGE.value
PEEK = QueueRight.PEEK_MESSAGE.value
RECEIVE = QueueRight.RECEIVE_MESSAGE.value
IMPLICIT = 0x60000  # READ_CONTROL and WRITE_DAC


@pytest.mark.parametrize(("name", "who"), vectors.VERDICTS)
def test_the_verdicts_of_the_vectors(name: str, who: str) -> None:
    token = {
        "owner": Token.of_user(vectors.OWNER),
        "another": Token.of_user(vectors.ANOTHER),
        "anonymous": Token.anonymous(),
    }[who]
    descriptor = SecurityDescriptor.decode(vectors.ALL[name])
    verdicts = tuple(allowed(descriptor, token, mask) for mask in (WRITE, RECEIVE, PEEK, 0x20000))
    assert verdicts == vectors.VERDICTS[name, who]


def check(sddl: str, token: Token, mask: int) -> bool:
    return allowed(parse_sddl(sddl.format(ann=ANN, bob=BOB, clerks=CLERKS)), token, mask)


def test_the_first_entry_that_names_a_right_decides() -> None:
    ann = Token.of_user(ANN)
    assert check("D:(A;;0x4;;;{ann})(D;;0x4;;;WD)", ann, WRITE)
    assert not check("D:(D;;0x4;;;WD)(A;;0x4;;;{ann})", ann, WRITE)


def test_entries_add_up() -> None:
    ann = Token.of_user(ANN, [CLERKS])
    assert check("D:(A;;0x1;;;{ann})(A;;0x2;;;{clerks})", ann, RECEIVE)
    assert not check("D:(A;;0x1;;;{ann})(A;;0x2;;;{bob})", ann, RECEIVE)


def test_a_denied_right_that_is_not_wanted_does_no_harm() -> None:
    assert check("D:(D;;0x3;;;{ann})(A;;0x7;;;{ann})", Token.of_user(ANN), WRITE)


def test_a_denial_counts_for_what_is_still_wanted() -> None:
    assert not check("D:(A;;0x2;;;{ann})(D;;0x1;;;{ann})(A;;0x1;;;{ann})", Token.of_user(ANN), RECEIVE)


def test_inherit_only_entries_are_for_children() -> None:
    assert not check("D:(A;IO;0x4;;;WD)", Token.of_user(ANN), WRITE)
    assert check("D:(D;IO;0x4;;;WD)(A;;0x4;;;WD)", Token.of_user(ANN), WRITE)


def test_inherited_entries_count() -> None:
    assert check("D:(A;ID;0x4;;;WD)", Token.of_user(ANN), WRITE)


def test_audit_lists_decide_nothing() -> None:
    assert not check("D:S:(AU;SAFA;0x4;;;WD)", Token.of_user(ANN), WRITE)
    misplaced = SecurityDescriptor(dacl=Acl((Ace(AceType.AUDIT, WRITE, EVERYONE),)))
    assert not allowed(misplaced, Token.of_user(ANN), WRITE)


def test_an_owner_reads_and_changes_the_list() -> None:
    ann = Token.of_user(ANN)
    assert check("O:{ann}D:", ann, IMPLICIT)
    assert check("O:{ann}D:(D;;0xf003f;;;WD)", ann, IMPLICIT)  # no entry takes it away ...
    assert check("O:{ann}D:(A;;0x4;;;{ann})", ann, IMPLICIT | WRITE)
    assert check("O:{clerks}D:", Token.of_user(ANN, [CLERKS]), IMPLICIT)
    assert not check("O:{ann}D:", ann, IMPLICIT | WRITE)
    assert not check("O:{bob}D:", ann, 0x20000)
    assert not check("D:", ann, 0x20000)


def test_an_entry_for_owner_rights_replaces_what_an_owner_has() -> None:
    ann = Token.of_user(ANN)
    assert not check("O:{ann}D:(A;;0x4;;;OW)", ann, 0x20000)  # ... but an entry for OWNER RIGHTS
    assert check("O:{ann}D:(A;;0x4;;;OW)", ann, WRITE)
    assert not check("O:{ann}D:(D;;0x4;;;OW)(A;;0x4;;;WD)", ann, WRITE)
    assert not check("O:{bob}D:(A;;0x4;;;OW)", ann, WRITE)
    assert check("O:{ann}D:(A;IO;0x4;;;OW)", ann, IMPLICIT)


def test_nobody_can_claim_to_be_owner_rights() -> None:
    for token in (Token.of_user(OWNER_RIGHTS), Token.of_user(ANN, [OWNER_RIGHTS]), Token(OWNER_RIGHTS)):
        assert not check("O:{bob}D:(A;;0x4;;;OW)", token, WRITE)
        assert not check("O:OWD:(A;;0x4;;;OW)", token, WRITE)


def test_who_is_in_a_token() -> None:
    assert Token.everyone() == Token(None, frozenset({EVERYONE}))
    assert Token.anonymous() == Token(ANONYMOUS, frozenset({EVERYONE}))
    assert Token.of_user(ANN, [CLERKS]) == Token(ANN, frozenset({CLERKS, EVERYONE, AUTHENTICATED_USERS}))


def test_authenticated_users_are_not_anonymous() -> None:
    assert check("D:(A;;0x4;;;AU)", Token.of_user(ANN), WRITE)
    assert not check("D:(A;;0x4;;;AU)", Token.anonymous(), WRITE)
    assert not check("D:(A;;0x4;;;AU)", Token.everyone(), WRITE)
    assert check("D:(A;;0x4;;;AN)", Token.anonymous(), WRITE)
    assert not check("D:(A;;0x4;;;AN)", Token.of_user(ANN), WRITE)
    assert not check("D:(A;;0x4;;;AN)", Token.everyone(), WRITE)


@pytest.mark.parametrize(
    "sid", ["S-1-5-32-544", "S-1-1-0", "S-1-5-11", "S-1-5-7", "S-1-3-4", "S-1-5-10", "S-1-16-16384", "S-1-5-113"]
)
def test_a_sender_who_claims_to_be_a_group_is_anonymous(sid: str) -> None:
    assert not is_account(Sid.parse(sid))
    assert Token.of_user(Sid.parse(sid), [CLERKS]) == Token.anonymous()


@pytest.mark.parametrize("sid", ["S-1-5-21-1-2-3-500", "S-1-5-18", "S-1-5-20", "S-1-5-80-1-2-3-4-5", "S-1-12-1-2-3-4"])
def test_accounts(sid: str) -> None:
    assert is_account(Sid.parse(sid))
    assert Token.of_user(Sid.parse(sid)).user == Sid.parse(sid)


def test_an_administrator_may_do_everything() -> None:
    for token in (Token.administrator(), Token.administrator(ANN, [CLERKS])):
        assert check("D:(D;;0xf003f;;;WD)", token, 0xF003F)
        assert check("D:", token, 0xFFFFFFFF)
        assert {ADMINISTRATORS, EVERYONE} <= token.groups


def test_the_audit_list_needs_a_privilege() -> None:
    assert not check("O:{ann}", Token.of_user(ANN), 0x1000000)
    assert not check("D:(A;;0xffffffff;;;WD)", Token.of_user(ANN), 0x1000004)


def test_generic_rights_count_after_mapping_only() -> None:
    descriptor = parse_sddl("D:(A;;GA;;;WD)")
    assert not allowed(descriptor, Token.everyone(), WRITE)
    assert allowed(descriptor.mapped(QUEUE_MAPPING), Token.everyone(), 0xF003F)


NAMES = [ANN, BOB, CLERKS, DRIVERS, EVERYONE, ANONYMOUS, AUTHENTICATED_USERS, ADMINISTRATORS, OWNER_RIGHTS]
BITS = [0x1, 0x2, 0x4, 0x8, 0x10, 0x20, 0x10000, 0x20000, 0x40000, 0x80000]
MASKS = [WRITE, PEEK, RECEIVE, 0xA, 0x20, 0x10, 0x10000, 0x20000, 0x40000, 0x60000, 0xF003F, 0x20024, 0x1000004]
TOKENS = [
    Token.anonymous(),
    Token.everyone(),
    Token.of_user(ANN),
    Token.of_user(BOB, [CLERKS]),
    Token.of_user(ANN, [CLERKS, DRIVERS]),
    Token.of_user(BOB, [ADMINISTRATORS]),
    Token(None),
]


def impacket_sid(sid: Sid) -> ldaptypes.LDAP_SID:
    made = ldaptypes.LDAP_SID()
    made.fromCanonical(str(sid))
    return made


def impacket_ace(random: Random) -> ldaptypes.ACE:
    kind = random.choices([0, 1, 2, 5, 6, 9, 10], [50, 35, 3, 3, 3, 3, 3])[0]
    ace = ldaptypes.ACE()
    ace["AceType"] = kind
    ace["AceFlags"] = random.choices([0, 0x8, 0xB, 0x10, 0x18, 0x3], [70, 6, 6, 6, 6, 6])[0]
    body = ldaptypes.ACE_TYPE_MAP[kind]()
    body["Mask"] = ldaptypes.ACCESS_MASK()
    body["Mask"]["Mask"] = sum(random.sample(BITS, random.choice([0, 1, 1, 2, 3, 5, 10])))
    body["Sid"] = impacket_sid(random.choice(NAMES))
    if kind in (5, 6):
        body["Flags"] = random.choice([0, 1])
        body["ObjectType"] = random.randbytes(16) if body["Flags"] else b""
        body["InheritedObjectType"] = b""
    if kind in (9, 10):
        body["ApplicationData"] = b"artx"
    ace["Ace"] = body
    return ace


def generated_descriptor(random: Random) -> bytes:
    descriptor = ldaptypes.SR_SECURITY_DESCRIPTOR()
    descriptor["Revision"], descriptor["Sbz1"], descriptor["Control"] = b"\x01", b"\x00", 0x8000
    owner = random.choice([None, *NAMES])
    descriptor["OwnerSid"] = b"" if owner is None else impacket_sid(owner)
    descriptor["GroupSid"] = descriptor["Sacl"] = descriptor["Dacl"] = b""
    if random.random() < 0.95:
        acl = ldaptypes.ACL()
        acl["AclRevision"], acl["Sbz1"], acl["Sbz2"] = 4, 0, 0
        acl.aces = [impacket_ace(random) for _ in range(random.choice([0, 1, 2, 3, 4, 6, 10]))]
        descriptor["Dacl"], descriptor["Control"] = acl, 0x8004
    return bytes(descriptor.getData())


@pytest.mark.spec("DM-3.1.1.2-07")
def test_generated_descriptors_and_tokens_against_a_second_check() -> None:
    random = Random(15)
    verdicts = {True: 0, False: 0}
    for number in range(400):
        data = generated_descriptor(random)
        descriptor, reference = SecurityDescriptor.decode(data), read(data)
        for token in TOKENS:
            sids = frozenset(str(sid) for sid in token.groups | ({token.user} if token.user else set()))
            for mask in MASKS:
                expected = evaluate(reference, sids, mask)
                assert evaluate_bit_by_bit(reference, sids, mask) == expected, (number, sids, hex(mask))
                assert allowed(descriptor, token, mask) == expected, (number, sids, hex(mask))
                verdicts[expected] += 1
    assert min(verdicts.values()) > 4000, verdicts  # both answers are common, so a check that says one of them fails
