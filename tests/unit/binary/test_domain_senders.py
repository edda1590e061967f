"""Messages of senders whose accounts are in a domain: which certificates prove them, and which rights they have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from postroad.message import Message
from postroad.security.accounts import Account, Accounts
from postroad.security.descriptors import Sid
from postroad.security.guard import Protection
from postroad.security.refusals import Reason
from postroad.security.signatures import sign
from postroad.security.users import User, Users
from postroad.wire import UserMessage
from postroad.wire.headers import SecurityHeader
from postroad.wire.view import MessageView
from tests.security_vectors import CERTIFICATE, RING, SENDER, SID, Counted, certificate_of
from tests.unit.binary.network import Network, Station
from tests.unit.binary.stranger import Stranger

CLOSED = r"private$\closed"
GROUP, OTHER = Sid.parse("S-1-5-21-1-2-3-2001"), Sid.parse("S-1-5-21-1-2-3-2002")
ANN = Account(SID, r"CORP\ann", groups=frozenset({GROUP}), certificates=(b"an old one", CERTIFICATE))


@pytest.fixture
def accounts(network: Network) -> Accounts:
    found = Accounts(lambda: network.now, 60.0)
    found.use((), Sid(5, SID.sub_authorities[:-1]))
    return found


def station(network: Network, accounts: Accounts, registered: dict[str, tuple[bytes, ...]]) -> Station:
    network.protections["beta"] = Protection(Counted(), RING, registered, accounts=accounts)
    beta = network.station("beta", 2, insecure_nacks=True)
    beta.create(CLOSED)
    queue = beta.queue(CLOSED)
    queue.properties = replace(queue.properties, acl=f"O:BAD:(D;;0x4;;;{OTHER})(A;;0x4;;;{GROUP})")
    return beta


@pytest.fixture
def beta(network: Network, accounts: Accounts) -> Station:
    return station(network, accounts, {})


def arrives(beta: Station, stranger: Stranger, certificate: bytes = CERTIFICATE) -> bool:
    before = len(beta.messages(CLOSED))
    session = stranger.call(beta)
    packet = stranger.compose(beta.direct(CLOSED), Message(b"body"))
    stranger.send(session, sign(packet, SENDER, certificate, sender_id=SID))
    return len(beta.messages(CLOSED)) > before


@pytest.mark.spec("QB-3.1.5.8.3-07")
def test_a_certificate_of_the_domain_proves_its_account_with_its_groups(
    beta: Station, accounts: Accounts, stranger: Stranger
) -> None:
    assert not arrives(beta, stranger)  # nothing is known of Ann
    accounts.answered(SID, ANN)
    assert arrives(beta, stranger)
    assert not arrives(beta, stranger, certificate_of(SENDER)[:-1] + b"\0")
    accounts.answered(SID, replace(ANN, groups=frozenset({GROUP, OTHER})))
    assert not arrives(beta, stranger)


@pytest.mark.spec("QB-3.1.5.8.3-26")
@pytest.mark.parametrize("answer", [None, replace(ANN, fault="it is disabled")], ids=["deleted", "disabled"])
def test_an_account_that_ended_may_not_even_do_what_everyone_may(
    beta: Station, accounts: Accounts, stranger: Stranger, answer: Account | None
) -> None:
    accounts.answered(SID, ANN)
    queue = beta.queue(CLOSED)
    queue.properties = replace(queue.properties, acl="O:BAD:(A;;0x4;;;WD)")
    assert arrives(beta, stranger)
    accounts.answered(SID, answer)
    refused = dict(beta.core.delivery.tally.refused)
    assert not arrives(beta, stranger)
    assert beta.core.delivery.tally.refused == refused | {Reason.NO_ACCESS: 1}  # which is class 0x8004


def test_a_user_of_the_configuration_has_the_groups_of_the_configuration(
    beta: Station, accounts: Accounts, stranger: Stranger
) -> None:
    accounts.answered(SID, ANN)
    beta.use(users=Users([User("ann", SID)]))
    assert not arrives(beta, stranger)
    beta.use(users=Users([User("ann", SID, frozenset({GROUP}))]))
    accounts.answered(SID, replace(ANN, groups=frozenset({OTHER})))
    assert arrives(beta, stranger)


def test_certificates_of_the_configuration_win(network: Network, accounts: Accounts, stranger: Stranger) -> None:
    beta = station(network, accounts, {str(SID): (certificate_of(SENDER)[:-1] + b"\0",)})
    accounts.answered(SID, ANN)
    assert not arrives(beta, stranger)


def test_a_sender_who_is_believed_waits_for_the_directory_too(
    beta: Station, accounts: Accounts, stranger: Stranger
) -> None:
    beta.use(claimed_senders=True)
    message = UserMessage.decode(stranger.compose(beta.direct(CLOSED), Message(b"body")))
    packet = replace(message, security=SecurityHeader(1, SID.encode())).encode()
    access = beta.core.access
    assert access.awaits(MessageView(packet))
    accounts.answered(SID, ANN)
    assert not access.awaits(MessageView(packet))
    session = stranger.call(beta)
    stranger.send(session, packet)
    assert len(beta.messages(CLOSED)) == 1
