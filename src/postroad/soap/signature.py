"""The Signature block, [MC-MQSRM] 2.2.7: its elements, read and written. Whether it is true is judged elsewhere."""

from __future__ import annotations

from postroad.errors import MalformedSoap
from postroad.soap.blocks import SIGNATURE, Children, names, quoted
from postroad.soap.elements import Reference, Signature
from postroad.soap.texts import base64_text, parse_base64
from postroad.soap.tree import Element

DSA = f"{SIGNATURE}dsa"
SHA1 = f"{SIGNATURE}sha1"
MD5 = f"{SIGNATURE}md5"
MAX_REFERENCES = 2  # 2.2.7.1.2: the body and the extension

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
