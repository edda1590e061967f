"""A server's keys, certificates, users and access lists, which it makes or reads at its start."""

from __future__ import annotations

import asyncio
import logging
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from postroad.config import load_configuration
from postroad.errors import ConfigurationError, StorageError
from postroad.manager import Manager
from postroad.manager.keys import KEY_FILE
from postroad.security.access import Token
from postroad.security.descriptors import Sid
from postroad.security.keys import KeyRing, make_private_key
from postroad.security.users import derive_sid
from postroad.server.server import Server
from tests.security_vectors import ADVANCED, BASE, CERTIFICATE, certificate_of

T = TypeVar("T")
OWN = UUID(int=10)
ANN = "S-1-5-21-1-2-3-1001"
CONFIGURATION = """
[manager]
name = "alpha"
id = "00000000-0000-0000-0000-00000000000a"
data = "data"
[listen]
host = "127.0.20.61"
binary = false
ping = false
http = false
rpc = false
api = false
"""


def started(directory: Path, look: Callable[[Manager], T], more: str = "") -> T:
    """What `look` finds at the manager of a server that has started with this configuration."""
    file = directory / "alpha.toml"
    file.write_text(CONFIGURATION + more)

    async def body() -> T:
        server = Server(load_configuration(file))
        await server.start()
        try:
            return look(server.manager)
        finally:
            await server.stop()

    return asyncio.run(body())


def pem(der: bytes) -> bytes:
    return x509.load_der_x509_certificate(der).public_bytes(Encoding.PEM)


def published(manager: Manager) -> str:
    return manager.keys.describe().public_keys


def warnings(caplog: pytest.LogCaptureFixture, text: str) -> list[logging.LogRecord]:
    return [each for each in caplog.records if text in each.getMessage()]


# Keys


@pytest.mark.spec("DM-3.1.3-03")
def test_the_first_start_makes_keys_that_later_starts_use(tmp_path: Path) -> None:
    first = started(tmp_path, lambda manager: manager.keys.describe())
    assert first == started(tmp_path, lambda manager: manager.keys.describe())
    assert [each.bits for each in first.keys] == [2048, 2048]
    assert [each.previous for each in first.keys] == [0, 0]
    assert first.made_at_s is not None


def test_only_the_owner_can_read_the_keys(tmp_path: Path) -> None:
    started(tmp_path, published)
    file = tmp_path / "data" / KEY_FILE
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(0o644)
    started(tmp_path, published)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("damage", [b"", b"\xff\xfe", b"provider: advanced\nno key\n"])
def test_damaged_keys_stop_the_start_and_stay_as_they_are(tmp_path: Path, damage: bytes) -> None:
    started(tmp_path, published)
    file = tmp_path / "data" / KEY_FILE
    file.write_bytes(damage)
    with pytest.raises(StorageError, match=r"keys\.pem: the private keys are damaged: .*restore it from a backup"):
        started(tmp_path, published)
    assert file.read_bytes() == damage


def test_unreadable_keys_stop_the_start(tmp_path: Path) -> None:
    (tmp_path / "data" / KEY_FILE).mkdir(parents=True)
    with pytest.raises(StorageError, match=r"keys\.pem: the private keys cannot be read"):
        started(tmp_path, published)


def test_a_half_written_file_of_a_crash_is_not_used(tmp_path: Path) -> None:
    first = started(tmp_path, published)
    (tmp_path / "data" / f"{KEY_FILE}.new").write_bytes(b"provider: adv")
    assert started(tmp_path, published) == first


# Certificates


@pytest.mark.parametrize("content", [CERTIFICATE, b"ann\n" + pem(CERTIFICATE)], ids=["der", "pem"])
def test_certificates_are_pem_or_der(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "ann.cer").write_bytes(content)
    more = f'[[certificate]]\nsid = "{ANN}"\nfile = "ann.cer"\n'
    found = started(tmp_path, lambda manager: manager.core.protection.certificates, more)
    assert found == {ANN: (CERTIFICATE,)}


def test_a_sender_can_have_several_certificates(tmp_path: Path) -> None:
    made = [CERTIFICATE, certificate_of(ADVANCED)]
    more = ""
    for number, each in enumerate(made):
        (tmp_path / f"{number}.cer").write_bytes(each)
        more += f'[[certificate]]\nsid = "{ANN}"\nfile = "{number}.cer"\n'
    assert started(tmp_path, lambda manager: manager.core.protection.certificates, more) == {ANN: tuple(made)}


def test_a_short_key_does_not_stop_the_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "short.der").write_bytes(certificate_of(BASE))
    more = f'[[certificate]]\nsid = "{ANN}"\nfile = "short.der"\n'
    with caplog.at_level(logging.WARNING):
        assert ANN in started(tmp_path, lambda manager: manager.core.protection.certificates, more)
    assert len(warnings(caplog, "its key is too short")) == 1


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"no certificate", "must hold one X.509 certificate in PEM or DER"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "must hold one X.509 certificate"),
        (b"", "must hold one X.509 certificate"),
        (certificate_of(ec.generate_private_key(ec.SECP256R1())), "with an RSA key"),
    ],
)
def test_what_is_no_certificate_stops_the_start(tmp_path: Path, content: bytes, fault: str) -> None:
    (tmp_path / "ann.pem").write_bytes(content)
    with pytest.raises(ConfigurationError, match=fault) as caught:
        started(tmp_path, published, f'[[certificate]]\nsid = "{ANN}"\nfile = "ann.pem"\n')
    assert caught.value.key == "certificate[1].file"
    assert "ann.pem" in caught.value.fault


# Algorithms


def test_each_weak_setting_is_one_line_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    more = """[security]
accept_hashes = ["sha512", "sha1", "md5"]
accept_ciphers = ["aes256", "rc4"]
send_cipher = "rc4"
accept_signatures = ["2.0", "1.0"]
sender_ids = "claimed"
"""
    with caplog.at_level(logging.WARNING):
        assert started(tmp_path, lambda manager: manager.core.access.claimed, more)
    named = [(each.__dict__["setting"], each.__dict__["algorithm"]) for each in warnings(caplog, "an old algorithm")]
    assert named == [
        ("security.accept_hashes", "sha1"),
        ("security.accept_hashes", "md5"),
        ("security.accept_ciphers", "rc4"),
        ("security.send_cipher", "rc4"),
    ]
    (old,) = warnings(caplog, "signatures of version 1.0 count")
    assert old.__dict__["setting"] == "security.accept_signatures"
    assert len(warnings(caplog, "believes the senders that unsigned messages name")) == 1


def test_the_defaults_log_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert not started(tmp_path, lambda manager: manager.core.access.claimed)
    assert not warnings(caplog, "algorithm") + warnings(caplog, "signatures") + warnings(caplog, "believes")


# Users


def test_users_have_their_sid_or_one_by_their_name(tmp_path: Path) -> None:
    more = f"""
[[user]]
name = "ann"
sid = "{ANN}"
groups = ["S-1-5-21-1-2-3-2001"]
password = "secret"
[[user]]
name = "bob"
administrator = true
password = "secret"
"""
    users = started(tmp_path, lambda manager: manager.core.access.users, more)
    ann, bob = users.named("ann"), users.named("BOB")
    assert ann is not None
    assert bob is not None
    assert ann.token == Token.of_user(Sid.parse(ANN), frozenset({Sid.parse("S-1-5-21-1-2-3-2001")}))
    assert bob.sid == derive_sid(OWN, "bob")
    assert bob.token.everything


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('name = "everyone"', "user[1].name"),
        ('name = "ann"\nsid = "S-1-5-32-544"', "user[1].sid"),
        (f'name = "ann"\nsid = "{ANN}"\npassword = "x"\n[[user]]\nname = "bob"\nsid = "{ANN}"', "user[2].sid"),
    ],
)
def test_a_user_that_cannot_be_stops_the_start(tmp_path: Path, text: str, key: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        started(tmp_path, published, f'[[user]]\n{text}\npassword = "x"\n')
    assert caught.value.key == key


# Access lists


def acl_of(manager: Manager) -> str | None:
    return manager.core.queues.get("private$\\orders").properties.acl


def test_an_access_list_is_set_changed_and_left_alone(tmp_path: Path) -> None:
    plain = "[[queue]]\npath = 'private$\\orders'\n"
    assert started(tmp_path, acl_of, plain) is None
    assert started(tmp_path, acl_of, plain + 'acl = "D:(A;;0x4;;;WD)"\n') == "D:(A;;0x4;;;WD)"
    assert started(tmp_path, acl_of, plain + 'acl = "D:(A;;0x2;;;WD)"\n') == "D:(A;;0x2;;;WD)"
    assert started(tmp_path, acl_of, plain) == "D:(A;;0x2;;;WD)"  # the file says nothing of it


def test_a_queue_is_created_with_its_access_list(tmp_path: Path) -> None:
    more = "[[queue]]\npath = 'private$\\orders'\nacl = \"D:(A;;0x4;;;WD)\"\n"
    assert started(tmp_path, acl_of, more) == "D:(A;;0x4;;;WD)"


# The directory


def enterprise(public_keys: str) -> str:
    return f'[[site]]\nname = "london"\n[[manager]]\nname = "alpha"\nid = "{OWN}"\nsites = ["london"]\n' + (
        f'public_keys = "{public_keys}"\n' if public_keys else ""
    )


def test_the_manager_warns_once_of_other_keys_in_its_entry(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    more = '[directory]\nfile = "enterprise.toml"\npoll_s = 0.05\n'
    file = tmp_path / "enterprise.toml"
    file.write_text(enterprise(""))
    own = started(tmp_path, published, more)
    file.write_text(enterprise(own))
    with caplog.at_level(logging.WARNING):
        assert started(tmp_path, published, more) == own
        assert not warnings(caplog, "other public keys")
        file.write_text(enterprise(KeyRing.make(make_private_key, 1024).public_keys.hex()))
        started(tmp_path, published, more)
    found = warnings(caplog, "other public keys")
    assert len(found) == 1
    assert "postroad keys show" in found[0].__dict__["do"]
