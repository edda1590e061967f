"""How trace reports are read, [MS-MQQB] 3.1.5.8.9 and 3.1.7.1.7: their grammar, and texts that only look like one."""

from __future__ import annotations

from uuid import UUID

import pytest

from postroad.message import Composer, Message
from postroad.names import parse_format_name
from postroad.wire.constants import MessageClass
from postroad.wire.records import TraceReport
from postroad.wire.view import MessageView

SOURCE = UUID("8f3c6a52-0d1e-4b7a-9c55-2f1f0f6f7a10")
LABEL = f"8F3C:0000001A:02 received by {str(SOURCE).upper()} at 09:05:07 PM Tue,Nov 14 23"
RECEIVED = "<MESSAGE ID>0000001A</MESSAGE ID>\r\n<TARGET QUEUE>DIRECT=OS:beta\\private$\\q</TARGET QUEUE>\r\n"
SENT = RECEIVED + "<NEXT HOP>10.0.0.2</NEXT HOP>\r\n<HOP COUNT>02 </HOP COUNT>\r\n"


def read(label: str = LABEL, body: str = RECEIVED, message_class: int = MessageClass.REPORT) -> TraceReport | None:
    message = Message(body.encode("utf-16-le"), label=label, message_class=message_class)
    composer = Composer(UUID(int=1), parse_format_name(r"DIRECT=OS:alpha\private$\reports"))
    return TraceReport.of(MessageView(composer.compose(message, 1, 1_700_000_000)))


def test_a_report_on_a_message_that_came_in() -> None:
    assert read() == TraceReport("8f3c", 0x1A, 2, r"DIRECT=OS:beta\private$\q")


def test_a_report_on_a_message_that_was_sent_on_has_the_next_hop() -> None:
    assert read(body=SENT) == TraceReport("8f3c", 0x1A, 2, r"DIRECT=OS:beta\private$\q", "10.0.0.2")


def test_the_label_decides_and_the_body_may_say_anything() -> None:
    for body in ("", "<TARGET QUEUE>", "nonsense", "<MESSAGE ID>zz</MESSAGE ID>"):
        assert read(body=body) == TraceReport("8f3c", 0x1A, 2)
    assert read(label="8f3c:0000001a:02") is not None


@pytest.mark.parametrize("label", ["", "hello", "8F3C:0000001A", "8F3G:0000001A:02 received by", "x" + LABEL])
def test_another_label_is_no_report(label: str) -> None:
    assert read(label=label) is None


def test_another_class_is_no_report() -> None:
    assert read(message_class=MessageClass.NORMAL) is None


def test_it_is_about_one_message_of_one_source() -> None:
    report = read()
    assert report is not None
    assert report.is_about(SOURCE, 0x1A)
    assert not report.is_about(SOURCE, 0x1B)
    assert not report.is_about(UUID(int=7), 0x1A)
