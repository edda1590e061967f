"""`[security]`, `[[certificate]]`, SIDs of users and access lists of queues: how they are read, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroad.config import Configuration, SenderIds, load_configuration
from postroad.errors import ConfigurationError
from postroad.security.algorithms import CIPHERS
from postroad.security.descriptors import Sid

ANN = "S-1-5-21-1-2-3-1001"
MANAGER = '[manager]\nname = "alpha"\n'


def read(directory: Path, text: str) -> Configuration:
    file = directory / "alpha.toml"
    file.write_text(MANAGER + text)
    return load_configuration(file)


def test_the_defaults(tmp_path: Path) -> None:
    security = read(tmp_path, "").security
    assert security.accept_hashes == ("sha512", "sha256")
    assert security.accept_signatures == ("3.0", "2.0")
    assert security.accept_ciphers == ("aes256", "aes192", "aes128")
    assert (security.send_cipher, security.signature_profile) == ("aes256", "listed")
    assert security.sender_ids is SenderIds.VERIFIED


def test_everything_can_be_set(tmp_path: Path) -> None:
    (tmp_path / "ann.pem").touch()
    config = read(
        tmp_path,
        f"""[security]
accept_hashes = ["SHA1"]
accept_ciphers = ["rc4", "rc2"]
send_cipher = "rc4"
signature_profile = "aligned-reversed"
sender_ids = "claimed"
[[certificate]]
sid = "{ANN}"
file = "ann.pem"
[[user]]
name = "ann"
password = "x"
sid = "{ANN}"
groups = ["S-1-5-32-544"]
administrator = true
[[queue]]
path = 'private$\\orders'
acl = "D:(A;;0x4;;;WD)"
""",
    )
    assert (config.security.accept_hashes, config.security.accept_ciphers) == (("sha1",), ("rc4", "rc2"))
    assert config.security.signature_profile == "aligned-reversed"
    assert config.security.sender_ids is SenderIds.CLAIMED
    assert [(each.sid, each.file) for each in config.certificates] == [(Sid.parse(ANN), tmp_path / "ann.pem")]
    assert config.users[0].sid == Sid.parse(ANN)
    assert config.queues[0].acl is not None


@pytest.mark.spec("QB-3.1.1.3-01", "QB-3.1.1.3-02")
def test_a_message_can_be_encrypted_with_these_algorithms_and_no_others(tmp_path: Path) -> None:
    taken = [read(tmp_path, f'[security]\nsend_cipher = "{word}"\n').security.send_cipher for word in CIPHERS]
    assert {int(CIPHERS[word].number) for word in taken} == {0x6610, 0x660F, 0x660E, 0x6602, 0x6801}
    for word in ("des", "none", "aes", "0x6601"):
        with pytest.raises(ConfigurationError, match=r"security\.send_cipher: must be aes256"):
            read(tmp_path, f'[security]\nsend_cipher = "{word}"\n')


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("[security]\naccept_hashes = []\n", "security.accept_hashes"),
        ('[security]\naccept_hashes = ["sha512", "sha512"]\n', "security.accept_hashes"),
        ('[security]\naccept_ciphers = ["des"]\n', "security.accept_ciphers"),
        ('[security]\nsignature_profile = "other"\n', "security.signature_profile"),
        ('[security]\nsender_ids = "all"\n', "security.sender_ids"),
        (f'[[certificate]]\nsid = "{ANN}"\n', "certificate[1].file"),
        ('[[certificate]]\nsid = "ann"\nfile = "alpha.toml"\n', "certificate[1].sid"),
        (f'[[certificate]]\nsid = "{ANN}"\nfile = "missing.pem"\n', "certificate[1].file"),
        ('[[user]]\nname = "ann"\npassword = "x"\nsid = "S-1"\n', "user[1].sid"),
        ('[[user]]\nname = "ann"\npassword = "x"\ngroups = ["staff"]\n', "user[1].groups"),
        ("[[queue]]\npath = 'private$\\orders'\nacl = \"D:(A;;nonsense;;;WD)\"\n", "queue[1].acl"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, key: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(tmp_path, text)
    assert caught.value.key.startswith(key)
