"""`postroad send --sign --encrypt` and `postroad decode --verify` as users run them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import postroad as client
from tests.captures import SYN, pcap, segment
from tests.commands import Outcome, postroad, serving
from tests.security_vectors import ADVANCED, CERTIFICATE, SIGNATURES, SIGNED_AND_ENCRYPTED, vector
from tests.signers import PASSWORD, Files, elliptic_key_file, key_files, short_key_files
from tests.vectors import V1

_numbers = count(1)


class Alpha:
    """A server, and commands that go to it."""

    def __init__(self, api: str, manager: client.QueueManager, directory: Path) -> None:
        self.api = api
        self.manager = manager
        self.files = key_files(directory, ADVANCED)

    def queue(self, **properties: Any) -> client.Queue:
        return self.manager.create_queue(rf"private$\q{next(_numbers)}", **properties)

    def send(self, *arguments: str, variables: dict[str, str] | None = None) -> Outcome:
        return postroad("send", *arguments, api=self.api, variables=variables)

    @property
    def signing(self) -> tuple[str, ...]:
        return ("--sign", str(self.files.certificate), "--key", str(self.files.key))


@pytest.fixture(scope="module")
def alpha(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alpha]:
    directory = tmp_path_factory.mktemp("alpha")
    file = directory / "alpha.toml"
    file.write_text(
        '[manager]\nname = "alpha"\n[listen]\nbinary = 0\nping = 0\napi = 0\n'
        '[security]\naccept_signatures = ["3.0", "2.0", "1.0"]\n',
        encoding="utf-8",
    )
    with serving(file) as server, client.connect(server.api) as manager:
        yield Alpha(server.api, manager, directory)


def only(queue: client.Queue) -> dict[str, Any]:
    (message,) = queue.messages()
    return message.describe()


# Signing


def test_a_signed_message_says_how_it_was_signed(alpha: Alpha) -> None:
    queue = alpha.queue(authenticate=True)
    outcome = alpha.send(queue.name, "--body", "ten boxes", *alpha.signing, "--label", "order")
    assert (outcome.code, outcome.errors) == (0, "")
    (shown,) = postroad("peek", queue.name, "--json", api=alpha.api).objects
    assert (shown["authentication_level"], shown["hash"], shown["authenticated"]) == (3, "sha512", True)
    assert (shown["cipher"], shown["encrypted"], shown["sender_id"]) == (None, False, None)


@pytest.mark.spec("DM-3.1.1.12-10", "QB-3.1.7.1.4-03")
@pytest.mark.parametrize(("version", "hash", "level"), [("1.0", "sha256", 1), ("2.0", "sha256", 3)])
def test_the_version_and_the_hash_are_the_senders_choice(alpha: Alpha, version: str, hash: str, level: int) -> None:
    queue = alpha.queue()
    assert alpha.send(queue.name, *alpha.signing, "--signature", version, "--hash", hash).code == 0
    assert (only(queue)["authentication_level"], only(queue)["hash"]) == (level, hash)


def test_many_copies_and_a_transaction_are_signed(alpha: Alpha) -> None:
    queue = alpha.queue(transactional=True, authenticate=True)
    assert alpha.send(queue.name, "--transactional", "--count", "12000", *alpha.signing).code == 0
    assert queue.info().messages == 12000
    first, *_, last = queue.peek_many(12000, 0)
    assert (first.authentication_level, last.authentication_level) == (3, 3)


def test_several_destinations_share_a_signature_of_version_3(alpha: Alpha) -> None:
    one, other = alpha.queue(), alpha.queue()
    names = ",".join(f"DIRECT=OS:alpha\\{each.name}" for each in (one, other))
    outcome = alpha.send(names, "--body", "x", *alpha.signing)
    assert (outcome.code, outcome.errors) == (0, "")
    assert [only(each)["authentication_level"] for each in (one, other)] == [5, 5]


def test_a_key_with_a_password(alpha: Alpha, tmp_path: Path) -> None:
    files = key_files(tmp_path, ADVANCED, "locked", PASSWORD)
    signing = ("--sign", str(files.certificate), "--key", str(files.key))
    queue = alpha.queue()
    assert alpha.send(queue.name, *signing, variables={"POSTROAD_KEY_PASSWORD": PASSWORD}).code == 0
    for variables, fault in (({}, "POSTROAD_KEY_PASSWORD"), ({"POSTROAD_KEY_PASSWORD": "x"}, "password is wrong")):
        refused = alpha.send(queue.name, *signing, variables=variables)
        assert refused.code == 1
        assert fault in refused.last_error
    assert queue.info().messages == 1


def test_what_cannot_be_signed_is_not_sent(alpha: Alpha, tmp_path: Path) -> None:
    queue = alpha.queue()
    ann, short = key_files(tmp_path), short_key_files(tmp_path)
    several = f"DIRECT=OS:alpha\\{queue.name},DIRECT=OS:beta\\private$\\x"
    for name, files, more, fault in (
        (queue.name, Files(tmp_path / "none.pem", ann.key), (), "none.pem: cannot be read: No such file"),
        (queue.name, Files(ann.certificate, tmp_path / "none.key"), (), "none.key: cannot be read: No such file"),
        (queue.name, Files(ann.certificate, elliptic_key_file(tmp_path)), (), "must be an RSA key"),
        (queue.name, Files(ann.certificate, alpha.files.key), (), "does not belong to the certificate"),
        (queue.name, short, (), "the key has 512 bits"),
        (queue.name, ann, ("--signature", "3.0"), "use version 2.0"),
        (several, ann, ("--signature", "2.0"), "use version 3.0"),
        (queue.name, ann, ("--hash", "sha1"), "the signature of the message is refused (hash-refused)"),
        (queue.name, ann, ("--sender-id", "S-1-5-21-9"), "refused (certificate-not-registered)"),
    ):
        refused = alpha.send(name, "--sign", str(files.certificate), "--key", str(files.key), *more)
        assert (refused.code, refused.output) == (1, b"")
        assert fault in refused.last_error
    assert queue.info().messages == 0


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (("--sign", "a.pem"), "--sign: needs --key"),
        (("--key", "a.key"), "--key: needs --sign"),
        (("--sender-id", "S-1-5-18"), "--sender-id: needs --sign"),
    ],
)
def test_options_that_need_each_other(options: tuple[str, ...], fault: str) -> None:
    refused = postroad("send", r"private$\q", *options)
    assert refused.code == 2
    assert fault in refused.last_error


@pytest.mark.parametrize(("option", "value"), [("--hash", "sha3"), ("--signature", "4.0"), ("--sender-id", "ann")])
def test_a_wrong_value_names_its_option(alpha: Alpha, option: str, value: str) -> None:
    refused = alpha.send(r"private$\q", *alpha.signing, option, value)
    assert refused.code == 2
    assert f"{option}: must be" in refused.last_error


# Queues that take authenticated messages only


def test_an_administrator_counts_as_authenticated(alpha: Alpha) -> None:
    """Without a token, a caller from this machine is administrator."""
    queue = alpha.queue(authenticate=True)
    assert alpha.send(queue.name, "--body", "x").code == 0
    found = only(queue)
    assert (found["authentication_level"], found["authenticated"], found["hash"]) == (1, True, None)


# Encryption


@pytest.mark.parametrize(
    "arguments",
    [
        ("--encrypt", "{queue}", "--body", "x"),
        ("{queue}", "--encrypt", "--body", "x"),
        ("{queue}", "--body", "x", "--encrypt"),
        ("--encrypt", "aes128", "{queue}", "--body", "x"),
        ("{queue}", "--encrypt", "aes128", "--body", "x"),
        ("--encrypt=aes128", "{queue}", "--body", "x"),
        ("--body", "x", "--encrypt", "--", "{queue}"),
    ],
)
def test_the_cipher_is_optional(alpha: Alpha, arguments: tuple[str, ...]) -> None:
    """A queue that accepts only encrypted messages shows that the option was understood."""
    queue = alpha.queue(privacy="body")
    assert alpha.send(queue.name, "--body", "x").code == 1
    outcome = alpha.send(*(each.format(queue=queue.name) for each in arguments))
    assert (outcome.code, outcome.errors) == (0, "")
    assert only(queue)["body"] == "x"


def test_the_name_of_an_option_can_be_the_value_of_another(alpha: Alpha) -> None:
    queue = alpha.queue()
    assert alpha.send(queue.name, "--label", "--encrypt", "--body", "--").code == 0
    assert (only(queue)["label"], only(queue)["body"]) == ("--encrypt", "--")


def test_an_unknown_cipher_is_named(alpha: Alpha) -> None:
    queue = alpha.queue()
    refused = alpha.send(queue.name, "--encrypt", "aes512", "--body", "x")
    assert refused.code == 2
    assert "--encrypt: must be one of aes256, aes192, aes128, rc4, rc2" in refused.last_error


def test_what_cannot_be_encrypted_is_not_sent(alpha: Alpha) -> None:
    before = alpha.manager.queue(";deadletter").info().messages
    for name, fault in (
        (r"DIRECT=OS:beta\private$\x", "a direct name does not say which manager's key to use"),
        (r"PRIVATE=8f3c6a52-0d1e-4b7a-9c55-2f1f0f6f7a10\00000007", "no public key of the destination's manager"),
    ):
        refused = alpha.send(name, "--encrypt", "--body", "x", "--dead-letter")
        assert (refused.code, refused.output) == (1, b"")
        assert fault in refused.last_error
        assert alpha.send(name, "--encrypt", "--body", "x").code == 1
    assert alpha.manager.queue(";deadletter").info().messages == before + 2


# decode --verify


def verified(*arguments: str) -> tuple[int, list[Any]]:
    outcome = postroad("decode", "--json", *arguments)
    return outcome.code, [each.get("verified", "absent") for each in outcome.objects]


def as_file(directory: Path, data: bytes) -> str:
    file = directory / "packets"
    file.write_bytes(data)
    return str(file)


@pytest.mark.spec("MQ-2.5.1-01", "MQ-2.5.2-01", "MQ-2.5.3-01")
@pytest.mark.parametrize(("name", "version", "hash"), SIGNATURES)
def test_every_vector_is_verified(tmp_path: Path, name: str, version: str, hash: str) -> None:
    file = as_file(tmp_path, vector(name, "packet"))
    expected = {"profile": "listed", "signature": version, "hash": hash}
    assert verified(file, "--verify") == (0, [expected])
    certificate = tmp_path / "sender.cer"
    certificate.write_bytes(CERTIFICATE)
    assert verified(file, "--verify", str(certificate)) == (0, [expected])
    assert verified("--verify", str(certificate), file) == (0, [expected])
    assert verified("--verify", file) == (0, [expected])
    assert verified("--verify", "--", file) == (0, [expected])


def test_hex_text_and_captures_are_verified_too(tmp_path: Path) -> None:
    packets = [vector(name, "packet") for name, _, _ in SIGNATURES]
    expected = [{"profile": "listed", "signature": version, "hash": hash} for _, version, hash in SIGNATURES]
    assert verified(as_file(tmp_path, packets[0].hex().encode()), "--verify") == (0, expected[:1])
    assert verified(as_file(tmp_path, b"".join(packets)), "--verify") == (0, expected)
    capture = pcap([segment(sequence=0, flags=SYN), segment(b"".join(packets), 1)])
    code, found = verified(as_file(tmp_path, capture), "--verify")
    assert (code, [each for each in found if each != "absent"]) == (0, expected)


def test_another_certificate_verifies_nothing(tmp_path: Path) -> None:
    files = key_files(tmp_path, ADVANCED)
    file = as_file(tmp_path, vector(SIGNATURES[0][0], "packet"))
    assert verified(file, "--verify", str(files.certificate)) == (1, [None])


def test_a_changed_message_is_not_verified(tmp_path: Path) -> None:
    packet = bytearray(vector("V4b_signature_2_0_sha512", "packet"))
    packet[-4] ^= 1  # of the body
    outcome = postroad("decode", as_file(tmp_path, bytes(packet)), "--verify")
    assert outcome.code == 1
    assert "the signature fits under no profile" in outcome.text
    assert "1 signed message not verified" in outcome.last_error


def test_an_encrypted_message_cannot_be_verified(tmp_path: Path) -> None:
    outcome = postroad("decode", as_file(tmp_path, SIGNED_AND_ENCRYPTED), "--verify")
    assert outcome.code == 1
    assert "only the receiver can check it" in outcome.text


def test_unsigned_messages_do_not_count_beside_signed_ones(tmp_path: Path) -> None:
    signed = vector("V4b_signature_2_0_sha512", "packet")
    code, found = verified(as_file(tmp_path, V1 + signed), "--verify")
    assert (code, found[0], found[1]["profile"]) == (0, None, "listed")
    outcome = postroad("decode", as_file(tmp_path, V1), "--verify")
    assert outcome.code == 1
    assert "no message is signed" in outcome.last_error


def test_every_profile_is_found(tmp_path: Path) -> None:
    from postroad.security.signatures import PROFILES, sign
    from tests.security_vectors import PLAIN, SENDER

    packets = b"".join(sign(PLAIN, SENDER, CERTIFICATE, profile=profile) for profile in PROFILES.values())
    code, found = verified(as_file(tmp_path, packets), "--verify")
    assert (code, [each["profile"] for each in found]) == (0, list(PROFILES))


@pytest.mark.parametrize("options", [("--verify",), ()])
def test_a_missing_file_is_a_mistake_of_usage(options: tuple[str, ...]) -> None:
    outcome = postroad("decode", *options)
    assert outcome.code == 2
    assert "Missing argument 'FILE'" in outcome.last_error


def test_a_file_that_is_no_certificate_is_named(tmp_path: Path) -> None:
    file = as_file(tmp_path, V1)
    outcome = postroad("decode", file, "--verify", file)
    assert outcome.code == 2
    assert "must be an X.509 certificate" in outcome.last_error
