"""Security descriptors as bytes, [MS-DTYP] 2.4.4 to 2.4.6. impacket is the other reader and writer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from impacket.ldap import ldaptypes

from postroad.errors import LocalProtocolError, RemoteProtocolError
from postroad.security.descriptors import (
    EVERYONE,
    MAX_ACE_BODY_BYTES,
    Ace,
    AceFlag,
    AceType,
    Acl,
    Control,
    OtherAce,
    SecurityDescriptor,
    Sid,
)
from postroad.security.rights import QUEUE_MAPPING
from tests.unit.security import vectors
from tests.unit.security.strategies import acls, dacl_aces, descriptors, sacl_aces, sids

ANONYMOUS = Sid.parse("S-1-5-7")


@pytest.mark.spec("MQ-2.3.1.25-01")
def test_the_default_descriptor_in_bytes() -> None:
    expected = SecurityDescriptor(
        owner=vectors.OWNER,
        dacl=Acl(
            (
                Ace(AceType.ALLOW, 0x20024, EVERYONE),
                Ace(AceType.ALLOW, 0x4, ANONYMOUS),
                Ace(AceType.ALLOW, 0xF003F, vectors.OWNER),
            )
        ),
    )
    assert SecurityDescriptor.decode(vectors.DEFAULT) == expected
    assert expected.encode() == vectors.DEFAULT


@pytest.mark.parametrize("name", vectors.ALL)
def test_vectors_lead_back_to_their_bytes(name: str) -> None:
    assert SecurityDescriptor.decode(vectors.ALL[name]).encode() == vectors.ALL[name]


def test_no_dacl_is_another_thing_than_an_empty_one() -> None:
    assert SecurityDescriptor.decode(vectors.NO_DACL).dacl is None
    assert SecurityDescriptor.decode(vectors.EMPTY_DACL).dacl == Acl()


def test_a_null_dacl_that_is_marked_present_is_no_dacl() -> None:
    data = bytearray(vectors.NO_DACL)
    data[2] |= Control.DACL_PRESENT
    assert SecurityDescriptor.decode(bytes(data)) == SecurityDescriptor.decode(vectors.NO_DACL)


def test_the_parts_can_have_any_order() -> None:
    """The example of [MS-DTYP] 2.5.1.4 has the lists before the SIDs."""
    descriptor = SecurityDescriptor.decode(vectors.SDDL_EXAMPLE_BYTES)
    assert str(descriptor.owner) == str(descriptor.group) == "S-1-5-32-544"
    assert descriptor.control == Control.DACL_PROTECTED | Control.SACL_PROTECTED
    assert descriptor.dacl is not None
    assert [ace.flags for ace in descriptor.dacl.aces] == [3, 3, 3, 3]
    assert descriptor.sacl == Acl((Ace(AceType.AUDIT, 0x80000000, EVERYONE, AceFlag.FAILED_ACCESS),))


@given(descriptors)
def test_every_descriptor_leads_back(descriptor: SecurityDescriptor) -> None:
    assert SecurityDescriptor.decode(descriptor.encode()) == descriptor


def test_entries_of_unknown_types_are_kept() -> None:
    other = OtherAce(0x77, b"\x01\x02\x03\x04", 0x10)
    descriptor = SecurityDescriptor(dacl=Acl((other, Ace(AceType.ALLOW, 4, EVERYONE))))
    again = SecurityDescriptor.decode(descriptor.encode())
    assert again.dacl is not None
    assert again.dacl.aces[0] == other
    assert again.dacl.checks == ((False, 4, EVERYONE.encode()),)


@pytest.mark.parametrize(("kind", "revision"), [(0x05, 4), (0x09, 2), (0x12, 2), (0x0C, 4)])
def test_entries_for_parts_of_objects_raise_the_revision(kind: int, revision: int) -> None:
    assert Acl((OtherAce(kind, b""),)).encode()[0] == revision


def test_room_at_the_end_of_a_list_is_allowed() -> None:
    data = bytearray(vectors.EMPTY_DACL + b"\xff\xff\xff\xff")
    data[-12 + 2] = 12  # AclSize
    assert SecurityDescriptor.decode(bytes(data)) == SecurityDescriptor.decode(vectors.EMPTY_DACL)


def test_generic_rights_become_rights_of_a_queue() -> None:
    dacl = Acl((Ace(AceType.ALLOW, 0x10000000, EVERYONE), Ace(AceType.DENY, 0xC0000001, ANONYMOUS), OtherAce(9, b"")))
    assert SecurityDescriptor(dacl=dacl).mapped(QUEUE_MAPPING).dacl == Acl(
        (Ace(AceType.ALLOW, 0xF003F, EVERYONE), Ace(AceType.DENY, 0x2002F, ANONYMOUS), OtherAce(9, b""))
    )
    assert SecurityDescriptor().mapped(QUEUE_MAPPING) == SecurityDescriptor()


# The default vector: header 20, owner 28, list at 48, its entries at 56, 76 and 96.
@pytest.mark.parametrize(
    ("position", "value", "offset", "fault"),
    [
        (0, 2, 0, "security descriptor revision must be 1, got 2"),
        (3, 0, 2, "a security descriptor must have the self-relative bit 0x8000, got 0x0004"),
        (2, 0, 16, "DACL offset must be 0 without the control bit 0x4, got 48"),
        (12, 48, 12, "SACL offset must be 0 without the control bit 0x10, got 48"),
        (4, 19, 19, "the owner's SID must start behind the header of 20 bytes, got 19"),
        (4, 130, 130, "the owner's SID must end within 132 bytes, got 138"),
        (8, 131, 131, "the group's SID must end within 132 bytes, got 139"),
        (20, 9, 20, "the owner: SID revision must be 1, got 9"),
        (21, 0, 21, "the owner: a SID must have 1 to 15 parts, got 0"),
        (19, 255, 0xFF000030, "the DACL's header must end within 132 bytes, got 4278190136"),
        (48, 3, 48, "DACL revision must be 2 or 4, got 3"),
        (50, 4, 50, "DACL size must be a multiple of 4, at least 8, got 4"),
        (50, 85, 50, "DACL size must be a multiple of 4, at least 8, got 85"),
        (50, 88, 48, "the DACL must end within 132 bytes, got 136"),
        (52, 4, 132, "DACL entry 4 of 4 must have at least 4 bytes, got 0"),
        (53, 255, 132, "DACL entry 4 of 65283 must have at least 4 bytes, got 0"),
        (58, 0, 58, "DACL entry 1 of 3 must have a size that is a multiple of 4, from 4 to 76, got 0"),
        (58, 80, 58, "DACL entry 1 of 3 must have a size that is a multiple of 4, from 4 to 76, got 80"),
        (58, 22, 58, "DACL entry 1 of 3 must have a size that is a multiple of 4, from 4 to 76, got 22"),
        (58, 4, 58, "DACL entry 1 of 3 must have a mask and a SID, got 4 bytes"),
        (58, 8, 64, "DACL entry 1 of 3: a SID must have at least 12 bytes, got 0"),
        (58, 24, 65, "DACL entry 1 of 3: a SID of 1 parts must have 12 bytes, got 16"),
    ],
)
def test_a_fault_is_named_with_its_place(position: int, value: int, offset: int, fault: str) -> None:
    data = bytearray(vectors.DEFAULT)
    data[position] = value
    with pytest.raises(RemoteProtocolError) as caught:
        SecurityDescriptor.decode(bytes(data))
    assert (caught.value.fault, caught.value.offset) == (fault, offset)


def decode_or_refuse(data: bytes) -> None:
    """One of our values survives a round trip. Any error but ours fails the test."""
    try:
        descriptor = SecurityDescriptor.decode(data)
    except RemoteProtocolError:
        return
    assert SecurityDescriptor.decode(descriptor.encode()) == descriptor


HOSTILE = {**vectors.ALL, "example": vectors.SDDL_EXAMPLE_BYTES}


@pytest.mark.parametrize("name", HOSTILE)
def test_every_truncation_is_refused(name: str) -> None:
    data = HOSTILE[name]
    for length in range(len(data)):
        with pytest.raises(RemoteProtocolError):
            SecurityDescriptor.decode(data[:length])


@pytest.mark.parametrize("name", HOSTILE)
def test_every_changed_byte_gives_a_value_or_our_error(name: str) -> None:
    data = bytearray(HOSTILE[name])
    for position, before in enumerate(bytes(data)):
        for value in {before ^ 0xFF, 0, 1, 0x7F, 0x80, 0xFF, *(before ^ 1 << bit for bit in range(8))}:
            data[position] = value
            decode_or_refuse(bytes(data))
        data[position] = before


@given(st.binary(max_size=200))
def test_any_bytes_give_a_value_or_our_error(data: bytes) -> None:
    decode_or_refuse(data)
    decode_or_refuse(b"\x01\x00\x14\x80" + data)


def test_the_largest_count_of_the_smallest_entries_is_bounded_by_the_size() -> None:
    entries = (0xFFFC - 8) // 4
    acl = b"\x02\x00\xfc\xff" + (0xFFFF).to_bytes(2, "little") + bytes(2) + b"\x77\x00\x04\x00" * entries
    data = b"\x01\x00\x04\x80" + bytes(12) + (20).to_bytes(4, "little") + acl
    with pytest.raises(RemoteProtocolError, match=f"DACL entry {entries + 1} of 65535"):
        SecurityDescriptor.decode(data)


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (lambda: Ace(AceType.ALLOW, 1 << 32, EVERYONE), "an access mask must fit in 32 bits, got 0x100000000"),
        (lambda: Ace(AceType.ALLOW, -1, EVERYONE), "an access mask must fit in 32 bits, got -0x1"),
        (lambda: Ace(AceType.ALLOW, 1, EVERYONE, 256), "the flags of an entry must fit in 8 bits, got 0x100"),
        (lambda: OtherAce(1, b""), "the type of an entry kept as bytes must be 3 to 255, got 1"),
        (lambda: OtherAce(256, b""), "the type of an entry kept as bytes must be 3 to 255, got 256"),
        (lambda: OtherAce(9, b"", -1), "the flags of an entry must fit in 8 bits, got -0x1"),
        (lambda: OtherAce(9, b"abc"), "an entry's body must have a multiple of 4 bytes, at most 65520, got 3"),
        (
            lambda: OtherAce(9, bytes(65524)),
            "an entry's body must have a multiple of 4 bytes, at most 65520, got 65524",
        ),
        (lambda: Acl((OtherAce(9, b""),) * 16382), "an access list must have at most 65532 bytes, got 65536"),
        (
            lambda: SecurityDescriptor(control=Control.DACL_PRESENT),
            "the control bits of a descriptor must fit in 16 bits, without 0x8014; got 0x4",
        ),
        (lambda: SecurityDescriptor(resource_manager=256), "the resource manager's byte must fit in 8 bits, got 256"),
    ],
)
def test_what_no_bytes_can_hold(make: object, fault: str) -> None:
    assert callable(make)
    with pytest.raises(LocalProtocolError) as caught:
        make()
    assert str(caught.value) == fault


def test_the_largest_list() -> None:
    descriptor = SecurityDescriptor(dacl=Acl((OtherAce(9, bytes(MAX_ACE_BODY_BYTES)),)))
    assert SecurityDescriptor.decode(descriptor.encode()) == descriptor


plain_descriptors = st.builds(
    SecurityDescriptor,
    owner=st.none() | sids,
    group=st.none() | sids,
    dacl=st.none() | acls(dacl_aces),
    sacl=st.none() | acls(sacl_aces),
)


def impacket_lines(acl: Any) -> list[tuple[int, int, int, str]] | None:
    if acl == b"":
        return None
    return [
        (ace["AceType"], ace["AceFlags"], ace["Ace"]["Mask"]["Mask"], ace["Ace"]["Sid"].getData().hex())
        for ace in acl.aces
    ]


def our_lines(acl: Acl | None) -> list[tuple[int, int, int, str]] | None:
    if acl is None:
        return None
    return [(ace.type, ace.flags, ace.mask, ace.sid.encode().hex()) for ace in acl.aces if isinstance(ace, Ace)]


@given(plain_descriptors)
def test_impacket_reads_what_we_write(descriptor: SecurityDescriptor) -> None:
    data = descriptor.encode()
    read = ldaptypes.SR_SECURITY_DESCRIPTOR()
    read["Dacl"] = b""  # it forgets to clear the list that is not there
    read.fromString(data)
    for field, ours in (("OwnerSid", descriptor.owner), ("GroupSid", descriptor.group)):
        assert (read[field].getData() if read[field] else b"") == (ours.encode() if ours else b"")
    assert impacket_lines(read["Dacl"] if descriptor.dacl is not None else b"") == our_lines(descriptor.dacl)
    if descriptor.dacl is not None:
        assert impacket_lines(read["Sacl"]) == our_lines(descriptor.sacl)
    assert (read["OffsetDacl"] != 0, read["OffsetSacl"] != 0) == (
        descriptor.dacl is not None,
        descriptor.sacl is not None,
    )


@given(plain_descriptors.filter(lambda each: each.dacl is not None))
def test_we_read_what_impacket_writes(descriptor: SecurityDescriptor) -> None:
    read = ldaptypes.SR_SECURITY_DESCRIPTOR(data=descriptor.encode())
    assert SecurityDescriptor.decode(read.getData()) == descriptor


def test_values_compare_by_what_they_say() -> None:
    one = SecurityDescriptor.decode(vectors.DEFAULT)
    assert one == replace(one)
    assert hash(one) == hash(replace(one))
    assert one != replace(one, owner=ANONYMOUS)
