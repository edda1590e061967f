"""The security providers of a server, [MS-RPCE] 3.1.3.1.1, from its users and the installed packages."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

from postroad.rpc.constants import AuthType
from postroad.rpc.gss import KerberosProvider, kerberos_available
from postroad.rpc.negotiate import KERBEROS, MS_KERBEROS, NTLM, MechanismProvider, SpnegoProvider
from postroad.rpc.ntlm import NtlmProvider
from postroad.rpc.security import Provider

AUTH_EXTRA: Final = "run pip install 'postroad[auth]'"


def can_authenticate() -> bool:
    """The extra `auth` is installed."""
    return find_spec("cryptography") is not None


def providers(passwords: Mapping[str, str], computer: str) -> dict[int, Provider]:
    """By authentication type: NTLM if there are users, Kerberos if the system has it, and SPNEGO over both.

    Empty without the extra `auth`: the server then refuses clients that want to authenticate.
    """
    found: dict[int, Provider] = {}
    mechanisms: dict[bytes, MechanismProvider] = {}
    if not can_authenticate():
        return found
    if passwords:
        ntlm = NtlmProvider(passwords, computer)
        found[AuthType.NTLM] = mechanisms[NTLM] = ntlm
    if kerberos_available():
        kerberos = KerberosProvider(computer)
        found[AuthType.KERBEROS] = mechanisms[KERBEROS] = mechanisms[MS_KERBEROS] = kerberos
    if mechanisms:
        found[AuthType.SPNEGO] = SpnegoProvider(mechanisms)
    return found
