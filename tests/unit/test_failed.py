"""Messages of NServiceBus' error queue: where a retry sends them, with which headers, and their groups."""

from __future__ import annotations

import json
from base64 import b64decode
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest

from postroad.bodies import read_headers, write_headers
from postroad.describe.failed import FailedGroup, FailedMessage, failed_groups, failed_message, retry
from postroad.describe.received import ReceivedMessage
from postroad.errors import InvalidArgument
from postroad.message import Composer, Message
from postroad.names import parse_format_name

SAMPLES = Path(__file__).parents[1] / "data" / "bodies" / "samples.jsonl"
SOURCE = UUID("8f3c6a52-0d1e-4b7a-9c55-2f1f0f6f7a10")


def received(message: Message) -> ReceivedMessage:
    composer = Composer(SOURCE, parse_format_name(r"DIRECT=OS:alpha\private$\error"))
    return ReceivedMessage(composer.compose(message, 1, 1_700_000_000), 1, 0)


def with_headers(**names: str) -> ReceivedMessage:
    return received(
        Message(b"{}", extension=write_headers({f"NServiceBus.{name}": each for name, each in names.items()}))
    )


@pytest.fixture(scope="module")
def written_by_dotnet() -> ReceivedMessage:
    for line in SAMPLES.read_text().splitlines():
        sample = json.loads(line)
        if sample["name"] == "core/nservicebus/error-json":
            body, extension = b64decode(sample["body_base64"]), b64decode(sample["extension_base64"])
            return received(Message(body, extension=extension, app_tag=1, priority=5, label="x"))
    raise AssertionError


def test_what_failed_where_and_why(written_by_dotnet: ReceivedMessage) -> None:
    assert failed_message(written_by_dotnet) == FailedMessage(
        destination=r"DIRECT=OS:APP01\private$\Shop.Billing",
        exception="System.InvalidOperationException",
        text='The order "4711" <cannot> be placed & kept',
        message_type="Shop.Messages.PlaceOrder",
        failed_at=datetime(2026, 11, 19, 15, 31, 0, 654321, UTC),
    )


def test_a_retry_has_everything_but_the_headers_of_the_failure(written_by_dotnet: ReceivedMessage) -> None:
    again = retry(written_by_dotnet)
    assert (again.body, again.app_tag, again.priority, again.label) == (written_by_dotnet.body, 1, 5, "x")
    before, after = written_by_dotnet.headers, read_headers(bytes(again.extension)).names
    assert set(before) - set(after) == {
        *(f"NServiceBus.{name}" for name in ("FailedQ", "TimeOfFailure", "Retries", "FLRetries")),
        *(
            f"NServiceBus.ExceptionInfo.{name}"
            for name in ("ExceptionType", "InnerExceptionType", "HelpLink", "Message", "Source", "StackTrace")
        ),
    }
    assert all(after[name] == before[name] for name in after)


def test_the_headers_of_delayed_retries_and_of_servicecontrol_leave() -> None:
    names = {
        "NServiceBus.DelayedRetries": "2",
        "NServiceBus.DelayedRetries.Timestamp": "x",
        "NServiceBus.Retries.Timestamp": "x",
        "NServiceBus.ExceptionInfo.Data.Order": "4711",
        "ServiceControl.Retry.UniqueMessageId": "7",
        "NServiceBus.FailedQ": "a@b",
        "NServiceBus.MessageId": "1",
        "own": "",
    }
    again = retry(received(Message(extension=write_headers(names))))
    assert read_headers(bytes(again.extension)).names == {"NServiceBus.MessageId": "1", "own": ""}


def test_an_intent_in_the_application_tag_stays_there() -> None:
    message = received(Message(extension=write_headers({"NServiceBus.FailedQ": "a@b"}), app_tag=2))
    assert message.headers["NServiceBus.MessageIntent"] == "Publish"
    assert read_headers(bytes(retry(message).extension)).names == {}
    assert retry(message).app_tag == 2


@pytest.mark.parametrize(
    ("address", "destination"),
    [
        ("orders@SRV1", r"DIRECT=OS:SRV1\private$\orders"),
        (" Shop.Sales @ srv1.corp.local ", r"DIRECT=OS:srv1.corp.local\private$\Shop.Sales"),
        ("orders@10.0.0.7", r"DIRECT=TCP:10.0.0.7\private$\orders"),
        ("orders", r".\private$\orders"),
        ("orders@.", r".\private$\orders"),
    ],
)
def test_addresses_of_nservicebus(address: str, destination: str) -> None:
    assert failed_message(with_headers(FailedQ=address)).destination == destination


@pytest.mark.parametrize("address", ["@SRV1", "a@b@c", "orders@a b", r"a\b@c", "orders@" + "x" * 300, "\x01@a"])
def test_an_address_that_is_no_queue(address: str) -> None:
    with pytest.raises(InvalidArgument, match=r"NServiceBus.FailedQ: must be queue@machine, got"):
        failed_message(with_headers(FailedQ=address))


@pytest.mark.parametrize("message", [Message(b"x"), Message(b"x", extension=b"\0\1"), Message(extension=b"{}")])
def test_a_message_that_did_not_fail(message: Message) -> None:
    with pytest.raises(InvalidArgument, match=r"has no header NServiceBus\.FailedQ"):
        failed_message(received(message))


@pytest.mark.parametrize(
    ("exception", "message_type", "matches"),
    [
        (None, None, True),
        ("System.TimeoutException", None, True),
        ("timeoutexception", "PlaceOrder", True),
        ("Exception", None, False),
        ("TimeoutException", "Order", False),
    ],
)
def test_names_with_and_without_their_namespace(exception: str | None, message_type: str | None, matches: bool) -> None:
    failed = FailedMessage("x", "System.TimeoutException", None, "Shop.PlaceOrder", None)
    assert failed.matches(exception, message_type) is matches


def test_groups_of_messages_that_failed_alike() -> None:
    early, late = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
    messages = [
        FailedMessage("q", "E", "last", "T", late),
        FailedMessage("Q", "E", "first", "T", early),
        FailedMessage("q", "E", "no time", "T", None),
        FailedMessage("other", "E", "x", "T", None),
    ]
    assert failed_groups(messages) == [
        FailedGroup("q", "E", "T", 3, early, late, "last"),
        FailedGroup("other", "E", "T", 1, None, None, "x"),
    ]
