"""The Signature block, [MC-MQSRM] 2.2.7: how its elements are read and written, and how its digests are checked.

A digest shows that a part is as it was signed, but not who signed it: SRMP has no element for the certificate, so
nobody can check SignatureValue. Nothing is canonicalised: 2.2.7.1.2.2 computes each digest from the octets of a
part.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from hashlib import md5, sha1
from hmac import compare_digest
from uuid import UUID

from postroad.errors import MalformedSoap
from postroad.soap.elements import Attachments, Reference, Signature
from postroad.soap.simple_types import base64_text, parse_base64, shown
from postroad.soap.tree import SIGNATURE, Children, Element, names, quoted

DSA = f"{SIGNATURE}dsa"
SHA1 = f"{SIGNATURE}sha1"
MD5 = f"{SIGNATURE}md5"
MAX_REFERENCES = 2  # 2.2.7.1.2: the body and the extension
MAX_VALUE_SIZE = 1024  # bytes of SignatureValue: a key of 8192 bits

_DIGESTS: dict[str, Callable[[bytes], bytes]] = {
    SHA1: lambda data: sha1(data, usedforsecurity=False).digest(),
    MD5: lambda data: md5(data, usedforsecurity=False).digest(),
}
_HASHES = {SHA1: "sha1", MD5: "md5"}  # the configuration's words
_SIGNATURE = names(SIGNATURE, "SignedInfo", "SignatureValue")
_SIGNED_INFO = names(SIGNATURE, "SignatureMethod")
_REFERENCE = names(SIGNATURE, "DigestMethod", "DigestValue")
_REFERENCE_NAME = f"{SIGNATURE} Reference"
_TRANSFORMS = frozenset(names(SIGNATURE, "Transforms", "Transform"))


def read_signature(element: Element, text: str) -> Signature:
    """`text` is the text of the element."""
    children = Children(element, "Signature", _SIGNATURE)
    signed_info = children.element("SignedInfo")
    method = Children(signed_info, "SignedInfo", _SIGNED_INFO).element("SignatureMethod")
    references = [child for child in signed_info.children if child.name == _REFERENCE_NAME]
    if len(references) > MAX_REFERENCES:
        raise MalformedSoap("SignedInfo/Reference", f"must occur at most {MAX_REFERENCES} times, got {len(references)}")
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
        digest_value=_digest(children.text("DigestValue")),
        transformed=any(child.name in _TRANSFORMS for child in element.children),
    )


def _digest(text: str) -> bytes:
    """3.1.5.1.6.1 compares digests as text. So the spare bits of the last digit must be zero: each digest has one
    text."""
    value = parse_base64(text, "Reference/DigestValue")
    if base64_text(value) != "".join(text.split()):
        raise MalformedSoap(
            "Reference/DigestValue", f"must be base64 without spare bits in its last digit, got {shown(text)}"
        )
    return value


def _attribute(element: Element, name: str, place: str) -> str:
    value = element.attributes.get(name)
    if value is None:
        raise MalformedSoap(place, f"the attribute {name} is missing")
    return value


def write_signature(signature: Signature) -> str:
    """Writes a signature that was read exactly as it was, because another byte would make it a different one."""
    if signature.text is not None:
        return signature.text
    value = f"<SignatureValue>{base64_text(signature.signature_value)}</SignatureValue>"
    return f'<Signature xmlns="{SIGNATURE}">{write_signed_info(signature)}{value}</Signature>'


def write_signed_info(signature: Signature) -> str:
    """3.1.7.2.4: the text that is signed, with the end tags prescribed there."""
    references = "".join(
        f'<Reference URI="{quoted(reference.uri)}">'
        f'<DigestMethod Algorithm="{quoted(reference.digest_method)}"></DigestMethod>'
        f"<DigestValue>{base64_text(reference.digest_value)}</DigestValue></Reference>"
        for reference in signature.references
    )
    method = quoted(signature.signature_method)
    return f'<SignedInfo><SignatureMethod Algorithm="{method}"></SignatureMethod>{references}</SignedInfo>'


def references_of(attachments: Attachments, manager: UUID, digest_method: str = SHA1) -> tuple[Reference, ...]:
    """2.2.7.1.2 and 3.1.7.2.4: the references in a signature of this manager, to the body and then to the extension."""
    return tuple(
        Reference(f"cid:{name}@{manager}", digest_method, _DIGESTS[digest_method](content))
        for name, content in (("body", attachments.body), ("extension", attachments.extension))
        if content is not None
    )


@dataclass(frozen=True, slots=True)
class SignatureCheck:
    """`fault` says why a message must be refused. `verified` means that every digest is right, with accepted hashes."""

    fault: str | None = None
    verified: bool = False


NOT_SIGNED = SignatureCheck()


def check_signature(
    signature: Signature | None, attachments: Attachments, accept_hashes: Collection[str]
) -> SignatureCheck:
    """3.1.5.1.6.1. SRMP has only SHA-1 and MD5. A wrong digest is refused, whatever its hash. A right digest of a hash
    that is not accepted leaves the message unverified, as if it had no signature."""
    if signature is None:
        return NOT_SIGNED
    fault = signature_fault(signature, attachments)
    if fault is not None:
        return SignatureCheck(fault)
    return SignatureCheck(verified=all(_HASHES[each.digest_method] in accept_hashes for each in signature.references))


def signature_fault(signature: Signature, attachments: Attachments) -> str | None:
    """Why a message with this signature must be refused. None if every digest is right.

    The digests are those of the parts that the queue gets. A reference selects nothing within the envelope, so nobody
    can move a signed element and put another in its place.
    """
    if signature.signature_method != DSA:
        return f"the signature method must be {DSA}, got {shown(signature.signature_method)}"
    if not 0 < len(signature.signature_value) <= MAX_VALUE_SIZE:
        return f"SignatureValue must have 1 to {MAX_VALUE_SIZE} bytes, got {len(signature.signature_value)}"
    if not signature.references:
        return "the signature has no Reference"
    parts = {"cid:body": attachments.body, "cid:extension": attachments.extension}
    found: set[str] = set()
    for reference in signature.references:
        name = reference.uri.partition("@")[0]
        content = parts.get(name)
        if content is None:
            return f"the Reference {shown(reference.uri)} names no part of the message"
        if name in found:
            return f"two References name {name}"
        if reference.transformed:
            return f"the Reference to {name} has a transform; SRMP has none"
        digest = _DIGESTS.get(reference.digest_method)
        if digest is None:
            return f"the digest method must be {SHA1} or {MD5}, got {shown(reference.digest_method)}"
        if not compare_digest(digest(content), reference.digest_value):
            return f"the digest of {name} is wrong"
        found.add(name)
    # 2.2.7.1.2: each part must have a Reference. Otherwise somebody could add a part to a signed message.
    missing = [name for name, content in parts.items() if content and name not in found]
    return f"no Reference names {missing[0]}" if missing else None
