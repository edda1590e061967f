"""The Signature block, [MC-MQSRM] 2.2.7: its elements, read and written, and the digests in it.

Whose signature it is cannot be told from a message: SRMP has no element for the certificate.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import md5, sha1
from hmac import compare_digest
from uuid import UUID

from postroad.errors import MalformedSoap
from postroad.soap.blocks import SIGNATURE, Children, names, quoted
from postroad.soap.elements import Attachments, Reference, Signature
from postroad.soap.texts import base64_text, parse_base64
from postroad.soap.tree import Element

DSA = f"{SIGNATURE}dsa"
SHA1 = f"{SIGNATURE}sha1"
MD5 = f"{SIGNATURE}md5"
MAX_REFERENCES = 2  # 2.2.7.1.2: the body and the extension

_DIGESTS: dict[str, Callable[[bytes], bytes]] = {
    SHA1: lambda data: sha1(data, usedforsecurity=False).digest(),
    MD5: lambda data: md5(data, usedforsecurity=False).digest(),
}
_SIGNATURE = names(SIGNATURE, "SignedInfo", "SignatureValue")
_SIGNED_INFO = names(SIGNATURE, "SignatureMethod")
_REFERENCE = names(SIGNATURE, "DigestMethod", "DigestValue")
_REFERENCE_NAME = f"{SIGNATURE} Reference"


def read_signature(element: Element, text: str) -> Signature:
    """`text` is what the element was read from."""
    children = Children(element, "Signature", _SIGNATURE)
    signed_info = children.element("SignedInfo")
    method = Children(signed_info, "SignedInfo", _SIGNED_INFO).element("SignatureMethod")
    references = [child for child in signed_info.children if child.name == _REFERENCE_NAME]
    if len(references) > MAX_REFERENCES:
        raise MalformedSoap("SignedInfo/Reference", f"there are {len(references)}, and at most {MAX_REFERENCES}")
    return Signature(
        signature_method=_attribute(method, "Algorithm", "SignedInfo/SignatureMethod"),
        references=tuple(map(_read_reference, references)),
        signature_value=parse_base64(children.text("SignatureValue"), "Signature/SignatureValue"),
        text=text,
    )


def _read_reference(element: Element) -> Reference:
    children = Children(element, "Reference", _REFERENCE)
    return Reference(
        uri=_attribute(element, "URI", "SignedInfo/Reference"),
        digest_method=_attribute(children.element("DigestMethod"), "Algorithm", "Reference/DigestMethod"),
        digest_value=parse_base64(children.text("DigestValue"), "Reference/DigestValue"),
    )


def _attribute(element: Element, name: str, place: str) -> str:
    value = element.attributes.get(name)
    if value is None:
        raise MalformedSoap(place, f"the attribute {name} is missing")
    return value


def write_signature(signature: Signature) -> str:
    """What was read is written as it was: another byte would make another signature."""
    if signature.text is not None:
        return signature.text
    value = f"<SignatureValue>{base64_text(signature.signature_value)}</SignatureValue>"
    return f'<Signature xmlns="{SIGNATURE}">{write_signed_info(signature)}{value}</Signature>'


def write_signed_info(signature: Signature) -> str:
    """3.1.7.2.4: the text that is signed, with the end tags that it prescribes."""
    references = "".join(
        f'<Reference URI="{quoted(reference.uri)}">'
        f'<DigestMethod Algorithm="{quoted(reference.digest_method)}"></DigestMethod>'
        f"<DigestValue>{base64_text(reference.digest_value)}</DigestValue></Reference>"
        for reference in signature.references
    )
    method = quoted(signature.signature_method)
    return f'<SignedInfo><SignatureMethod Algorithm="{method}"></SignatureMethod>{references}</SignedInfo>'


def references_of(attachments: Attachments, manager: UUID, digest_method: str = SHA1) -> tuple[Reference, ...]:
    """2.2.7.1.2 and 3.1.7.2.4: what a signature of this manager has to say of the body, then of the extension."""
    return tuple(
        Reference(f"cid:{name}@{manager}", digest_method, _DIGESTS[digest_method](content))
        for name, content in (("body", attachments.body), ("extension", attachments.extension))
        if content is not None
    )


def signature_fault(signature: Signature, attachments: Attachments) -> str | None:
    """3.1.5.1.6.1: why a message with this signature is not to be taken; None where the digests hold."""
    if signature.signature_method != DSA:
        return f"the signature method {signature.signature_method!r} is not {DSA}"
    if not signature.references:
        return "the signature refers to nothing"
    found = []
    for reference in signature.references:
        name = reference.uri.removeprefix("cid:").partition("@")[0]
        content = {"body": attachments.body, "extension": attachments.extension}.get(name)
        if content is None or not reference.uri.startswith("cid:"):
            return f"{reference.uri!r} refers to nothing in the message"
        digest = _DIGESTS.get(reference.digest_method)
        if digest is None:
            return f"the digest method {reference.digest_method!r} is neither {SHA1} nor {MD5}"
        if not compare_digest(digest(content), reference.digest_value):
            return f"the digest of the {name} is another"
        found.append(name)
    return "the signature refers to one part twice" if len(set(found)) < len(found) else None
