"""[MC-MQSRM] 2.2.7: the elements of a signature, carried unchanged."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha1
from uuid import UUID

import pytest

from postroad.soap.elements import Attachments, Envelope, Reference, Signature
from postroad.soap.envelope import read_envelope, write_envelope
from postroad.soap.multipart import join_entity
from postroad.soap.signature import DSA, MD5, SHA1, references_of, signature_fault
from postroad.soap.simple_types import base64_text
from tests.soap_samples import ORDER, ORDER_BODY, ORDER_MANAGER, changed, read, refused
from tests.unit.soap.network import ORDERS, Station, stranger_message

MANAGER = UUID("f6a3323c-7c7b-4a5f-b0ed-b3f63a200893")
BODY = Reference(f"cid:body@{MANAGER}", SHA1, sha1(ORDER_BODY).digest())
EXTENSION = Reference(f"cid:extension@{MANAGER}", MD5, bytes(range(16)))
SIGNATURE = Signature(DSA, (BODY, EXTENSION), bytes(64))
REFERENCE = (
    f'<Reference URI="{BODY.uri}"><DigestMethod Algorithm="{SHA1}"></DigestMethod>'
    f"<DigestValue>{base64_text(BODY.digest_value)}</DigestValue></Reference>"
)
METHOD = f'<SignatureMethod Algorithm="{DSA}"></SignatureMethod>'
VALUE = f"<SignatureValue>{base64_text(bytes(64))}</SignatureValue>"


def signed(signed_info: str, value: str = VALUE) -> str:
    signature = f'<Signature xmlns="http://www.w3.org/2000/02/xmldsig#">{signed_info}{value}</Signature>'
    return changed(ORDER, "</se:Header>", f"{signature}</se:Header>")


def info(inside: str) -> str:
    return f"<SignedInfo>{inside}</SignedInfo>"


@pytest.mark.spec("SRM-2.2.7-01", "SRM-2.2.7.1.1-02", "SRM-2.2.7.1.2.1-02", "SRM-3.1.7.2.4-27", "SRM-3.1.7.2.4-28")
def test_a_signature_both_ways() -> None:
    envelope = read(ORDER)
    assert envelope.signature is None
    with_signature = Envelope(envelope.path, envelope.properties, msmq=envelope.msmq, signature=SIGNATURE)
    written = write_envelope(with_signature).decode()
    assert written.endswith(
        '</Msmq><Signature xmlns="http://www.w3.org/2000/02/xmldsig#"><SignedInfo>'
        '<SignatureMethod Algorithm="http://www.w3.org/2000/02/xmldsig#dsa"></SignatureMethod>'
        f'<Reference URI="cid:body@{MANAGER}">'
        '<DigestMethod Algorithm="http://www.w3.org/2000/02/xmldsig#sha1"></DigestMethod>'
        f"<DigestValue>{base64_text(sha1(ORDER_BODY).digest())}</DigestValue></Reference>"
        f'<Reference URI="cid:extension@{MANAGER}">'
        '<DigestMethod Algorithm="http://www.w3.org/2000/02/xmldsig#md5"></DigestMethod>'
        f"<DigestValue>{base64_text(bytes(range(16)))}</DigestValue></Reference></SignedInfo>"
        f"{VALUE}</Signature></se:Header><se:Body></se:Body></se:Envelope>"
    )
    assert read(written) == with_signature


@pytest.mark.spec("SRM-2.2.7-02")
def test_the_namespace_is_that_of_the_draft() -> None:
    text = signed(info(METHOD + REFERENCE))
    assert read(text).signature == Signature(DSA, (BODY,), bytes(64))
    assert read(text.replace("2000/02/xmldsig#", "2000/09/xmldsig#")).signature is None


@pytest.mark.spec("SRM-2.2.7.1-01", "SRM-2.2.7.1.1-01", "SRM-2.2.7.1.2-01", "SRM-2.2.7.2-01")
def test_how_many_there_are_of_each() -> None:
    one = info(METHOD + REFERENCE)
    assert refused(signed("")).place == "Signature/SignedInfo"
    assert refused(signed(one + one)).place == "Signature/SignedInfo"
    assert refused(signed(info(REFERENCE))).place == "SignedInfo/SignatureMethod"
    assert refused(signed(info(METHOD + METHOD + REFERENCE))).place == "SignedInfo/SignatureMethod"
    assert read(signed(info(METHOD))).signature == Signature(DSA, (), bytes(64))
    assert read(signed(info(METHOD + REFERENCE * 2))).signature
    assert refused(signed(info(METHOD + REFERENCE * 3))).place == "SignedInfo/Reference"
    assert refused(signed(one, "")).place == "Signature/SignatureValue"
    assert refused(signed(one, VALUE * 2)).place == "Signature/SignatureValue"
    assert refused(signed(one, "<SignatureValue>?</SignatureValue>")).place == "Signature/SignatureValue"


@pytest.mark.spec("SRM-2.2.7.1.2.1-01", "SRM-2.2.7.1.2.2-01")
def test_a_reference_has_one_digest() -> None:
    for element, name in (
        (f'<DigestMethod Algorithm="{SHA1}"></DigestMethod>', "DigestMethod"),
        (f"<DigestValue>{base64_text(BODY.digest_value)}</DigestValue>", "DigestValue"),
    ):
        text = signed(info(METHOD + REFERENCE))
        assert refused(changed(text, element, "")).place == f"Reference/{name}"
        assert refused(changed(text, element, element * 2)).place == f"Reference/{name}"
    assert "Algorithm is missing" in refused(signed(info("<SignatureMethod/>"))).fault
    assert "URI is missing" in refused(signed(info(f"{METHOD}<Reference/>"))).fault


def test_what_was_read_is_written_to_the_letter() -> None:
    text = signed(f"<SignedInfo >\n {METHOD.replace('></SignatureMethod>', '/>')}<!-- x -->\n</SignedInfo>\n")
    assert write_envelope(read(text)) == text.encode()


def test_a_prefix_declared_further_out_goes_along() -> None:
    signature = f"<ds:Signature><ds:SignedInfo><ds:SignatureMethod Algorithm='{DSA}'/></ds:SignedInfo>"
    signature += "<ds:SignatureValue>AAAA</ds:SignatureValue></ds:Signature>"
    text = changed(ORDER, "</se:Header>", f"{signature}</se:Header>")
    text = changed(text, "<se:Header>", "<se:Header xmlns:ds='http://www.w3.org/2000/02/xmldsig#'>")
    envelope = read(text)
    assert envelope.signature == Signature(DSA, (), bytes(3))
    assert read_envelope(write_envelope(envelope)) == envelope
    assert str(ORDER_MANAGER) in text


# 3.1.5.1.6.1


PARTS = Attachments(ORDER_BODY, b"extension")
SHA256 = "http://www.w3.org/2001/04/xmlenc#sha256"


def made(*references: Reference, method: str = DSA) -> Signature:
    return Signature(method, references, bytes(40))


@pytest.mark.spec(
    "SRM-2.2.7.1.2-02",
    "SRM-2.2.7.1.2-03",
    "SRM-2.2.7.1.2.2-02",
    "SRM-3.1.7.2.4-28",
    "SRM-3.1.7.2.4-29",
    "DM-3.1.1.12-11",
)
def test_what_a_signature_says_of_the_parts() -> None:
    body, extension = references_of(PARTS, MANAGER)
    assert body == Reference(f"cid:body@{MANAGER}", SHA1, sha1(ORDER_BODY).digest())
    assert extension == Reference(f"cid:extension@{MANAGER}", SHA1, sha1(b"extension").digest())
    _, pieces = join_entity(b"<envelope/>", PARTS, MANAGER, 1)
    for reference in (body, extension):
        assert f"Content-Id: {reference.uri.removeprefix('cid:')}\r\n".encode() in b"".join(pieces)
    assert len(base64_text(body.digest_value)) == 28
    (by_md5,) = references_of(Attachments(b"abc"), MANAGER, MD5)
    assert (by_md5.digest_method, base64_text(by_md5.digest_value)) == (MD5, "kAFQmDzST7DWlj99KOF/cg==")
    assert references_of(Attachments(), MANAGER) == ()


@pytest.mark.spec("SRM-3.1.5.1.6.1-09", "SRM-3.1.5.1.6.1-10")
@pytest.mark.parametrize("method", [SHA1, MD5])
def test_digests_hold_or_not(method: str) -> None:
    references = references_of(PARTS, MANAGER, method)
    assert signature_fault(made(*references), PARTS) is None
    assert signature_fault(made(*reversed(references)), PARTS) is None
    assert signature_fault(made(references[0]), Attachments(ORDER_BODY)) is None
    assert signature_fault(made(references[0]), Attachments(ORDER_BODY, b"")) is None  # no part
    flipped = bytes([ORDER_BODY[0] ^ 1]) + ORDER_BODY[1:]
    for parts, name in ((replace(PARTS, body=flipped), "body"), (replace(PARTS, extension=b"x"), "extension")):
        assert signature_fault(made(*references), parts) == f"the digest of cid:{name} is wrong"
    assert signature_fault(made(replace(references[0], digest_value=b"")), PARTS) == "the digest of cid:body is wrong"


@pytest.mark.spec(
    "SRM-3.1.5.1.6.1-03",
    "SRM-3.1.5.1.6.1-04",
    "SRM-3.1.5.1.6.1-05",
    "SRM-3.1.5.1.6.1-06",
    "SRM-3.1.5.1.6.1-08",
)
def test_signatures_that_are_not_taken() -> None:
    body, extension = references_of(PARTS, MANAGER)
    for signature, parts, fault in (
        (made(body, method="http://www.w3.org/2000/02/xmldsig#rsa-sha1"), PARTS, "the signature method must be"),
        (made(), PARTS, "has no Reference"),
        (made(body), Attachments(None, b"extension"), "names no part of the message"),
        (made(extension), Attachments(ORDER_BODY), "names no part of the message"),
        (made(replace(body, uri="body@x")), PARTS, "names no part of the message"),
        (made(replace(body, uri="http://elsewhere/")), PARTS, "names no part of the message"),
        (made(body, body), PARTS, "two References name cid:body"),
        (made(extension, extension), PARTS, "two References name cid:extension"),
        (made(body), PARTS, "no Reference names cid:extension"),
        (made(extension), PARTS, "no Reference names cid:body"),
        (made(replace(body, digest_method=SHA256)), PARTS, "the digest method must be"),
        (made(replace(body, transformed=True)), PARTS, "has a transform"),
        (replace(made(body, extension), signature_value=b""), PARTS, "SignatureValue must have 1 to"),
        (replace(made(body, extension), signature_value=bytes(1025)), PARTS, "SignatureValue must have 1 to"),
    ):
        assert fault in (signature_fault(signature, parts) or "")


def test_no_digest_is_made_by_another_method() -> None:
    with pytest.raises(KeyError):
        references_of(PARTS, MANAGER, SHA256)


@pytest.mark.spec(
    "SRM-3.1.5.1.6.1-01",
    "SRM-3.1.5.1.6.1-02",
    "SRM-3.1.5.1.6.1-07",
    "SRM-3.1.5.1.6.1-11",
)
def test_what_a_queue_gets(beta: Station) -> None:
    envelope = stranger_message(beta.url(ORDERS))
    right = made(*references_of(PARTS, MANAGER))
    assert beta.ask(replace(envelope, signature=right), PARTS) == 200
    assert len(beta.messages(ORDERS)) == 1
    assert beta.ask(stranger_message(beta.url(ORDERS), 2), PARTS) == 200
    assert len(beta.messages(ORDERS)) == 2
    for number, wrong in enumerate(
        (made(), made(right.references[0], method="x"), made(replace(right.references[0], digest_value=b"")))
    ):
        another = stranger_message(beta.url(ORDERS), 10 + number)
        assert beta.ask(replace(another, signature=wrong), PARTS) == 200
    written = write_envelope(replace(stranger_message(beta.url(ORDERS), 20), signature=right)).decode()
    for name in ("SignedInfo", "SignatureMethod", "SignatureValue", "DigestMethod", "DigestValue"):
        start, stop = written.index(f"<{name}"), written.index(f"</{name}>") + len(f"</{name}>")
        assert beta.ask_raw("text/xml", (written[:start] + written[stop:]).encode()) == 400
    assert len(beta.messages(ORDERS)) == 2
