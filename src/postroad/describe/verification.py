"""Signatures of captured messages: under which reading of the specification they are right, if any."""

from __future__ import annotations

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from postroad.errors import InvalidArgument
from postroad.security.signatures import find_profile, is_signed
from postroad.wire.view import MessageView


def read_certificate(data: bytes) -> bytes:
    """A certificate in PEM or DER, as DER."""
    try:
        load = x509.load_pem_x509_certificate if b"-----BEGIN " in data else x509.load_der_x509_certificate
        return load(data).public_bytes(Encoding.DER)
    except (ValueError, x509.InvalidVersion):
        raise InvalidArgument("must be an X.509 certificate in PEM or DER") from None


class Verifier:
    """Checks one message after the other and counts. Without a `certificate`, that of each message counts."""

    def __init__(self, certificate: bytes | None = None) -> None:
        self._certificate = certificate
        self.verified = 0
        self.refused = 0

    def check(self, view: MessageView) -> dict[str, object] | str:
        """The profile, the version and the hash of a right signature, or why there is none."""
        if not is_signed(view):
            return "the message is not signed"
        if view.encrypted:
            self.refused += 1
            return "the body is encrypted, and the signature covers the plain body: only the receiver can check it"
        header = view.security_header
        found = find_profile(view.data, self._certificate or (header.sender_certificate if header else b""))
        if found is None:
            self.refused += 1
            return "the signature fits under no profile"
        self.verified += 1
        profile, verified = found
        return {"profile": profile.word, "signature": verified.version, "hash": verified.hash}
