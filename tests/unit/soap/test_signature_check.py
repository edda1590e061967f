"""[MC-MQSRM] 3.1.5.1.6.1 on whole requests: what a signature covers, what it does not, and attempts to evade it."""

from __future__ import annotations

import re
from base64 import b64decode
from copy import deepcopy
from dataclasses import replace
from hashlib import sha1
from uuid import UUID

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers
from cryptography.hazmat.primitives.hashes import SHA1 as SHA1_ALGORITHM
from lxml import etree

from postroad.security.refusals import Reason
from postroad.security.relay import RelayRule
from postroad.soap.addresses import Redirections
from postroad.soap.elements import (
    Attachments,
    CommitmentReceiptRequest,
    DeliveryReceiptRequest,
    Services,
    Signature,
)
from postroad.soap.envelope import write_envelope
from postroad.soap.multipart import join_entity
from postroad.soap.receiver import BAD_REQUEST, OK
from postroad.soap.signature import DSA, MD5, SHA1, check_signature, references_of, write_signed_info
from postroad.wire.constants import MessageClass, SecurityFlags
from postroad.wire.view import MessageView
from tests.soap_samples import ORDER, changed, read, refused
from tests.unit.soap.network import (
    ACKS,
    DEADLETTER,
    DEADXACT,
    LEDGER,
    ORDERS,
    Network,
    Station,
    stranger_message,
    stream_message,
)

MANAGER = UUID("f6a3323c-7c7b-4a5f-b0ed-b3f63a200893")
NAMESPACE = "http://www.w3.org/2000/02/xmldsig#"
PARTS = Attachments(b"hello", b"extra")
OLD = frozenset({"sha1", "md5"})

# A signature that was made without Postroad: RSA of 1024 bits over the SHA-1 of SignedInfo, for the body "hello".
VECTOR_INFO = (
    f'<SignedInfo><SignatureMethod Algorithm="{NAMESPACE}dsa"></SignatureMethod>'
    f'<Reference URI="cid:body@{MANAGER}"><DigestMethod Algorithm="{NAMESPACE}sha1"></DigestMethod>'
    "<DigestValue>qvTGHdzF6KLavt4PO0gs2a6pQ00=</DigestValue></Reference></SignedInfo>"
)
VECTOR_SHA1 = "e4ad05fcac25e277b755befbd6b4cb370ff7b771"
VECTOR_VALUE = (
    "D7o+9rI1uM2/M4r1k1iGEliVu1V3Nk3T5YW3aat0f5OMaJ4ly636kAjkN8cb6FkWE7wY1/Pb7jT5fNnL6frHoecih2X9mRSjyNegU0/e6agI9CSV"
    "qbfwfG0D5sA6yZJE/uBPl/ZdqLEvNQTJKJi5NnIqA3HCljPyNmzVN2e8xVY="
)
VECTOR_KEY = RSAPublicNumbers(
    65537,
    int(
        "e6432a1e5c74fb285fa54349a46de67cd98b7247a7b27c6c519ee6b814f2caa74a7e2348a5044be63a474bc18627cb8ae0aed3283a38a8c9"
        "75913452f31cd0b8d52568c44d27ba53e738e20b5b7b4ab389a88bd0a70e7af9c896707b15a5020dcd79e1e20315913b464272be259f7bd9"
        "7d31496ebf90f6839ad28c742aeac3cd",
        16,
    ),
).public_key()
VECTOR = f'<Signature xmlns="{NAMESPACE}">{VECTOR_INFO}<SignatureValue>{VECTOR_VALUE}</SignatureValue></Signature>'


def signed_order(signature: str) -> Signature:
    found = read(changed(ORDER, "</se:Header>", f"{signature}</se:Header>")).signature
    assert found is not None
    return found


def signature_of(parts: Attachments, method: str = SHA1) -> Signature:
    return Signature(DSA, references_of(parts, MANAGER, method), b64decode(VECTOR_VALUE))


def verify(value: bytes, octets: bytes) -> None:
    VECTOR_KEY.verify(value, octets, PKCS1v15(), SHA1_ALGORITHM())


def signature_type(view: MessageView) -> int:
    """AS of a stored message."""
    header = view.security_header
    return 0 if header is None else (header.flags & SecurityFlags.SIGNATURE_TYPE) >> 8


# The vector


@pytest.mark.spec("SRM-2.2.7.2-02", "SRM-2.2.7.1.2.2-02", "SRM-3.1.5.1.6.1-10")
def test_a_signature_of_another_maker_is_read_and_written_to_the_letter() -> None:
    found = signed_order(VECTOR)
    assert found.references == references_of(Attachments(b"hello"), MANAGER)
    made = write_signed_info(replace(found, text=None))
    assert made == VECTOR_INFO
    assert sha1(made.encode()).hexdigest() == VECTOR_SHA1
    verify(found.signature_value, made.encode())
    with pytest.raises(InvalidSignature):
        verify(found.signature_value, made.replace("cid:body", "cid:bodY").encode())
    assert check_signature(found, Attachments(b"hello"), OLD).verified
    for wrong in (b"hellp", b"hello ", b""):
        assert check_signature(found, Attachments(wrong), OLD).fault == "the digest of cid:body is wrong"


VARIATIONS = (
    VECTOR,
    VECTOR.replace("></SignatureMethod>", "/>").replace("></DigestMethod>", "/>"),
    VECTOR.replace('"', "'"),
    VECTOR.replace("<Reference URI", "<Reference\n  URI").replace("</Reference>", "</Reference\t>"),
    re.sub(r"<(/?)(?=[A-Z])", r"<\1ds:", VECTOR).replace("xmlns=", "xmlns:ds="),
    VECTOR.replace("Algorithm=", 'other="1" Algorithm='),
    VECTOR.replace("cid:body", "cid:&#98;ody"),
)


@pytest.mark.parametrize("text", [*VARIATIONS, VECTOR.replace("qvTG", "\n qvTG\n "), VECTOR.replace("><", "> \n<")])
def test_other_forms_of_the_same_signature_have_the_same_digests(text: str) -> None:
    found = signed_order(text)
    assert found == signed_order(VECTOR)
    assert check_signature(found, Attachments(b"hello"), OLD).verified


@pytest.mark.parametrize("text", [each for each in VARIATIONS if "ds:" not in each and "other" not in each])
def test_what_is_signed_is_the_canonical_form_without_its_namespace(text: str) -> None:
    """By lxml: 3.1.7.2.4 writes the canonical form, but declares the namespace only on Signature."""
    element = etree.fromstring(text).find(f"{{{NAMESPACE}}}SignedInfo")
    canonical = etree.tostring(deepcopy(element), method="c14n").decode()  # of a copy, which declares its namespace
    made = write_signed_info(replace(signed_order(text), text=None))
    assert made == canonical.replace(f' xmlns="{NAMESPACE}"', "")
    verify(b64decode(VECTOR_VALUE), made.encode())


# Which hashes count


@pytest.mark.spec("SRM-6-25")
def test_a_hash_that_is_not_accepted_verifies_nothing_and_still_refuses_what_is_wrong() -> None:
    for method, word in ((SHA1, "sha1"), (MD5, "md5")):
        right, wrong = signature_of(PARTS, method), signature_of(Attachments(b"other", b"extra"), method)
        assert check_signature(right, PARTS, {word}).verified
        for accepted in (frozenset[str](), {"sha512", "sha256"}, OLD - {word}):
            assert check_signature(right, PARTS, accepted) == check_signature(None, PARTS, accepted)
            assert check_signature(wrong, PARTS, accepted).fault == "the digest of cid:body is wrong"
    body, extension = references_of(PARTS, MANAGER)[0], references_of(PARTS, MANAGER, MD5)[1]
    mixed = Signature(DSA, (body, extension), b"value")
    assert check_signature(mixed, PARTS, OLD).verified
    assert not check_signature(mixed, PARTS, {"sha1"}).verified
    assert {each.digest_method for each in references_of(PARTS, MANAGER)} == {SHA1}  # unless a caller asks for MD5


@pytest.mark.parametrize(("accepted", "level"), [(frozenset({"sha512", "sha256"}), 0), (OLD, 9)])
def test_the_level_of_a_stored_message(network: Network, accepted: frozenset[str], level: int) -> None:
    beta = network.station("beta", 2, accept_hashes=accepted)
    envelope = stranger_message(beta.url(ORDERS))
    assert beta.ask(replace(envelope, signature=signature_of(PARTS)), PARTS) == OK
    assert beta.ask(stranger_message(beta.url(ORDERS), 2), PARTS) == OK
    signed, plain = beta.messages(ORDERS)
    assert (signature_type(signed), signature_type(plain)) == (level, 0)
    for view in (signed, plain):
        header = view.security_header
        assert header is None or not header.flags & SecurityFlags.AUTHENTICATED  # no one knows who signed it
        assert (view.body, view.extension) == (b"hello", b"extra")


def test_a_queue_that_requires_authentication_takes_no_soap_message(network: Network) -> None:
    beta = network.station("beta", 2, accept_hashes=OLD)
    beta.create(r"private$\strict", authenticate=True)
    envelope = stranger_message(beta.url(r"private$\strict"))
    assert beta.ask(replace(envelope, signature=signature_of(PARTS)), PARTS) == OK
    assert beta.messages(r"private$\strict") == []
    assert beta.core.delivery.tally.refused == {Reason.NOT_AUTHENTICATED: 1}


def test_a_manager_that_forwards_checks_nothing(network: Network) -> None:
    """The destination decides. It gets what was sent."""
    gate = network.station("gate", 3, redirections=Redirections(store_and_forward=True))
    beta = network.station("beta", 2)
    gate.use(relay=(RelayRule.parse(beta.address),))
    wrong = signature_of(Attachments(b"other", b"extra"))
    assert gate.ask(replace(stranger_message(beta.url(ORDERS)), signature=wrong), PARTS) == OK
    assert gate.core.delivery.tally.refused == {}
    (exchange,) = network.user_posts("gate")
    assert exchange.envelope.signature == wrong
    assert beta.messages(ORDERS) == []
    assert beta.core.delivery.tally.refused == {Reason.WRONG_DIGEST: 1}


# Refused messages


def test_a_wrong_digest_is_counted_and_logged_and_the_answer_says_nothing(beta: Station) -> None:
    seen: list[tuple[str, object]] = []
    watcher = replace(
        beta.service.receiver._watcher, suspicious=lambda event, facts: seen.append((event, facts["reason"]))
    )
    beta.service.receiver._watcher = watcher
    right, wrong = signature_of(PARTS), signature_of(Attachments(b"other", b"extra"))
    answers = [
        beta.ask(replace(stranger_message(beta.url(ORDERS), number), signature=each), PARTS)
        for number, each in enumerate((right, wrong), 1)
    ]
    assert answers == [OK, OK]
    assert len(beta.messages(ORDERS)) == 1
    assert beta.core.delivery.tally.refused == {Reason.WRONG_DIGEST: 1}
    assert seen == [("SOAP signature refused", "the digest of cid:body is wrong")]


def test_a_stream_moves_past_a_message_with_a_wrong_digest(beta: Station) -> None:
    to = beta.url(LEDGER)
    for current, parts in ((1, PARTS), (2, Attachments(b"other", b"extra")), (3, PARTS)):
        assert beta.ask(replace(stream_message(to, current), signature=signature_of(parts)), PARTS) == OK
    assert beta.labels(LEDGER) == ["1.1", "1.3"]


def test_receipts_do_not_say_why_a_signed_message_was_refused(network: Network, alpha: Station, beta: Station) -> None:
    acks = alpha.url(ACKS)
    services = Services(True, DeliveryReceiptRequest(acks), CommitmentReceiptRequest(acks, True, True))
    wrong = signature_of(Attachments(b"other", b"extra"))
    regular = stranger_message(beta.url(ORDERS), dead_letter=True)
    stream = stream_message(beta.url(LEDGER), 1, start=alpha.url(r"private$\order_queue$"), dead_letter=True)
    for envelope in (regular, stream):
        assert beta.ask(replace(envelope, services=services, signature=wrong), PARTS, alpha.address) == OK
    network.wait(30)
    assert network.receipts("beta") == []
    (final,) = network.final_receipts("beta")
    assert final.envelope.msmq is not None
    assert final.envelope.msmq.message_class == MessageClass.NACK_DELETED
    assert beta.messages(ORDERS) == beta.messages(LEDGER) == beta.messages(DEADLETTER) == beta.messages(DEADXACT) == []


# Every byte


def entity(beta: Station, number: int = 1) -> tuple[str, bytes]:
    envelope = replace(stranger_message(beta.url(ORDERS), number), signature=signature_of(PARTS))
    kind, pieces = join_entity(write_envelope(envelope), PARTS, MANAGER, 1)
    return kind, b"".join(pieces)


def position_of(data: bytes, inner: bytes) -> range:
    start = data.index(inner)
    assert data.count(inner) == 1
    return range(start, start + len(inner))


@pytest.mark.spec("SRM-3.1.5.1.6.1-01", "SRM-3.1.5.1.6.1-10")
def test_every_byte_flipped(network: Network) -> None:
    """A message that is accepted in spite of the flip has the signed parts, or is not signed any more."""
    beta = network.station("beta", 2, accept_hashes=OLD)
    kind, data = entity(beta)
    assert beta.ask_raw(kind, data) == OK
    beta.purge(ORDERS)
    parts = {
        "body": position_of(data, b"\r\n\r\nhello--")[4:9],
        "extension": position_of(data, b"\r\n\r\nextra--")[4:9],
        "digest": position_of(data, references_text(data, 0)),
        "value": position_of(data, VECTOR_VALUE.encode()),
    }
    changed_but_taken: dict[str, int] = {}
    for at in range(len(data)):
        for bit in (0x01, 0x20):
            flipped = data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]
            # From another address each time; otherwise the message would be a duplicate of the one before.
            assert beta.ask_raw(kind, flipped, f"10.{bit}.{at >> 8}.{at & 255}") in (OK, BAD_REQUEST)
            for view in beta.messages(ORDERS):
                name = next((each for each, span in parts.items() if at in span), "rest")
                changed_but_taken[name] = changed_but_taken.get(name, 0) + 1
                if signature_type(view) == 9:
                    assert (view.body, view.extension) == (PARTS.body, PARTS.extension), (at, bit)
            beta.purge(ORDERS)
    # Without the sender's certificate SignatureValue cannot be checked. SRMP does not sign the rest of the envelope.
    assert set(changed_but_taken) == {"value", "rest"}
    assert beta.core.delivery.tally.refused[Reason.WRONG_DIGEST] > len("helloextra") * 2


def references_text(data: bytes, number: int) -> bytes:
    return re.findall(rb"<DigestValue>([^<]+)</DigestValue>", data)[number]  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", ["body", "extension"])
def test_every_bit_of_a_part_and_of_its_digest(beta: Station, name: str) -> None:
    kind, data = entity(beta)
    number, content = (0, b"hello") if name == "body" else (1, b"extra")
    spans = (position_of(data, b"\r\n\r\n" + content + b"--")[4:9], position_of(data, references_text(data, number)))
    for span in spans:
        for at in span:
            for bit in range(8):
                flipped = data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
                assert beta.ask_raw(kind, flipped, f"10.1.{at & 255}.{bit}") in (OK, BAD_REQUEST)
                assert beta.messages(ORDERS) == []


# Hostile signatures


ENVELOPE_PARTS = (
    "",
    "#body",
    "#xpointer(/)",
    "#xpointer(id('body'))",
    "mid:body@x",
    "cid:Body@x",
    "CID:body@x",
    "cid:",
)


@pytest.mark.parametrize("uri", [*ENVELOPE_PARTS, "file:///etc/passwd", "http://127.0.0.1/", "cid:cid:body@x"])
def test_a_reference_to_anything_but_a_part_is_refused(beta: Station, uri: str) -> None:
    """No element is found by its Id, so doubled Ids do not matter: there is no signed element to move."""
    right = signature_of(PARTS)
    wrong = replace(right, references=(replace(right.references[0], uri=uri), right.references[1]))
    envelope = write_envelope(replace(stranger_message(beta.url(ORDERS)), signature=wrong)).decode()
    for body in ("<se:Body>", '<se:Body Id="body"><x Id="body"/><y Id="body"/>'):
        kind, pieces = join_entity(changed(envelope, "<se:Body>", body).encode(), PARTS, MANAGER, 1)
        assert beta.ask_raw(kind, b"".join(pieces), f"10.3.0.{len(body)}") == OK
    assert beta.messages(ORDERS) == []
    assert beta.core.delivery.tally.refused == {Reason.WRONG_DIGEST: 2}


TRANSFORMS = (
    "http://www.w3.org/TR/1999/REC-xslt-19991116",
    "http://www.w3.org/TR/1999/REC-xpath-19991116",
    "http://www.w3.org/2000/09/xmldsig#enveloped-signature",
    "http://www.w3.org/2000/09/xmldsig#base64",
    "http://www.w3.org/TR/2001/REC-xml-c14n-20010315",
    "anything",
)


@pytest.mark.parametrize("algorithm", TRANSFORMS)
@pytest.mark.parametrize("form", ["<Transforms>{}</Transforms>", "{}"])
def test_every_transform_is_refused(algorithm: str, form: str) -> None:
    transform = form.format(f'<Transform Algorithm="{algorithm}"><XPath>//x</XPath></Transform>')
    found = signed_order(VECTOR.replace("<DigestMethod", f"{transform}<DigestMethod"))
    fault = check_signature(found, Attachments(b"hello"), OLD).fault
    assert fault == "the Reference to cid:body has a transform; SRMP has none"


def test_a_second_part_of_a_name_does_not_take_the_place_of_the_signed_one(beta: Station) -> None:
    kind, data = entity(beta)
    for name in ("body", "BODY", "other"):
        delimiter = data[: data.index(b"\r\n")]
        part = delimiter + f"\r\nContent-Length: 5\r\nContent-Id: {name}@x\r\n\r\nwrong".encode()
        first = data.index(delimiter, len(delimiter))
        for at in (first, data.rindex(delimiter)):
            assert beta.ask_raw(kind, data[:at] + part + data[at:], f"10.4.{at & 255}.{len(name)}") == BAD_REQUEST
    assert beta.messages(ORDERS) == []


@pytest.mark.spec("DM-3.1.1.12-11")
def test_a_part_that_was_added_to_a_signed_message_is_refused(beta: Station) -> None:
    alone = Attachments(b"hello")
    envelope = replace(stranger_message(beta.url(ORDERS)), signature=signature_of(alone))
    assert beta.ask(envelope, PARTS) == OK
    assert beta.messages(ORDERS) == []
    assert beta.ask(replace(stranger_message(beta.url(ORDERS), 2), signature=signature_of(alone)), alone) == OK
    assert len(beta.messages(ORDERS)) == 1


def test_two_signatures_are_refused() -> None:
    assert refused(changed(ORDER, "</se:Header>", f"{VECTOR}{VECTOR}</se:Header>")).place == "Signature"


BOMB = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10 if n else "x"}">' for n in range(10))


@pytest.mark.parametrize(
    "prologue",
    [
        f"<!DOCTYPE x [{BOMB}]>",
        '<!DOCTYPE x [<!ENTITY e9 SYSTEM "file:///etc/passwd">]>',
        '<!DOCTYPE x SYSTEM "http://127.0.0.1/x.dtd">',
        '<!DOCTYPE x [<!ATTLIST Reference URI CDATA "cid:body@x">]>',
    ],
)
def test_entities_and_document_types_in_a_signed_envelope_are_refused(beta: Station, prologue: str) -> None:
    envelope = write_envelope(replace(stranger_message(beta.url(ORDERS)), signature=signature_of(PARTS))).decode()
    hostile = prologue + envelope.replace("<DigestValue>", "<DigestValue>&e9;", 1)
    kind, pieces = join_entity(hostile.encode(), PARTS, MANAGER, 1)
    assert beta.ask_raw(kind, b"".join(pieces)) == BAD_REQUEST
    assert "document type" in (beta.fault or "")


def test_spare_bits_do_not_make_a_second_text_of_a_digest() -> None:
    fault = refused(changed(ORDER, "</se:Header>", VECTOR.replace("Q00=", "Q01=") + "</se:Header>"))
    assert fault.place == "Reference/DigestValue"


def test_a_long_signature_is_refused_before_anything_is_computed(beta: Station) -> None:
    right = signature_of(PARTS)
    for number, wrong in enumerate((replace(right, signature_value=bytes(1025)), replace(right, signature_value=b""))):
        assert beta.ask(replace(stranger_message(beta.url(ORDERS), number + 1), signature=wrong), PARTS) == OK
    many = "".join(
        VECTOR_INFO[VECTOR_INFO.index("<Reference") : VECTOR_INFO.index("</SignedInfo>")] for _ in range(1000)
    )
    text = VECTOR.replace("</SignedInfo>", f"{many}</SignedInfo>")
    assert refused(changed(ORDER, "</se:Header>", f"{text}</se:Header>")).place == "SignedInfo/Reference"
    assert beta.messages(ORDERS) == []
