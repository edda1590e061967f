"""Security descriptors as text, [MS-DTYP] 2.5.1."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.errors import IllegalIdentifier, LocalProtocolError
from postroad.security.descriptors import (
    EVERYONE,
    Ace,
    AceFlag,
    AceType,
    Acl,
    Control,
    OtherAce,
    SecurityDescriptor,
    Sid,
)
from postroad.security.sddl import ALIASES, DOMAIN_ALIASES, MAX_CHARACTERS, format_sddl, parse_sddl
from tests.unit.security import vectors
from tests.unit.security.strategies import descriptors_in_text

ANN = Sid.parse("S-1-5-21-1-2-3-1001")


def test_the_example_of_the_specification() -> None:
    assert parse_sddl(vectors.SDDL_EXAMPLE) == SecurityDescriptor.decode(vectors.SDDL_EXAMPLE_BYTES)


def test_printing_is_canonical() -> None:
    assert format_sddl(parse_sddl(vectors.SDDL_EXAMPLE)) == (
        "O:BAG:BAD:P(A;OICI;0xa0000000;;;BU)(A;OICI;0x10000000;;;BA)(A;OICI;0x10000000;;;SY)(A;OICI;0x10000000;;;CO)"
        "S:P(AU;FA;0x80000000;;;WD)"
    )


def test_the_default_of_a_queue_as_text() -> None:
    text = f"O:{vectors.OWNER}D:(A;;0x20024;;;WD)(A;;0x4;;;AN)(A;;0xf003f;;;{vectors.OWNER})"
    assert format_sddl(SecurityDescriptor.decode(vectors.DEFAULT)) == text
    assert parse_sddl(text).encode() == vectors.DEFAULT


@given(descriptors_in_text())
def test_text_leads_back_to_an_equal_descriptor(descriptor: SecurityDescriptor) -> None:
    text = format_sddl(descriptor)
    assert parse_sddl(text) == descriptor
    assert format_sddl(parse_sddl(text)) == text


def test_without_a_dacl_in_the_text_there_is_none() -> None:
    assert parse_sddl("O:BA") == SecurityDescriptor(owner=ALIASES["BA"])
    assert parse_sddl("O:BAD:").dacl == Acl()
    assert parse_sddl("O:BAD:NO_ACCESS_CONTROL").dacl is None  # as Windows writes it
    assert format_sddl(SecurityDescriptor()) == "D:NO_ACCESS_CONTROL"


@pytest.mark.parametrize(
    ("text", "control"),
    [
        ("D:P", Control.DACL_PROTECTED),
        ("D:PARAI", Control.DACL_PROTECTED | Control.DACL_INHERITANCE_REQUIRED | Control.DACL_AUTO_INHERITED),
        ("D:AIS:AI", Control.DACL_AUTO_INHERITED | Control.SACL_AUTO_INHERITED),
        ("D:PS:P", Control.DACL_PROTECTED | Control.SACL_PROTECTED),
        ("S:AR", Control.SACL_INHERITANCE_REQUIRED),
    ],
)
def test_flags_of_the_lists(text: str, control: Control) -> None:
    assert parse_sddl(text).control == control


@pytest.mark.parametrize(
    ("rights", "mask"),
    [
        ("0x4", 0x4),
        ("0xF003F", 0xF003F),
        ("0xffffffff", 0xFFFFFFFF),
        ("4", 4),
        ("010", 8),
        ("0", 0),
        ("", 0),
        ("GA", 0x10000000),
        ("GRGWGX", 0xE0000000),
        ("RCWDWOSD", 0xF0000),
        ("CCDCLCSWRPWPSDRCWDWO", 0xF003F),
        ("KA", 0xF003F),
        ("DTLOCR", 0x1C0),
    ],
)
def test_rights_as_numbers_and_words(rights: str, mask: int) -> None:
    assert parse_sddl(f"D:(A;;{rights};;;WD)").dacl == Acl((Ace(AceType.ALLOW, mask, EVERYONE),))


def test_kinds_and_flags_of_entries() -> None:
    assert parse_sddl(f"D:(D;CIIOID;0x4;;;{ANN})").dacl == Acl(
        (Ace(AceType.DENY, 4, ANN, AceFlag.CONTAINER_INHERIT | AceFlag.INHERIT_ONLY | AceFlag.INHERITED),)
    )


@pytest.mark.parametrize(
    ("alias", "sid"),
    [
        ("WD", "S-1-1-0"),
        ("AN", "S-1-5-7"),
        ("AU", "S-1-5-11"),
        ("BA", "S-1-5-32-544"),
        ("BU", "S-1-5-32-545"),
        ("SY", "S-1-5-18"),
        ("NS", "S-1-5-20"),
        ("CO", "S-1-3-0"),
        ("OW", "S-1-3-4"),
    ],
)
def test_well_known_sids_have_aliases(alias: str, sid: str) -> None:
    assert parse_sddl(f"O:{sid}") == parse_sddl(f"O:{alias}")
    assert format_sddl(parse_sddl(f"O:{sid}")) == f"O:{alias}"


def test_every_alias_of_the_specification_is_known() -> None:
    specified = (
        "DA DG DU ED DD DC BA BG BU LA LG AO BO PO SO AU PS CO CG SY PU WD RE IU NU SU RC WR AN SA CA RS EA PA RU LS "
        "NS RD NO MU LU IS CY OW ER RO CD AC RA ES MS UD HA CN AA RM LW ME MP HI SI"
    )
    assert set(specified.split()) == set(ALIASES) | DOMAIN_ALIASES
    assert len(set(ALIASES.values())) == len(ALIASES)


@pytest.mark.parametrize(
    ("text", "character", "fault"),
    [
        ("", 1, "must be O:, G:, D: or S:, each at most once and in this order, got the end of the text"),
        ("Q", 1, "must be O:, G:, D: or S:, each at most once and in this order, got 'Q'"),
        ("G:BAO:BA", 5, "must be O:, G:, D: or S:, each at most once and in this order, got 'O:BA'"),
        ("D:(A;;4;;;WD) ", 14, "must be O:, G:, D: or S:, each at most once and in this order, got ' '"),
        ("O:", 3, "must be a SID (S-1-5-...) or an alias such as WD, AN, AU, BA, SY, got the end of the text"),
        ("O:ba", 3, "must be a SID (S-1-5-...) or an alias such as WD, AN, AU, BA, SY, got 'ba'"),
        ("O:DA", 3, "must be a SID (S-1-5-...), got 'DA'; the alias DA depends on a domain"),
        ("O:S-1-5-4294967296D:", 9, "every part of a SID must fit in 32 bits"),
        ("D:Q", 3, "must be P, AR, AI or an entry in parentheses, got 'Q'"),
        ("D:PP", 4, "must be a flag other than P, which is set already, got 'P'"),
        ("D:(A", 5, "must be ;, got the end of the text"),
        ("D:(B;;4;;;WD)", 4, "must be A or D, the type of an entry, got 'B;;4;;;WD)'"),
        ("S:(A;;4;;;WD)", 4, "must be AU, the type of an entry, got 'A;;4;;;WD)'"),
        (
            "D:(OA;;4;;;WD)",
            4,
            "must be A or D, the type of an entry, got 'OA;;4;;;WD)'; entries for parts of objects and entries with "
            "conditions are not supported",
        ),
        ("D:(A;XX;4;;;WD)", 6, "must be OI, CI, NP, IO, ID, SA, FA or ;, got 'XX;4;;;WD)'"),
        ("D:(A;OIOI;4;;;WD)", 8, "must be a flag other than OI, which is set already, got 'OI;4;;;WD)'"),
        ("D:(A;;0x100000000;;;WD)", 7, "must be rights that fit in 32 bits, got '0x100000000;'"),
        ("D:(A;;4294967296;;;WD)", 7, "must be rights that fit in 32 bits, got '4294967296;;'"),
        ("D:(A;;08;;;WD)", 7, "must be octal digits after a leading 0 (hexadecimal starts with 0x), got '08;;;WD)'"),
        (
            "D:(A;;GAR;;;WD)",
            9,
            "must be rights (a number such as 0x4, or words of GR GW GX GA WO WD RC SD CR LO DT WP RP SW LC DC CC FA "
            "FX FW FR KA KR KX KW) and then ;, got 'R;;;WD)'",
        ),
        ("D:(A;;4;x;;WD)", 9, "must be ;, got 'x;;WD)'; object GUIDs are not supported"),
        ("D:(A;;4;;x;WD)", 10, "must be ;, got 'x;WD)'; object GUIDs are not supported"),
        ("D:(A;;4;;;WD;)", 13, "must be ), got ';)'"),
        ("D:(A;;4;;;WD", 13, "must be ), got the end of the text"),
    ],
)
def test_a_fault_is_named_with_its_place(text: str, character: int, fault: str) -> None:
    with pytest.raises(IllegalIdentifier) as caught:
        parse_sddl(text)
    assert (caught.value.position + 1, caught.value.fault) == (character, fault)
    assert str(caught.value) == f"{text!r}, character {character}: {fault}"


def test_errors_quote_the_start_of_a_long_text() -> None:
    with pytest.raises(IllegalIdentifier) as caught:
        parse_sddl("D:" + "(A;;4;;;WD)" * 100 + "x")
    assert caught.value.position == 1102
    assert len(str(caught.value)) < 400


def test_text_and_lists_have_a_largest_size() -> None:
    with pytest.raises(IllegalIdentifier, match=f"must have at most {MAX_CHARACTERS} characters"):
        parse_sddl("D:" + "x" * MAX_CHARACTERS)
    with pytest.raises(IllegalIdentifier, match="an access list must have at most 65532 bytes, got 65548"):
        parse_sddl("D:" + "(A;;4;;;WD)" * 3277)


@given(st.text(alphabet="OGDSAUPIRC:;()x0149-WBN", max_size=40))
def test_any_text_gives_a_value_or_our_error(text: str) -> None:
    for each in (text, f"D:{text}", f"D:(A;{text}", f"D:(A;;{text};;;WD)", f"O:S-1-{text}"):
        try:
            descriptor = parse_sddl(each)
        except IllegalIdentifier:
            continue
        assert parse_sddl(format_sddl(descriptor)) == descriptor


def test_an_entry_without_a_form_in_text() -> None:
    with pytest.raises(LocalProtocolError, match=r"^an entry of type 0x05 cannot be written as SDDL$"):
        format_sddl(SecurityDescriptor(dacl=Acl((OtherAce(5, b""),))))
