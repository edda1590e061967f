r"""Overview, queues and messages in a real browser, with a real manager: what an operator does all day."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from postroad import Message
from tests.console.sites import IMAGE, MANY, SCRIPT, Site, wait_for

if TYPE_CHECKING:
    from playwright.sync_api import Page

ORDERS = r"private$\orders"


def at(site: Site, page: str, name: str = "") -> str:
    return f"{site.url}/0/{page}{f'?name={quote(name)}' if name else ''}"


@pytest.fixture
def scratch(site: Site) -> Iterator[str]:
    """A queue for one test, with three messages."""
    path = r"private$\scratch"
    with site.connect() as manager:
        manager.create_queue(path).send([Message(f"body {n}", label=f"scratch {n}") for n in range(3)])
        yield path
        if any(each.path == path for each in manager.queues()):
            manager.delete_queue(path)


def count(site: Site, path: str) -> int:
    with site.connect() as manager:
        return manager.queue(path).info().messages


def test_the_overview_names_what_needs_attention_first(site: Site, page: Page) -> None:
    page.goto(site.url)
    attention = page.locator(".attention")
    attention.get_by_text(re.compile(r"Stuck: \d messages wait for .*127\.0\.0\.99")).wait_for()
    attention.get_by_text("5 dead letters in ;deadletter").wait_for()
    attention.get_by_text(re.compile(r"private\$\\small is nearly full")).wait_for()
    assert page.locator(".attention li").first.get_attribute("class") == "bad"
    page.locator("figure svg.chart").first.wait_for()  # once the console has asked twice
    page.get_by_text(re.compile(r"^Since \d\d:\d\d UTC\. ")).wait_for()


def test_the_overview_is_live(site: Site, page: Page, scratch: str) -> None:
    page.goto(site.url)
    page.evaluate("document.body.dataset.loaded = 'once'")
    with site.connect() as manager:
        manager.queue(scratch).send([Message("more")] * 500)
    page.locator("tr", has_text="scratch").get_by_text("503").wait_for()
    assert page.evaluate("document.body.dataset.loaded") == "once"


def test_a_thousand_queues_are_filtered_sorted_and_paged(site: Site, page: Page) -> None:
    names = [f"private$\\bulk-{n:03}" for n in range(120)]
    with site.connect() as manager:
        for each in names:
            manager.create_queue(each, exist_ok=True)
        manager.queue(names[77]).send([Message("x")] * 9)
    wait_for(lambda: count(site, names[77]) == 9)
    page.goto(at(site, "queues"))
    page.keyboard.press("/")
    page.keyboard.type("bulk")
    page.keyboard.press("Enter")
    page.get_by_text(re.compile(r"^120 of \d+ queues")).wait_for()
    assert page.locator("tr[data-row]").count() == 50
    page.keyboard.press("Escape")
    page.locator("[data-next]").click()
    page.get_by_text("Page 2 of 3").wait_for()
    page.get_by_role("link", name="Messages", exact=True).click()
    page.locator("th[aria-sort=descending]").wait_for()
    assert "bulk-077" in page.locator("tr[data-row]").first.inner_text()
    page.goto(f"{site.url}/0/queues?filter=there-is-none")
    page.get_by_text("No queue matches").wait_for()
    with site.connect() as manager:
        for each in names:
            manager.delete_queue(each)


def test_a_queue_is_created_changed_and_deleted(site: Site, page: Page) -> None:
    page.goto(at(site, "queues"))
    page.get_by_role("link", name="New queue").click()
    page.get_by_label("Path").fill("made")
    page.get_by_label("Label").fill("Made by hand")
    page.get_by_role("button", name="Create").click()
    page.get_by_text(r"Created private$\made.").wait_for()
    page.locator("input[name=label]").fill("Changed by hand")
    page.locator("input[name=journal]").check()
    page.get_by_role("button", name="Save").click()
    page.get_by_text(r"Changed label, journal of private$\made.").wait_for()
    with site.connect() as manager:
        info = manager.queue(r"private$\made").info()
        assert (info.label, info.journal) == ("Changed by hand", True)
        manager.queue(r"private$\made").send([Message("x")] * 1234)
    # The same name again is refused in words.
    page.goto(at(site, "new"))
    page.get_by_label("Path").fill("made")
    page.get_by_role("button", name="Create").click()
    page.get_by_role("alert").get_by_text(re.compile("exists")).wait_for()
    page.goto(at(site, "queue", r"private$\made"))
    page.get_by_role("link", name="Delete…").click()
    page.get_by_role("button", name="Delete 1,234 messages").click()
    page.get_by_text(r"Deleted private$\made.").wait_for()
    with site.connect() as manager:
        assert r"private$\made" not in {each.path for each in manager.queues()}


def test_a_purge_names_the_number_of_messages(site: Site, page: Page, scratch: str) -> None:
    page.goto(at(site, "queue", scratch))
    page.get_by_role("link", name="Purge…").click()
    page.get_by_role("link", name="Cancel").click()
    assert count(site, scratch) == 3
    page.get_by_role("link", name="Purge…").click()
    page.get_by_role("button", name="Purge 3 messages").click()
    page.get_by_text("Purged 3 messages").wait_for()
    assert count(site, scratch) == 0


def test_access_is_granted_and_revoked(site: Site, page: Page, scratch: str) -> None:
    page.goto(at(site, "queue", scratch))
    page.get_by_text("Change the access list").click()
    page.locator("input[name=who]").fill("ann")
    page.locator("input[name=right][value=receive]").check()
    page.get_by_role("button", name="Grant").click()
    page.get_by_text("receive: granted to ann.").wait_for()
    page.locator("td", has_text=re.compile("^receive$")).wait_for()
    page.get_by_text("Change the access list").click()
    page.locator("input[name=who]").fill("nobody of this name")
    page.locator("input[name=right][value=peek]").check()
    page.get_by_role("button", name="Deny").click()
    page.locator(".notice.bad", has_text="who must be everyone").wait_for()


def test_an_outgoing_queue_is_paused_and_resumed(site: Site, page: Page) -> None:
    page.goto(at(site, "network"))
    page.get_by_role("link", name=re.compile(r"127\.0\.0\.99")).first.click()
    page.get_by_text(re.compile("Stuck: ")).first.wait_for()
    page.get_by_role("button", name="Pause").click()
    page.get_by_text("paused by an operator").first.wait_for()
    page.get_by_role("button", name="Resume").click()
    page.get_by_text("sends again").wait_for()


def test_messages_are_browsed_page_by_page(site: Site, page: Page) -> None:
    page.goto(at(site, "messages", ORDERS))
    page.get_by_text("as XML").wait_for()  # the highest priority comes first
    assert page.locator("tr[data-row]").count() == 50
    page.keyboard.press("]")
    page.get_by_text("· page 2").wait_for()
    page.keyboard.press("]")
    page.get_by_text("· page 3").wait_for()
    assert page.locator("tr[data-row]").count() == MANY + 3 - 100
    page.keyboard.press("[")
    page.get_by_text("· page 2").wait_for()
    page.keyboard.press("[")
    page.get_by_text("as XML").wait_for()
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="order 0").wait_for()
    page.get_by_role("link", name="Next").click()
    page.get_by_role("heading", name="order 1").wait_for()
    page.get_by_role("link", name="Previous").click()
    page.get_by_role("heading", name="order 0").wait_for()


def test_a_page_of_large_messages_has_few_of_them(site: Site, page: Page, scratch: str) -> None:
    """Also after many small ones, from which nobody can tell how large the next are."""
    with site.connect() as manager:
        queue = manager.queue(scratch)
        queue.purge()
        for number in range(7):
            queue.send(Message(b"x" * (4_000_000), label=f"large {number}"))
        assert [each.label for each in queue.messages()] == [f"large {number}" for number in range(7)]
    page.goto(at(site, "messages", scratch))
    assert page.locator("tr[data-row]").count() == 5  # with these it has more than MAX_PAGE_BYTES
    page.get_by_role("link", name="Next").click()
    page.get_by_text("large 6").wait_for()
    assert page.locator("tr[data-row]").count() == 2
    assert page.get_by_role("link", name="Next").count() == 0


def test_a_body_is_shown_as_readable_text_raw_and_in_hex(site: Site, page: Page) -> None:
    page.goto(at(site, "messages", ORDERS))
    page.get_by_role("link", name="order 0", exact=True).click()
    assert page.locator("pre.body").inner_text() == '{\n  "order": 0,\n  "total": 9.5\n}'
    page.get_by_role("tab", name="raw").click()
    page.get_by_text('{"order": 0, "total": 9.5}').wait_for()
    page.get_by_role("tab", name="hex").click()
    page.get_by_text("00000000  7b 22 6f 72 64 65 72").wait_for()
    page.get_by_role("tab", name="JSON").click()
    page.get_by_text('  "order": 0,').wait_for()
    page.goto(at(site, "messages", ORDERS))
    page.get_by_role("link", name="as XML").click()
    shown = page.locator("pre.body").inner_text().splitlines()
    assert shown == ["<order id='7'>", "  <item>tea &amp; milk</item>", "</order>"]
    assert page.locator("dl.fields", has_text="priority").count() == 1


def test_messages_are_copied_moved_and_deleted(site: Site, page: Page, scratch: str) -> None:
    page.goto(at(site, "messages", scratch))
    page.get_by_role("button", name="Move").click()
    page.get_by_text("Choose at least one message.").wait_for()
    page.locator("input[name=id]").first.check()
    page.get_by_label("The queue that the messages go to").fill(scratch)
    page.get_by_role("button", name="Copy").click()
    page.get_by_text("Copied 1 message").wait_for()
    assert count(site, scratch) == 4
    page.locator("[data-all]").check()
    assert page.locator("input[name=id]:checked").count() == 4
    page.get_by_label("The queue that the messages go to").fill(r"private$\there-is-none")
    page.get_by_role("button", name="Move").click()
    page.locator(".notice.bad").wait_for()
    assert count(site, scratch) == 4
    with site.connect() as manager:
        manager.create_queue(r"private$\target", exist_ok=True)
    page.locator("input[name=id]").nth(1).check()
    page.get_by_label("The queue that the messages go to").fill(r"private$\target")
    page.get_by_role("button", name="Move").click()
    page.get_by_text(r"Moved 1 message to private$\target.").wait_for()
    assert (count(site, scratch), count(site, r"private$\target")) == (3, 1)
    page.once("dialog", lambda dialog: dialog.dismiss())
    page.locator("[data-all]").check()
    page.get_by_role("button", name="Delete").click()
    assert count(site, scratch) == 3
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Delete").click()
    page.get_by_text("Deleted 3 messages.").wait_for()
    page.get_by_text("The queue is empty.").wait_for()
    with site.connect() as manager:
        manager.delete_queue(r"private$\target")


def test_a_message_is_edited_and_sent_again(site: Site, page: Page, scratch: str) -> None:
    page.goto(at(site, "messages", scratch))
    page.get_by_role("link", name="scratch 1").click()
    page.get_by_role("link", name="Edit and send again").click()
    page.get_by_label("Label").fill("edited")
    assert page.locator("textarea[name=body]").input_value() == "body 1"
    page.locator("textarea[name=body]").fill("line 1\nline 2")
    page.locator("select[name=delivery]").select_option("recoverable")
    page.locator("input[name=to]").fill(scratch)
    page.get_by_role("button", name="Send").click()
    page.get_by_text("Sent 1 message").wait_for()
    with site.connect() as manager:
        found = {each.label: each for each in manager.queue(scratch).messages()}
        assert (found["edited"].text, found["edited"].delivery) == ("line 1\nline 2", "recoverable")


def test_a_test_message_goes_to_a_transactional_queue(site: Site, page: Page) -> None:
    page.goto(at(site, "send", r"private$\payments"))
    page.get_by_label("Label").fill("a test")
    page.locator("textarea[name=body]").fill("hello")
    page.locator("input[name=count]").fill("3")
    page.get_by_role("button", name="Send").click()
    page.get_by_text("Sent 3 messages").wait_for()
    with site.connect() as manager:
        assert {each.delivery for each in manager.queue(r"private$\payments").messages()} == {"transactional"}
        manager.queue(r"private$\payments").purge()
    page.locator("input[name=to]").fill("no such name=\\")
    page.get_by_role("button", name="Send").click()
    page.get_by_role("alert").wait_for()


def test_messages_are_exported_and_imported(site: Site, page: Page, scratch: str, tmp_path: Path) -> None:
    page.goto(at(site, "messages", scratch))
    with page.expect_download() as download:
        page.get_by_role("link", name="Export all").click()
    file = tmp_path / "messages.msmq"
    download.value.save_as(file)
    page.locator("input[type=file]").set_input_files(file)
    page.get_by_text(f"Imported 3 messages into {scratch}.").wait_for()
    assert count(site, scratch) == 6
    page.locator("input[name=id]").first.check()
    with page.expect_download() as download:
        page.get_by_role("button", name="Export").click()
    assert Path(download.value.path()).read_bytes() == file.read_bytes()[: file.stat().st_size // 3]
    (tmp_path / "cut.msmq").write_bytes(file.read_bytes()[:-1])
    page.locator("input[type=file]").set_input_files(tmp_path / "cut.msmq")
    page.locator(".notice.bad", has_text="cut off").wait_for()
    assert count(site, scratch) == 6


def test_a_search_by_everything(site: Site, page: Page) -> None:
    page.goto(at(site, "search", ORDERS))
    page.get_by_label("Where").fill("priority >")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("alert").wait_for()
    page.get_by_label("Where").fill('priority == 3 and label in ["order 7", "order 8", "order 9"]')
    page.get_by_label("Label contains").fill("ORDER")
    page.get_by_label("Body, headers or message type contain").fill('"order": 8')
    page.get_by_role("button", name="Search").click()
    page.get_by_text("done").wait_for()
    assert page.locator("tr[data-row]").count() == 1
    page.get_by_role("link", name="order 8").click()
    page.get_by_role("heading", name="order 8").wait_for()
    identifier = page.locator("dt:text-is('id') + dd").inner_text()
    page.goto(at(site, "search", ORDERS))
    page.get_by_label("Id contains").fill(identifier)
    page.get_by_label("Class contains").fill("normal")
    page.get_by_role("button", name="Search").click()
    page.locator(".progress", has_text="1 found").wait_for()


def test_everything_that_a_search_found_is_moved(site: Site, page: Page, scratch: str) -> None:
    with site.connect() as manager:
        manager.create_queue(r"private$\found")
        manager.queue(scratch).send([Message("x", label=f"many {n}") for n in range(1500)])
    page.goto(at(site, "search", scratch))
    page.get_by_label("Label contains").fill("many")
    page.get_by_role("button", name="Search").click()
    page.get_by_text("The first 500 are shown.").wait_for()
    page.get_by_label("The queue that the messages go to").fill(r"private$\found")
    page.get_by_role("button", name="Move all 1,500").click()
    page.get_by_text("1,500 of 1,500 messages moved").wait_for()
    assert (count(site, scratch), count(site, r"private$\found")) == (3, 1500)
    with site.connect() as manager:
        manager.delete_queue(r"private$\found")


def test_a_long_search_shows_progress_and_is_cancelled(site: Site, page: Page) -> None:
    path = r"private$\long"
    with site.connect() as manager:
        queue = manager.create_queue(path)
        for _ in range(6):
            queue.send([Message("x" * 40)] * 5000)
    page.goto(at(site, "search", path))
    page.get_by_label("Where").fill('body == "not there"')
    page.get_by_role("button", name="Search").click()
    page.locator(".badge", has_text="running").wait_for()
    page.get_by_role("button", name="Cancel").click()
    page.locator(".badge", has_text="cancelled").wait_for()
    read = int(page.locator(".progress p").inner_text().split()[0].replace(",", ""))
    assert read < 30_000
    with site.connect() as manager:
        manager.delete_queue(path)


def test_markup_of_a_message_is_text(site: Site, page: Page) -> None:
    for path in ("messages", "search"):
        page.goto(at(site, path, ORDERS))
    page.get_by_label("Body, headers or message type contain").fill("onerror")
    page.get_by_role("button", name="Search").click()
    page.get_by_text("done").wait_for()
    assert SCRIPT in page.locator("tr[data-row]").inner_text()
    page.get_by_role("link", name=SCRIPT).click()
    assert page.locator("h1").inner_text() == f"{SCRIPT}{IMAGE}"
    for view in ("text", "raw", "hex"):
        page.get_by_role("tab", name=view).click()
        assert "script" in page.locator("pre.body").inner_text()
        assert page.locator("main img, main script").count() == 0
    page.get_by_role("link", name="Edit and send again").click()
    assert page.locator("input[name=label]").input_value() == f"{SCRIPT}{IMAGE}"
    page.goto(at(site, "queues"))
    assert IMAGE[:20] in page.locator("tr", has_text="archive").inner_text()
    assert page.locator("main img, main script").count() == 0
