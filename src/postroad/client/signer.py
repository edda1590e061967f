"""Signs messages with an application's own key and certificate. No queue manager sees the key."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_der_private_key,
    load_pem_private_key,
)

from postroad.errors import CannotSign, IllegalName, InvalidArgument
from postroad.message import Signature
from postroad.security.algorithms import DEFAULT_HASH, HASHES, MIN_RSA_BITS
from postroad.security.descriptors import Sid
from postroad.security.signatures import PROFILES, VERSIONS, hash_input, signature_of
from postroad.wire.view import MessageView

_PEM = b"-----BEGIN "
_PKCS12 = bytes.fromhex("06092a864886f70d0107")  # the start of PKCS #7 content, with which no certificate or key begins


class Signer:
    """Signs messages: `Message(..., sign=signer)`. `certificate` is in DER.

    By default, it makes signatures of version 2.0, and of version 3.0 for a message to several destinations. Without a
    `sender_id`, a message has the SID that its manager has registered for the certificate, if any.
    """

    __slots__ = ("_key", "certificate", "hash", "sender_id", "version")

    def __init__(
        self,
        certificate: bytes,
        key: RSAPrivateKey,
        *,
        hash: str = DEFAULT_HASH,
        version: str | None = None,
        sender_id: str | None = None,
    ) -> None:
        if hash not in HASHES:
            raise InvalidArgument(f"hash: must be one of {', '.join(HASHES)}, got {hash!r}")
        if version is not None and version not in VERSIONS:
            raise InvalidArgument(f"version: must be one of {', '.join(VERSIONS)}, got {version!r}")
        if sender_id is not None:
            try:
                Sid.parse(sender_id)
            except IllegalName:
                raise InvalidArgument(
                    f"sender_id: must be a SID such as S-1-5-21-1-2-3-1001, got {sender_id!r}"
                ) from None
        if key.key_size < MIN_RSA_BITS:
            raise CannotSign(
                f"the key has {key.key_size} bits, and at least {MIN_RSA_BITS} are needed: make a longer one"
            )
        if _public_bytes(_certificate(certificate, "certificate").public_key()) != _public_bytes(key.public_key()):
            raise CannotSign(
                "the key does not belong to the certificate: give the key that the certificate was made for"
            )
        self.certificate = certificate
        self.hash = hash
        self.version = version
        self.sender_id = sender_id
        self._key = key

    def __repr__(self) -> str:
        return f"<Signer {self.hash}>"

    @classmethod
    def load(
        cls,
        certificate: str | Path,
        key: str | Path,
        *,
        password: str | bytes | None = None,
        hash: str = DEFAULT_HASH,
        version: str | None = None,
        sender_id: str | None = None,
    ) -> Signer:
        """Loads a certificate and a key from files in PEM or DER. `password` is for the key. Raises CannotSign on
        failure."""
        found = _certificate(_read(certificate), certificate)
        return cls(
            found.public_bytes(Encoding.DER),
            _private_key(_read(key), key, password),
            hash=hash,
            version=version,
            sender_id=sender_id,
        )

    def signature(self, packets: Sequence[bytes], profile: str, registered: str | None) -> Signature:
        """The signature of one message. It has one packet for each destination."""
        if profile not in PROFILES:
            raise CannotSign(f"the queue manager uses the signature profile {profile}, which is unknown here")
        chosen = PROFILES[profile]
        views = [MessageView(packet) for packet in packets]
        version = self.version or ("2.0" if len(views) == 1 else "3.0")
        if version == "3.0" and len(views) == 1:
            raise CannotSign("a signature of version 3.0 is for several destinations: use version 2.0")
        if version == "2.0" and len(views) > 1:
            raise CannotSign("a signature of version 2.0 is for one destination: use version 3.0")
        if len({hash_input(view, version, chosen) for view in views}) > 1:
            raise CannotSign(
                "one signature does not fit all destinations, because the response or administration queue is private "
                "to the manager of one of them: give that queue by a direct name"
            )
        value = signature_of(views[0], self._key, version, self.hash, chosen)
        return Signature(value, self.certificate, version, self.hash, self.sender_id or registered)


def _read(file: str | Path) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as fault:
        raise CannotSign(f"{file}: cannot be read: {fault.strerror}") from None


def _content_kind(data: bytes) -> str:
    """What the file has instead, as far as its content shows."""
    if b"PRIVATE KEY-----" in data:
        return ", got a private key"
    if b"-----BEGIN CERTIFICATE-----" in data:
        return ", got a certificate"
    if _PKCS12 in data[:64]:
        return ", got a PKCS #12 file (.pfx): convert it with `openssl pkcs12 -nodes -in FILE -out both.pem`"
    return ""


def _certificate(data: bytes, file: str | Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(data) if _PEM in data else x509.load_der_x509_certificate(data)
    except (ValueError, x509.InvalidVersion):
        raise CannotSign(f"{file}: must be an X.509 certificate in PEM or DER{_content_kind(data)}") from None


def _private_key(data: bytes, file: str | Path, password: str | bytes | None) -> RSAPrivateKey:
    secret = password.encode() if isinstance(password, str) else password or None
    load = load_pem_private_key if _PEM in data else load_der_private_key
    try:
        key = load(data, secret)
    except TypeError:  # the library's exception for a missing or an unneeded password
        if secret is None:
            raise CannotSign(
                f"{file}: the key is encrypted: give its password (commands take it from POSTROAD_KEY_PASSWORD)"
            ) from None
        key = _private_key(data, file, None)  # ignore a password that is not needed
    except (ValueError, UnsupportedAlgorithm):
        if secret is not None:
            raise CannotSign(f"{file}: the password is wrong, or this is not a private key") from None
        raise CannotSign(f"{file}: must be an RSA private key in PEM or DER{_content_kind(data)}") from None
    if not isinstance(key, RSAPrivateKey):
        raise CannotSign(f"{file}: must be an RSA key, got another kind: make one with `openssl req -newkey rsa:2048`")
    return key


def _public_bytes(key: object) -> bytes:
    if not hasattr(key, "public_bytes"):
        return b""
    found: bytes = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return found
