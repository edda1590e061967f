"""Targets for every place where bytes from outside reach a library of native code, and the table of these places.

A test searches the source. It fails if a module imports one of LIBRARIES and has no line in FED or NOT_FED.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa

from postroad.bodies import decode as decode_body
from postroad.bodies import message_type, nrbf
from postroad.columns.decoding import decode
from postroad.columns.ipc import read_batches
from postroad.columns.sending import read_messages
from postroad.console.bodies import HEX, RAW, READABLE, shown_body
from postroad.describe.packets import read_certificate
from postroad.errors import InvalidArgument, InvalidMessage, RemoteProtocolError, StorageError
from postroad.security.algorithms import CIPHERS, HASHES
from postroad.security.guard import Guard, Opened, Sealer
from postroad.security.keys import peer_keys
from postroad.security.refusals import Refused
from postroad.security.signatures import VERSIONS, public_key_of
from postroad.soap.transport import leads_here
from postroad.store.backup import BackupReader
from tests.arrow_samples import HOSTILE, MOST, honest
from tests.http_peer import served
from tests.security_vectors import (
    CERTIFICATE,
    REGISTERED,
    RING,
    SIGNED_1_0,
    SIGNED_2_0,
    SIGNED_3_0,
    SIGNED_AND_ENCRYPTED,
    Counted,
    vector,
)

LIBRARIES = frozenset(
    {"pyarrow", "httptools", "xml", "lxml", "cryptography", "zstandard", "zstd", "apsw", "sqlite3", "gssapi"}
)


def fuzz_arrow(data: bytes) -> None:
    """A stream, as a submission and as the answer of a hostile manager."""
    with suppress(InvalidMessage):
        assert len(read_messages(data, MOST).messages) <= MOST
    with suppress(RemoteProtocolError):
        _, *batches = read_batches([data[:40], data[40:]])
        for batch in batches:
            batch.validate(full=True)


def fuzz_columns(data: bytes) -> None:
    """Packets of strangers, decoded in batches. The first byte says where they are cut."""
    cut = data[0] if data else 0
    found = decode(pa.array([data[1:], data[1 : cut + 1], SIGNED_2_0, data], pa.binary()))
    for column in found.values():
        column.validate(full=True)


def fuzz_guard(data: bytes) -> None:
    """A packet with the signature, certificate and session key of a stranger."""
    guard = Guard(RING, REGISTERED, accepted_hashes=HASHES, accepted_ciphers=tuple(CIPHERS), accepted_versions=VERSIONS)
    with suppress(RemoteProtocolError):
        assert isinstance(guard.open(data, 0.0), Opened | Refused)


def fuzz_keys(data: bytes) -> None:
    """Certificates, and the public keys that a peer publishes."""
    public_key_of(data)
    with suppress(InvalidArgument):
        read_certificate(data)
    with suppress(RemoteProtocolError):
        peer_keys(data)
    assert isinstance(Sealer(Counted()).seal(SIGNED_2_0, data, "aes256", 0.0), bytes | Refused)


def fuzz_bodies(data: bytes) -> None:
    """Bodies of every kind, and extensions: the first byte says which. Then as the console shows them."""
    kind, body = (data[0] if data else 0), data[1:]
    body_type = BODY_TYPES[kind % len(BODY_TYPES)]
    found = decode_body(body, body_type, body if kind >= 0x80 else b"", limit=1 << 16)
    assert found.text is None or len(found.text) <= 1 << 16
    message_type(body, body_type, body if kind >= 0x80 else b"")
    for view in (READABLE, RAW, HEX):
        shown_body(body, body_type, found, view)


def fuzz_http(data: bytes) -> None:
    """What a connection makes of any bytes: the first byte says where they are cut. Cut or whole, the same requests
    begin, and each has one answer."""
    cut, stream = (data[0] + 1, data[1:]) if data else (1, b"")
    whole, answers = served([stream])
    assert served([stream[start : start + cut] for start in range(0, len(stream), cut)])[0] == whole
    assert answers <= len(whole) + 1
    leads_here(stream.decode("latin-1"))


def fuzz_backup(data: bytes) -> None:
    """A backup from somebody else. Nothing may reach SQLite before its reader has checked it."""
    with suppress(StorageError):
        BackupReader(io.BytesIO(data), "backup").check()


BODY_TYPES = (0, 768, 1, 2, 3, 4, 5, 6, 7, 8, 11, 14, 16, 17, 30, 31, 64, 68, 69, 72, 0x1011, 0x2011, 0x1008, 0x2003)
TARGETS: dict[str, Callable[[bytes], None]] = {
    "arrow": fuzz_arrow,
    "columns": fuzz_columns,
    "guard": fuzz_guard,
    "keys": fuzz_keys,
    "bodies": fuzz_bodies,
    "http": fuzz_http,
    "backup": fuzz_backup,
}
_PACKETS = (SIGNED_1_0, SIGNED_2_0, SIGNED_3_0, SIGNED_AND_ENCRYPTED)
SEEDS: dict[str, tuple[bytes, ...]] = {
    "arrow": (honest(), *(HOSTILE[name]() for name in ("an offset behind the bytes", "a dictionary", "a struct"))),
    "columns": tuple(b"\x90" + each for each in _PACKETS),
    "guard": _PACKETS,
    "keys": (CERTIFICATE, vector("V1_directory_keys", "mqdspublickeys")),
    "bodies": (
        b'\0{"a": [1, "x"]}',
        b"\0<a><b c='d'>x</b></a>",
        b"\0" + nrbf.HEADER + b"\x06\x01\0\0\0\x01x\x0b",
        b"\0\0\x01\0\x01\x04\x02\x01a\x03\x07\x56\x02\x0b\x01s\x04\x40\x01a\x99\x01x\x01",
        b"\xf0<ArrayOfHeaderInfo><HeaderInfo><Key>a</Key></HeaderInfo></ArrayOfHeaderInfo>\0",
        b"\xf0\0\x53\x74\xc1\x07\x02\xa1\x01a\xa1\x01b",
    ),
    "http": (
        b"\x09POST /msmq/private$/q HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbodyGET / HTTP/1.1\r\n\r\n",
        b"\x03POST http://h:1/msmq/q HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n4;x=y\r\nbody\r\n0\r\n\r\n",
    ),
    "backup": (b"postroad backup 1\n" + bytes(60),),
}

# The target that feeds each module with what strangers can send.
FED = {
    "columns.ipc": "arrow",
    "columns.sending": "arrow",
    "spark.manager_api": "arrow",
    "columns.texts": "columns",
    "columns.decoding": "columns",
    "columns.ranges": "columns",
    "bodies.xml_text": "bodies",
    "describe.packets": "keys",
    "rpc.ntlm_keys": "rpc_tokens",
    "security.algorithms": "guard",
    "security.encryption": "guard",
    "security.guard": "guard",
    "security.keys": "keys",
    "security.signatures": "guard",
    "net.http": "http",
    "soap.tree": "soap",
}
_OWN_TABLES = "tables and columns that Spark or we have made"
_OWN_FILES = "files in our own data directory, which only its owner can write"
NOT_FED = {
    "api.formats": "asks only whether the library is there",
    "manager.offsets": "asks only whether the library is there",
    "client.signer": "the user's own key and certificate",
    "directory.ldap_connection": "a certificate that OpenSSL has read in the handshake; tickets of the own login",
    # A target needs keys that a KDC has made: test_hostile_tokens_get_a_refusal has them.
    "rpc.gss": "the tests of RPC feed it damaged tickets, with the keys of a real KDC",
    "security.kerberos": "the tests of RPC and of the API feed it damaged tickets, with the keys of a real KDC",
    "columns.schema": "names of types",
    "manager.keys": "private keys that this manager has encrypted itself, with a key that strangers do not have",
    "server.protection": "files that the configuration names",
    "simulation.keys": "keys made from a seed",
    **dict.fromkeys(
        (
            *(
                "spark.bodies",
                "spark.decoded",
                "spark.packets",
                "spark.reading",
                "spark.remote",
                "spark.schema",
                "spark.streaming",
                "spark.writing",
            ),
            *(
                "spark.pipeline.bronze",
                "spark.pipeline.conversations",
                "spark.pipeline.facts",
                "spark.pipeline.frames",
                "spark.pipeline.gold",
                "spark.pipeline.lake",
                "spark.pipeline.lakes",
                "spark.pipeline.passes",
                "spark.pipeline.replay",
                "spark.pipeline.run",
                "spark.pipeline.service_levels",
                "spark.pipeline.silver",
                "spark.pipeline.summaries",
                "spark.pipeline.tables",
                "spark.pipeline.traffic",
                "spark.pipeline.trends",
            ),
        ),
        _OWN_TABLES,
    ),
    **dict.fromkeys(
        (
            *(
                "store.data_directory",
                "store.database",
                "store.inspection",
                "store.space",
                "store.sqlite",
            ),
        ),
        _OWN_FILES,
    ),
}
