"""What a configuration says about message security: keys, certificates, algorithms and users.

Nothing here decides about a message.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from postroad.config import Configuration, SecuritySettings, SenderIds
from postroad.security.algorithms import (
    CIPHERS,
    DEFAULT_CIPHERS,
    DEFAULT_HASHES,
    HASHES,
    Cipher,
    Hash,
    MissingLibrary,
)
from postroad.security.refusals import Reason, Refused
from postroad.security.signatures import DEFAULT_VERSIONS, public_key_of

log = logging.getLogger(__name__)

_PEM = b"-----BEGIN"
_MAX_BYTES = 1 << 20


def announce_algorithms(security: SecuritySettings) -> None:
    """Logs a warning for each setting that weakens the protection."""
    for key, word in _weak_settings(security):
        log.warning(
            "an old algorithm is on",
            extra={"setting": f"security.{key}", "algorithm": word, "do": "remove it once no peer needs it"},
        )
    if any(version not in DEFAULT_VERSIONS for version in security.accept_signatures):
        log.warning(
            "signatures of version 1.0 count: whoever records a signed message can send it to another queue",
            extra={"setting": "security.accept_signatures", "do": 'remove "1.0" once all senders sign with 2.0'},
        )
    if security.sender_ids is SenderIds.CLAIMED:
        log.warning(
            "the manager believes the senders that unsigned messages name",
            extra={"setting": "security.sender_ids", "do": 'set it to "verified" once all senders sign'},
        )


def _weak_settings(security: SecuritySettings) -> Iterator[tuple[str, str]]:
    yield from (("accept_hashes", word) for word in security.accept_hashes if word not in DEFAULT_HASHES)
    yield from (("accept_ciphers", word) for word in security.accept_ciphers if word not in DEFAULT_CIPHERS)
    if security.send_cipher not in DEFAULT_CIPHERS:
        yield "send_cipher", security.send_cipher


def check_libraries(config: Configuration) -> None:
    """Raises ConfigurationError for an algorithm that is not installed."""
    security = config.security
    needed: list[tuple[str, Hash | Cipher]] = [
        *(("accept_hashes", HASHES[word]) for word in security.accept_hashes),
        *(("accept_ciphers", CIPHERS[word]) for word in security.accept_ciphers),
        ("send_cipher", CIPHERS[security.send_cipher]),
    ]
    for key, algorithm in needed:
        try:
            algorithm.check_available()
        except MissingLibrary as fault:
            config.fail(f"security.{key}", str(fault))


def read_certificates(config: Configuration) -> dict[str, tuple[bytes, ...]]:
    """The registered certificates in DER, by SID. Raises ConfigurationError if one cannot be read."""
    found: dict[str, tuple[bytes, ...]] = {}
    for index, each in enumerate(config.certificates, 1):
        key = f"certificate[{index}].file"
        try:
            certificate = _read_certificate(each.file)
        except OSError as error:
            config.fail(key, f"{each.file} cannot be read: {error.strerror}")
        except (ValueError, x509.InvalidVersion):
            config.fail(key, f"{each.file} must hold one X.509 certificate in PEM or DER")
        usable = public_key_of(certificate)
        if isinstance(usable, Refused):
            if usable.reason is not Reason.WEAK_KEY:
                config.fail(key, f"{each.file} must hold a certificate with an RSA key")
            log.warning(
                "signatures with this certificate are refused: its key is too short",
                extra={"setting": key, "file": each.file, "sid": each.sid, "do": "issue a new certificate"},
            )
        found[str(each.sid)] = (*found.get(str(each.sid), ()), certificate)
    return found


def _read_certificate(file: Path) -> bytes:
    """A certificate as DER. A DER file is used byte for byte, because certificates of MSMQ users can be odd."""
    with file.open("rb") as opened:
        data = opened.read(_MAX_BYTES)
    if _PEM not in data:
        x509.load_der_x509_certificate(data)
        return data
    return x509.load_pem_x509_certificate(data).public_bytes(Encoding.DER)
