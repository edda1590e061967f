"""Hashes and ciphers, [MS-MQMQ] 2.2.19.3."""

from __future__ import annotations

import sys

import pytest
from cryptography.hazmat.decrepit.ciphers.algorithms import RC2
from cryptography.hazmat.primitives.ciphers import Cipher as LibraryCipher
from cryptography.hazmat.primitives.ciphers import modes
from hypothesis import given
from hypothesis import strategies as st

from postroad.security.algorithms import (
    ADVANCED,
    BASE,
    CIPHERS,
    CIPHERS_BY_NUMBER,
    DEFAULT_CIPHER,
    DEFAULT_CIPHERS,
    DEFAULT_HASH,
    DEFAULT_HASHES,
    ENHANCED,
    HASHES,
    HASHES_BY_NUMBER,
    PROVIDERS,
    DecryptionFailed,
    MissingLibrary,
    is_known_provider,
    provider_named,
)
from tests.security_vectors import SIGNATURES, VECTORS, vector

# [RFC1319] A.5, [RFC1320] A.5, [RFC1321] A.5, FIPS 180: the digest of "abc".
OF_ABC = {
    "md2": "da853b0d3f88d99b30283a69e6ded6bb",
    "md4": "a448017aaf21d8525fc10ae87aa6729d",
    "md5": "900150983cd24fb0d6963f7d28e17f72",
    "sha1": "a9993e364706816aba3e25717850c26c9cd0d89d",
    "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    "sha512": "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a"
    "2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
}


@pytest.mark.spec("MQ-2.2.19.3-24")
@pytest.mark.parametrize("word", HASHES)
def test_a_hash_is_the_one_of_its_number(word: str) -> None:
    numbers = {"md2": 0x8001, "md4": 0x8002, "md5": 0x8003, "sha1": 0x8004, "sha256": 0x800C, "sha512": 0x800E}
    hashing = HASHES_BY_NUMBER[numbers[word]]
    assert hashing is HASHES[word]
    assert hashing.compute(b"abc").hex() == OF_ABC[word]
    info = hashing.digest_info(b"abc")
    assert info[0] == 0x30
    assert info[1] == len(info) - 2  # a DER sequence of one byte of length
    assert info[-len(OF_ABC[word]) // 2 - 1] == len(OF_ABC[word]) // 2


@pytest.mark.parametrize(("name", "version", "word"), SIGNATURES)
def test_digest_info_is_that_of_the_vectors(name: str, version: str, word: str) -> None:
    hashing = HASHES[word]
    assert hashing.compute(vector(name, "hash_input")) == vector(name, "digest")
    assert hashing.digest_info(vector(name, "hash_input")) == vector(name, "digest_info")


def _cases() -> list[tuple[int, dict[str, str]]]:
    aes = [(int(number, 16), case) for number, case in VECTORS["V6_aes"].items()]
    rc4, rc2 = VECTORS["V7_rc4"], VECTORS["V8_rc2"]
    return [
        *aes,
        (0x6801, rc4["enhanced_128"]),
        (0x6801, rc4["base_40_as_specified"]),
        (0x6801, {"plain": rc4["enhanced_128"]["plain"]} | rc4["base_40_zero_salt"]),
        (0x6602, rc2["enhanced_128"]),
        (0x6602, rc2["enhanced_40_padded"]),
        (0x6602, rc2["base_40_effective_40"]),
    ]


@pytest.mark.spec("MQ-2.2.19.3-27", "MQ-2.2.19.3-30", "QB-3.1.5.8.3-20", "QB-3.1.7.1.5-18")
@pytest.mark.parametrize(("number", "case"), _cases())
def test_a_cipher_gives_the_bytes_of_its_vector_both_ways(number: int, case: dict[str, str]) -> None:
    cipher = CIPHERS_BY_NUMBER[number]
    key = bytes.fromhex(case.get("cipher_key") or case["session_key"])
    plain, encrypted = bytes.fromhex(case["plain"]), bytes.fromhex(case["body"])
    assert cipher.encrypt(key, plain) == encrypted
    assert cipher.decrypt(key, encrypted) == plain


def test_the_two_libraries_agree_on_rc2_of_128_bits() -> None:
    key, blocks = bytes(range(16)), bytes(range(24))
    other = LibraryCipher(RC2(key), modes.CBC(bytes(8))).decryptor()
    with pytest.raises(DecryptionFailed):
        CIPHERS["rc2"].decrypt(key, CIPHERS["rc2"].encrypt(key, blocks)[:-8])
    assert other.update(CIPHERS["rc2"].encrypt(key, blocks))[:24] == blocks


@given(st.sampled_from(list(CIPHERS)), st.binary(max_size=100), st.data())
def test_what_a_cipher_encrypts_it_decrypts(word: str, plain: bytes, data: st.DataObject) -> None:
    cipher = CIPHERS[word]
    key = data.draw(st.binary(min_size=cipher.key_size, max_size=cipher.key_size))
    encrypted = cipher.encrypt(key, plain)
    assert cipher.decrypt(key, encrypted) == plain
    padded = len(plain) if not cipher.block_size else (len(plain) // cipher.block_size + 1) * cipher.block_size
    assert len(encrypted) == padded


@pytest.mark.parametrize("size", [0, 1, 15, 17])
def test_a_body_of_a_wrong_length_cannot_be_decrypted(size: int) -> None:
    with pytest.raises(DecryptionFailed):
        CIPHERS["aes256"].decrypt(bytes(32), bytes(size))


@pytest.mark.spec("MQ-2.2.19.3-29", "QB-3.1.5.8.3-12")
def test_levels_name_their_provider_and_fit_their_ciphers() -> None:
    assert PROVIDERS[1].name == "Microsoft Base Cryptographic Provider v1.0"
    assert PROVIDERS[3].name == "Microsoft Enhanced Cryptographic Provider v1.0"
    assert PROVIDERS[5].name == "Microsoft Enhanced RSA and AES Cryptographic Provider"
    for provider, words in (
        (ADVANCED, {"aes128", "aes192", "aes256"}),
        (ENHANCED, {"rc2", "rc4"}),
        (BASE, {"rc2", "rc4"}),
    ):
        assert {word for word, cipher in CIPHERS.items() if provider.fits(cipher)} == words
    assert [ADVANCED.key_size(CIPHERS[word]) for word in ("aes256", "aes192", "aes128")] == [32, 24, 16]
    assert [provider.key_size(CIPHERS["rc4"]) for provider in (ENHANCED, BASE)] == [16, 5]


@pytest.mark.spec("QB-6-01", "QB-5.1-01", "QB-3.1.3.1-12", "MQ-2.2.19.3-26")
def test_only_strong_algorithms_are_on_by_default() -> None:
    assert (DEFAULT_HASH, DEFAULT_CIPHER) == ("sha512", "aes256")
    assert DEFAULT_HASHES == ("sha512", "sha256")
    assert DEFAULT_CIPHERS == ("aes256", "aes192", "aes128")


@pytest.mark.parametrize(
    "name",
    ["Microsoft Base Cryptographic Provider, v1.0", "Microsoft Base Cryptographic Provider 1.0", BASE.name.upper()],
)
def test_a_provider_is_known_by_its_other_spellings(name: str) -> None:
    assert provider_named(name) is BASE


def test_an_unknown_provider_is_unknown() -> None:
    assert provider_named("Acme") is None
    assert not is_known_provider("Acme")
    assert is_known_provider("Microsoft AES Cryptographic Provider")


@pytest.mark.parametrize("what", ["md2", "md4", "rc2"])
def test_a_missing_library_is_named_with_what_to_install(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "Cryptodome", None)
    algorithm = HASHES.get(what) or CIPHERS[what]
    with pytest.raises(MissingLibrary, match=rf"{what} needs pycryptodomex; run pip install 'postroad\[legacy\]'"):
        algorithm.check_available()
    with pytest.raises(MissingLibrary):
        HASHES[what].compute(b"") if what in HASHES else CIPHERS[what].encrypt(bytes(16), b"")


def test_other_algorithms_need_no_more_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "Cryptodome", None)
    for word in ("sha512", "sha256", "sha1", "md5"):
        HASHES[word].check_available()
    for word in ("aes256", "aes192", "aes128", "rc4"):
        CIPHERS[word].check_available()
