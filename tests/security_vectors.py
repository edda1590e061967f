"""The vectors of message security (tests/data/README.md says where they come from), as keys and bytes."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPrivateNumbers, RSAPublicNumbers
from cryptography.x509.oid import NameOID

from postroad.security.descriptors import Sid
from postroad.security.keys import KeyRing
from postroad.wire.constants import PrivacyLevel
from postroad.wire.user_message import UserMessage
from postroad.wire.view import MessageView

VECTORS: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "security_vectors.json").read_text())


def vector(name: str, part: str) -> bytes:
    return bytes.fromhex(VECTORS[name][part])


def _key(name: str) -> RSAPrivateKey:
    found = VECTORS["keys"][name]
    n, d, p, q = (int(found[each], 16) for each in "ndpq")
    public = RSAPublicNumbers(found["e"], n)
    return RSAPrivateNumbers(p, q, d, d % (p - 1), d % (q - 1), pow(q, -1, p), public).private_key()


SENDER = _key("sender_1024")
BASE, ENHANCED, ADVANCED = _key("receiver_base_512"), _key("receiver_enhanced_1024"), _key("receiver_aes_1024")
RING = KeyRing({PrivacyLevel.BASE: (BASE,), PrivacyLevel.ENHANCED: (ENHANCED,), PrivacyLevel.ADVANCED: (ADVANCED,)})
CERTIFICATE = vector("V2_certificate", "x509_der")

# Each signature: its vector, version and hash.
SIGNATURES = (
    ("V3_signature_1_0_md5", "1.0", "md5"),
    ("V3b_signature_1_0_sha1", "1.0", "sha1"),
    ("V4_signature_2_0_sha1", "2.0", "sha1"),
    ("V4b_signature_2_0_sha512", "2.0", "sha512"),
    ("V5_signature_3_0_sha256", "3.0", "sha256"),
)
SIGNED_1_0, SIGNED_2_0, SIGNED_3_0 = (
    vector(name, "packet") for name in ("V3b_signature_1_0_sha1", "V4b_signature_2_0_sha512", "V5_signature_3_0_sha256")
)
SIGNED_AND_ENCRYPTED = vector("V9_signed_then_encrypted", "packet")


def _sender_id() -> Sid:
    header = MessageView(SIGNED_2_0).security_header
    assert header is not None
    return Sid.decode(header.security_id)


SID = _sender_id()
REGISTERED = {str(SID): (CERTIFICATE,)}


def unsigned(packet: bytes) -> bytes:
    """The same message before it was signed."""
    message = UserMessage.decode(packet)
    multi_queue = None if message.multi_queue is None else replace(message.multi_queue, signature=b"", padding=b"")
    return replace(message, security=None, multi_queue=multi_queue).encode()


PLAIN = unsigned(SIGNED_2_0)


def with_body(packet: bytes, body: bytes) -> bytes:
    message = UserMessage.decode(packet)
    return replace(message, properties=replace(message.properties, body=body, message_size=None)).encode()


class Counted:
    """Random bytes that are the same in every run."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, size: int) -> bytes:
        self.calls += 1
        return bytes((self.calls * 31 + each * 7) % 251 + 1 for each in range(size))


def certificate_of(key: RSAPrivateKey | EllipticCurvePrivateKey) -> bytes:
    """A self-signed certificate, as users of MSMQ have it."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "another")])
    since, until = datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, since, until)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)
