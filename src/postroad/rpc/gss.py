"""pyspnego as a security provider: the initiator of NTLM, SPNEGO and Kerberos, and the acceptor of Kerberos.

It needs the extra `auth`. Kerberos also needs the system's GSSAPI and pyspnego's extra `kerberos`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from postroad.errors import AuthenticationFailed, RpcUnavailable
from postroad.rpc.constants import AuthLevel, AuthType
from postroad.rpc.negotiate import KERBEROS, MS_KERBEROS, NTLM, MechanismProvider, SpnegoProvider
from postroad.rpc.ntlm import NtlmProvider
from postroad.rpc.security import Provider, SecurityContext

if TYPE_CHECKING:
    from spnego import ContextProxy, ContextReq


_PROTOCOLS: Final = {AuthType.NTLM: "ntlm", AuthType.SPNEGO: "negotiate", AuthType.KERBEROS: "kerberos"}
_NTLM_SIGNATURE: Final = 16
_FIRST_CONTEXT: Final = 1


class GssNegotiation:
    """One side of a context that pyspnego builds."""

    def __init__(self, context: ContextProxy) -> None:
        self._context = context

    @property
    def complete(self) -> bool:
        return self._context.complete

    @property
    def identity(self) -> str | None:
        return self._context.client_principal

    @property
    def signature_size(self) -> int:
        return self._context.query_message_sizes().header

    def step(self, token: bytes) -> bytes:
        from spnego.exceptions import SpnegoError

        try:
            return self._context.step(token or None) or b""
        except (SpnegoError, ValueError) as error:
            raise AuthenticationFailed(f"authentication failed: {error}") from None

    def _whole_pdu(self, header_sign: bool) -> bool:
        """Whether the signature covers the whole PDU. NTLM always signs all of it, [MS-NLMP] 3.4.6."""
        return header_sign or self._context.negotiated_protocol == "ntlm"

    def protect(self, head: bytes, body: bytes, tail: bytes, *, seal: bool, header_sign: bool) -> tuple[bytes, bytes]:
        from spnego.iov import BufferType

        if not self._whole_pdu(header_sign):
            head = tail = b""
        if not seal:
            return body, self._context.sign(head + body + tail)
        result = self._context.wrap_iov(
            [(BufferType.sign_only, head), body, (BufferType.sign_only, tail), BufferType.header], encrypt=True
        )
        return result.buffers[1].data or b"", result.buffers[3].data or b""

    def unprotect(
        self, head: bytes, body: bytes, tail: bytes, signature: bytes, *, seal: bool, header_sign: bool
    ) -> bytes:
        from spnego.exceptions import SpnegoError
        from spnego.iov import BufferType

        if not self._whole_pdu(header_sign):
            head = tail = b""
        try:
            if not seal:
                self._context.verify(head + body + tail, signature)
                return body
            result = self._context.unwrap_iov(
                [(BufferType.sign_only, head), body, (BufferType.sign_only, tail), (BufferType.header, signature)]
            )
            return result.buffers[1].data or b""
        except (SpnegoError, ValueError) as error:
            raise AuthenticationFailed(f"the signature is wrong: {error}") from None

    # For SPNEGO

    def verify_mechanisms(self, mechanisms: bytes, mic: bytes) -> None:
        from spnego.exceptions import SpnegoError

        try:
            self._context.verify(mechanisms, mic)
        except SpnegoError as error:
            raise AuthenticationFailed(f"the list of mechanisms has a wrong signature: {error}") from None

    def sign_mechanisms(self, mechanisms: bytes) -> bytes:
        return self._context.sign(mechanisms)


class KerberosProvider:
    """Accepts Kerberos with the keys of the system's keytab, for `service`/`host`."""

    def __init__(self, host: str, service: str = "host") -> None:
        self._host = host
        self._service = service

    def accept(self) -> GssNegotiation:
        import spnego
        from spnego.exceptions import SpnegoError

        try:
            return GssNegotiation(
                spnego.server(
                    hostname=self._host, service=self._service, protocol="kerberos", context_req=_requirements()
                )
            )
        except (SpnegoError, ImportError) as error:
            raise AuthenticationFailed(f"Kerberos is not available: {error}") from None


def kerberos_available() -> bool:
    """Whether pyspnego's extra `kerberos` is installed."""
    return all(find_spec(name) is not None for name in ("spnego", "gssapi", "krb5"))


def initiator(
    username: str | None,
    password: str | None,
    *,
    host: str,
    auth_type: AuthType = AuthType.SPNEGO,
    level: AuthLevel = AuthLevel.PRIVACY,
    service: str = "host",
) -> SecurityContext:
    """A client's security context. Without a name and a password, Kerberos uses the system's login."""
    try:
        import spnego
        from spnego.exceptions import SpnegoError
    except ImportError:
        raise RpcUnavailable("authentication needs pyspnego; run pip install 'postroad[auth]'") from None
    try:
        context = spnego.client(
            username,
            password,
            hostname=host,
            service=service,
            protocol=_PROTOCOLS[auth_type],
            context_req=_requirements(),
        )
    except (SpnegoError, ImportError) as error:
        raise RpcUnavailable(f"{_PROTOCOLS[auth_type]} is not available: {error}") from None
    return SecurityContext(auth_type, level, _FIRST_CONTEXT, GssNegotiation(context))


def _requirements() -> ContextReq:
    from spnego import ContextReq

    return ContextReq.default | ContextReq.dce_style


# A server's security providers, [MS-RPCE] 3.1.3.1.1. They depend on its users and on the installed packages.


AUTH_EXTRA: Final = "run pip install 'postroad[auth]'"


def can_authenticate() -> bool:
    """Whether the extra `auth` is installed."""
    return find_spec("cryptography") is not None


def providers(passwords: Mapping[str, str], computer: str) -> dict[int, Provider]:
    """The providers by authentication type: NTLM if there are users, Kerberos if the system has it, and SPNEGO over
    both.

    Empty without the extra `auth`: the server then refuses clients that authenticate.
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
