"""Messages of real programs in a real browser: opened, and sent again with nothing lost but what was edited."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import UUID

import pytest

from postroad import Message
from postroad.describe.received import ReceivedMessage
from tests.console.sites import Site, wait_for

if TYPE_CHECKING:
    from playwright.sync_api import Page

SOURCE, TARGET = r"private$\source", r"private$\target"
CORRELATION = "{8f3c1f6e-5d0f-4a7e-9a55-1d6a3f9b1a77}\\5"
# The public format: an XmlSerializer's ArrayOfHeaderInfo in the extension, JSON with a byte order mark as the body.
HEADERS = {
    "NServiceBus.MessageId": "0d4bb5bd-7fb8-4b2c-9d31-b20700a0ad4f",
    "NServiceBus.MessageIntent": "Send",
    "NServiceBus.EnclosedMessageTypes": "Shop.PlaceOrder, Shop, Version=1.0.0.0, Culture=neutral, PublicKeyToken=null",
    "NServiceBus.ContentType": "application/json",
    "NServiceBus.OriginatingEndpoint": "Shop",
    "NServiceBus.TimeSent": "2026-11-18 09:30:00:000000 Z",
}
EXTENSION = (
    '<?xml version="1.0"?>\n<ArrayOfHeaderInfo xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" '
    'xmlns:xsd="http://www.w3.org/2001/XMLSchema">\n'
    + "".join(
        f"  <HeaderInfo>\n    <Key>{key}</Key>\n    <Value>{value}</Value>\n  </HeaderInfo>\n"
        for key, value in HEADERS.items()
    )
    + "</ArrayOfHeaderInfo>"
).encode()
BINARY = bytes(range(256)) * 3
EVERYTHING = {
    "label": "all of it",
    "priority": 6,
    "recoverable": True,
    "app_tag": 4_000_000_000,
    "correlation_id": CORRELATION,
    "response_queue": r"DIRECT=TCP:127.0.0.1\private$\answers",
    "admin_queue": r"DIRECT=TCP:127.0.0.1\private$\acks",
    "ack": "full",
    "time_to_reach_queue": 86_400,
    "time_to_be_received": 172_800,
    "journal": True,
    "dead_letter": True,
    "connector_type": UUID("8f3c1f6e-5d0f-4a7e-9a55-1d6a3f9b1a78"),
    "extension": EXTENSION,
}


# [MC-NMF] version 1.0, a singleton, the address, binary encoding; then a binary envelope begins.
WCF = (
    b"\0\1\0\1\1\2\x1dnet.msmq://paris/private/dues\3\7\x0c" + b"\x56\2\x0b\1s\4\x0b\1a\6\x56\x08\x44\x0a\x1e\0\x82\xab"
)


@dataclass(frozen=True)
class Kind:
    body: bytes
    body_type: int = 0
    shows: str = ""  # on the page


KINDS = {
    "binary": Kind(BINARY, shows="00000010  10 11 12 13"),
    "a .NET BinaryFormatter": Kind(b"\0\1\0\0\0\xff\xff\xff\xff\1\0\0\0\0\0\0\0" + BINARY, 768, "ff ff ff ff"),
    "NServiceBus": Kind(b'\xef\xbb\xbf{"OrderId": "7", "Items": ["tea"]}', shows='"OrderId": "7"'),
    "lines of Windows": Kind(b"one\r\ntwo\r\n", shows="one"),
    "lines of both kinds": Kind(b"\n\none\r\ntwo\n three \n", shows="one"),
    "a string of VB6": Kind("Grüße\0".encode("utf-16-le"), 8, "Grüße"),
    "WCF": Kind(WCF, shows="00000000  00 01 00 01 01 02 1d"),
    "empty": Kind(b"", shows="The body is empty."),
    "long and binary": Kind(b"\0\xff\xfd\xfe" * 50_000, shows="00 ff fd fe"),
    "long text": Kind(b"<a>" + b"x" * (2 << 20) + b"</a>", shows="Only the beginning is shown."),
}
BODIES = Path(__file__).parents[1] / "data/bodies/samples.jsonl"
SAMPLES = Path(__file__).parents[3] / "shared/samples/wcf"  # beside the project, where somebody has put them
for sample in sorted(SAMPLES.glob("*.bin")):
    KINDS[f"WCF {sample.stem}"] = Kind(sample.read_bytes(), shows="00000000  ")


@pytest.fixture
def queues(site: Site) -> Iterator[None]:
    with site.connect() as manager:
        for path in (SOURCE, TARGET):
            manager.create_queue(path)
        yield
        for path in (SOURCE, TARGET):
            manager.delete_queue(path)


def put(site: Site, message: Message) -> ReceivedMessage:
    with site.connect() as manager:
        manager.queue(SOURCE).send(message)
        (found,) = manager.queue(SOURCE).messages()
        return found


def arrived(site: Site) -> ReceivedMessage:
    with site.connect() as manager:
        queue = manager.queue(TARGET)
        wait_for(lambda: queue.info().messages == 1)
        (found,) = queue.messages()
        return found


def open_message(site: Site, page: Page, message: ReceivedMessage) -> None:
    page.goto(f"{site.url}/0/message?name={quote(SOURCE)}&id={message.lookup_id}")


def properties(message: ReceivedMessage) -> dict[str, object]:
    view = message.view
    return {
        "body": message.body,
        "body_type": message.body_type,
        "label": message.label,
        "priority": message.priority,
        "delivery": message.delivery,
        "app_tag": message.app_tag,
        "correlation_id": message.correlation_id,
        "response_queue": message.response_queue,
        "admin_queue": message.admin_queue,
        "dead_letter_queue": message.dead_letter_queue,
        "ack": view.ack_flags,
        "time_to_reach_queue": view.time_to_reach_queue,
        "time_to_be_received": view.time_to_be_received,
        "journal": view.positive_journaling,
        "dead_letter": view.negative_journaling,
        "connector_type": message.connector_type,
        "extension": message.extension,
        "class": view.message_class,
        "trace": view.debug_header,
    }


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_a_message_of_every_kind_is_shown_and_sent_again_as_it_is(
    site: Site, page: Page, queues: None, kind: Kind
) -> None:
    old = put(site, Message(kind.body, body_type=kind.body_type, **EVERYTHING))  # type: ignore[arg-type]
    open_message(site, page, old)
    page.get_by_text(kind.shows).first.wait_for()
    assert page.get_by_text("cannot be decoded").count() == 0
    assert page.locator("dt", has_text="app tag").count() == 1
    page.locator("summary", has_text="Extension").click()
    assert "ArrayOfHeaderInfo" in page.get_by_label("Extension").inner_text()
    types = page.get_by_role("row", name="NServiceBus.EnclosedMessageTypes")
    assert types.locator("td").inner_text() == HEADERS["NServiceBus.EnclosedMessageTypes"]
    assert page.locator("dt:text-is('type') + dd").inner_text() == "Shop.PlaceOrder"
    with page.expect_download() as download:
        page.get_by_role("link", name="download").click()
    assert Path(download.value.path()).read_bytes() == kind.body
    page.get_by_role("link", name="Edit and send again").click()
    page.get_by_label("To: any queue name").fill(TARGET)
    page.get_by_role("button", name="Send").click()
    page.get_by_text("Changed: to.").wait_for()
    assert properties(arrived(site)) == properties(old)


def test_what_is_edited_is_changed_and_nothing_else(site: Site, page: Page, queues: None) -> None:
    old = put(site, Message("Grüße\r\nan alle".encode("utf-16"), **EVERYTHING))  # type: ignore[arg-type]
    open_message(site, page, old)
    page.get_by_role("link", name="Edit and send again").click()
    page.get_by_label("To: any queue name").fill(TARGET)
    page.get_by_label("Label").fill("edited")
    page.locator("textarea[name=body]").fill("Grüße\nan keinen")
    page.get_by_label("Priority").select_option("2")
    page.get_by_label("Correlation id").fill("")
    page.locator("input[name=ack][value=receive]").uncheck()
    page.locator("input[name=journal]").uncheck()
    page.get_by_label("Extension, as").fill("00 ff")
    page.get_by_role("button", name="Send").click()
    page.get_by_text("Sent 1 message again").wait_for()
    expected = properties(old) | {
        "label": "edited",
        "body": "Grüße\r\nan keinen".encode("utf-16"),
        "priority": 2,
        "correlation_id": None,
        "ack": old.view.ack_flags & ~0x02,
        "journal": False,
        "extension": b"\x00\xff",
    }
    assert properties(arrived(site)) == expected
    page.goto(f"{site.url}/0/security")
    row = page.locator("tr", has_text="resend changed").first.inner_text()
    assert SOURCE in row
    assert "done" in row


@dataclass(frozen=True)
class Sample:
    """Of the samples that .NET has written: how the page shows it, and whether it can be edited."""

    name: str
    kind: str
    system: str | None
    type: str | None
    shows: str
    not_edited: str = ""


WRITTEN = [
    Sample("core/nservicebus/error-json", "JSON", "NServiceBus", "Shop.Messages.PlaceOrder", "Ada Lovelace"),
    Sample("core/rebus/order", "JSON", "Rebus", "Shop.Order", '"Total": 129.90'),
    Sample("core/masstransit/envelope", "JSON", "MassTransit", "Shop.Order", '"conversationId"'),
    Sample(
        "mono/binaryformatter/object-tree", "BinaryFormatter", "System.Messaging", "Shop.Node", '"right"', "no text"
    ),
    Sample("core/netmsmq/addressing", "WCF", None, "http://tempuri.org/IOrders/Ask", "<s:Header>", "no text"),
    Sample("core/activex/bstr/unicode", "text", None, None, "Grüße, 世界"),
    Sample("core/activex/int/2147483647", "ActiveX", None, None, "2147483647", "value of ActiveX and no text"),
    Sample("core/rebus/gzip", "bytes", "Rebus", "Shop.Order", "00000000  1f 8b", "is bytes"),
]


def written(name: str) -> dict[str, Any]:
    with BODIES.open() as lines:
        return next(found for line in lines if (found := json.loads(line))["name"] == name)


def message_of(name: str) -> Message:
    found = written(name)
    return Message(
        b64decode(found["body_base64"]),
        body_type=found["body_type"],
        app_tag=found["app_tag"],
        extension=b64decode(found["extension_base64"] or ""),
        recoverable=True,
        label="a sample",
    )


@pytest.mark.parametrize("sample", WRITTEN, ids=[each.name for each in WRITTEN])
def test_what_dotnet_wrote_is_readable_and_sent_again_byte_for_byte(
    site: Site, page: Page, queues: None, sample: Sample
) -> None:
    old = put(site, message_of(sample.name))
    page.goto(f"{site.url}/0/messages?name={quote(SOURCE)}")
    assert page.locator("tr[data-row] td.type").first.inner_text() == (sample.type or "")
    open_message(site, page, old)
    names, values = page.locator("dl.facts dt"), page.locator("dl.facts dd")
    facts = dict(zip(names.all_inner_texts(), values.all_inner_texts(), strict=True))
    expected = {"type": sample.type, "kind": sample.kind, "system": sample.system}
    assert facts == {name: value for name, value in expected.items() if value}
    assert sample.shows in page.locator("pre.body").first.inner_text()
    headers = (
        {"tenant": "north", "attempt": "2"} if sample.system == "MassTransit" else written(sample.name)["headers"] or {}
    )
    rows = page.get_by_role("table", name="Headers").locator("tbody tr")
    assert {row.locator("th").inner_text(): row.locator("td").inner_text() for row in rows.all()} == headers
    page.get_by_role("tab", name="hex").click()
    page.get_by_text("00000000  ").wait_for()
    page.get_by_role("link", name="Edit and send again").click()
    page.get_by_role("heading", name="Edit and send again").wait_for()
    page.get_by_role("button", name="Send").wait_for()  # the end of the form
    assert page.locator("textarea[name=body]").count() == (0 if sample.not_edited else 1)
    if sample.not_edited:
        page.get_by_text(f"{sample.not_edited}. It stays as it is, byte for byte.").wait_for()
    page.get_by_label("To: any queue name").fill(TARGET)
    page.get_by_label("Label").fill("sent again")
    page.get_by_role("button", name="Send").click()
    page.get_by_text("Changed: label, to.").or_(page.get_by_text("Changed: to, label.")).wait_for()
    assert properties(arrived(site)) == properties(old) | {"label": "sent again"}


def test_a_failure_is_named(site: Site, page: Page, queues: None) -> None:
    open_message(site, page, put(site, message_of("core/nservicebus/error-json")))
    notice = page.locator(".notice.bad").inner_text()
    assert notice.startswith("System.InvalidOperationException: The order ")
    assert "Shop.Billing@APP01" in notice
    with site.connect() as manager:
        manager.queue(SOURCE).purge()
    open_message(site, page, put(site, message_of("core/rebus/error")))
    assert page.locator(".notice.bad").inner_text().startswith('System.InvalidOperationException: no "stock"')


@pytest.mark.parametrize("wanted", ["shop.messages.placeorder", "Ada Love", "shop.billing@app01"])
def test_a_search_finds_headers_and_decoded_text(site: Site, page: Page, queues: None, wanted: str) -> None:
    put(site, message_of("core/nservicebus/error-json"))
    page.goto(f"{site.url}/0/search?name={quote(SOURCE)}")
    page.get_by_label("Body, headers or message type contain").fill(wanted)
    page.get_by_role("button", name="Search").click()
    page.locator(".progress", has_text="1 found").wait_for()


@pytest.mark.parametrize(
    ("body", "body_type", "edited"),
    [
        pytest.param('{"Größe": 1}'.encode("utf-8-sig"), 0, '{"Größe": 2}'.encode("utf-8-sig"), id="JSON with a mark"),
        pytest.param("<a>ü1</a>".encode("utf-16-le"), 0, "<a>ü2</a>".encode("utf-16-le"), id="UTF-16 without a mark"),
        pytest.param("<a>1</a>".encode("utf-32"), 0, "<a>2</a>".encode("utf-32"), id="UTF-32"),
        pytest.param(
            b'<?xml version="1.0" encoding="windows-1252"?><a>1</a>\0\0',
            0,
            b'<?xml version="1.0" encoding="windows-1252"?><a>\xfc</a>\0\0',
            id="XML in the encoding that it declares",
        ),
        pytest.param("<a>1</a>\0".encode("utf-16-le"), 8, "<a>2</a>\0".encode("utf-16-le"), id="XML of VB6"),
    ],
)
def test_a_text_is_edited_in_its_own_encoding(
    site: Site, page: Page, queues: None, body: bytes, body_type: int, edited: bytes
) -> None:
    old = put(site, Message(body, body_type=body_type, extension=EXTENSION + b"\0garbage"))
    open_message(site, page, old)
    page.get_by_role("link", name="Edit and send again").click()
    page.get_by_label("To: any queue name").fill(TARGET)
    field = page.locator("textarea[name=body]")
    written = field.input_value()
    changed = written.replace(">1<", ">ü<") if "windows" in written else written.replace("1", "2")
    field.fill(changed)
    page.get_by_role("button", name="Send").click()
    page.get_by_text("Sent 1 message again").wait_for()
    assert properties(arrived(site)) == properties(old) | {"body": edited}


def test_a_character_that_the_encoding_does_not_have_is_refused(site: Site, page: Page, queues: None) -> None:
    old = put(site, Message(b'<?xml version="1.0" encoding="iso-8859-1"?><a>1</a>'))
    open_message(site, page, old)
    page.get_by_role("link", name="Edit and send again").click()
    page.get_by_label("To: any queue name").fill(TARGET)
    field = page.locator("textarea[name=body]")
    field.fill(field.input_value().replace(">1<", ">世<"))
    page.get_by_role("button", name="Send").click()
    assert "iso-8859-1, which has no '世'" in page.get_by_role("alert").inner_text()
    assert "世" in field.input_value()


def test_a_message_that_is_gone_is_not_sent_again_without_what_the_form_does_not_show(
    site: Site, page: Page, queues: None
) -> None:
    old = put(site, Message(BINARY, **EVERYTHING))  # type: ignore[arg-type]
    open_message(site, page, old)
    page.get_by_role("link", name="Edit and send again").click()
    page.get_by_label("To: any queue name").fill(TARGET)
    with site.connect() as manager:
        manager.queue(SOURCE).receive()
    page.get_by_role("button", name="Send").click()
    page.get_by_role("alert").wait_for()
    with site.connect() as manager:
        assert manager.queue(TARGET).info().messages == 0
