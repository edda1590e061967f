"""What is remembered of a domain's accounts: how long an answer counts, how much is kept, and what they may do."""

from __future__ import annotations

import pytest

from postroad.security import accounts as rules
from postroad.security.access import Token
from postroad.security.accounts import OFFLINE_S, Account, Accounts
from postroad.security.descriptors import EVERYONE, Sid
from postroad.security.users import User, derive_sid
from postroad.wire.octets import NULL_GUID

REFRESH_S = 60.0
DOMAIN = Sid(5, (21, 1, 2, 3))
ANN, BOB = Sid(5, (21, 1, 2, 3, 1001)), Sid(5, (21, 1, 2, 3, 1002))
READERS, ADMINS = Sid(5, (21, 1, 2, 3, 2001)), Sid(5, (21, 1, 2, 3, 2002))
FOREIGN = Sid(5, (21, 7, 7, 7, 1001))


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def accounts(clock: Clock) -> Accounts:
    found = Accounts(clock, REFRESH_S)
    found.use((), DOMAIN)
    return found


def account(sid: Sid, *groups: Sid, fault: str | None = None, certificates: tuple[bytes, ...] = ()) -> Account:
    number = sid.sub_authorities[-1]
    return Account(sid, rf"CORP\a{number}", f"a{number}@corp.local", frozenset(groups), certificates, fault)


def test_a_known_account_has_its_groups(accounts: Accounts) -> None:
    accounts.answered(ANN, account(ANN, READERS))
    assert accounts.token(ANN) == Token.of_user(ANN, {READERS})
    assert accounts.name(ANN) == r"CORP\a1001"


def test_nobody_knows_yet_means_everyone_and_that_somebody_asks(accounts: Accounts) -> None:
    assert accounts.token(ANN) == Token.everyone()
    assert accounts.token(ANN).groups == {EVERYONE}
    assert accounts.due() == [ANN]
    assert accounts.due() == []


@pytest.mark.parametrize("answer", [None, account(ANN, READERS, fault="it is disabled")])
def test_an_account_that_ended_may_not_even_do_what_everyone_may(accounts: Accounts, answer: Account | None) -> None:
    accounts.answered(ANN, account(ANN, READERS))
    assert accounts.answered(ANN, answer)
    assert accounts.token(ANN) == Token.nobody()
    assert not accounts.is_user(ANN)
    assert accounts.login_token(User("ann", ANN, frozenset({READERS}))) == Token.nobody()


def test_an_account_of_another_domain_has_no_groups_here(accounts: Accounts) -> None:
    accounts.answered(FOREIGN, None)
    assert accounts.token(FOREIGN) == Token.of_user(FOREIGN)


def test_users_of_the_configuration_and_groups_are_never_asked_for(accounts: Accounts) -> None:
    for sid in (derive_sid(NULL_GUID, "ann"), EVERYONE, Sid(5, (32, 544)), Sid(5, (21, 1, 2, 3))):
        accounts.token(sid)
        assert accounts.is_known(sid)
        assert not accounts.is_due(sid)
    assert accounts.due() == []


def test_an_answer_is_renewed_after_a_refresh_if_somebody_used_it(accounts: Accounts, clock: Clock) -> None:
    accounts.answered(ANN, account(ANN))
    accounts.answered(BOB, account(BOB))
    assert accounts.due() == []
    clock.now += REFRESH_S
    assert accounts.is_due(ANN)
    assert set(accounts.due()) == {ANN, BOB}
    assert accounts.is_known(ANN)


def test_an_answer_ends_after_two_refreshes(accounts: Accounts, clock: Clock) -> None:
    accounts.answered(ANN, account(ANN, READERS, certificates=(b"one",)))
    clock.now += 2 * REFRESH_S - 1
    assert accounts.token(ANN).groups > {READERS}
    assert accounts.certificates(ANN) == (b"one",)
    clock.now += 1
    assert accounts.token(ANN) == Token.everyone()
    assert accounts.certificates(ANN) == ()


def test_while_the_directory_is_offline_answers_count_for_a_bounded_time(accounts: Accounts, clock: Clock) -> None:
    accounts.answered(ANN, account(ANN, READERS))
    accounts.unanswered()
    clock.now += OFFLINE_S - 1
    assert accounts.token(ANN) == Token.of_user(ANN, {READERS})
    clock.now += 1
    assert accounts.token(ANN) == Token.everyone()


def test_an_answer_of_before_the_outage_does_not_count_once_the_directory_answers(
    accounts: Accounts, clock: Clock
) -> None:
    accounts.answered(ANN, account(ANN, READERS))
    accounts.unanswered()
    clock.now += 3 * REFRESH_S
    accounts.resumed()
    assert accounts.token(ANN) == Token.everyone()


def test_administrators_are_those_of_the_named_groups(accounts: Accounts) -> None:
    accounts.answered(ANN, account(ANN, ADMINS))
    assert not accounts.token(ANN).everything
    assert accounts.use({ADMINS}, DOMAIN)
    assert not accounts.use({ADMINS}, DOMAIN)
    assert accounts.token(ANN).everything
    assert accounts.login_token(User("bob", BOB, frozenset({ADMINS}))).everything
    accounts.answered(ANN, account(ANN, ADMINS, fault="it is disabled"))
    assert accounts.token(ANN) == Token.nobody()


def test_only_a_change_of_rights_or_certificates_is_a_change(accounts: Accounts) -> None:
    assert not accounts.answered(ANN, account(ANN, READERS))
    assert not accounts.answered(ANN, Account(ANN, "another name", None, frozenset({READERS})))
    assert accounts.answered(ANN, account(ANN))
    assert accounts.answered(ANN, account(ANN, certificates=(b"one",)))
    assert accounts.answered(ANN, account(ANN))


def test_a_login_brings_its_groups_until_the_account_is_known(accounts: Accounts) -> None:
    ann = User("ann", ANN, frozenset({READERS}))
    assert accounts.login_token(ann) == ann.token
    assert accounts.due() == [ANN]
    accounts.answered(ANN, account(ANN))
    assert accounts.login_token(ann) == Token.of_user(ANN)


def test_a_name_in_kerberos_finds_a_known_account(accounts: Accounts) -> None:
    accounts.answered(ANN, account(ANN, READERS))
    found = accounts.by_principal("A1001@CORP.LOCAL")
    assert found == User(r"CORP\a1001", ANN, frozenset({READERS}))
    accounts.answered(ANN, account(ANN, fault="it is disabled"))
    assert accounts.by_principal("a1001@corp.local") is None
    accounts.answered(ANN, None)
    assert accounts.by_principal("a1001@corp.local") is None


def test_strangers_push_out_no_account(accounts: Accounts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "MAX_ABSENT", 10)
    accounts.answered(ANN, account(ANN, READERS))
    for number in range(100):
        made_up = Sid(5, (21, 1, 2, 3, 5000 + number))
        accounts.token(made_up)
        accounts.answered(made_up, None)
    assert len(accounts._absent) == 10
    assert accounts.token(ANN).groups > {READERS}
    for number in range(100):
        accounts.token(Sid(5, (21, 1, 2, 3, 9000 + number)))
    assert len(accounts.wanted) == 10


def test_accounts_and_their_groups_are_bounded(accounts: Accounts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "MAX_ACCOUNTS", 3)
    sids = [Sid(5, (21, 1, 2, 3, 1000 + number)) for number in range(5)]
    for sid in sids:
        accounts.answered(sid, account(sid))
    assert list(accounts._known) == sids[2:]
    monkeypatch.setattr(rules, "MAX_KNOWN_GROUPS", 10)
    crowd = [Sid(5, (21, 1, 2, 4, number)) for number in range(9)]
    accounts.answered(ANN, account(ANN, *crowd))
    accounts.answered(BOB, account(BOB, *crowd))
    assert list(accounts._known) == [BOB]
    assert accounts._groups == 9
