"""SOAP on the wire, octet by octet: what a queue manager posts and answers, compared with [MC-MQSRM] section 4."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import postroad as client
from postroad.soap.simple_types import date_text
from tests.commands import ServerProcess, serving
from tests.soap_samples import SIMPLE, SIMPLE_BODY, changed, multipart

HOST = "127.0.51.11"
PEER = "127.0.51.12"
PATIENCE_S = 30
CONFIGURATION = f"""
[manager]
name = "alpha"
id = "caf195ea-615c-4264-ae08-11a4e60194c0"
data = "data"
[listen]
host = "{HOST}"
binary = false
ping = false
http = 0
rpc = false
api = 0
[[queue]]
path = 'private$\\simpleq'
"""


@pytest.fixture
def alpha(tmp_path: Path) -> Iterator[ServerProcess]:
    file = tmp_path / "alpha.toml"
    file.write_text(CONFIGURATION)
    with serving(file) as process:
        yield process


def taken_request(listener: socket.socket) -> bytes:
    """One whole request, answered with 200."""
    connection, _ = listener.accept()
    with connection:
        connection.settimeout(PATIENCE_S)
        data = b""
        while True:
            data += connection.recv(65536)
            head, blank, body = data.partition(b"\r\n\r\n")
            length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
            if blank and length and len(body) >= int(length[1]):
                break
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        return data


def read_head(head: bytes) -> tuple[str, dict[str, str]]:
    line, *lines = head.decode("ascii").split("\r\n")
    return line, {name.lower(): value for name, _, value in (each.partition(": ") for each in lines)}


@pytest.mark.spec("SRM-2.2.2-07", "SRM-4.1-01", "SRM-4.1-02", "SRM-4.1-03", "SRM-4.1-05", "SRM-4.1-06")
def test_a_request(alpha: ServerProcess) -> None:
    with socket.create_server((PEER, 0)) as listener, client.connect(alpha.api) as manager:
        listener.settimeout(PATIENCE_S)
        port = listener.getsockname()[1]
        manager.send(
            f"DIRECT=HTTP://{PEER}:{port}/MSMQ/private$/simpleQ",
            client.Message(b"First Message", label="mqsender label", time_to_reach_queue=86400),
        )
        request = taken_request(listener)
    head, _, entity = request.partition(b"\r\n\r\n")
    line, headers = read_head(head)
    assert line == "POST /msmq/private$/simpleq HTTP/1.1"
    assert headers["host"] == f"{PEER}:{port}"
    assert headers["soapaction"] == '"MSMQMessage"'
    assert headers["proxy-accept"] == "NonInteractiveClient"
    assert headers["content-length"] == str(len(entity))
    match = re.fullmatch(
        r'multipart/related; boundary="(MSMQ - SOAP boundary, \d+)"; type=text/xml', headers["content-type"]
    )
    assert match is not None
    boundary = match[1]
    sent = re.search(rb"<sentAt>(.*?)</sentAt>", entity)
    number = re.search(rb"<id>uuid:(\d+)@", entity)
    assert sent is not None
    assert number is not None
    sent_at = int(time.time())
    while date_text(sent_at) != sent[1].decode():
        sent_at -= 1
        assert sent_at > time.time() - 2 * PATIENCE_S
    envelope = (
        '<se:Envelope xmlns:se="http://schemas.xmlsoap.org/soap/envelope/" xmlns="http://schemas.xmlsoap.org/srmp/">'
        '<se:Header><path xmlns="http://schemas.xmlsoap.org/rp/" se:mustUnderstand="1">'
        f"<action>MSMQ:mqsender label</action><to>http://{PEER}:{port}/MSMQ/private$/simpleQ</to>"
        f"<id>uuid:{int(number[1])}@caf195ea-615c-4264-ae08-11a4e60194c0</id></path>"
        f'<properties se:mustUnderstand="1"><expiresAt>{date_text(sent_at + 86400)}</expiresAt>'
        f"<sentAt>{date_text(sent_at)}</sentAt></properties>"
        '<Msmq xmlns="msmq.namespace.xml"><Class>0</Class><Priority>3</Priority><BodyType>0</BodyType>'
        "<HashAlgorithm>32772</HashAlgorithm><SourceQmGuid>caf195ea-615c-4264-ae08-11a4e60194c0</SourceQmGuid>"
        f"<TTrq>{date_text(sent_at + 86400)}</TTrq></Msmq></se:Header><se:Body></se:Body></se:Envelope>"
    )
    assert entity.decode() == (
        f"--{boundary}\r\nContent-Type: text/xml; charset=UTF-8\r\nContent-Length: {len(envelope)}\r\n\r\n{envelope}"
        f"--{boundary}\r\nContent-Type: application/octet-stream\r\nContent-Length: 13\r\n"
        f"Content-Id: body@caf195ea-615c-4264-ae08-11a4e60194c0\r\n\r\nFirst Message--{boundary}--\r\n"
    )


def answer_to(alpha: ServerProcess, request: bytes) -> bytes:
    """From the peer's address, where its receipts may go."""
    host, _, port = alpha.ready["listen"]["http"].rpartition(":")
    with socket.create_connection((host, int(port)), PATIENCE_S, source_address=(PEER, 0)) as connection:
        connection.sendall(request)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
        return answer


def as_request(text: str) -> bytes:
    """Sample 4.1 with its headers in their order, and a request to close the connection."""
    content_type, entity = multipart(text.encode(), SIMPLE_BODY)
    return (
        "POST /msmq/private$/simpleq HTTP/1.1\r\n"
        f"Host: {HOST}\r\n"
        f"Content-Type: {content_type}\r\n"
        f"Content-Length: {len(entity)}\r\n"
        'SOAPAction: "MSMQMessage"\r\n'
        "Proxy-Accept: NonInteractiveClient\r\n"
        "Connection: close\r\n\r\n"
    ).encode() + entity


@pytest.mark.spec("SRM-4.3-03", "SRM-4.1-11", "SRM-3.1.5.1.2-02")
def test_the_answers(alpha: ServerProcess) -> None:
    text = changed(SIMPLE, "http://machine2/", f"http://{HOST}/")
    text = changed(changed(text, "20070608T164419", date_text(int(time.time()))), "20070609T164419", "20380119T031407")
    for wanted, request in ((b"200 OK", text), (b"400 Bad Request", text.replace("action>", "faction>"))):
        head, _, entity = answer_to(alpha, as_request(request)).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 " + wanted + b"\r\n")
        assert re.search(rb"(?i)\r\ncontent-length: 0(\r\n|$)", head)
        assert entity == b""
    assert 'reason="path/action: the element is missing"' in alpha.log
    with client.connect(alpha.api) as manager:
        message = manager.queue(r"private$\simpleq").receive(timeout=PATIENCE_S)
        assert (message.label, message.body) == ("mqsender label", b"First Message")
        assert manager.queue(r"private$\simpleq").info().messages == 0


@pytest.mark.spec("SRM-4.1-05", "SRM-4.1-06", "SRM-4.3-04", "SRM-4.4-02", "SRM-2.2.5.2.2-05")
def test_a_receipt(alpha: ServerProcess) -> None:
    with socket.create_server((PEER, 0)) as listener:
        listener.settimeout(PATIENCE_S)
        port = listener.getsockname()[1]
        url = f"http://{PEER}:{port}/MSMQ/private$/Receipts?Case=Kept"
        text = changed(SIMPLE, "http://machine2/", f"http://{HOST}/")
        text = changed(text, "20070608T164419", date_text(int(time.time())))
        text = changed(text, "20070609T164419", "20380119T031407")
        services = f"<deliveryReceiptRequest><sendTo>{url}</sendTo></deliveryReceiptRequest>"
        text = changed(text, "  </se:Header>", f'<services se:mustUnderstand="1">{services}</services></se:Header>')
        assert answer_to(alpha, as_request(text)).startswith(b"HTTP/1.1 200 OK\r\n")
        head, _, entity = taken_request(listener).partition(b"\r\n\r\n")
    line, headers = read_head(head)
    assert line == "POST /msmq/private$/receipts?case=kept HTTP/1.1"
    assert headers["content-type"] == "text/xml"
    assert headers["soapaction"] == '"MSMQMessage"'
    assert headers["proxy-accept"] == "NonInteractiveClient"
    assert headers["content-length"] == str(len(entity))
    assert entity.startswith(b"<se:Envelope ")
    assert entity.endswith(b"</se:Envelope>")
    assert f"<to>{url}</to>".encode() in entity
