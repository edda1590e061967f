"""`postroad serve --check` gives the same sentence as a start for everything that would prevent it, and writes
nothing."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from postroad.config import load_configuration
from postroad.errors import PostroadError
from postroad.server.process import check_only
from postroad.server.server import Server
from postroad.store.database import APPLICATION_ID, DATABASE_NAME, MIGRATIONS
from tests.certificates import Authority
from tests.security_vectors import certificate_of

OWN = "00000000-0000-0000-0000-00000000000a"
MANAGER = '[manager]\nname = "alpha"\ndata = "data"\n'
LISTEN = "binary = false\nping = false\nhttp = false\nrpc = false\napi = 0\n"
CONFIG = f"{MANAGER}[listen]\n{LISTEN}"
OUTSIDE = f'{MANAGER}[listen]\nhost = "0.0.0.0"\n{LISTEN}'
TOKEN = 'token = "a-token-that-nobody-guesses"\n'
RPC = OUTSIDE.replace("rpc = false", "rpc = 0") + f"[api]\n{TOKEN}"
API_TLS = 'tls_certificate = "127.0.0.1.pem"\ntls_key = "127.0.0.1.key"\n'
HTTPS = CONFIG.replace("http = false", "http = false\nhttps = 0")
ORDERS = "[[queue]]\npath = 'private$\\orders'\n"
ANN = '[[user]]\nname = "ann"\npassword = "x"\n'
SITE = '[[site]]\nname = "london"\n'
ALPHA = f'{SITE}[[manager]]\nname = "alpha"\nid = "{OWN}"\nsites = ["london"]\n'
DIRECTORY = '[directory]\nfile = "enterprise.toml"\n'
OLD = "an earlier start"  # a file name that stands for a manager that has run here with this configuration


def encrypted_key() -> str:
    kind, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(kind, form, serialization.BestAvailableEncryption(b"secret")).decode()


# What prevents a start: the key or words in the sentence, the configuration, and other files.
FAULTS: dict[str, tuple[str, dict[str, str]]] = {
    # of the file alone
    "listen.api: must be between": (CONFIG.replace("api = 0", "api = 70000"), {}),
    "listen.apy: there is no such setting": (CONFIG.replace("api = 0", "apy = 0"), {}),
    "binary.window_size: must be a whole number": (f"{CONFIG}[binary]\nwindow_size = '64'\n", {}),
    "queue[1].path: ": (f"{CONFIG}[[queue]]\npath = 'orders'\n", {}),
    "queue[1].path: must be a queue of alpha": (f"{CONFIG}[[queue]]\npath = 'beta\\orders'\n", {}),
    "queue[2].path: must be unique": (f"{CONFIG}{ORDERS}{ORDERS}", {}),
    "queue[1].acl: ": (f"{CONFIG}{ORDERS}acl = 'nonsense'\n", {}),
    "line 1": ("[manager\n", {}),
    "listen.api: must differ from listen.binary": (
        CONFIG.replace("binary = false", "binary = 5000").replace("api = 0", "api = 5000"),
        {},
    ),
    "api.tls_key: is missing": (f'{CONFIG}[api]\ntls_certificate = "127.0.0.1.pem"\n', {}),
    "api.tls_certificate: is missing: client_ca": (f'{CONFIG}[api]\nclient_ca = "authority.pem"\n', {}),
    "srmp.tls_certificate: is missing": (HTTPS, {}),
    "api.token_file: there is no file": (f'{CONFIG}[api]\ntoken_file = "nowhere"\n', {}),
    "api.token_file: must not be set together": (f'{CONFIG}[api]\n{TOKEN}token_file = "t"\n', {"t": "secret"}),
    "must hold one line with the secret": (f'{CONFIG}[api]\ntoken_file = "t"\n', {"t": "a\nb\n"}),
    "user[1].password: is missing": (f'{CONFIG}[[user]]\nname = "ann"\n', {}),
    "user[1].password_file: ": (f'{CONFIG}[[user]]\nname = "ann"\npassword_file = "p"\n', {"p": ""}),
    "user[2].name: must be unique": (f"{CONFIG}{ANN}{ANN}", {}),
    # of users
    "user[1].name: ": (CONFIG + ANN.replace("ann", "everyone"), {}),
    "user[1].sid: ": (f'{CONFIG}{ANN}sid = "S-1-5-32-544"\n', {}),
    "user[2].sid: must be unique": (
        f'{CONFIG}{ANN}sid = "S-1-5-21-1-2-3-9"\n{ANN.replace("ann", "bob")}sid = "S-1-5-21-1-2-3-9"\n',
        {},
    ),
    # of the directory
    "enterprise.toml: cannot be read": (CONFIG + DIRECTORY, {}),
    "there is no site lodnon": (CONFIG + DIRECTORY, {"enterprise.toml": ALPHA.replace('["london"]', '["lodnon"]')}),
    f"manager.id: must be {OWN}": (
        CONFIG.replace("[listen]", 'id = "00000000-0000-0000-0000-00000000000b"\n[listen]') + DIRECTORY,
        {"enterprise.toml": ALPHA},
    ),
    # of addresses, and of who may come in
    "listen.host: cannot listen on 192.0.2.1:0": (
        CONFIG.replace("[listen]", '[listen]\nhost = "192.0.2.1"') + f"[api]\n{TOKEN}",
        {},
    ),
    "listen.host: cannot listen on nowhere.invalid": (
        CONFIG.replace("[listen]", '[listen]\nhost = "nowhere.invalid"'),
        {},
    ),
    "rpc.authenticate: must not be false": (f"{RPC}[rpc]\nauthenticate = false\n", {}),
    "rpc.anonymous: must not be true": (f"{RPC}[rpc]\nauthenticate = true\nanonymous = true\n", {}),
    "user: is missing": (RPC, {}),
    "api.token: is missing: other computers": (OUTSIDE, {}),
    "TLS alone does not authenticate": (f"{OUTSIDE}[api]\n{API_TLS}", {}),
    "api.tls_certificate: is missing: other computers can reach the console": (
        OUTSIDE.replace("api = 0", "api = 0\nconsole = 0") + f"[api]\n{TOKEN}",
        {},
    ),
    # of certificates
    "api.tls_certificate: cannot be used: ": (f"{CONFIG}[api]\n{API_TLS}", {"127.0.0.1.pem": "not PEM"}),
    "cannot be used: the key must not be encrypted": (
        f"{CONFIG}[api]\n{API_TLS}",
        {"127.0.0.1.key": encrypted_key()},
    ),
    "api.client_ca: cannot be used": (f'{CONFIG}[api]\n{API_TLS}client_ca = "127.0.0.1.key"\n', {}),
    "srmp.tls_certificate: cannot be used": (f"{HTTPS}[srmp]\n{API_TLS}", {"127.0.0.1.key": "not PEM"}),
    "srmp.ca_certificates: cannot be used": (
        CONFIG.replace("http = false", "http = 0") + '[srmp]\nca_certificates = "ca.pem"\n',
        {"ca.pem": "not PEM"},
    ),
    "certificate[1].file: ": (f'{CONFIG}[[certificate]]\nsid = "S-1-5-21-1-2-3-9"\nfile = "a"\n', {"a": "none"}),
    "with an RSA key": (f'{CONFIG}[[certificate]]\nsid = "S-1-5-21-1-2-3-9"\nfile = "ec.der"\n', {}),
    # of files to write
    "audit.file: ": (f'{CONFIG}[audit]\nfile = "missing/audit.jsonl"\n', {}),
    "tracing.file: must be set, or": (f"{CONFIG}[tracing]\nenabled = true\n", {}),
    "tracing.file: ": (f'{CONFIG}[tracing]\nenabled = true\nfile = "missing/spans"\n', {}),
    # of the data directory
    "the data directory cannot be created: Not a directory": (
        CONFIG.replace('"data"', '"file/data"'),
        {"file": ""},
    ),
    "a restore was interrupted": (CONFIG, {"data/restoring/store.sqlite": ""}),
    "must be a database of Postroad": (CONFIG, {"data/store.sqlite": "another program's"}),
    "the schema version must be at most": (CONFIG, {"data/store.sqlite": "a newer version's"}),
    "is missing or empty, but store.sqlite-wal is here": (CONFIG, {"data/store.sqlite-wal": "log"}),
    "keys.pem: the private keys are damaged": (CONFIG, {OLD: CONFIG, "data/keys.pem": "nothing"}),
    "queue[1].transactional: must be false": (f"{CONFIG}{ORDERS}transactional = true\n", {OLD: CONFIG + ORDERS}),
    "the queue alpha\\public exists with the id": (
        CONFIG + DIRECTORY,
        {
            OLD: f"{CONFIG}[[queue]]\npath = 'alpha\\public'\n",
            "enterprise.toml": f'{ALPHA}[[queue]]\npath = "alpha\\\\public"\nid = "{OWN}"\n',
        },
    ),
}


def prepare(directory: Path, text: str, files: dict[str, str]) -> Path:
    config = directory / "alpha.toml"
    Authority(directory).issue("127.0.0.1")
    (directory / "ec.der").write_bytes(certificate_of(ec.generate_private_key(ec.SECP256R1())))
    if OLD in files:
        config.write_text(files[OLD])
        asyncio.run(started(config))
    for name, content in files.items():
        if name != OLD:
            file = directory / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
            if name == f"data/{DATABASE_NAME}":
                make_database(file, content)
    config.write_text(text)
    return config


def make_database(file: Path, whose: str) -> None:
    file.unlink()
    with closing(sqlite3.connect(file)) as database:
        database.execute("CREATE TABLE t (x)")
        if whose.startswith("a newer"):
            database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            database.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")


async def started(config: Path) -> None:
    server = Server(load_configuration(config))
    await server.start()
    await server.stop()


def sentence(work: Callable[[], None]) -> str:
    with pytest.raises(PostroadError) as caught:
        work()
    return str(caught.value)


def contents(directory: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(each.relative_to(directory)): (each.stat().st_mode, each.read_bytes() if each.is_file() else b"")
        for each in directory.rglob("*")
    }


@pytest.mark.parametrize("words", FAULTS)
def test_a_check_says_what_a_start_says_and_makes_nothing(tmp_path: Path, words: str) -> None:
    if words.startswith("tracing.file: ") and "must" not in words:
        pytest.importorskip("opentelemetry.sdk")
    config = prepare(tmp_path, *FAULTS[words])
    before = contents(tmp_path)
    checked = sentence(lambda: asyncio.run(check_only(load_configuration(config))))
    assert contents(tmp_path) == before
    assert words in checked
    assert checked == sentence(lambda: asyncio.run(started(config)))


def test_a_sound_configuration_is_checked_before_the_first_start_after_it_and_beside_the_manager(
    tmp_path: Path,
) -> None:
    text = f'{CONFIG}{ORDERS}transactional = true\n{ANN}[audit]\nfile = "data/audit.jsonl"\n[api]\n{API_TLS}'
    config = prepare(tmp_path, text + DIRECTORY, {"enterprise.toml": ALPHA})

    def check() -> None:
        before = contents(tmp_path)
        asyncio.run(check_only(load_configuration(config)))
        assert contents(tmp_path) == before

    async def beside() -> None:
        server = Server(load_configuration(config))
        await server.start()
        await check_only(load_configuration(config))
        config.write_text(text.replace("transactional = true", "transactional = false"))
        with pytest.raises(PostroadError, match=r"queue\[1\]\.transactional: must be true"):
            await check_only(load_configuration(config))
        await server.stop()

    check()
    asyncio.run(started(config))
    check()
    asyncio.run(beside())


def test_files_of_a_crash_are_read_as_a_start_reads_them(tmp_path: Path) -> None:
    """The journal has the queue, and the database does not know it yet."""
    config = prepare(tmp_path, CONFIG + ORDERS, {})

    async def crash() -> dict[str, tuple[int, bytes]]:
        server = Server(load_configuration(config))
        await server.start()
        found = contents(tmp_path / "data")
        await server.stop()
        return found

    for name, (mode, content) in asyncio.run(crash()).items():
        (tmp_path / "data" / name).write_bytes(content)
        (tmp_path / "data" / name).chmod(mode & 0o777)
    config.write_text(f"{CONFIG}{ORDERS}transactional = true\n")
    before = contents(tmp_path)
    checked = sentence(lambda: asyncio.run(check_only(load_configuration(config))))
    index = f"data/{DATABASE_NAME}-shm"  # of the log: SQLite makes it again
    assert {name: each for name, each in contents(tmp_path).items() if name != index} == {
        name: each for name, each in before.items() if name != index
    }
    assert "queue[1].transactional: must be false" in checked
    (tmp_path / "data" / "journal-1").unlink()
    assert sentence(lambda: asyncio.run(check_only(load_configuration(config)))) == sentence(
        lambda: asyncio.run(started(config))
    )
