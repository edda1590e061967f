"""Keys and certificates of applications, in files as their users have them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1
from cryptography.hazmat.primitives.asymmetric.ec import generate_private_key as elliptic_key
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from cryptography.x509 import load_der_x509_certificate

from tests.security_vectors import BASE, SENDER, certificate_of

SID = "S-1-5-21-1-2-3-1001"
PASSWORD = "open sesame"


class Files(NamedTuple):
    certificate: Path
    key: Path

    @property
    def der(self) -> bytes:
        from cryptography.x509 import load_pem_x509_certificate

        return load_pem_x509_certificate(self.certificate.read_bytes()).public_bytes(Encoding.DER)


def key_files(directory: Path, key: RSAPrivateKey = SENDER, name: str = "ann", password: str | None = None) -> Files:
    """A key and its self-signed certificate in PEM."""
    files = Files(directory / f"{name}.pem", directory / f"{name}.key")
    certificate = load_der_x509_certificate(certificate_of(key))
    files.certificate.write_bytes(certificate.public_bytes(Encoding.PEM))
    how: KeySerializationEncryption = NoEncryption() if password is None else BestAvailableEncryption(password.encode())
    files.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how))
    return files


def short_key_files(directory: Path) -> Files:
    """A key of 512 bits and its certificate."""
    return key_files(directory, BASE, "short")


def elliptic_key_file(directory: Path) -> Path:
    file = directory / "elliptic.key"
    file.write_bytes(elliptic_key(SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return file


def pkcs12_file(directory: Path) -> Path:
    """Key and certificate in one file, as Windows exports them."""
    key, file = elliptic_key(SECP256R1()), directory / "exported.pfx"
    file.write_bytes(serialize_key_and_certificates(None, key, None, None, NoEncryption()))
    return file
