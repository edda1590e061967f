"""What applications here send signed or encrypted: it is checked, encrypted or refused before anything is promised."""

from __future__ import annotations

import pytest

from postroad.client.signer import Signer
from postroad.client.signing import Signing
from postroad.describe.packets import cipher_word
from postroad.errors import NotAuthenticated, NotEncrypted, Status
from postroad.manager.manager import resolution
from postroad.message import Message
from postroad.queues.securing import Securing
from postroad.security.access import Token
from postroad.security.descriptors import Sid
from postroad.security.guard import Protection
from postroad.wire.constants import MessageClass
from tests.security_vectors import ADVANCED, RING, Counted, certificate_of
from tests.unit.queues.harness import ACKS, DEADLETTER, ORDERS, Harness

SID = "S-1-5-21-1-2-3-1001"
CERTIFICATE = certificate_of(ADVANCED)
ELSEWHERE = r"PRIVATE=8f3c6a52-0d1e-4b7a-9c55-2f1f0f6f7a10\00000007"
ANONYMOUS = Token.anonymous()


def signed(harness: Harness, message: Message, name: str = ORDERS) -> Message:
    """Signs a message as a client does."""
    signing = Signing()
    message.sign = Signer(CERTIFICATE, ADVANCED)
    for question in signing.unknown(name, [message]):
        signing.learn(
            question, resolution(harness.manager, question[0], question[1], _registered(harness, question[2]))
        )
    return signing.sign(name, [message], transactional=False)[1][0]


def _registered(harness: Harness, certificate: bytes) -> str | None:
    known = harness.manager.protection.certificates.items()
    return next((sid for sid, some in known if certificate in some), None)


def send(harness: Harness, message: Message, token: Token, name: str = ORDERS) -> None:
    try:
        harness.manager.send(name, [message], harness.now, token=token)
    finally:
        harness.tick()


@pytest.mark.spec("MQ-2.3.1.11-01", "DM-3.1.1.2-05", "MQ-2.4-28")
def test_a_queue_that_authenticates_takes_signed_messages_and_those_of_a_login(harness: Harness) -> None:
    harness.create(r"private$\strict", authenticate=True)
    strict = r"private$\strict"
    with pytest.raises(NotAuthenticated, match="takes signed messages only") as refused:
        send(harness, Message("unsigned"), ANONYMOUS, strict)
    assert refused.value.status is Status.MESSAGE_NOT_AUTHENTICATED
    assert harness.messages(strict) == []
    send(harness, signed(harness, Message("signed"), strict), ANONYMOUS, strict)
    send(harness, Message("a user's"), harness.manager.access.users.token(Sid.parse(SID)), strict)
    send(harness, Message("an administrator's"), Token.administrator(), strict)
    levels = [view.security_header.flags >> 8 & 15 for view in harness.messages(strict) if view.security_header]
    assert levels == [3, 1, 1]


def test_a_sender_who_asked_is_told_of_a_refusal_where_insecure_nacks_are_on() -> None:
    harness = Harness(insecure_nacks=True)
    harness.create(ORDERS, authenticate=True)
    harness.create(ACKS)
    with pytest.raises(NotAuthenticated):
        send(harness, Message("x", ack="full", admin_queue=ACKS), ANONYMOUS)
    assert harness.classes(ACKS) == [MessageClass.NACK_BAD_SIGNATURE]


def test_a_message_that_was_changed_after_signing_is_refused(harness: Harness) -> None:
    message = signed(harness, Message("ten boxes"))
    message.body = "ten more boxes"
    with pytest.raises(NotAuthenticated, match="wrong-signature"):
        send(harness, message, Token.administrator())
    assert harness.messages(ORDERS) == []


def with_keys(harness: Harness) -> None:
    """The directory knows the keys of every other manager."""
    manager = harness.manager
    manager.protection = Protection(Counted(), RING)
    manager.securing = Securing(manager.access, manager.protection, lambda _: RING.public_keys)


@pytest.mark.spec("QB-5.1-01")
@pytest.mark.parametrize(("asked", "used"), [("", "aes256"), ("aes128", "aes128")])
def test_the_manager_chooses_aes_256_where_the_sender_names_no_cipher(harness: Harness, asked: str, used: str) -> None:
    with_keys(harness)
    send(harness, Message("secret", encrypt=asked), Token.administrator(), ELSEWHERE)
    (view,) = harness.messages(ELSEWHERE)
    assert (cipher_word(view), b"secret" in view.data) == (used, False)


@pytest.mark.spec("DM-3.1.7.1.30-02")
def test_a_security_header_is_there_for_a_signature_a_key_or_a_sender(harness: Harness) -> None:
    with_keys(harness)
    harness.create(r"private$\strict", authenticate=True)
    ann = harness.manager.access.users.token(Sid.parse(SID))
    for name, message in (
        (ORDERS, Message("nothing")),
        (r"private$\strict", Message("a sender")),
        (ELSEWHERE, Message("a key", encrypt="")),
        (r"PUBLIC=8f3c6a52-0d1e-4b7a-9c55-2f1f0f6f7a10", signed(harness, Message("a signature"))),
    ):
        send(harness, message, ann, name)
    assert not harness.messages(ORDERS)[0].has_security
    others = [r"private$\strict", ELSEWHERE, r"PUBLIC=8f3c6a52-0d1e-4b7a-9c55-2f1f0f6f7a10"]
    headers = [view.security_header for each in others for view in harness.messages(each)]
    found = [(each.security_id, bool(each.encryption_key), bool(each.signature)) for each in headers if each]
    assert found == [(Sid.parse(SID).encode(), False, False), (b"", True, False), (b"", False, True)]


@pytest.mark.spec("QB-5.1-02")
def test_a_body_for_a_direct_name_is_not_encrypted_and_not_sent(harness: Harness) -> None:
    """Signatures are not refused for direct names: the receiver checks them as with any other name."""
    with_keys(harness)
    with pytest.raises(NotEncrypted, match="a direct name"):
        send(
            harness,
            Message("secret", encrypt="", dead_letter=True),
            Token.administrator(),
            r"DIRECT=OS:beta\private$\x",
        )
    assert harness.messages(DEADLETTER)[0].body == b"secret"
    assert not [each for each in harness.manager.queues.outgoing.values() if each.count]
