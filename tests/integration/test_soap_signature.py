"""Signed SOAP messages through the real HTTP listener: stored or refused, counted and logged."""

from __future__ import annotations

import asyncio
import http.client
import logging
import time
import urllib.request
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from postroad.config import load_configuration
from postroad.server.server import Server
from postroad.soap.elements import Attachments, Signature
from postroad.soap.envelope import write_envelope
from postroad.soap.multipart import join_entity
from postroad.soap.signature import DSA, references_of
from postroad.wire.constants import SecurityFlags
from postroad.wire.view import MessageView
from tests.unit.soap.network import stranger_message

HOST = "127.0.52.11"
CONFIGURATION = f"""
[manager]
name = "alpha"
data = "data"
[listen]
host = "{HOST}"
binary = false
ping = false
http = 0
rpc = false
api = 0
[[queue]]
path = 'private$\\orders'
[[queue]]
path = 'private$\\strict'
authenticate = true
"""
MANAGER = UUID(int=1)
PARTS = Attachments(b"hello", b"extra")
SIGNATURE = Signature(DSA, references_of(PARTS, MANAGER), bytes(range(64)))


def post(address: str, queue: str, number: int, parts: Attachments, signature: Signature | None) -> tuple[int, bytes]:
    """Returns the status, and the rest of the answer."""
    envelope = stranger_message(f"http://{HOST}/msmq/private$/{queue}", number, label=f"{number}", now=time.time())
    kind, pieces = join_entity(write_envelope(replace(envelope, signature=signature)), parts, MANAGER, number)
    connection = http.client.HTTPConnection(address, timeout=30)
    try:
        connection.request("POST", f"/msmq/private$/{queue}", b"".join(pieces), {"Content-Type": kind})
        answer = connection.getresponse()
        headers = [line for line in answer.getheaders() if line[0].lower() != "date"]
        return answer.status, repr(headers).encode() + answer.read()
    finally:
        connection.close()


@pytest.mark.spec("SRM-3.1.5.1.6.1-01", "SRM-3.1.5.1.6.1-10")
@pytest.mark.parametrize("accepted", [("sha512", "sha256"), ("sha1",)])
def test_signed_messages_by_http(tmp_path: Path, caplog: pytest.LogCaptureFixture, accepted: tuple[str, ...]) -> None:
    (tmp_path / "alpha.toml").write_text(CONFIGURATION)
    caplog.set_level(logging.WARNING)

    async def main() -> None:
        server = Server(load_configuration(tmp_path / "alpha.toml"))
        await server.start()
        try:
            manager = server.manager
            assert manager is not None
            assert manager.doors.soap is not None
            receiver = manager.doors.soap.receiver
            receiver.settings = replace(receiver.settings, accept_hashes=frozenset(accepted))
            listen = server.ready["listen"]
            assert isinstance(listen, dict)
            tampered = replace(PARTS, body=b"hellp")
            wrong_extension = replace(PARTS, extension=b"extrb")
            answers = [
                await asyncio.to_thread(post, listen["http"], queue, number, parts, signature)
                for number, (queue, parts, signature) in enumerate(
                    (
                        ("orders", PARTS, SIGNATURE),
                        ("orders", PARTS, None),
                        ("orders", tampered, SIGNATURE),
                        ("orders", wrong_extension, SIGNATURE),
                        ("strict", PARTS, SIGNATURE),
                        ("strict", PARTS, None),
                    ),
                    1,
                )
            ]
            assert [status for status, _ in answers] == [200] * 6
            assert len(set(answers)) == 1  # the sender learns nothing from its answer
            stored = {
                name: [MessageView(each.packet) for each in manager.core.queues.get(name).available(10)]
                for name in (r"private$\orders", r"private$\strict")
            }
            assert [view.label for view in stored[r"private$\orders"]] == ["1", "2"]
            assert stored[r"private$\strict"] == []
            signed = stored[r"private$\orders"][0].security_header
            level = 0 if signed is None else signed.flags & SecurityFlags.SIGNATURE_TYPE
            assert level == (0x0900 if "sha1" in accepted else 0)
            with await asyncio.to_thread(urllib.request.urlopen, f"http://{listen['api']}/metrics") as page:
                text = page.read()
                for reason in (b"wrong-digest", b"not-authenticated"):
                    assert b'postroad_messages_refused_total{reason="' + reason + b'"} 2' in text
        finally:
            await server.stop()

    asyncio.run(main())
    refused = [each for each in caplog.records if each.getMessage() == "SOAP signature refused"]
    assert [each.__dict__["reason"] for each in refused] == [
        "the digest of cid:body is wrong",
        "the digest of cid:extension is wrong",
    ]
