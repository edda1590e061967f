"""[MC-MQSRM] 2.2.7: the elements of a signature, carried as they came."""

from __future__ import annotations

from hashlib import sha1
from uuid import UUID

import pytest

from postroad.soap.elements import Envelope, Reference, Signature
from postroad.soap.envelope import read_envelope, write_envelope
from postroad.soap.signature import DSA, MD5, SHA1
from postroad.soap.texts import base64_text
from tests.soap_samples import ORDER, ORDER_BODY, ORDER_MANAGER, changed, read, refused

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
