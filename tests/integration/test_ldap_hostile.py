"""A domain controller that is not one: answers that are cut, endless, huge, slow or wrong end with one clear sentence,
in bounded time and memory, and no password leaves in the clear."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from postroad.directory import ldap_connection
from postroad.directory.domain_copy import Changes, DomainCopy, Stamp
from postroad.directory.ldap_connection import LdapSettings, connect
from postroad.directory.ldap_watch import DomainSettings, LdapWatch
from postroad.errors import LdapError, LdapFault
from tests.certificates import Authority
from tests.enterprises import client, site

pytest.importorskip("ldap3")

PASSWORD = b"a-secret-of-the-test"
BIND, ENTRY, DONE, EXTENDED = 0x61, 0x64, 0x65, 0x78


def ber(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    size = len(content)
    return bytes((tag,)) + (bytes((size,)) if size < 128 else b"\x84" + size.to_bytes(4, "big")) + content


def text(value: bytes | str) -> bytes:
    return ber(4, value.encode() if isinstance(value, str) else value)


def answer(number: int, tag: int, *parts: bytes, controls: bytes = b"") -> bytes:
    return ber(0x30, ber(2, bytes((number,))), ber(tag, *parts), controls)


def result(number: int, tag: int, code: int = 0, **more: bytes) -> bytes:
    return answer(number, tag, ber(10, bytes((code,))), text(""), text(""), **more)


def entry(number: int, dn: str, **attributes: bytes) -> bytes:
    listed = [
        ber(0x30, text(name.replace("__", ";").replace("_", "-").replace("EQ", "=")), ber(0x31, text(value)))
        for name, value in attributes.items()
    ]
    return answer(number, ENTRY, text(dn), ber(0x30, *listed))


ROOT = {
    "defaultNamingContext": b"DC=evil,DC=test",
    "configurationNamingContext": b"CN=Configuration,DC=evil,DC=test",
    "dsServiceName": b"CN=NTDS Settings,CN=X,DC=evil,DC=test",
    "highestCommittedUSN": b"7",
}
PAGE = b"1.2.840.113556.1.4.319"


def page(cookie: bytes) -> bytes:
    value = ber(0x30, ber(2, b"\0"), text(cookie))
    return ber(0xA0, ber(0x30, text(PAGE), text(value)))


Script = Callable[[socket.socket], object]


class Liar:
    """A server with a trusted certificate that accepts every login, describes itself, and then runs a script."""

    def __init__(self, authority: Authority, script: Script, *, tls: bool = True) -> None:
        self.received = bytearray()
        self._script = script
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(*authority.issue("127.0.0.1"))
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"{'ldaps' if tls else 'ldap'}://127.0.0.1:{self._listener.getsockname()[1]}"
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while not self._stopped.is_set():
            try:
                taken, _ = self._listener.accept()
            except OSError:
                return
            with suppress(OSError), taken:
                taken.settimeout(10)
                if not self._tls:
                    self._script(taken)
                    continue
                with self._context.wrap_socket(taken, server_side=True) as stream:
                    self.read(stream)
                    stream.sendall(result(1, BIND))
                    self.read(stream)
                    stream.sendall(entry(2, "", **ROOT) + result(2, DONE))
                    self.read(stream)
                    self._script(stream)
                    with suppress(TimeoutError):
                        while stream.recv(65_536) and not self._stopped.is_set():
                            pass

    def read(self, stream: socket.socket) -> None:
        self.received += stream.recv(65_536)

    def close(self) -> None:
        self._stopped.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


def endless(stream: socket.socket) -> None:
    one = entry(3, "CN=a,DC=evil,DC=test", cn=b"a")
    while True:
        stream.sendall(one * 100)


def pages(stream: socket.socket) -> None:
    for number in count(3):
        stream.sendall(result(number % 128, DONE, controls=page(b"again")))
        stream.recv(65_536)


def slowly(stream: socket.socket) -> None:
    data = entry(3, "CN=a,DC=evil,DC=test", cn=b"a" * 100)
    for byte in data:
        stream.sendall(bytes((byte,)))
        threading.Event().wait(0.1)


def cut(stream: socket.socket) -> None:
    stream.sendall(entry(3, "CN=a", cn=b"a")[:-5])
    stream.close()


def ranges(stream: socket.socket) -> None:
    for number in count(3):
        stream.sendall(
            answer(
                number % 128,
                ENTRY,
                text("CN=a"),
                ber(0x30, ber(0x30, text(f"msmqsites;range={number - 3}-{number - 3}"), ber(0x31, text("x")))),
            )
            + result(number % 128, DONE)
        )
        stream.recv(65_536)


ATTACKS: dict[str, tuple[Script, LdapFault]] = {
    "other bytes": (lambda stream: stream.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"), LdapFault.BAD_ANSWER),
    "a huge message": (lambda stream: stream.sendall(b"\x30\x84\xff\xff\xff\xff" + b"a" * 1000), LdapFault.BAD_ANSWER),
    "a length of lengths": (lambda stream: stream.sendall(b"\x30\xff" + b"\xff" * 127), LdapFault.BAD_ANSWER),
    "an indefinite length": (lambda stream: stream.sendall(b"\x30\x80\x02\x01\x03\0\0"), LdapFault.BAD_ANSWER),
    "an empty message": (lambda stream: stream.sendall(b"\x30\x00"), LdapFault.BAD_ANSWER),
    "a cut message": (cut, LdapFault.NO_ANSWER),
    "silence": (lambda stream: None, LdapFault.NO_ANSWER),
    "a byte at a time": (slowly, LdapFault.NO_ANSWER),
    "endless objects": (endless, LdapFault.BAD_ANSWER),
    "endless pages": (pages, LdapFault.BAD_ANSWER),
    "endless values": (ranges, LdapFault.BAD_ANSWER),
    "the answer of another request": (lambda stream: stream.sendall(result(9, DONE)), LdapFault.BAD_ANSWER),
    "an answer of another kind": (lambda stream: stream.sendall(result(3, BIND)), LdapFault.BAD_ANSWER),
    "lengths that do not fit": (
        lambda stream: stream.sendall(answer(3, ENTRY, b"\x04\x7fCN=a")),
        LdapFault.BAD_ANSWER,
    ),
    "names that are no text": (
        lambda stream: stream.sendall(answer(3, ENTRY, text(b"\xff\xfe"), ber(0x30))),
        LdapFault.BAD_ANSWER,
    ),
    "a page that is none": (
        lambda stream: stream.sendall(result(3, DONE, controls=ber(0xA0, ber(0x30, text(PAGE), text(b"\x30\x7f"))))),
        LdapFault.BAD_ANSWER,
    ),
    "too many levels": (
        lambda stream: stream.sendall(answer(3, ENTRY, b"\x30\x84\x00\x0f\xff\xf0" * 150_000)),
        LdapFault.BAD_ANSWER,
    ),
    "a farewell": (
        lambda stream: stream.sendall(answer(0, EXTENDED, ber(10, b"\x34"), text(""), text(""))),
        LdapFault.NO_ANSWER,
    ),
    "a size limit": (lambda stream: stream.sendall(result(3, DONE, 4)), LdapFault.SIZE_LIMIT),
    "a refusal": (lambda stream: stream.sendall(result(3, DONE, 50)), LdapFault.NO_PERMISSION),
}


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def settings(authority: Authority, tmp_path: Path) -> LdapSettings:
    file = tmp_path / "password"
    file.write_bytes(PASSWORD)
    return LdapSettings(
        servers=(), user="me", password_file=file, ca_certificates=authority.file, connect_timeout_s=5, timeout_s=2.0
    )


@pytest.fixture
def lie(authority: Authority) -> Iterator[Callable[..., Liar]]:
    made: list[Liar] = []

    def make(script: Script, *, tls: bool = True) -> Liar:
        made.append(Liar(authority, script, tls=tls))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_ends_with_one_sentence(
    lie: Callable[..., Liar], settings: LdapSettings, monkeypatch: pytest.MonkeyPatch, attack: str
) -> None:
    monkeypatch.setattr(ldap_connection, "_MAX_PAGES", 40)
    monkeypatch.setattr(ldap_connection, "_MAX_RANGES", 40)
    script, fault = ATTACKS[attack]
    liar = lie(script)
    with (
        pytest.raises(LdapError) as caught,
        connect(replace(settings, servers=(liar.url,))) as opened,
    ):
        list(opened.search("DC=evil,DC=test", "(objectClass=*)", ["cn"]))
    assert caught.value.fault is fault, caught.value
    assert str(caught.value).startswith(liar.url)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("reply", "fault"),
    [
        (result(1, EXTENDED, 2), LdapFault.TLS),
        (result(1, EXTENDED) + result(2, BIND), LdapFault.TLS),  # to be taken for what came over TLS
        (b"", LdapFault.NO_ANSWER),
    ],
    ids=["refused", "with more behind it", "no answer"],
)
def test_no_password_leaves_without_tls(
    lie: Callable[..., Liar], settings: LdapSettings, reply: bytes, fault: LdapFault
) -> None:
    seen = bytearray()

    def script(stream: socket.socket) -> None:
        seen.extend(stream.recv(65_536))
        stream.sendall(reply)
        with suppress(OSError):
            seen.extend(stream.recv(65_536))

    liar = lie(script, tls=False)
    with pytest.raises(LdapError) as caught:
        connect(replace(settings, servers=(liar.url,)))
    assert caught.value.fault is fault, caught.value
    assert PASSWORD not in seen


def test_objects_without_an_identity_end_a_read_and_not_the_manager(
    lie: Callable[..., Liar], settings: LdapSettings, tmp_path: Path
) -> None:
    """Every answer of the controller is the same object, which has no GUID."""

    def script(stream: socket.socket) -> None:
        for number in count(3):
            stream.sendall(entry(number % 128, "CN=a,CN=b,DC=evil,DC=test", cn=b"a") + result(number % 128, DONE))
            if not stream.recv(65_536):
                return

    copy = DomainCopy()
    copy.apply(Changes(sites=[site("London")], managers=[client("alpha", "London")]))
    copy.confirm(Stamp("dc=evil,dc=test", "cn=ntds settings,cn=x,dc=evil,dc=test", "", 1, "ldaps://dc"), 0.0)
    file = tmp_path / "directory-copy"
    file.write_bytes(b"".join(copy.lines()))
    liar = lie(script)
    watch = LdapWatch(DomainSettings(ldap=replace(settings, servers=(liar.url,)), own="alpha", copy_file=file), now=1.0)
    assert not watch.online
    assert "objectGUID must have 16 bytes" in str(watch.last_error)
    assert watch.directory.manager_named("alpha") is not None
    watch.close()


def test_the_last_good_copy_outlives_every_lie(
    lie: Callable[..., Liar], settings: LdapSettings, tmp_path: Path
) -> None:
    copy = DomainCopy()
    copy.apply(Changes(sites=[site("London")], managers=[client("alpha", "London")]))
    copy.confirm(Stamp("dc=evil,dc=test", "x", "", 1, "ldaps://dc"), 0.0)
    file = tmp_path / "directory-copy"
    kept = b"".join(copy.lines())
    file.write_bytes(kept)
    for attack in ("other bytes", "a huge message", "endless objects", "silence"):
        liar = lie(ATTACKS[attack][0])
        watch = LdapWatch(
            DomainSettings(ldap=replace(settings, servers=(liar.url,)), own="alpha", copy_file=file), now=1.0
        )
        assert not watch.online
        assert [each.computer_name for each in watch.directory.managers] == ["alpha"]
        assert watch.last_error is not None
        watch.close()
        assert file.read_bytes() == kept
