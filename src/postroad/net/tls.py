"""TLS for listeners: their certificates, and the names of clients that show one."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from postroad.errors import ConfigurationError

_SHORT: Mapping[str, str] = {
    "commonName": "CN",
    "organizationalUnitName": "OU",
    "organizationName": "O",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "countryName": "C",
    "domainComponent": "DC",
    "userId": "UID",
}
_ESCAPED = str.maketrans({each: f"\\{each}" for each in '\\,+"<>;='})


def server_tls(table: str, certificate: Path, key: Path, client_ca: Path | None = None) -> ssl.SSLContext:
    """The context for a listener. With `client_ca`, clients need a certificate. All files are PEM. If a file cannot be
    used, ConfigurationError names its setting in `table`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError("", f"{table}.tls_certificate", f"cannot be used: {error}") from None
    if client_ca is not None:
        try:
            context.load_verify_locations(client_ca)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError("", f"{table}.client_ca", f"cannot be used: {error}") from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def own_certificate(table: str, chain: Path) -> str:
    """The server's own certificate: the first of a chain (PEM). A client that trusts only this one knows the server."""
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    try:
        found = f"{begin}{chain.read_text().partition(begin)[2].partition(end)[0]}{end}\n"
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=found)
    except (OSError, ValueError, ssl.SSLError) as error:
        raise ConfigurationError("", f"{table}.tls_certificate", f"cannot be used: {error}") from None
    return found


def _no_password() -> str:
    """Otherwise OpenSSL would ask on the terminal, and the whole manager would wait."""
    raise OSError("the key must not be encrypted")


def subject(certificate: Mapping[str, Any]) -> str:
    """`CN=ann,O=Example`, the last part first as in [RFC 4514], from the names that `ssl` gives."""
    parts = [
        "+".join(f"{_SHORT.get(name, name)}={value.translate(_ESCAPED)}" for name, value in part)
        for part in certificate.get("subject", ())
    ]
    return ",".join(reversed(parts)) or "a certificate without a subject"
