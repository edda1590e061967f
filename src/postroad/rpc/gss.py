"""Kerberos and the initiators of NTLM and SPNEGO as security providers, and which providers a server offers.

GSSAPI does Kerberos and needs the extra `domain`; pyspnego does a client's NTLM and needs the extra `auth`. The
acceptor of NTLM is in ntlm.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from postroad.errors import AuthenticationFailed, RpcUnavailable
from postroad.rpc.constants import AuthLevel, AuthType
from postroad.rpc.negotiate import KERBEROS, MS_KERBEROS, NTLM, MechanismProvider, SpnegoProvider
from postroad.rpc.ntlm import NtlmProvider
from postroad.rpc.ntlm_keys import nt_hash
from postroad.rpc.security import Provider, SecurityContext
from postroad.rpc.tickets import Owner, Principals
from postroad.security.kerberos import Acceptor, AcceptorContext, initiate, proceed
from postroad.security.users import User

if TYPE_CHECKING:
    import gssapi
    from spnego import ContextProxy, ContextReq


AUTH_EXTRA: Final = "run pip install 'postroad[auth]'"
_PROTOCOLS: Final = {AuthType.NTLM: "ntlm", AuthType.SPNEGO: "negotiate"}
_NTLM_SIGNATURE: Final = 16
_FIRST_CONTEXT: Final = 1
_SAMPLE: Final = bytes(16)  # to measure a signature, whose size does not depend on the body


# Kerberos, [MS-RPCE] 2.2.1.1.7 and 3.3.1.5.2.2


class _Kerberos:
    """Protects PDUs with the session key of a complete context, in the DCE style of RFC 4757 7.3 and [MS-KILE]."""

    def __init__(self) -> None:
        self._sizes: dict[bool, int] = {}

    @property
    def gss(self) -> gssapi.SecurityContext:
        raise NotImplementedError

    def signature_size(self, *, seal: bool) -> int:
        size = self._sizes.get(seal)
        if size is None:
            size = self._sizes[seal] = self._measured(seal=seal)
        return size

    def _measured(self, *, seal: bool) -> int:
        from gssapi.raw import IOV, IOVBufferType, get_mic_iov_length, wrap_iov_length

        header = IOVBufferType.header if seal else IOVBufferType.mic_token
        buffers = IOV(header, (IOVBufferType.data, False, _SAMPLE), std_layout=False)
        if seal:
            wrap_iov_length(self.gss, buffers, confidential=True)
        else:
            get_mic_iov_length(self.gss, buffers)
        return len(buffers[0].value or b"")

    def protect(self, head: bytes, body: bytes, tail: bytes, *, seal: bool, header_sign: bool) -> tuple[bytes, bytes]:
        from gssapi.raw import IOV, IOVBufferType, wrap_iov

        if not header_sign:
            head = tail = b""
        if not seal:
            return body, self.gss.get_signature(head + body + tail)
        buffers = IOV(
            IOVBufferType.header,
            (IOVBufferType.sign_only, False, head),
            (IOVBufferType.data, False, body),
            (IOVBufferType.sign_only, False, tail),
            std_layout=False,
        )
        wrap_iov(self.gss, buffers, confidential=True)
        return buffers[2].value or b"", buffers[0].value or b""

    def unprotect(
        self, head: bytes, body: bytes, tail: bytes, signature: bytes, *, seal: bool, header_sign: bool
    ) -> bytes:
        from gssapi.raw import IOV, GSSError, IOVBufferType, unwrap_iov

        if not header_sign:
            head = tail = b""
        try:
            if not seal:
                self.gss.verify_signature(head + body + tail, signature)
                return body
            buffers = IOV(
                (IOVBufferType.header, False, signature),
                (IOVBufferType.sign_only, False, head),
                (IOVBufferType.data, False, body),
                (IOVBufferType.sign_only, False, tail),
                std_layout=False,
            )
            if not unwrap_iov(self.gss, buffers).encrypted:
                raise AuthenticationFailed("the PDU must be encrypted")
            return buffers[2].value or b""
        except GSSError:
            raise AuthenticationFailed("the signature is wrong, or the PDU was sent before") from None

    # For SPNEGO

    def verify_mechanisms(self, mechanisms: bytes, mic: bytes) -> None:
        from gssapi.raw import GSSError

        try:
            self.gss.verify_signature(mechanisms, mic)
        except GSSError:
            raise AuthenticationFailed("the list of mechanisms has a wrong signature") from None

    def sign_mechanisms(self, mechanisms: bytes) -> bytes:
        return self.gss.get_signature(mechanisms)


class KerberosAcceptor(_Kerberos):
    """One client's ticket."""

    def __init__(self, context: AcceptorContext, principals: Principals) -> None:
        super().__init__()
        self._context = context
        self._principals = principals
        self._owner: Owner | None = None

    @property
    def gss(self) -> gssapi.SecurityContext:
        return self._context.gss

    @property
    def complete(self) -> bool:
        return self._owner is not None

    @property
    def owner(self) -> Owner:
        """Who the client is, once the context is complete."""
        assert self._owner is not None
        return self._owner

    @property
    def identity(self) -> str | None:
        return None if self._owner is None else self._owner.name

    @property
    def account(self) -> User | None:
        return None if self._owner is None else self._owner.account

    def step(self, token: bytes) -> bytes:
        if self.complete:
            raise AuthenticationFailed("unexpected Kerberos token after the last one")
        answer = self._context.step(token)
        if self.gss.complete:
            self._owner = self._principals.owner(self._context.ticket)
        return answer


class KerberosProvider:
    """Accepts the tickets for the services of a keytab. `principals` says whose they are."""

    def __init__(self, acceptor: Acceptor, principals: Principals) -> None:
        self._acceptor = acceptor
        self._principals = principals

    def use(self, acceptor: Acceptor) -> None:
        """Takes another keytab. Contexts that were built go on."""
        self._acceptor = acceptor

    def accept(self) -> KerberosAcceptor:
        return KerberosAcceptor(self._acceptor.begin(dce=True), self._principals)


class KerberosInitiator(_Kerberos):
    """A client's context, whose first token is there. `account` and `identity` are for servers alone."""

    account = None
    identity = None

    def __init__(self, host: str, service: str, *, spnego: bool) -> None:
        super().__init__()
        self._host = host
        self._gss, self._first = initiate(host, service, dce=True, spnego=spnego)

    @property
    def gss(self) -> gssapi.SecurityContext:
        return self._gss

    @property
    def complete(self) -> bool:
        return bool(self._gss.complete)

    def step(self, token: bytes) -> bytes:
        if not token:
            return self._first
        return proceed(self._gss, token, self._host)


# NTLM and SPNEGO of a client with a password


class PasswordInitiator:
    """A client's context that pyspnego builds."""

    account = None
    identity = None

    def __init__(self, context: ContextProxy) -> None:
        self._context = context

    @property
    def complete(self) -> bool:
        return self._context.complete

    def signature_size(self, *, seal: bool) -> int:
        return _NTLM_SIGNATURE

    def step(self, token: bytes) -> bytes:
        from spnego.exceptions import SpnegoError

        try:
            return self._context.step(token or None) or b""
        except (SpnegoError, ValueError) as error:
            raise AuthenticationFailed(f"authentication failed: {error}") from None

    # NTLM signs the whole PDU, also without header signing: [MS-NLMP] 3.4.6

    def protect(self, head: bytes, body: bytes, tail: bytes, *, seal: bool, header_sign: bool) -> tuple[bytes, bytes]:
        from spnego.iov import BufferType

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


def kerberos_initiator(
    host: str,
    *,
    auth_type: AuthType = AuthType.KERBEROS,
    level: AuthLevel = AuthLevel.PRIVACY,
    service: str = "host",
) -> SecurityContext:
    """A client's security context with a ticket, by Kerberos alone or (`auth_type`) SPNEGO that offers nothing else.
    Blocks while a domain controller is asked. Raises AuthenticationFailed with a sentence."""
    negotiation = KerberosInitiator(host, service, spnego=auth_type is AuthType.SPNEGO)
    return SecurityContext(auth_type, level, _FIRST_CONTEXT, negotiation)


def initiator(
    username: str,
    password: str | None,
    *,
    host: str,
    auth_type: AuthType = AuthType.SPNEGO,
    level: AuthLevel = AuthLevel.PRIVACY,
    service: str = "host",
) -> SecurityContext:
    """A client's security context with a password, by NTLM or SPNEGO over it."""
    try:
        import spnego
        from spnego.exceptions import SpnegoError
    except ImportError:
        raise RpcUnavailable(f"authentication needs pyspnego; {AUTH_EXTRA}") from None
    # The hash of a password serves NTLM alone. With the password, pyspnego could log in by Kerberos, with other PDUs.
    secret = spnego.NTLMHash(username, nt_hash=nt_hash(password or "").hex())
    try:
        context = spnego.client(
            secret,
            hostname=host,
            service=service,
            protocol=_PROTOCOLS[auth_type],
            context_req=_requirements(),
        )
    except (SpnegoError, ImportError) as error:
        raise RpcUnavailable(f"{_PROTOCOLS[auth_type]} is not available: {error}") from None
    return SecurityContext(auth_type, level, _FIRST_CONTEXT, PasswordInitiator(context))


def _requirements() -> ContextReq:
    from spnego import ContextReq

    return ContextReq.default | ContextReq.dce_style


# A server's security providers, [MS-RPCE] 3.1.3.1.1


def can_authenticate() -> bool:
    """Whether the library that NTLM needs is installed."""
    return find_spec("cryptography") is not None


def providers(
    passwords: Mapping[str, str], computer: str, kerberos: KerberosProvider | None = None, *, ntlm: bool = True
) -> dict[int, Provider]:
    """The providers by authentication type: NTLM if there are users and the policy allows it, Kerberos if there is a
    keytab, and SPNEGO over what there is. Empty if nobody can log in: the server then refuses clients that try."""
    found: dict[int, Provider] = {}
    mechanisms: dict[bytes, MechanismProvider] = {}
    if kerberos is not None:
        found[AuthType.KERBEROS] = mechanisms[KERBEROS] = mechanisms[MS_KERBEROS] = kerberos
    if passwords and ntlm and can_authenticate():
        found[AuthType.NTLM] = mechanisms[NTLM] = NtlmProvider(passwords, computer)
    if mechanisms:
        found[AuthType.SPNEGO] = SpnegoProvider(mechanisms)
    return found
