"""A SPNEGO acceptor, RFC 4178 and [MS-SPNG]. It chooses a mechanism that both sides have, and protects that choice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Final, Protocol

from postroad.errors import AuthenticationFailed
from postroad.rpc.security import Negotiation
from postroad.security.users import User

SPNEGO: Final = bytes.fromhex("06062b0601050502")
NTLM: Final = bytes.fromhex("060a2b06010401823702020a")
KERBEROS: Final = bytes.fromhex("06092a864886f712010202")
MS_KERBEROS: Final = bytes.fromhex("06092a864882f712010202")  # one bit lost, as in Windows 2000

_SEQUENCE, _OCTETS, _ENUMERATED, _OID = 0x30, 0x04, 0x0A, 0x06
_INIT, _APPLICATION, _RESPONSE = 0xA0, 0x60, 0xA1


class State(IntEnum):
    ACCEPT_COMPLETED = 0
    ACCEPT_INCOMPLETE = 1
    REJECT = 2
    REQUEST_MIC = 3


class Mechanism(Negotiation, Protocol):
    """What SPNEGO needs from a mechanism besides its steps: to sign the list of mechanisms."""

    def verify_mechanisms(self, mechanisms: bytes, mic: bytes) -> None: ...

    def sign_mechanisms(self, mechanisms: bytes) -> bytes: ...


class MechanismProvider(Protocol):
    def accept(self) -> Mechanism: ...


class SpnegoAcceptor:
    """The negotiation with one client. Once it is complete, the chosen mechanism protects the PDUs."""

    def __init__(self, mechanisms: Mapping[bytes, MechanismProvider]) -> None:
        self._providers = mechanisms
        self._mechanism: Mechanism | None = None
        self._chosen = b""
        self._proposed = b""  # the DER of the client's list, which the MICs sign
        self._mic_required = False
        self._began = False
        self.complete = False

    @property
    def identity(self) -> str | None:
        return None if self._mechanism is None else self._mechanism.identity

    @property
    def account(self) -> User | None:
        return None if self._mechanism is None else self._mechanism.account

    def signature_size(self, *, seal: bool) -> int:
        return self._established.signature_size(seal=seal)

    @property
    def _established(self) -> Mechanism:
        assert self._mechanism is not None
        return self._mechanism

    def step(self, token: bytes) -> bytes:
        if self.complete:
            raise AuthenticationFailed("unexpected SPNEGO token after the last one")
        try:
            return self._continue(token) if self._began else self._begin(token)
        except IndexError:
            raise AuthenticationFailed("the SPNEGO token is incomplete") from None

    def _begin(self, token: bytes) -> bytes:
        self._began = True
        mechanisms, inner = _read_init(token)
        self._proposed = _der(_SEQUENCE, b"".join(mechanisms))
        self._chosen = next((each for each in mechanisms if each in self._providers), b"")
        if not self._chosen:
            raise AuthenticationFailed("the client offers no mechanism that this server supports")
        self._mechanism = self._providers[self._chosen].accept()
        # Somebody on the path may have removed the client's first choice from the list: RFC 4178, 5.
        self._mic_required = self._chosen != mechanisms[0]
        answer = b""
        if inner and not self._mic_required:
            answer = self._mechanism.step(inner)
        state = State.REQUEST_MIC if self._mic_required else State.ACCEPT_INCOMPLETE
        if self._mechanism.complete:
            self.complete = True
            state = State.ACCEPT_COMPLETED
        return _response(state, self._chosen, answer, b"")

    def _continue(self, token: bytes) -> bytes:
        inner, mic = _read_response(token)
        mechanism = self._established
        answer = mechanism.step(inner) if inner else b""
        if not mechanism.complete:
            return _response(State.ACCEPT_INCOMPLETE, b"", answer, b"")
        if mic:
            mechanism.verify_mechanisms(self._proposed, mic)
        elif self._mic_required:
            raise AuthenticationFailed("the client must sign its list of mechanisms")
        self.complete = True
        return _response(State.ACCEPT_COMPLETED, b"", answer, mechanism.sign_mechanisms(self._proposed) if mic else b"")

    def protect(self, head: bytes, body: bytes, tail: bytes, *, seal: bool, header_sign: bool) -> tuple[bytes, bytes]:
        return self._established.protect(head, body, tail, seal=seal, header_sign=header_sign)

    def unprotect(
        self, head: bytes, body: bytes, tail: bytes, signature: bytes, *, seal: bool, header_sign: bool
    ) -> bytes:
        return self._established.unprotect(head, body, tail, signature, seal=seal, header_sign=header_sign)


class SpnegoProvider:
    def __init__(self, mechanisms: Mapping[bytes, MechanismProvider]) -> None:
        self._mechanisms = mechanisms

    def accept(self) -> SpnegoAcceptor:
        return SpnegoAcceptor(self._mechanisms)


# As much of DER as the two tokens need.


def _der(tag: int, value: bytes) -> bytes:
    size = len(value)
    if size < 0x80:
        return bytes([tag, size]) + value
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + value


def _elements(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Returns (tag, value, the whole element) for each element. A wrong length raises AuthenticationFailed."""
    start = 0
    while start < len(data):
        tag, size = data[start], data[start + 1]
        offset = start + 2
        if size & 0x80:
            count = size & 0x7F
            if not 1 <= count <= 4:
                raise AuthenticationFailed("the SPNEGO token has a length that is invalid in DER")
            size = int.from_bytes(data[offset : offset + count], "big")
            offset += count
        if offset + size > len(data):
            raise AuthenticationFailed("the SPNEGO token is incomplete")
        yield tag, data[offset : offset + size], data[start : offset + size]
        start = offset + size


def _only(data: bytes, tag: int) -> bytes:
    found = next(_elements(data), None)
    if found is None or found[0] != tag:
        raise AuthenticationFailed("the SPNEGO token is malformed")
    return found[1]


def _read_init(token: bytes) -> tuple[list[bytes], bytes]:
    """Returns (the mechanisms' OIDs, the token for the first one) of a NegTokenInit."""
    parts = list(_elements(_only(token, _APPLICATION)))
    if len(parts) != 2 or parts[0][2] != SPNEGO or parts[1][0] != _INIT:
        raise AuthenticationFailed("the token must be a SPNEGO NegTokenInit")
    mechanisms: list[bytes] = []
    inner = b""
    for tag, value, _ in _elements(_only(parts[1][1], _SEQUENCE)):
        if tag == 0xA0:
            mechanisms = [whole for kind, _, whole in _elements(_only(value, _SEQUENCE)) if kind == _OID]
        elif tag == 0xA2:
            inner = _only(value, _OCTETS)
    if not mechanisms:
        raise AuthenticationFailed("the client must propose a mechanism")
    return mechanisms, inner


def _read_response(token: bytes) -> tuple[bytes, bytes]:
    """Returns (the mechanism's token, the MIC over the list of mechanisms) of a NegTokenResp."""
    inner = mic = b""
    for tag, value, _ in _elements(_only(_only(token, _RESPONSE), _SEQUENCE)):
        if tag == 0xA2:
            inner = _only(value, _OCTETS)
        elif tag == 0xA3:
            mic = _only(value, _OCTETS)
    return inner, mic


def _response(state: State, mechanism: bytes, inner: bytes, mic: bytes) -> bytes:
    body = _der(0xA0, _der(_ENUMERATED, bytes([state])))
    if mechanism:
        body += _der(0xA1, mechanism)
    if inner:
        body += _der(0xA2, _der(_OCTETS, inner))
    if mic:
        body += _der(0xA3, _der(_OCTETS, mic))
    return _der(_RESPONSE, _der(_SEQUENCE, body))
