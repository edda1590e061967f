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


class ServerContext(ssl.SSLContext):
    """TLS of a listener. `certificate` is the server's own, in DER."""

    certificate: bytes = b""

    def use(self, chain: Path, key: Path) -> None:
        self.load_cert_chain(chain, key, password=_no_password)
        self.certificate = ssl.PEM_cert_to_DER_cert(_first_certificate(chain))


def server_tls(
    table: str,
    certificate: Path,
    key: Path,
    client_ca: Path | None = None,
    *,
    setting: str = "tls_certificate",
    required: bool = True,
) -> ServerContext:
    """The context for a listener. With `client_ca`, clients need a certificate, or may show one if that is not
    `required`. All files are PEM. If a file cannot be used, ConfigurationError names its setting in `table`: `setting`
    is that of the certificate."""
    context = ServerContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.use(certificate, key)
    except (OSError, ValueError, ssl.SSLError) as error:
        raise ConfigurationError("", f"{table}.{setting}", f"cannot be used: {error}") from None
    if client_ca is not None:
        try:
            context.load_verify_locations(client_ca)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError("", f"{table}.client_ca", f"cannot be used: {error}") from None
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    return context


def own_certificate(table: str, chain: Path) -> str:
    """The server's own certificate: the first of a chain (PEM). A client that trusts only this one knows the server."""
    try:
        found = _first_certificate(chain)
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=found)
    except (OSError, ValueError, ssl.SSLError) as error:
        raise ConfigurationError("", f"{table}.tls_certificate", f"cannot be used: {error}") from None
    return found


def _first_certificate(chain: Path) -> str:
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    return f"{begin}{chain.read_text().partition(begin)[2].partition(end)[0]}{end}\n"


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
