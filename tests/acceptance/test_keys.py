"""`postroad keys`, as its users run it: shown, rotated, and still there after kill -9."""

from __future__ import annotations

import json
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from postroad.security.keys import peer_keys
from tests.commands import ServerProcess, postroad, serving

CONFIGURATION = """
[manager]
name = "alpha"
data = "data"
[listen]
host = "127.0.20.64"
binary = false
ping = false
http = false
rpc = false
api = 0
[audit]
file = "audit.jsonl"
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "alpha.toml"
    file.write_text(CONFIGURATION)
    return file


@pytest.fixture
def server(config: Path) -> Iterator[ServerProcess]:
    with serving(config) as running:
        yield running


@pytest.mark.spec("MQ-2.3.2.32-01")
def test_show_prints_what_the_directory_publishes(server: ServerProcess) -> None:
    (shown,) = postroad("keys", "show", "--json", api=server.api).objects
    assert {each.key_size for each in peer_keys(bytes.fromhex(shown["public_keys"])).values()} == {2048}
    assert [(each["bits"], each["previous"]) for each in shown["keys"]] == [(2048, 0), (2048, 0)]
    assert all(each["fingerprint"].startswith("sha256:") for each in shown["keys"])
    assert shown["made_at_s"] > 0
    lines = postroad("keys", "show", api=server.api).lines
    assert lines[0] == shown["public_keys"]
    assert shown["keys"][0]["fingerprint"] in lines[3]


def test_rotated_keys_survive_kill_9(config: Path) -> None:
    with serving(config) as server:
        (first,) = postroad("keys", "show", "--json", api=server.api).objects
        (rotated,) = postroad("keys", "rotate", "--json", api=server.api).objects
        server.end(signal.SIGKILL)
    assert rotated["public_keys"] != first["public_keys"]
    assert [each["previous"] for each in rotated["keys"]] == [1, 1]
    with serving(config) as server:
        assert postroad("keys", "show", "--json", api=server.api).objects == [rotated]
    files = [each for each in (config.parent / "data").iterdir() if each.name.startswith("keys")]
    assert [stat.S_IMODE(each.stat().st_mode) for each in files] == [0o600]


def test_rotate_says_what_to_do(server: ServerProcess) -> None:
    done = postroad("keys", "rotate", api=server.api)
    assert done.code == 0
    assert done.lines[0] == "New keys are in use. Set public_keys of [[manager]] alpha in enterprise.toml to:"
    assert postroad("keys", "show", api=server.api).lines == done.lines[2:]


def test_a_rotation_is_in_the_audit_log_without_keys(config: Path, server: ServerProcess) -> None:
    (rotated,) = postroad("keys", "rotate", "--json", api=server.api).objects
    lines = [json.loads(line) for line in (config.parent / "audit.jsonl").read_text().splitlines()]
    (line,) = [each for each in lines if each["what"] == "rotate keys"]
    assert line["outcome"] == "done"
    assert line["fingerprints"] == ",".join(each["fingerprint"] for each in rotated["keys"])


def test_a_rotation_that_cannot_be_kept_changes_nothing(config: Path, server: ServerProcess) -> None:
    (before,) = postroad("keys", "show", "--json", api=server.api).objects
    (config.parent / "data" / "keys.pem.new").mkdir()
    done = postroad("keys", "rotate", api=server.api)
    assert done.code == 1
    assert "keys.pem: the private keys cannot be written" in done.last_error
    assert postroad("keys", "show", "--json", api=server.api).objects == [before]


@pytest.mark.parametrize(
    ("more", "code", "fault"),
    [
        ('[[certificate]]\nsid = "S-1-5-21-1-2-3-1001"\nfile = "alpha.toml"\n', 2, "certificate[1].file"),
        ('[[certificate]]\nsid = "S-1-5-21-1-2-3-1001"\nfile = "none.pem"\n', 2, "certificate[1].file"),
        ('[security]\naccept_hashes = ["sha3"]\n', 2, "security.accept_hashes"),
        ("[[queue]]\npath = 'private$\\orders'\nacl = \"nonsense\"\n", 2, "queue[1].acl"),
    ],
)
def test_a_bad_configuration_stops_the_start(config: Path, more: str, code: int, fault: str) -> None:
    config.write_text(CONFIGURATION + more)
    done = postroad("serve", "-c", str(config))
    assert done.code == code
    assert str(config) in done.last_error
    assert fault in done.last_error


def test_damaged_keys_stop_the_start(config: Path) -> None:
    (config.parent / "data").mkdir()
    (config.parent / "data" / "keys.pem").write_text("nonsense")
    done = postroad("serve", "-c", str(config))
    assert done.code == 1
    assert "keys.pem: the private keys are damaged" in done.last_error


def test_status_shows_the_algorithms(server: ServerProcess) -> None:
    (status,) = postroad("status", "--json", api=server.api).objects
    assert status["manager"]["algorithms"] == {
        "hashes": ["sha512", "sha256"],
        "ciphers": ["aes256", "aes192", "aes128"],
        "send": ["aes256"],
    }
    assert status["manager"]["messages_refused"] == {}
    assert (
        "security: accepts sha512, sha256 and aes256, aes192, aes128; encrypts with aes256"
        in postroad("status", "--all", api=server.api).lines
    )
