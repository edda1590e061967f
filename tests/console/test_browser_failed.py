"""NServiceBus' error queue in a real browser: groups, a dry run, and messages that go back to where they failed."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from postroad import Message
from postroad.bodies import read_headers, write_headers
from tests.console.sites import IMAGE, PASSWORD, SCRIPT, TOKEN, Site, wait_for

if TYPE_CHECKING:
    from playwright.sync_api import Page

ERROR, BILLING, SHIPPING, SECRET = (
    r"private$\error",
    r"private$\Shop.Billing",
    r"private$\Shop.Shipping",
    r"private$\secret",
)
SAMPLES = Path(__file__).parents[1] / "data/bodies/samples.jsonl"


def written() -> Message:
    """A message of an error queue as .NET wrote it."""
    for line in SAMPLES.read_text().splitlines():
        sample = json.loads(line)
        if sample["name"] == "core/nservicebus/error-json":
            extension = b64decode(sample["extension_base64"])
            return Message(b64decode(sample["body_base64"]), extension=extension, app_tag=1, label="an order")
    raise AssertionError


def failed(queue: str, label: str = "an order", **changed: str) -> Message:
    """The same with other headers."""
    message = written()
    headers = dict(read_headers(bytes(message.extension)).names) | {"NServiceBus.FailedQ": queue}
    headers |= {f"NServiceBus.{name.replace('_', '.')}": value for name, value in changed.items()}
    return Message(message.body, extension=write_headers(headers), app_tag=1, label=label, recoverable=True)


@pytest.fixture
def queues(site: Site) -> Iterator[None]:
    with site.connect() as manager:
        for path in (ERROR, BILLING, SHIPPING):
            manager.create_queue(path)
        yield
        for path in (ERROR, BILLING, SHIPPING):
            manager.delete_queue(path)


def put(site: Site, *messages: Message) -> None:
    with site.connect() as manager:
        manager.queue(ERROR).send(list(messages))


def labels(site: Site, path: str) -> list[str]:
    with site.connect() as manager:
        return [each.label for each in manager.queue(path).messages()]


def open_groups(site: Site, page: Page, count: int) -> None:
    page.goto(f"{site.url}/0/failed")
    wait_for(lambda: page.locator("tr[data-row]").count() == count)


def test_groups_are_tried_and_sent_back_to_where_they_failed(site: Site, page: Page, queues: None) -> None:
    late = "System.TimeoutException"
    put(
        site,
        failed("Shop.Billing@alpha", "first", TimeOfFailure="2026-11-17 10:00:00:000000 Z"),
        failed("Shop.Shipping@alpha", "second", ExceptionInfo_ExceptionType=late, ExceptionInfo_Message="too late"),
        failed("Shop.Billing@alpha", "third", TimeOfFailure="2026-11-18 09:30:00:000000 Z"),
        Message("{}", label="not ours"),
    )
    page.goto(site.url)
    page.goto(f"{site.url}/0/queues")
    page.get_by_role("link", name="Failed messages").click()
    wait_for(lambda: page.locator("tr[data-row]").count() == 2)
    page.get_by_text("1 message does not say where it failed, and is in no group.").wait_for()
    billing = page.locator("tr[data-row]", has_text="Shop.Billing")
    shown = billing.inner_text()
    for each in (
        "2\t",
        "System.InvalidOperationException",
        "<cannot>",
        "Shop.Messages.PlaceOrder",
        "2026-11-18 09:30:00",
    ):
        assert each in shown
    page.get_by_role("button", name="Dry run of the chosen groups").click()
    page.get_by_text("Choose at least one group or message.").wait_for()
    wait_for(lambda: page.locator("tr[data-row]").count() == 2)
    billing.get_by_role("checkbox").check()
    page.get_by_role("button", name="Dry run of the chosen groups").click()
    page.locator(".badge.ok", has_text="done").wait_for()
    page.get_by_text(r"2 messages to DIRECT=OS:alpha\private$\Shop.Billing").wait_for()
    wait_for(lambda: page.locator("tr[data-row]", has_text=r"DIRECT=OS:alpha\private$\Shop.Billing").count() == 2)
    assert (len(labels(site, ERROR)), labels(site, BILLING)) == (4, [])
    page.get_by_role("button", name="Send 2 messages again").click()
    page.get_by_text("2 of 2 messages sent again").wait_for()
    assert (labels(site, ERROR), labels(site, BILLING)) == (["second", "not ours"], ["first", "third"])
    with site.connect() as manager:
        (found, _) = manager.queue(BILLING).messages()
    assert (found.body, found.app_tag) == (written().body, 1)
    left = set(read_headers(bytes(written().extension)).names) - set(found.headers)
    assert {"NServiceBus.FailedQ", "NServiceBus.ExceptionInfo.StackTrace", "NServiceBus.FLRetries"} <= left
    assert found.headers["NServiceBus.MessageId"] == "3f2504e0-4f89-41d3-9a0c-0305e82c3301"
    page.goto(f"{site.url}/0/security")
    row = page.locator("tr", has_text="resend").first.inner_text()
    assert all(each in row for each in (ERROR, "to NServiceBus.FailedQ", "2 messages", "done"))


def test_messages_of_a_group_are_opened_and_sent_one_by_one(site: Site, page: Page, queues: None) -> None:
    put(site, *(failed("Shop.Billing@alpha", f"order {number}") for number in range(53)))
    open_groups(site, page, 1)
    page.get_by_role("link", name="System.InvalidOperationException").click()
    page.get_by_role("heading", name="System.InvalidOperationException").wait_for()
    wait_for(lambda: page.locator("tr[data-row]").count() == 50)
    page.get_by_role("link", name="Next").click()
    wait_for(lambda: page.locator("tr[data-row]").count() == 3)
    page.get_by_role("link", name="order 51").click()
    page.get_by_role("heading", name="order 51").wait_for()
    assert "Shop.Billing@APP01" not in page.locator(".notice.bad").inner_text()
    page.go_back()
    page.locator("tr[data-row]", has_text="order 51").get_by_role("checkbox").check()
    page.get_by_role("button", name="Dry run of the chosen messages").click()
    page.get_by_role("button", name="Send 1 message again").click()
    page.get_by_text("1 of 1 messages sent again").or_(page.get_by_text("1 of 1 message sent again")).wait_for()
    assert labels(site, BILLING) == ["order 51"]
    page.get_by_role("link", name="Back to the failed messages").click()
    page.get_by_role("link", name="System.InvalidOperationException").click()
    page.get_by_role("button", name="Dry run of all 52").click()
    page.get_by_role("button", name="Send 52 messages again").click()
    page.get_by_text("52 of 52 messages sent again").wait_for()
    page.get_by_role("link", name="Back to the failed messages").click()
    page.get_by_text("There are no failed messages.").wait_for()


def test_a_dry_run_is_sent_once(site: Site, page: Page, queues: None) -> None:
    """What came or went meanwhile is not sent, and says so."""
    put(site, failed("Shop.Billing@alpha", "first"), failed("Shop.Billing@alpha", "second"))
    open_groups(site, page, 1)
    page.locator("[data-all]").check()
    page.get_by_role("button", name="Dry run of the chosen groups").click()
    page.get_by_role("button", name="Send 2 messages again").wait_for()
    put(site, failed("Shop.Billing@alpha", "third"))
    with site.connect() as manager:
        manager.queue(ERROR).receive()
    page.get_by_role("button", name="Send 2 messages again").click()
    page.get_by_text("1 of 2 messages sent again").wait_for()
    wait_for(lambda: page.locator(".notice.bad").count() == 1)
    assert (labels(site, ERROR), labels(site, BILLING)) == (["third"], ["second"])
    page.go_back()
    page.get_by_role("button", name="Send 2 messages again").click()
    page.get_by_text("0 of 2 messages sent again").wait_for()
    assert (labels(site, ERROR), labels(site, BILLING)) == (["third"], ["second"])


def test_markup_and_many_headers_are_text(site: Site, page: Page, queues: None) -> None:
    one = b"<HeaderInfo><Key>NServiceBus.FailedQ</Key><Value>Shop.Billing</Value></HeaderInfo>"
    many_headers = (
        b"<ArrayOfHeaderInfo>"
        + b"".join(one.replace(b"FailedQ", b"Number%d" % number) for number in range(10_000))
        + one
        + b"</ArrayOfHeaderInfo>"
    )
    put(
        site,
        failed("Shop.Billing@alpha", SCRIPT, ExceptionInfo_ExceptionType=SCRIPT, ExceptionInfo_Message=IMAGE),
        failed("Shop.Billing@alpha", EnclosedMessageTypes=IMAGE),
        failed(f"{IMAGE}@alpha"),
        Message("{}", extension=many_headers, label="too many"),
        Message(b"{" * (3 << 20), extension=write_headers({"NServiceBus.FailedQ": "Shop.Billing"}), label="large"),
    )
    page.goto(f"{site.url}/0/failed")
    wait_for(lambda: page.locator("tr[data-row]").count() == 3)
    page.get_by_text("2 messages do not say where they failed").wait_for()
    page.get_by_role("link", name="<script>").click()
    page.get_by_role("heading", name="<script>").wait_for()
    page.go_back()
    page.locator("[data-all]").check()
    page.get_by_role("button", name="Dry run of the chosen groups").click()
    page.get_by_role("button", name="Send 3 messages again").click()
    page.get_by_text("3 of 3 messages sent again").wait_for()
    assert sorted(labels(site, BILLING)) == sorted([SCRIPT, "an order", "large"])
    page.goto(f"{site.url}/0/messages?name={ERROR}")
    page.get_by_role("link", name="too many").click()
    page.get_by_text("Properties").wait_for()


def test_without_an_error_queue_another_one_is_named(site: Site, page: Page) -> None:
    page.goto(f"{site.url}/0/failed")
    page.get_by_text("as NServiceBus calls its error queue").wait_for()
    page.get_by_label("The error queue").fill(r"private$\orders")
    page.get_by_role("button", name="Show").click()
    page.get_by_text("There are no failed messages.").wait_for()


def log_in(site: Site, page: Page, user: str) -> None:
    page.goto(f"{site.url}/login")
    page.get_by_label("User").fill(user)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(re.compile("/$"))


@pytest.fixture
def shared(login_site: Site) -> Iterator[Site]:
    """ann may receive from the error queue, and write to one of the queues that its messages name."""
    with login_site.connect(TOKEN) as manager:
        for path in (ERROR, BILLING, SECRET):
            manager.create_queue(path)
        manager.queue(SECRET).deny("everyone", "write")
        manager.queue(ERROR).grant("ann", "peek", "receive")
        manager.queue(BILLING).grant("ann", "write")
        destinations = (
            "Shop.Billing",
            "secret",
            "admin_queue$",
            "order_queue$",
            "secret;journal",
            "Shop.Billing;poison",
        )
        manager.queue(ERROR).send([failed(f"{each}@guarded", each) for each in destinations])
        yield login_site
        for path in (ERROR, BILLING, SECRET):
            manager.delete_queue(path)


def test_a_user_sends_only_to_queues_that_are_open_to_the_user(shared: Site, page: Page) -> None:
    with shared.connect(TOKEN) as manager:
        before = {each.path: each.messages for each in manager.queues()}
        log_in(shared, page, "ann")
        page.goto(f"{shared.url}/0/failed")
        wait_for(lambda: page.locator("tr[data-row]").count() == 6)
        page.locator("[data-all]").check()
        page.get_by_role("button", name="Dry run of the chosen groups").click()
        page.get_by_role("button", name="Send 6 messages again").click()
        page.get_by_text("1 of 6 messages sent again").wait_for()
        wait_for(lambda: page.locator(".notice.bad").count() == 5)
        assert sorted(each.label for each in manager.queue(ERROR).messages()) == sorted(
            ["secret", "admin_queue$", "order_queue$", "secret;journal", "Shop.Billing;poison"]
        )
        (sent,) = manager.queue(BILLING).messages()
        assert sent.label == "Shop.Billing"
        after = {each.path: each.messages for each in manager.queues()}
        moved = {path for path in after if after[path] != before.get(path, 0)}
        assert moved == {ERROR, BILLING}


def test_who_may_only_look_sees_no_button_and_sends_nothing(shared: Site, page: Page) -> None:
    with shared.connect(TOKEN) as manager:
        manager.queue(ERROR).revoke("ann", "receive")
        manager.queue(ERROR).grant("ann", "peek")
        log_in(shared, page, "ann")
        page.goto(f"{shared.url}/0/failed")
        wait_for(lambda: page.locator("tr[data-row]").count() == 6)
        assert page.get_by_role("button", name=re.compile("Dry run|again")).count() == 0
        assert page.get_by_role("checkbox").count() == 0
        page.locator("tr[data-row] a").first.click()
        page.get_by_role("heading", name="System.InvalidOperationException").wait_for()
        assert page.get_by_role("button", name=re.compile("Dry run|again")).count() == 0
        assert manager.queue(ERROR).info().messages == 6


def test_a_monitor_has_no_link_to_failed_messages(shared: Site, page: Page) -> None:
    log_in(shared, page, "eye")
    page.goto(f"{shared.url}/0/queues")
    page.get_by_role("link", name="Network").wait_for()
    assert page.get_by_role("link", name="Failed messages").count() == 0
