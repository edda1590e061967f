"""Accounts as a real domain controller describes them: names, nested groups, certificates, and accounts that ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest

from postroad.directory.account_reader import AccountReader
from postroad.directory.ldap_connection import LdapEntry, connect
from postroad.errors import LdapError
from postroad.security.descriptors import Sid
from postroad.wire.records import UserSignCertificate
from tests.domain import Controller
from tests.domain_accounts import DISABLED, Domain, certificates, domain_of, settings_of


@pytest.fixture(scope="module")
def controller(new_controller: Callable[[], Controller]) -> Controller:
    """One for these tests alone: other tests have an Ann of their own."""
    made = new_controller()
    made.start()
    return made


@pytest.fixture
def domain(controller: Controller) -> Iterator[Domain]:
    with domain_of(controller) as found:
        yield found


def test_a_sid_gives_name_principal_and_the_groups_of_groups(domain: Domain) -> None:
    ann = domain.user("ann", userPrincipalName="ann@postroad.test")
    inner = domain.group("inner", ann)
    outer = domain.group("outer", inner)
    domain.group("stranger")
    account = domain.account(ann)
    assert (account.sid, account.name, account.principal) == (ann, r"POSTROAD\ann", "ann@postroad.test")
    users = Sid(5, (*ann.sub_authorities[:-1], 513))
    assert account.groups == {inner, outer, users}
    assert account.fault is None


def test_groups_of_the_controller_itself_do_not_count(domain: Domain) -> None:
    boss = domain.user("boss")
    administrators = domain.reader.by_name(r"POSTROAD\Domain Admins")
    assert administrators is not None
    domain.join(administrators.sid, boss)
    groups = domain.account(boss).groups
    assert administrators.sid in groups
    assert not [each for each in groups if each.sub_authorities[0] == 32]


def test_a_change_of_a_group_is_read_at_once(domain: Domain) -> None:
    ann = domain.user("ann")
    group = domain.group("readers", ann)
    assert group in domain.account(ann).groups
    domain.leave(group, ann)
    assert group not in domain.account(ann).groups


def test_a_renamed_account_keeps_its_sid(domain: Domain) -> None:
    ann = domain.user("ann")
    domain.set(ann, sAMAccountName="anna")
    assert domain.account(ann).name == r"POSTROAD\anna"
    assert domain.reader.by_name(r"POSTROAD\ann") is None


def test_a_disabled_and_an_expired_account_have_a_fault(domain: Domain) -> None:
    ann, bob = domain.user("ann"), domain.user("bob")
    domain.set(ann, userAccountControl=DISABLED)
    domain.set(bob, accountExpires=str(130_000_000_000_000_000))
    assert domain.account(ann).fault == "it is disabled"
    assert domain.account(bob).fault == "it has expired"


def test_a_deleted_account_and_one_that_never_was_are_none(domain: Domain) -> None:
    ann = domain.user("ann")
    domain.connection.delete(domain.dn(ann))
    assert domain.reader.by_sid(ann) is None
    assert domain.reader.by_sid(Sid(5, (21, 1, 2, 3, 4))) is None


def test_names_of_both_kinds_find_an_account(domain: Domain) -> None:
    ann = domain.user("ann", userPrincipalName="ann.smith@postroad.test")
    for name in (
        r"POSTROAD\ann",
        r"postroad\ANN",
        r"postroad.test\ann",
        "ann.smith@postroad.test",
        "ann@POSTROAD.TEST",
    ):
        account = domain.reader.by_name(name)
        assert account is not None
        assert account.sid == ann, name
    for name in (r"OTHER\ann", "ann", "ann@other.test", "\\ann", "@postroad.test", "POSTROAD\\", ""):
        assert domain.reader.by_name(name) is None, name


@pytest.mark.parametrize(
    "name",
    [
        "*",
        "a*",
        "ann)(objectClass=*",
        "*)(sAMAccountName=*",
        "ann\0",
        "a\\2a",
        "ann)|(cn=*",
        "é)(",
        "\udcff",
        "x" * 5000,
    ],
)
def test_a_name_is_never_a_filter(domain: Domain, name: str) -> None:
    domain.user("ann")
    for written in (f"POSTROAD\\{name}", f"{name}@postroad.test"):
        assert domain.reader.by_name(written) is None


def test_a_user_named_like_a_reserved_word_has_the_name_of_its_domain(domain: Domain) -> None:
    sid = domain.user("everyone")
    assert domain.account(sid).name == r"POSTROAD\everyone"


@pytest.mark.spec("DM-3.1.1.15-01")
def test_registered_certificates_are_read_and_found_by_their_digest(domain: Domain) -> None:
    first = UserSignCertificate.of(uuid4(), b"first certificate")
    ann = domain.user(
        "ann", mSMQSignCertificates=certificates(b"first certificate", b"second"), mSMQDigests=first.digest
    )
    assert domain.account(ann).certificates == (b"first certificate", b"second")
    found = domain.reader.by_certificate(b"first certificate")
    assert found is not None
    assert found.sid == ann
    assert domain.reader.by_certificate(b"second") is None  # its digest is not registered
    bob = domain.user("bob", mSMQDigests=UserSignCertificate.of(uuid4(), b"third").digest)
    assert domain.reader.by_certificate(b"third") is None  # only its digest is registered
    domain.set(bob, mSMQDigests=first.digest)
    assert domain.reader.by_certificate(b"first certificate") is None  # nobody knows which of the two it is
    domain.connection.modify(domain.dn(ann), {"mSMQSignCertificates": []})
    assert domain.account(ann).certificates == ()


@pytest.mark.parametrize(
    "value",
    [b"\1", b"\xff\xff\xff\xff", b"\1\0\0\0short", certificates(b"good") + b"rest"],
    ids=["cut off", "too many", "cut in one", "with a rest"],
)
def test_certificates_that_cannot_be_read_are_none(
    domain: Domain, value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    ann = domain.user("ann", mSMQSignCertificates=value)
    assert domain.account(ann).certificates == ()
    assert [each.message for each in caplog.records] == ["registered certificates cannot be read"]


def test_an_account_in_too_many_groups_may_do_nothing(domain: Domain) -> None:
    """Without some of its groups, a list that denies one of them would let it in."""
    entry = domain.connection.read(domain.dn(domain.user("ann")), ("objectSid", "sAMAccountName"))
    assert entry is not None
    groups = tuple(Sid(5, (21, 9, 9, 9, number)).encode() for number in range(10_000))
    crowded = LdapEntry(entry.dn, {**entry.attributes, "tokengroups": groups})
    account = domain.reader.account(crowded, "POSTROAD")
    assert (account.groups, account.fault) == (frozenset(), "it is in 10000 groups, and at most 4096 can count")


def test_the_reader_says_whose_domain_it_is(domain: Domain) -> None:
    ann = domain.user("ann")
    assert domain.reader.domain().sub_authorities == ann.sub_authorities[:-1]


def test_a_connection_that_ended_is_opened_again(new_controller: Callable[[], Controller]) -> None:
    controller = new_controller()
    controller.start()
    settings = settings_of(controller)
    with AccountReader(lambda: connect(settings), time.time) as reader:
        known = reader.by_name(r"POSTROAD\Administrator")
        assert known is not None
        controller.stop()
        with pytest.raises(LdapError):
            reader.by_sid(known.sid)
        controller.start()
        assert reader.by_sid(known.sid) == known
