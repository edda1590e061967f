"""The certificate that a client proves itself with: files that its caller names, or the environment."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

from postroad.errors import InvalidArgument

CERTIFICATE, KEY = "POSTROAD_CLIENT_CERT", "POSTROAD_CLIENT_KEY"


def client_context(certificate: str | Path | None = None, key: str | Path | None = None) -> ssl.SSLContext | None:
    """TLS with the client's certificate, from PEM files; the key may stand in the certificate's file. None where
    neither the caller nor the environment names one. InvalidArgument if it cannot be used."""
    name = "client_certificate"
    if certificate is None:
        name, certificate, key = CERTIFICATE, os.environ.get(CERTIFICATE), os.environ.get(KEY)
    if not certificate:
        return None
    context = ssl.create_default_context()
    try:
        context.load_cert_chain(certificate, key or None, password=_no_password)
    except (OSError, ValueError) as fault:
        reason = getattr(fault, "reason", None) or getattr(fault, "strerror", None) or str(fault)
        files = (
            f"{certificate} with {key}" if key else f"{certificate}, which must hold the key too where none is named,"
        )
        raise InvalidArgument(f"{name}: {files} cannot be used: {reason}") from None
    return context


def pinned_context(certificate: str) -> ssl.SSLContext:
    """TLS with the one server that has this certificate (PEM), whatever its issuer and the names in it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # its issuer need not be known
    context.load_verify_locations(cadata=certificate)
    return context


def default_context() -> ssl.SSLContext:
    """TLS without a client's certificate: the server's must be one that the system trusts."""
    return ssl.create_default_context()


def _no_password() -> str:
    raise ValueError("its key is encrypted; decrypt it, as in `openssl pkey -in KEY -out PLAIN`")
