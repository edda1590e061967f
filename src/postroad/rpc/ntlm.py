"""An NTLM acceptor, [MS-NLMP] 3.2. It supports NTLMv2 only, and checks the proof over the octets as received.

The users come from the configuration. Keys and signatures are in ntlm_keys.py.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntFlag
from struct import Struct, pack
from typing import Final

from postroad.errors import AuthenticationFailed
from postroad.rpc.ntlm_keys import SIGNATURE_SIZE, Direction, hmac_md5, nt_hash, rc4, response_key

MESSAGE: Final = b"NTLMSSP\0"
_NEGOTIATE, _CHALLENGE, _AUTHENTICATE = 1, 2, 3
_HEAD: Final = Struct("<8sI")
_FIELDS: Final = Struct("<HHI")
_FLAGS: Final = Struct("<I")
_FLAGS_OFFSET: Final = {_NEGOTIATE: 12, _AUTHENTICATE: 60}
_MIC_OFFSET, _MIC_SIZE = 72, 16
_VERSION: Final = bytes.fromhex("0601b11d0000000f")  # the version of Windows 7: 6.1.7601, NTLM revision 15
_FILETIME_EPOCH: Final = 116444736000000000
_AV_EOL, _AV_COMPUTER, _AV_DOMAIN, _AV_DNS_COMPUTER, _AV_DNS_DOMAIN, _AV_FLAGS, _AV_TIMESTAMP = 0, 1, 2, 3, 4, 6, 7
_AV_FLAG_MIC: Final = 0x02
_AV_OFFSET: Final = 44  # within an NTLMv2 response: a proof of 16 octets and 28 further octets come before the pairs
_NTLMV2_LEAST: Final = _AV_OFFSET
_MAX_NEGOTIATE: Final = 4096  # kept until the proof comes; real messages have less than 600 octets


class Flag(IntFlag):
    """[MS-NLMP] 2.2.2.5"""

    UNICODE = 0x00000001
    REQUEST_TARGET = 0x00000004
    SIGN = 0x00000010
    SEAL = 0x00000020
    NTLM = 0x00000200
    ALWAYS_SIGN = 0x00008000
    TARGET_TYPE_SERVER = 0x00020000
    EXTENDED_SESSIONSECURITY = 0x00080000
    TARGET_INFO = 0x00800000
    VERSION = 0x02000000
    BITS_128 = 0x20000000
    KEY_EXCH = 0x40000000
    BITS_56 = 0x80000000


_REQUIRED: Final = Flag.UNICODE | Flag.EXTENDED_SESSIONSECURITY | Flag.BITS_128
_OFFERED: Final = (
    _REQUIRED | Flag.SIGN | Flag.SEAL | Flag.NTLM | Flag.ALWAYS_SIGN | Flag.KEY_EXCH | Flag.BITS_56 | Flag.VERSION
)


@dataclass(frozen=True, slots=True)
class User:
    """A configured user: the name, and the hash of the password."""

    name: str
    hashed: bytes = field(repr=False)  # as good as the password


class NtlmAcceptor:
    """The three messages of one client, then the protection of its PDUs. The keys of `users` are casefolded names."""

    account = None  # its users are those of the configuration

    def __init__(self, users: Mapping[str, User], computer: str, challenge: bytes, filetime: int) -> None:
        self.complete = False
        self.identity: str | None = None
        self._users = users
        self._computer = computer
        self._challenge = challenge
        self._filetime = filetime
        self._messages: list[bytes] = []
        self._incoming: Direction
        self._outgoing: Direction

    def signature_size(self, *, seal: bool) -> int:
        return SIGNATURE_SIZE

    def step(self, token: bytes) -> bytes:
        if len(token) < _HEAD.size or not token.startswith(MESSAGE):
            raise AuthenticationFailed("the token must be an NTLM message")
        (_, kind) = _HEAD.unpack_from(token)
        if kind == _NEGOTIATE and not self._messages and not self.complete and len(token) <= _MAX_NEGOTIATE:
            answer = self._answer(token)
            self._messages = [token, answer]
            return answer
        if kind == _AUTHENTICATE and self._messages:
            self._authenticate(token)
            self._messages = []
            return b""
        raise AuthenticationFailed(f"unexpected NTLM message {kind}")

    def _answer(self, token: bytes) -> bytes:
        """The CHALLENGE_MESSAGE, 2.2.1.2. Its timestamp obliges the client to protect the whole exchange (MIC)."""
        flags = _flags(token, _NEGOTIATE)
        if flags & _REQUIRED != _REQUIRED:
            raise AuthenticationFailed("the client must offer NTLMv2 with Unicode and 128-bit keys")
        flags = (flags & _OFFERED) | Flag.TARGET_INFO | Flag.TARGET_TYPE_SERVER | Flag.NTLM | Flag.VERSION
        name = self._computer.encode("utf-16-le")
        pairs = b"".join(
            pack("<HH", kind, len(value)) + value
            for kind, value in (
                (_AV_DOMAIN, name),
                (_AV_COMPUTER, name),
                (_AV_DNS_DOMAIN, name),  # some clients need the DNS names
                (_AV_DNS_COMPUTER, name),
                (_AV_TIMESTAMP, pack("<Q", self._filetime)),
                (_AV_EOL, b""),
            )
        )
        start = 56
        return (
            _HEAD.pack(MESSAGE, _CHALLENGE)
            + _FIELDS.pack(len(name), len(name), start)
            + _FLAGS.pack(flags)
            + self._challenge
            + bytes(8)
            + _FIELDS.pack(len(pairs), len(pairs), start + len(name))
            + _VERSION
            + name
            + pairs
        )

    def _authenticate(self, token: bytes) -> None:
        """[MS-NLMP] 3.2.5.1.2"""
        flags = _flags(token, _AUTHENTICATE)
        if flags & _REQUIRED != _REQUIRED:
            raise AuthenticationFailed("the client must accept NTLMv2 with Unicode and 128-bit keys")
        response = _field(token, 20)
        domain, user = (_field(token, offset).decode("utf-16-le", "replace") for offset in (28, 36))
        if len(response) < _NTLMV2_LEAST:
            raise AuthenticationFailed(f"{user or 'an anonymous client'} sends no NTLMv2 response", who=user)
        # For an unknown user the check takes as long, and answers the same, as for a wrong password.
        known = self._users.get(user.casefold())
        key = response_key(bytes(16) if known is None else known.hashed, user, domain)
        proof = hmac_md5(key, self._challenge, response[16:])
        if not hmac.compare_digest(proof, response[:16]) or known is None:
            raise AuthenticationFailed(f"unknown user or wrong password: {user!r}", who=user)
        session_key = self._session_key(token, hmac_md5(key, proof), flags)
        if _av_flags(response) & _AV_FLAG_MIC:
            self._check_mic(token, session_key)
        exchange = bool(flags & Flag.KEY_EXCH)
        self._incoming = Direction(session_key, "client", "server", key_exchange=exchange)
        self._outgoing = Direction(session_key, "server", "client", key_exchange=exchange)
        self.identity = known.name
        self.complete = True

    def _session_key(self, token: bytes, base_key: bytes, flags: int) -> bytes:
        if not flags & Flag.KEY_EXCH:
            return base_key
        encrypted = _field(token, 52)
        if len(encrypted) != 16:
            raise AuthenticationFailed(f"the session key must have 16 octets, got {len(encrypted)}")
        return rc4(base_key).update(encrypted)

    def _check_mic(self, token: bytes, session_key: bytes) -> None:
        if len(token) < _MIC_OFFSET + _MIC_SIZE:
            raise AuthenticationFailed("the client announced a MIC but sent none")
        blank = token[:_MIC_OFFSET] + bytes(_MIC_SIZE) + token[_MIC_OFFSET + _MIC_SIZE :]
        expected = hmac_md5(session_key, *self._messages, blank)
        if not hmac.compare_digest(expected, token[_MIC_OFFSET : _MIC_OFFSET + _MIC_SIZE]):
            raise AuthenticationFailed("the MIC is wrong: the messages were changed on the way")

    # [MS-NLMP] 3.4.6 to 3.4.9: extended session security signs the whole PDU, even without header signing.

    def protect(self, head: bytes, body: bytes, tail: bytes, *, seal: bool, header_sign: bool) -> tuple[bytes, bytes]:
        sent = self._outgoing.crypt(body) if seal else body
        return sent, self._outgoing.sign(head, body, tail)

    def unprotect(
        self, head: bytes, body: bytes, tail: bytes, signature: bytes, *, seal: bool, header_sign: bool
    ) -> bytes:
        plain = self._incoming.crypt(body) if seal else body
        self._incoming.verify(signature, head, plain, tail)
        return plain

    # For SPNEGO

    def verify_mechanisms(self, mechanisms: bytes, mic: bytes) -> None:
        self._incoming.verify(mic, mechanisms)
        self._incoming.reset()

    def sign_mechanisms(self, mechanisms: bytes) -> bytes:
        mic = self._outgoing.sign(mechanisms)
        self._outgoing.reset()
        return mic


class NtlmProvider:
    """Accepts the users of the configuration. Upper and lower case in names does not matter."""

    def __init__(self, passwords: Mapping[str, str], computer: str, clock: Callable[[], float] = time.time) -> None:
        self._users: dict[str, User] = {}
        self.set_passwords(passwords)
        self._computer = computer
        self._clock = clock

    def set_passwords(self, passwords: Mapping[str, str]) -> frozenset[str]:
        """Replaces the users, also for logins that have begun. Returns the names of users whose earlier logins are no
        longer valid."""
        before = dict(self._users)
        self._users.clear()
        self._users |= {name.casefold(): User(name, nt_hash(password)) for name, password in passwords.items()}
        return frozenset(each.name for key, each in before.items() if self._users.get(key) != each)

    def accept(self) -> NtlmAcceptor:
        filetime = int(self._clock() * 10_000_000) + _FILETIME_EPOCH
        return NtlmAcceptor(self._users, self._computer, secrets.token_bytes(8), filetime)


def _flags(token: bytes, kind: int) -> int:
    offset = _FLAGS_OFFSET[kind]
    if len(token) < offset + _FLAGS.size:
        raise AuthenticationFailed("the NTLM message is incomplete")
    return int(_FLAGS.unpack_from(token, offset)[0])


def _field(token: bytes, offset: int) -> bytes:
    size, _, start = _FIELDS.unpack_from(token, offset)  # _flags() has checked that all fields are there
    if start + size > len(token):
        raise AuthenticationFailed("the NTLM message ends before the end of a field")
    return token[start : start + size]


def _av_flags(response: bytes) -> int:
    """The client's MsvAvFlags, 2.2.2.1; 0 if there are none."""
    offset = _AV_OFFSET
    while offset + 4 <= len(response):
        kind, size = response[offset] | response[offset + 1] << 8, response[offset + 2] | response[offset + 3] << 8
        if kind == _AV_EOL:
            break
        if kind == _AV_FLAGS and size == 4:
            return int.from_bytes(response[offset + 4 : offset + 8], "little")
        offset += 4 + size
    return 0
