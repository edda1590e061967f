"""The NTLM acceptor: the example of [MS-NLMP] 4.2.4, refusals, and random octets as a token."""

from __future__ import annotations

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.errors import AuthenticationFailed
from postroad.rpc.negotiate import KERBEROS, NTLM, SpnegoAcceptor, SpnegoProvider
from postroad.rpc.ntlm import Flag, NtlmAcceptor, NtlmProvider, User
from postroad.rpc.ntlm_keys import Direction, md4, nt_hash, response_key

USERS = {"user": User("user", nt_hash("Password"))}
CHALLENGE = bytes.fromhex("0123456789abcdef")
NEGOTIATE = b"NTLMSSP\0" + pack("<II", 1, 0xE2088233) + bytes(16)
AUTHENTICATE = bytes.fromhex(
    "4e544c4d5353500003000000180018006c00000054005400840000000c000c00"
    "480000000800080054000000100010005c00000010001000d8000000358288e2"
    "0501280a0000000f44006f006d00610069006e00550073006500720043004f00"
    "4d005000550054004500520086c35097ac9cec102554764a57cccc19aaaaaaaa"
    "aaaaaaaa68cd0ab851e51c96aabc927bebef6a1c010100000000000000000000"
    "00000000aaaaaaaaaaaaaaaa0000000002000c0044006f006d00610069006e00"
    "01000c0053006500720076006500720000000000000000"
    "00c5dad2544fc9799094ce1ce90bc9d03e"
)
PLAIN = "Plaintext".encode("utf-16-le")
SEALED = bytes.fromhex("54e50165bf1936dc996020c1811b0f06fb5f")
SIGNATURE = bytes.fromhex("010000007fb38ec5c55d497600000000")


def acceptor() -> NtlmAcceptor:
    return NtlmAcceptor(USERS, "SERVER", CHALLENGE, 0)


def test_the_specifications_keys() -> None:
    assert md4(b"message digest").hex() == "d9130a8164549fe818874806e1c7014b"
    assert md4(b"1234567890" * 8).hex() == "e33b4ddc9c38f2199c3e7b164fcc0536"
    assert nt_hash("Password").hex() == "a4f49c406510bdcab6824ee7c30fd852"
    assert response_key(nt_hash("Password"), "User", "Domain").hex() == "0c868a403bfd7a93a3001ef22ef02e3f"


def test_the_specifications_sealed_message() -> None:
    direction = Direction(b"\x55" * 16, "client", "server", key_exchange=True)
    assert direction.crypt(PLAIN) == SEALED
    assert direction.sign(PLAIN) == SIGNATURE


def test_the_specifications_exchange() -> None:
    it = acceptor()
    challenge = it.step(NEGOTIATE)
    assert challenge.startswith(b"NTLMSSP\0\2\0\0\0")
    assert CHALLENGE in challenge
    assert not it.complete
    assert it.step(AUTHENTICATE) == b""
    assert it.complete
    assert it.identity == "user"
    assert it.unprotect(b"", SEALED, b"", SIGNATURE, seal=True, header_sign=False) == PLAIN


DOMAIN_AND_USER, NT_RESPONSE, SESSION_KEY = range(0x48, 0x5C), range(0x84, 0xD8), range(0xD8, 0xE8)


def changed(place: int) -> bytes:
    return AUTHENTICATE[:place] + bytes([AUTHENTICATE[place] ^ 0x01]) + AUTHENTICATE[place + 1 :]


@pytest.mark.parametrize("place", [*DOMAIN_AND_USER, *NT_RESPONSE])
def test_a_changed_name_or_response_is_refused(place: int) -> None:
    it = acceptor()
    it.step(NEGOTIATE)
    with pytest.raises(AuthenticationFailed):
        it.step(changed(place))
    assert not it.complete
    assert it.identity is None


@pytest.mark.parametrize("place", SESSION_KEY)
def test_a_changed_session_key_signs_nothing(place: int) -> None:
    it = acceptor()
    it.step(NEGOTIATE)
    it.step(changed(place))
    with pytest.raises(AuthenticationFailed):
        it.unprotect(b"", SEALED, b"", SIGNATURE, seal=True, header_sign=False)


def test_messages_out_of_turn() -> None:
    for messages in ([AUTHENTICATE], [NEGOTIATE, NEGOTIATE], [NEGOTIATE, AUTHENTICATE, AUTHENTICATE]):
        it = acceptor()
        for message in messages[:-1]:
            it.step(message)
        with pytest.raises(AuthenticationFailed, match="unexpected NTLM message"):
            it.step(messages[-1])


def test_what_is_kept_until_the_proof_has_come_is_small() -> None:
    with pytest.raises(AuthenticationFailed):
        acceptor().step(NEGOTIATE + bytes(4096))
    it = acceptor()
    it.step(NEGOTIATE)
    it.step(AUTHENTICATE)
    assert it._messages == []


@pytest.mark.parametrize("missing", [Flag.UNICODE, Flag.EXTENDED_SESSIONSECURITY, Flag.BITS_128])
def test_less_than_ntlmv2_is_refused(missing: Flag) -> None:
    weak = NEGOTIATE[:12] + pack("<I", 0xE2088233 & ~missing) + NEGOTIATE[16:]
    with pytest.raises(AuthenticationFailed, match="must offer NTLMv2"):
        acceptor().step(weak)


def test_one_user_is_not_another() -> None:
    for users in ({}, {"user": User("user", nt_hash("password"))}, {"other": User("other", nt_hash("Password"))}):
        it = NtlmAcceptor(users, "SERVER", CHALLENGE, 0)
        it.step(NEGOTIATE)
        with pytest.raises(AuthenticationFailed, match="unknown user or wrong password: 'User'"):
            it.step(AUTHENTICATE)
    stranger = NtlmAcceptor(USERS, "SERVER", CHALLENGE[::-1], 0)  # the proof of another challenge
    stranger.step(NEGOTIATE)
    with pytest.raises(AuthenticationFailed):
        stranger.step(AUTHENTICATE)


def test_every_exchange_has_a_challenge_of_its_own() -> None:
    provider = NtlmProvider({"user": "Password"}, "SERVER", lambda: 0.0)
    assert provider.accept().step(NEGOTIATE) != provider.accept().step(NEGOTIATE)


@given(st.binary(max_size=120))
def test_any_octets_are_a_message_or_refused(octets: bytes) -> None:
    for prefix in (b"", b"NTLMSSP\0\3\0\0\0"):
        it = acceptor()
        it.step(NEGOTIATE)
        with pytest.raises(AuthenticationFailed):
            it.step(prefix + octets)


# SPNEGO


class _Ours:
    def accept(self) -> NtlmAcceptor:
        return acceptor()


def spnego() -> SpnegoAcceptor:
    return SpnegoProvider({NTLM: _Ours()}).accept()


def der(tag: int, *parts: bytes) -> bytes:
    value = b"".join(parts)
    length = bytes([len(value)]) if len(value) < 128 else b"\x82" + len(value).to_bytes(2, "big")
    return bytes([tag]) + length + value


def init(*mechanisms: bytes, token: bytes = b"") -> bytes:
    body = der(0xA0, der(0x30, *mechanisms)) + (der(0xA2, der(0x04, token)) if token else b"")
    return der(0x60, bytes.fromhex("06062b0601050502"), der(0xA0, der(0x30, body)))


def response(token: bytes, mic: bytes = b"") -> bytes:
    body = der(0xA2, der(0x04, token)) + (der(0xA3, der(0x04, mic)) if mic else b"")
    return der(0xA1, der(0x30, body))


def mic_of(mechanisms: tuple[bytes, ...]) -> bytes:
    return Direction(b"\x55" * 16, "client", "server", key_exchange=True).sign(der(0x30, *mechanisms))


def test_ntlm_in_spnego() -> None:
    it = spnego()
    answer = it.step(init(NTLM, token=NEGOTIATE))
    assert CHALLENGE in answer
    assert answer[:2] != b"\xa1\0"
    answer = it.step(response(AUTHENTICATE))
    assert answer == bytes.fromhex("a1073005a0030a0100")  # accept-completed
    assert it.complete
    assert it.identity == "user"


def test_the_list_of_mechanisms_is_signed_and_the_cipher_starts_anew() -> None:
    it = spnego()
    it.step(init(NTLM, token=NEGOTIATE))
    answer = it.step(response(AUTHENTICATE, mic_of((NTLM,))))
    expected = Direction(b"\x55" * 16, "server", "client", key_exchange=True).sign(der(0x30, NTLM))
    assert expected in answer
    client = Direction(b"\x55" * 16, "client", "server", key_exchange=True)
    client.sign(b"")  # the MIC's sequence number is spent
    client.reset()
    sealed = client.crypt(PLAIN)
    assert it.unprotect(b"h", sealed, b"t", client.sign(b"h", PLAIN, b"t"), seal=True, header_sign=True) == PLAIN


def test_a_mechanism_that_is_not_the_clients_first_must_be_signed() -> None:
    offered = (KERBEROS, NTLM)
    it = spnego()
    answer = it.step(init(*offered, token=b"a Kerberos token"))
    assert answer == bytes.fromhex("a1153013a0030a0103a10c") + NTLM  # request-mic
    it.step(response(NEGOTIATE))
    it.step(response(AUTHENTICATE, mic_of(offered)))
    assert it.complete

    for mic in (b"", mic_of((NTLM,))):
        it = spnego()
        it.step(init(*offered))
        it.step(response(NEGOTIATE))
        with pytest.raises(AuthenticationFailed):
            it.step(response(AUTHENTICATE, mic))
        assert not it.complete


@pytest.mark.parametrize(
    "token",
    [b"", b"\x60", init(), init(KERBEROS), response(NEGOTIATE), b"\x60\x84\xff\xff\xff\xff", b"\x60\x80", NEGOTIATE],
)
def test_first_tokens_that_are_refused(token: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        spnego().step(token)


@given(st.binary(max_size=80), st.booleans())
def test_any_octets_are_a_token_or_refused(octets: bytes, begun: bool) -> None:
    it = spnego()
    if begun:
        it.step(init(NTLM, token=NEGOTIATE))
    for token in (octets, der(0xA1, octets) if begun else der(0x60, octets)):
        try:
            it.step(token)
        except AuthenticationFailed:
            continue
        assert not it.complete
