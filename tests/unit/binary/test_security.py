"""Signed and encrypted messages between managers, and who may send to a queue: [MS-MQQB] 3.1.5.8.3, 3.1.7.1.5."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from postroad.binary.session import Session
from postroad.errors import NotEncrypted
from postroad.message import Message
from postroad.security.access import ADMINISTRATORS
from postroad.security.algorithms import ADVANCED, CIPHERS
from postroad.security.descriptors import Sid
from postroad.security.encryption import SessionKey, encrypt
from postroad.security.guard import Protection, arrived_encrypted
from postroad.security.refusals import COULD_NOT_ENCRYPT, Reason
from postroad.security.relay import ANY_HOST
from postroad.security.signatures import sign
from postroad.security.users import User, Users
from postroad.wire.constants import MessageClass, SenderIdType
from postroad.wire.headers import SecurityHeader, TxSequenceId
from postroad.wire.user_message import UserMessage
from postroad.wire.view import MessageView
from tests import security_vectors
from tests.security_vectors import CERTIFICATE, REGISTERED, RING, SENDER, SID, Counted, certificate_of
from tests.unit.binary.network import ACKS, DEADLETTER, DEADXACT, LEDGER, ORDERS, Network, Station
from tests.unit.binary.stranger import Stranger

SECRET = b"a body that nobody on the way can read"
STRICT, CLOSED, SEALED = r"private$\strict", r"private$\closed", r"private$\sealed"
SEQUENCE = TxSequenceId(3, 7)
WRITE_FOR_SENDER = f"O:BAD:(A;;0x4;;;{SID})"


@pytest.fixture
def beta(network: Network) -> Station:
    """A manager with keys, one registered sender, and queues with demands."""
    network.protections["beta"] = Protection(Counted(), RING, REGISTERED)
    beta = network.station("beta", 2, insecure_nacks=True)
    network.public_keys[beta.identifier] = RING.public_keys
    beta.create(STRICT, authenticate=True)
    beta.create(SEALED, privacy="body")
    beta.create(r"private$\open", privacy="none")
    beta.create(CLOSED)
    set_acl(beta, CLOSED, WRITE_FOR_SENDER)
    return beta


@pytest.fixture
def alpha(network: Network, beta: Station) -> Station:
    network.protections["alpha"] = Protection(Counted())
    return network.station("alpha", 1)


def set_acl(station: Station, path: str, sddl: str) -> None:
    queue = station.queue(path)
    queue.properties = replace(queue.properties, acl=sddl)


def level(view: MessageView) -> int:
    header = view.security_header
    return 0 if header is None else header.flags >> 8 & 0xF


Spoil = Callable[[bytes], bytes]


def signed(packet: bytes, sender: Sid | None = SID) -> bytes:
    return sign(packet, SENDER, CERTIFICATE, sender_id=sender)


def forged(packet: bytes) -> bytes:
    """A signed message whose body was changed on the way."""
    return signed(packet).replace(b"body", b"BODY")


def unregistered(packet: bytes) -> bytes:
    return sign(packet, SENDER, certificate_of(SENDER), sender_id=SID)


def encrypted(packet: bytes) -> bytes:
    key = RING.private_keys(ADVANCED)[0].public_key()
    return encrypt(MessageView(packet), SessionKey.make(ADVANCED, CIPHERS["aes256"], key, Counted()))


def damaged(packet: bytes) -> bytes:
    """An encrypted message with one bit of the last block changed, so that the padding is wrong."""
    sealed = encrypted(packet)
    at = sealed.index(MessageView(sealed).body) + len(MessageView(sealed).body) - 1
    return sealed[:at] + bytes([sealed[at] ^ 0x80]) + sealed[at + 1 :]


def claiming(packet: bytes) -> bytes:
    """A message that names a sender and proves nothing."""
    message = UserMessage.decode(packet)
    return replace(message, security=SecurityHeader(1, SID.encode())).encode()


def with_flags(packet: bytes, flags: int) -> bytes:
    message = UserMessage.decode(packet)
    assert message.security is not None
    return replace(message, security=replace(message.security, flags=message.security.flags | flags)).encode()


def plain(packet: bytes) -> bytes:
    return packet


# Encrypted by a manager


@pytest.mark.spec("QB-3.1.7.1.5-01", "QB-3.1.7.1.5-18", "QB-3.1.5.8.3-20", "DM-3.1.1.2-06")
@pytest.mark.parametrize("cipher", ["aes256", "aes192", "aes128", ""])
def test_a_body_is_encrypted_on_the_way_and_plain_in_the_queue(
    network: Network, alpha: Station, beta: Station, cipher: str
) -> None:
    alpha.send(beta.private(ORDERS), Message(SECRET, label="a", recoverable=True, encrypt=cipher))
    (view,) = beta.messages(ORDERS)
    assert (view.body, view.encrypted, arrived_encrypted(view)) == (SECRET, False, True)
    assert all(SECRET not in each.data for each in network.user_messages(alpha, beta))


@pytest.mark.spec("QB-3.1.5.8.3-01")
def test_a_router_passes_on_what_it_cannot_read(
    network: Network, alpha: Station, beta: Station, gamma: Station
) -> None:
    network.routes[alpha, beta.identifier] = [gamma]
    alpha.send(beta.private(ORDERS), Message(SECRET, label="a", recoverable=True, encrypt=""))
    assert [view.body for view in beta.messages(ORDERS)] == [SECRET]
    travelled = network.user_messages(alpha, gamma) + network.user_messages(gamma, beta)
    assert len(travelled) == 2
    assert all(SECRET not in each.data for each in travelled)


@pytest.mark.spec("QB-3.1.5.8.3-01")
@pytest.mark.parametrize("spoil", [forged, damaged, unregistered, claiming])
def test_a_router_changes_nothing_of_security(
    network: Network, beta: Station, gamma: Station, stranger: Stranger, spoil: Spoil, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same for AU and AS: the destination clears and sets them. Nothing is verified or decrypted on the way."""
    monkeypatch.setattr(gamma.core.protection, "opener", None)
    gamma.use(relay=(ANY_HOST,))
    session = stranger.call(gamma)
    packet = with_flags(spoil(stranger.compose(beta.private(ORDERS), Message(b"body", recoverable=True))), 0x310)
    stranger.send(session, packet)
    header = MessageView(packet).security_header
    onward = [view for view in network.user_messages(gamma, beta) if view.source_queue_manager == stranger.identifier]
    assert [view.security_header for view in onward] == [header]


@pytest.mark.spec("QB-3.1.7.1.5-20", "QB-3.1.7.1.5.1-01")
@pytest.mark.parametrize(("kept", "letters"), [(True, [COULD_NOT_ENCRYPT]), (False, [])])
def test_what_cannot_be_encrypted_is_not_sent(
    network: Network, alpha: Station, beta: Station, kept: bool, letters: list[int]
) -> None:
    for name in (beta.direct(ORDERS), f"PRIVATE={UUID(int=77)}\\8"):
        with pytest.raises(NotEncrypted):
            alpha.core.send(name, [Message(SECRET, encrypt="", dead_letter=kept)], network.now)
    network.run()
    assert alpha.classes(DEADLETTER) == letters * 2
    assert beta.messages(ORDERS) == []
    assert not any(queue.count for queue in alpha.core.queues.outgoing.values())


def test_transactional_messages_keep_their_order_encrypted_or_not(
    network: Network, alpha: Station, beta: Station
) -> None:
    for number in range(6):
        encrypt = "" if number % 2 else None
        alpha.send_transactional(beta.private(LEDGER), Message(SECRET, label=str(number), encrypt=encrypt))
    assert beta.labels(LEDGER) == ["0", "1", "2", "3", "4", "5"]
    assert [arrived_encrypted(view) for view in beta.messages(LEDGER)] == [False, True] * 3


@pytest.mark.parametrize("new", [SENDER, security_vectors.ADVANCED], ids=["another key", "the same key again"])
def test_after_a_restart_and_after_a_rotation_old_messages_can_be_read(
    network: Network, alpha: Station, beta: Station, new: RSAPrivateKey
) -> None:
    network.held.add((alpha, beta))
    alpha.send(beta.private(ORDERS), Message(SECRET, recoverable=True, encrypt=""))
    rotated = RING.rotated(lambda bits: new, 1024)
    network.protections["beta"] = Protection(Counted(), rotated, REGISTERED)
    network.held.clear()
    beta.restart()
    network.wait(60)
    assert [view.body for view in beta.messages(ORDERS)] == [SECRET]


# Signed by a sender


@pytest.mark.spec("QB-3.1.5.8.3-02", "QB-3.1.5.8.3-22")
@pytest.mark.parametrize("name", ["private", "direct"])
@pytest.mark.parametrize("also", [plain, encrypted])
def test_a_signed_message_is_authenticated(beta: Station, stranger: Stranger, name: str, also: Spoil) -> None:
    session = stranger.call(beta)
    destination: str = getattr(beta, name)(STRICT)
    stranger.send(session, also(signed(stranger.compose(destination, Message(b"body")))))
    (view,) = beta.messages(STRICT)
    assert (view.body, level(view), arrived_encrypted(view)) == (b"body", 3, also is encrypted)


@pytest.mark.spec("MQ-2.2.20.6-07")
def test_what_a_peer_says_of_its_own_authentication_is_not_believed(beta: Station, stranger: Stranger) -> None:
    session = stranger.call(beta)
    packet = with_flags(claiming(stranger.compose(beta.direct(ORDERS), Message(b"body"))), 0x0910)
    stranger.send(session, packet)
    (view,) = beta.messages(ORDERS)
    header = view.security_header
    assert header is not None
    assert header.flags & 0x0F10 == 0


REFUSED = [
    (forged, ORDERS, MessageClass.NACK_BAD_SIGNATURE, Reason.WRONG_SIGNATURE),
    (unregistered, ORDERS, MessageClass.NACK_BAD_SIGNATURE, Reason.NOT_REGISTERED),
    (damaged, ORDERS, MessageClass.NACK_BAD_ENCRYPTION, Reason.NOT_DECRYPTED),
    (plain, STRICT, MessageClass.NACK_BAD_SIGNATURE, Reason.NOT_AUTHENTICATED),
    (claiming, STRICT, MessageClass.NACK_BAD_SIGNATURE, Reason.NOT_AUTHENTICATED),
    (encrypted, STRICT, MessageClass.NACK_BAD_SIGNATURE, Reason.NOT_AUTHENTICATED),
    (plain, SEALED, MessageClass.NACK_BAD_ENCRYPTION, Reason.BODY_NOT_ENCRYPTED),
    (signed, SEALED, MessageClass.NACK_BAD_ENCRYPTION, Reason.BODY_NOT_ENCRYPTED),
    (encrypted, r"private$\open", MessageClass.NACK_BAD_ENCRYPTION, Reason.BODY_ENCRYPTED),
    (plain, CLOSED, MessageClass.NACK_ACCESS_DENIED, Reason.NO_ACCESS),
    (claiming, CLOSED, MessageClass.NACK_ACCESS_DENIED, Reason.NO_ACCESS),
]


@pytest.mark.spec(
    "QB-3.1.5.8.3-05",
    "QB-3.1.5.8.3-11",
    "QB-3.1.5.8.3-21",
    "QB-3.1.5.8.3-23",
    "QB-3.1.5.8.3-28",
    "QB-3.1.5.8.3-29",
    "DM-3.1.1.2-05",
    "DM-3.1.1.2-06",
    "MQ-2.3.1.11-01",
    "MQ-2.3.1.12-01",
    "MQ-2.2.24-01",
)
@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize(("spoil", "path", "told", "why"), REFUSED)
def test_a_message_is_refused_with_its_class(
    beta: Station,
    stranger: Stranger,
    spoil: Spoil,
    path: str,
    told: MessageClass,
    why: Reason,
    transactional: bool,
) -> None:
    if transactional:
        properties = beta.queue(path).properties
        beta.create(path + "-tx", transactional=True, authenticate=properties.authenticate, privacy=properties.privacy)
        if properties.acl is not None:
            set_acl(beta, path + "-tx", properties.acl)
        path += "-tx"
    session = stranger.call(beta)
    message = Message(b"body", ack="full", admin_queue=stranger.direct(ACKS), recoverable=transactional)
    place = (SEQUENCE, 1, 0) if transactional else None
    stranger.send(session, spoil(stranger.compose(beta.direct(path), message, place)))
    assert beta.messages(path) == []
    assert [view.message_class for view in stranger.messages] == [told]
    assert [ack.final_class for ack in stranger.final_acks] == ([told] if transactional else [])
    assert beta.core.delivery.tally.refused == {why: 1}


def forged_and_encrypted(packet: bytes) -> bytes:
    return encrypted(forged(packet))


def unregistered_and_encrypted(packet: bytes) -> bytes:
    return encrypted(unregistered(packet))


def signed_and_damaged(packet: bytes) -> bytes:
    return damaged(signed(packet))


@pytest.mark.spec("QB-3.1.5.8.3-05", "QB-3.1.5.8.3-11")
@pytest.mark.parametrize(
    ("path", "right", "wrong", "told"),
    [
        (STRICT, encrypted, damaged, MessageClass.NACK_BAD_SIGNATURE),
        (CLOSED, encrypted, damaged, MessageClass.NACK_ACCESS_DENIED),
        (r"private$\open", encrypted, damaged, MessageClass.NACK_BAD_ENCRYPTION),
        (LEDGER, encrypted, damaged, MessageClass.NACK_NOT_TRANSACTIONAL_MSG),
        (ORDERS, forged_and_encrypted, signed_and_damaged, MessageClass.NACK_BAD_ENCRYPTION),
        (STRICT, forged_and_encrypted, signed_and_damaged, MessageClass.NACK_BAD_ENCRYPTION),
        (STRICT, unregistered_and_encrypted, signed_and_damaged, MessageClass.NACK_BAD_ENCRYPTION),
    ],
)
def test_a_refusal_does_not_say_whether_the_padding_was_right(
    beta: Station, stranger: Stranger, path: str, right: Spoil, wrong: Spoil, told: MessageClass
) -> None:
    """Otherwise somebody with a recorded message could learn its body by sending changed copies of it."""
    session = stranger.call(beta)
    message = Message(b"body", ack="full", admin_queue=stranger.direct(ACKS))
    for spoil in (right, wrong):
        stranger.send(session, spoil(stranger.compose(beta.direct(path), message)))
    assert [view.message_class for view in stranger.messages] == [told, told]
    assert beta.messages(path) == []


def test_the_session_goes_on_after_a_refusal_and_order_is_kept(beta: Station, stranger: Stranger) -> None:
    session = stranger.call(beta)
    packets = [
        stranger.compose(beta.direct(ORDERS), Message(b"body", label=str(each), recoverable=True)) for each in range(6)
    ]
    spoiled = [plain, forged, signed, damaged, encrypted, plain]
    stranger.send(session, *(spoil(packet) for spoil, packet in zip(spoiled, packets, strict=True)))
    assert beta.labels(ORDERS) == ["0", "2", "4", "5"]
    stranger.network.wait(10)
    assert len(stranger.acknowledged) == 6
    assert not session.closed


def test_by_default_the_sender_hears_nothing_of_the_reason(network: Network, stranger: Stranger) -> None:
    network.protections["beta"] = Protection(Counted(), RING, REGISTERED)
    beta = network.station("beta", 2)
    session = stranger.call(beta)
    for spoil in (forged, unregistered, damaged):
        message = Message(b"body", ack="full", admin_queue=stranger.direct(ACKS))
        stranger.send(session, spoil(stranger.compose(beta.direct(ORDERS), message)))
    assert (stranger.messages, stranger.final_acks, beta.messages(ORDERS)) == ([], [], [])


def test_a_session_that_ends_while_its_first_messages_are_checked(beta: Station, stranger: Stranger) -> None:
    """The session had just opened, so both events come from one read. What it sent is stored, because nothing speaks
    against it."""
    held: list[Callable[[], None]] = []
    check = beta.open
    beta.open = lambda session, packets, done: held.append(lambda: check(session, packets, done))  # type: ignore[method-assign]
    incoming = beta.accepted(stranger.address)
    assert incoming is not None
    outgoing = Session.initiate(stranger.identifier, beta.identifier, stranger.settings, beta.network.now)
    for _ in range(2):
        incoming.receive_data(outgoing.data_to_send(), beta.network.now)
        outgoing.receive_data(incoming.data_to_send(), beta.network.now)
    packet = signed(stranger.compose(beta.direct(ORDERS), Message(b"body", recoverable=True)))
    outgoing.send(packet, packet, beta.network.now, recoverable=True)
    beta.received(incoming, outgoing.data_to_send())
    beta.disconnected(incoming)
    (checked,) = held
    checked()
    beta.network.run()
    assert [view.body for view in beta.messages(ORDERS)] == [b"body"]
    assert beta.service.sessions == {}


# Who may send


@pytest.mark.spec("QB-3.1.5.8.3-23")
def test_a_verified_sender_may_send_where_his_list_says_so(beta: Station, stranger: Stranger) -> None:
    session = stranger.call(beta)
    stranger.send(session, signed(stranger.compose(beta.direct(CLOSED), Message(b"body"))))
    assert [view.body for view in beta.messages(CLOSED)] == [b"body"]
    stranger.send(session, signed(stranger.compose(beta.direct(CLOSED), Message(b"body")), None))
    assert len(beta.messages(CLOSED)) == 1  # signed, but nobody knows by whom


def test_a_group_of_the_sender_counts(beta: Station, stranger: Stranger) -> None:
    group = Sid.parse("S-1-5-21-9-9-9-2001")
    beta.use(users=Users([User("ann", SID, frozenset({group}))]))
    set_acl(beta, CLOSED, f"O:BAD:(A;;0x4;;;{group})")
    session = stranger.call(beta)
    stranger.send(session, signed(stranger.compose(beta.direct(CLOSED), Message(b"body"))))
    assert len(beta.messages(CLOSED)) == 1


def test_an_unsigned_sender_is_believed_where_the_operator_says_so(beta: Station, stranger: Stranger) -> None:
    beta.use(claimed_senders=True)
    session = stranger.call(beta)
    stranger.send(session, claiming(stranger.compose(beta.direct(CLOSED), Message(b"body"))))
    assert len(beta.messages(CLOSED)) == 1
    administrators = UserMessage.decode(stranger.compose(beta.direct(CLOSED), Message(b"body")))
    stranger.send(session, replace(administrators, security=SecurityHeader(1, ADMINISTRATORS.encode())).encode())
    assert len(beta.messages(CLOSED)) == 1  # a group is nobody


def of_a_manager(packet: bytes) -> bytes:
    """A message that a queue manager sends for itself."""
    message = UserMessage.decode(packet)
    source = message.user.source_queue_manager.bytes_le
    return replace(message, security=SecurityHeader(SenderIdType.QUEUE_MANAGER, source)).encode()


def nameless(packet: bytes) -> bytes:
    """A signed message that names no sender."""
    return signed(packet, None)


@pytest.mark.spec("QB-3.1.5.8.3-25", "DM-3.1.1.12-32")
@pytest.mark.parametrize("believed", [False, True])
@pytest.mark.parametrize("spoil", [plain, nameless, of_a_manager])
def test_nobody_is_anonymous_and_so_is_who_only_says_that_it_is_a_manager(
    beta: Station, stranger: Stranger, spoil: Spoil, believed: bool
) -> None:
    beta.use(claimed_senders=believed)
    is_anonymous = spoil is not of_a_manager or not believed
    session = stranger.call(beta)
    for sddl, arrives in (("(A;;0x4;;;AN)", is_anonymous), ("(D;;0x4;;;AN)(A;;0x4;;;WD)", not is_anonymous)):
        set_acl(beta, CLOSED, f"O:BAD:{sddl}")
        before = len(beta.messages(CLOSED))
        stranger.send(session, spoil(stranger.compose(beta.direct(CLOSED), Message(b"body"))))
        assert len(beta.messages(CLOSED)) - before == arrives


def test_no_list_and_the_default_list_let_everyone_send(beta: Station, stranger: Stranger) -> None:
    set_acl(beta, CLOSED, "O:BA")
    session = stranger.call(beta)
    for path in (CLOSED, ORDERS):
        stranger.send(session, stranger.compose(beta.direct(path), Message(b"body")))
        assert len(beta.messages(path)) == 1


def test_a_transactional_message_without_access_is_a_dead_letter_at_its_source(
    network: Network, alpha: Station, beta: Station
) -> None:
    beta.create(r"private$\closed-tx", transactional=True)
    set_acl(beta, r"private$\closed-tx", WRITE_FOR_SENDER)
    alpha.send_transactional(beta.private(r"private$\closed-tx"), Message(b"body", dead_letter=True))
    network.wait(100)
    assert alpha.classes(DEADXACT) == [MessageClass.NACK_ACCESS_DENIED]
