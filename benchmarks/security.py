"""What signatures and encryption cost: a message is checked, decrypted or encrypted, with cold and with warm caches."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from uuid import UUID

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from benchmarks.harness import best_of, microseconds, print_table
from postroad.message import Composer, Message
from postroad.names import PrivateName
from postroad.security.descriptors import Sid
from postroad.security.guard import Guard, Opened, Sealer, is_secured
from postroad.security.keys import KeyRing
from postroad.security.signatures import sign
from postroad.wire.view import MessageView

BODY = b"x" * 1024
SENDER = UUID("6ab3fd5c-1c5d-4b38-a0f2-8a7ad4e2f001")
RECEIVER = UUID("6ab3fd5c-1c5d-4b38-a0f2-8a7ad4e2f002")
SID = "S-1-5-21-1-2-3-1001"
CIPHER = "aes256"


@cache
def make_key(bits: int) -> RSAPrivateKey:
    return generate_private_key(65537, bits)


def make_certificate(key: RSAPrivateKey) -> bytes:
    """Self-signed, DER."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "benchmark")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(days=1))
    return builder.sign(key, SHA256()).public_bytes(Encoding.DER)


@dataclass(frozen=True, slots=True)
class Parties:
    """A user who signs and a manager that decrypts, with keys of the same length."""

    key: RSAPrivateKey
    certificate: bytes
    ring: KeyRing

    @classmethod
    def make(cls, bits: int) -> Parties:
        key = make_key(bits)
        return cls(key, make_certificate(key), KeyRing.make(make_key, bits))

    def guard(self) -> Guard:
        return Guard(self.ring, {SID: (self.certificate,)})

    def sign(self, packet: bytes) -> bytes:
        return sign(packet, self.key, self.certificate, sender_id=Sid.parse(SID))

    def seal(self, packet: bytes, sealer: Sealer | None = None) -> bytes:
        sealed = (sealer or Sealer(os.urandom)).seal(packet, self.ring.public_keys, CIPHER, 0.0)
        assert isinstance(sealed, bytes)
        return sealed


def cold_and_warm(clear: Callable[[], None], work: Callable[[], object]) -> tuple[str, str]:
    def cold() -> None:
        clear()
        work()

    return microseconds(best_of(cold)), microseconds(best_of(work))


def opening(parties: Parties, packet: bytes) -> tuple[str, str]:
    guard = parties.guard()
    opened = guard.open(packet, 0.0)
    assert isinstance(opened, Opened)
    assert MessageView(opened.packet).body == BODY

    def clear() -> None:
        guard.session_keys.clear()
        guard.known_certificates.clear()

    return cold_and_warm(clear, lambda: guard.open(packet, 0.0))


def sealing(parties: Parties, packet: bytes) -> tuple[str, str]:
    sealer, public_keys = Sealer(os.urandom), parties.ring.public_keys
    return cold_and_warm(sealer.session_keys.clear, lambda: sealer.seal(packet, public_keys, CIPHER, 0.0))


def main() -> None:
    composer = Composer(SENDER, PrivateName(RECEIVER, 7))
    plain = composer.compose(Message(BODY, label="bench", recoverable=True), 1, 0)
    view = MessageView(plain)
    rows = [("plain: is_secured alone", "", microseconds(best_of(lambda: is_secured(view))))]
    for bits in (1024, 2048):
        parties = Parties.make(bits)
        signed = parties.sign(plain)
        rows += [
            (f"open: signed (2.0, SHA-512), RSA {bits}", *opening(parties, signed)),
            (f"open: encrypted (AES-256), RSA {bits}", *opening(parties, parties.seal(plain))),
            (f"open: signed and encrypted, RSA {bits}", *opening(parties, parties.seal(signed))),
            (f"seal (AES-256), RSA {bits}", *sealing(parties, plain)),
            (f"sign, RSA {bits}", "", microseconds(best_of(lambda: parties.sign(plain)))),  # noqa: B023
        ]
    print_table(
        f"The security of messages: microseconds a message of {len(BODY)} bytes, best round",
        ("", "cold", "warm"),
        rows,
        "cold: the session key has to be decrypted or made, the certificate to be looked up and read. "
        "open: at the destination. seal: where a message leaves. sign: in the application.",
    )


if __name__ == "__main__":
    main()
