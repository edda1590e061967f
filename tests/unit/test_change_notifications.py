"""The body of a Change Notification Message, [MS-MQCN] 2.2.4 and 2.2.5."""

from __future__ import annotations

from uuid import UUID

import pytest

from postroad.errors import RemoteProtocolError
from postroad.wire.change_notifications import ChangeEvent, ChangeNotification

QUEUE = UUID("0d5f6c1f-8b1d-4f0b-8a53-6f1b7c0e3a52")
TEXT = (
    "<Notification><Event>2</Event><ObjectGuid>0D5F6C1F-8B1D-4F0B-8A53-6F1B7C0E3A52</ObjectGuid>"
    "<DomainController>dc1.corp.local</DomainController></Notification>"
)


def test_the_bytes_are_version_two_one_update_the_text_and_an_unused_byte() -> None:
    notification = ChangeNotification(ChangeEvent.QUEUE_UPDATE, QUEUE, "dc1.corp.local")
    assert notification.encode() == b"\2\1" + TEXT.encode("utf-16-le") + b"\0"


@pytest.mark.parametrize("event", ChangeEvent)
def test_every_event_comes_back(event: ChangeEvent) -> None:
    notification = ChangeNotification(event, QUEUE, "dc1")
    assert ChangeNotification.decode(notification.encode()) == notification


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        TEXT.replace("</ObjectGuid>", "</ObjectGuid >"),
        TEXT.replace("0D5F", "{0D5F").replace("3A52<", "3A52}<"),
        TEXT + "\0",
        TEXT.replace("><", ">\n <"),
    ],
    ids=["printed", "space", "braces", "null", "lines"],
)
def test_spellings(text: str) -> None:
    found = ChangeNotification.decode(b"\2\1" + text.encode("utf-16-le"))
    assert (found.event, found.object_guid) == (ChangeEvent.QUEUE_UPDATE, QUEUE)


@pytest.mark.parametrize(
    "body",
    [b"", b"\2", b"\1\1", b"\2\2", b"\3\1" + TEXT.encode("utf-16-le"), b"\2\1" + TEXT.encode()]
    + [b"\2\1" + TEXT.replace("2</Event", f"{event}</Event").encode("utf-16-le") for event in (0, 5, 22, "")]
    + [b"\2\1" + TEXT.replace("dc1", "d" * 257).encode("utf-16-le"), b"\2\1" + b"\0\xd8" * 100, b"\2\1" + b"<" * 9000],
)
def test_other_bytes_are_refused(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        ChangeNotification.decode(body)


def test_a_server_whose_name_does_not_fit() -> None:
    notification = ChangeNotification(ChangeEvent.QUEUE_UPDATE, QUEUE, "<dc 1>")
    assert ChangeNotification.decode(notification.encode()).server == "."
