"""Descriptors as bytes with the rights that they give, made by code that shares nothing with Postroad."""

from __future__ import annotations

from postroad.security.descriptors import Sid

OWNER = Sid.parse("S-1-5-21-3181267629-1039849782-3663111779-1000")
ANOTHER = Sid.parse("S-1-5-21-1-2-3-1001")

_HEAD = "0100048014000000000000000000000030000000010500000000000515000000ad4a9ebd36d9fa3d63a656dae8030000"

# [MS-MQDMPR] 3.1.7.1.3.1 for OWNER, a domain user, with SRMP
DEFAULT = bytes.fromhex(
    _HEAD
    + "020054000300000000001400240002000101000000000001000000000000140004000000010100000000000507000000000024003f000f"
    "00010500000000000515000000ad4a9ebd36d9fa3d63a656dae8030000"
)
# OWNER: write denied, then all allowed; Everyone: write allowed
DENY_WRITE_TO_OWNER_FIRST = bytes.fromhex(
    _HEAD
    + "02006400030000000100240004000000010500000000000515000000ad4a9ebd36d9fa3d63a656dae8030000000024003f000f00010500"
    "000000000515000000ad4a9ebd36d9fa3d63a656dae80300000000140004000000010100000000000100000000"
)
EMPTY_DACL = bytes.fromhex(_HEAD + "0200080000000000")
NO_DACL = bytes.fromhex(
    "0100008014000000000000000000000000000000010500000000000515000000ad4a9ebd36d9fa3d63a656dae8030000"
)
ALL = {
    "default": DEFAULT,
    "deny write to the owner first": DENY_WRITE_TO_OWNER_FIRST,
    "empty DACL": EMPTY_DACL,
    "no DACL": NO_DACL,
}

# write, receive, peek, read permissions
VERDICTS = {
    ("default", "owner"): (True, True, True, True),
    ("default", "another"): (True, False, False, True),
    ("default", "anonymous"): (True, False, False, True),
    ("deny write to the owner first", "owner"): (False, True, True, True),
    ("deny write to the owner first", "another"): (True, False, False, False),
    ("deny write to the owner first", "anonymous"): (True, False, False, False),
    ("empty DACL", "owner"): (False, False, False, True),
    ("empty DACL", "another"): (False, False, False, False),
    ("empty DACL", "anonymous"): (False, False, False, False),
    ("no DACL", "owner"): (True, True, True, True),
    ("no DACL", "another"): (True, True, True, True),
    ("no DACL", "anonymous"): (True, True, True, True),
}

# [MS-DTYP] 2.5.1.4: the text and its bytes
SDDL_EXAMPLE = "O:BAG:BAD:P(A;CIOI;GRGX;;;BU)(A;CIOI;GA;;;BA)(A;CIOI;GA;;;SY)(A;CIOI;GA;;;CO)S:P(AU;FA;GR;;;WD)"
SDDL_EXAMPLE_BYTES = bytes.fromhex(
    "010014b090000000a00000001400000030000000 02001c0001000000 0280140000000080010100000000000100000000"
    "0200600004000000 00031800000000a001020000000000052000000021020000"
    "000318000000001001020000000000052000000020020000 0003140000000010010100000000000512000000"
    "0003140000000010010100000000000300000000 01020000000000052000000020020000 01020000000000052000000020020000"
)
