"""Users by name and SID, and the meaning of WHO in a command."""

from __future__ import annotations

from uuid import UUID

import pytest

from postroad.errors import InvalidArgument
from postroad.security.access import ADMINISTRATORS, ANONYMOUS, Token, is_account
from postroad.security.descriptors import EVERYONE, Sid
from postroad.security.users import User, Users, derive_sid

MANAGER = UUID("f6a3323c-7c7b-4a5f-b0ed-b3f63a200893")
ANN = User("Ann", Sid.parse("S-1-5-21-1-2-3-1001"), frozenset({Sid.parse("S-1-5-21-1-2-3-2001")}))
BOB = User("bob", Sid.parse("S-1-5-21-1-2-3-1002"))
USERS = Users([ANN, BOB])


def test_a_derived_sid_never_changes() -> None:
    """Access lists on disk contain it: another value would lock users out of their queues."""
    assert str(derive_sid(MANAGER, "ann")) == "S-1-5-21-2023214563-1891246394-1473074402-2518751115"


def test_a_derived_sid_depends_on_the_manager_and_the_name() -> None:
    ann = derive_sid(MANAGER, "ann")
    assert derive_sid(MANAGER, "ANN") == ann  # names are compared without regard to case
    assert derive_sid(MANAGER, "bob") != ann
    assert derive_sid(UUID(int=1), "ann") != ann


def test_a_derived_sid_is_an_account_of_no_windows_domain() -> None:
    for name in ("ann", "bob", "", "é" * 256):
        sid = derive_sid(MANAGER, name)
        assert is_account(sid)
        assert sid.sub_authorities[0] == 21
        assert sid.sub_authorities[-1] >= 0x80000000  # 500 to 600 have a meaning, and Windows counts from 1000


@pytest.mark.parametrize(
    ("who", "sid"),
    [
        ("everyone", EVERYONE),
        ("Everyone", EVERYONE),
        ("anonymous", ANONYMOUS),
        ("ann", ANN.sid),
        ("ANN", ANN.sid),
        ("bob", BOB.sid),
        ("S-1-5-32-544", ADMINISTRATORS),
        ("S-1-5-21-9-9-9-1000", Sid.parse("S-1-5-21-9-9-9-1000")),
    ],
)
def test_who_is_meant(who: str, sid: Sid) -> None:
    assert USERS.resolve(who) == sid


@pytest.mark.parametrize(
    ("who", "fault"),
    [
        ("carl", "who must be everyone, anonymous, the name of a [[user]] or a SID (S-1-5-...), got 'carl'"),
        ("", "who must be everyone, anonymous, the name of a [[user]] or a SID (S-1-5-...), got ''"),
        (
            "S-1-5-4294967296",
            "who must be a valid SID: 'S-1-5-4294967296', character 7: every part of a SID must fit in 32 bits",
        ),
    ],
)
def test_who_is_unknown(who: str, fault: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        USERS.resolve(who)
    assert str(caught.value) == fault


def test_users_are_found_by_name_and_sid() -> None:
    assert USERS.named("aNN") is ANN
    assert USERS.with_sid(BOB.sid) is BOB
    assert USERS.named("carl") is None
    assert USERS.with_sid(EVERYONE) is None


def test_the_token_of_a_user() -> None:
    assert USERS.token(ANN.sid) == ANN.token == Token.of_user(ANN.sid, ANN.groups)
    stranger = Sid.parse("S-1-5-21-9-9-9-1000")
    assert USERS.token(stranger) == Token.of_user(stranger)
    assert USERS.token(ADMINISTRATORS) == Token.anonymous()  # a group cannot sign


@pytest.mark.parametrize(
    "user",
    [
        User("root", BOB.sid, administrator=True),
        User("root", BOB.sid, frozenset({ADMINISTRATORS})),
    ],
)
def test_administrators(user: User) -> None:
    assert user.administrator
    assert user.token.everything
    assert Users([user]).token(BOB.sid).everything
    assert not ANN.administrator
    assert not ANN.token.everything


@pytest.mark.parametrize(
    ("users", "fault"),
    [
        ([ANN, User("ann", BOB.sid)], "name must be unique, but two users have 'ann'"),
        ([ANN, User("carl", ANN.sid)], f"sid must be unique, but 'Ann' and 'carl' have {ANN.sid}"),
    ],
)
def test_users_are_unique(users: list[User], fault: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        Users(users)
    assert str(caught.value) == fault


def test_names_and_sids_that_no_user_can_have() -> None:
    with pytest.raises(InvalidArgument, match=r"^name must not be everyone or anonymous, got 'Everyone'$"):
        User("Everyone", ANN.sid)
    with pytest.raises(InvalidArgument, match=r"^sid must belong to an account, got S-1-5-32-544, which is a well-"):
        User("carl", ADMINISTRATORS)
