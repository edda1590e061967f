"""Dead letters, network, security, login, keyboard and narrow screens in a real browser."""

from __future__ import annotations

import re
import signal
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from postroad import Message
from tests.console.sites import IMAGE, PASSWORD, TOKEN, Site, console_of, guarded, wait_for

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PAGES = ("queues", "new", "send", "dead", "network", "trace", "security")
QUEUE_PAGES = ("queue", "messages", "search", "delete")


def log_in(page: Page, site: Site, user: str) -> None:
    page.goto(f"{site.url}/login")
    page.get_by_label("User").fill(user)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()


def test_dead_letters_are_grouped_tried_and_sent_again(site: Site, page: Page) -> None:
    with site.connect() as manager:
        manager.create_queue(r"private$\again", exist_ok=True)
        keep = [each.lookup_id for each in manager.queue(";deadletter").messages()]
    page.goto(f"{site.url}/0/dead")
    group = page.locator(".group", has_text="127.0.0.98")
    assert "it did not reach its queue in time" in group.inner_text()
    assert IMAGE[:10] in group.inner_text()
    group.get_by_label("To another queue").fill(r"private$\again")
    group.get_by_label("Seconds to be received").fill("59")
    group.get_by_role("button", name="Dry run").click()
    page.locator(".badge.ok", has_text="done").wait_for()
    page.get_by_text("5 messages would expire soon, the first after 59 s.").wait_for()
    assert page.locator("tr[data-row]").count() == len(keep) == 5
    with site.connect() as manager:
        assert [each.lookup_id for each in manager.queue(";deadletter").messages()] == keep
        assert manager.queue(r"private$\again").info().messages == 0
    assert page.get_by_label("Seconds to be received").input_value() == "59"
    page.get_by_label("Seconds to be received").fill("600")
    page.get_by_role("button", name=re.compile("Send 5 messages again")).click()
    page.get_by_text("5 of 5 messages sent again").wait_for()
    assert page.locator(".notice").count() == 0
    with site.connect() as manager:
        assert manager.queue(";deadletter").info().messages == 0
        again = list(manager.queue(r"private$\again").messages())
        assert {each.label for each in again} == {f"lost {IMAGE}"}
        assert {(each.view.time_to_be_received, each.view.time_to_reach_queue) for each in again} == {(600, 600)}
    page.get_by_role("link", name="Back to the dead letters").click()
    page.get_by_text("There are no dead letters.").wait_for()


def test_dead_letters_are_grouped_by_type_and_exception(site: Site, page: Page) -> None:
    """A group is sent again without the others."""

    def lost(kind: str, exception: str) -> Message:
        headers = {"NServiceBus.EnclosedMessageTypes": f"{kind}, Shop"}
        if exception:
            headers["NServiceBus.ExceptionInfo.ExceptionType"] = exception
        written = "".join(f"<HeaderInfo><Key>{k}</Key><Value>{v}</Value></HeaderInfo>" for k, v in headers.items())
        extension = f"<ArrayOfHeaderInfo>{written}</ArrayOfHeaderInfo>".encode()
        return Message("{}", extension=extension, recoverable=True, dead_letter=True, time_to_reach_queue=1)

    late, broken = "System.TimeoutException", "System.FormatException"
    with site.connect() as manager:
        manager.create_queue(r"private$\again", exist_ok=True).purge()
        manager.queue(";deadletter").purge()
        dead = [lost("Shop.Place", late)] * 2 + [
            lost("Shop.Place", broken),
            lost("Shop.Pay", ""),
            lost("Shop.Pay", late),
        ]
        manager.send(r"DIRECT=TCP:127.0.0.98\private$\gone", dead)
        wait_for(lambda: manager.queue(";deadletter").info().messages == 5)
    page.goto(f"{site.url}/0/dead")
    wait_for(lambda: page.locator(".group").count() == 4)
    group = page.locator(".group", has_text="Shop.Place").filter(has_text=late)
    assert group.locator(".badge").inner_text() == "2"
    group.get_by_label("To another queue").fill(r"private$\again")
    group.get_by_label("Seconds to be received").fill("600")
    group.get_by_role("button", name="Dry run").click()
    page.get_by_role("button", name=re.compile("Send 2 messages again")).click()
    page.get_by_text("2 of 2 messages sent again").wait_for()
    with site.connect() as manager:
        assert {each.message_type for each in manager.queue(r"private$\again").messages()} == {"Shop.Place"}
        assert manager.queue(";deadletter").info().messages == 3
        manager.queue(";deadletter").purge()


def test_the_map_shows_the_way_and_what_if(site: Site, page: Page) -> None:
    page.goto(f"{site.url}/0/network")
    assert page.locator("svg.map .site").count() == 3
    page.locator("input[name=to]").fill("rom-gate")
    page.get_by_role("button", name="Show the way").click()
    page.get_by_text("alpha → par-gate → rom-gate").wait_for()
    assert page.locator("svg.map .link.used").count() == 2
    page.locator("input[name=close][value=london-paris]").check()
    page.get_by_role("button", name="Show the way").click()
    page.get_by_text("alpha → rom-gate").wait_for()
    page.get_by_text("9 (now 5, alpha → par-gate → rom-gate)").wait_for()
    assert page.locator("svg.map .link.closed").count() == 1
    page.locator("input[name=close][value=london-rome]").check()
    page.get_by_role("button", name="Show the way").click()
    page.get_by_role("alert").wait_for()


def test_a_trace_is_a_picture_of_hops(site: Site, page: Page) -> None:
    with site.connect() as manager:
        identifier = manager.send(r"DIRECT=TCP:127.0.0.99\private$\far", Message("x", label="traced", recoverable=True))
    page.goto(f"{site.url}/0/network")
    page.get_by_label("The id of a message").fill(identifier)
    page.get_by_role("button", name="Trace").click()
    page.locator("svg.hops .hop.warn").first.wait_for()
    assert "waiting" in (page.locator("svg.hops").text_content() or "")
    page.locator("tr", has_text="alpha").get_by_text("… waiting").wait_for()
    assert page.locator("svg.hops .hop.ok").count() == 0  # nothing has arrived
    page.goto(f"{site.url}/0/trace?id=nonsense")
    page.get_by_role("alert").wait_for()
    page.goto(f"{site.url}/0/trace?id=%7B00000000-0000-0000-0000-000000000001%7D%5C1")
    page.get_by_text("Nothing was found").wait_for()


def test_users_exposure_and_changes_are_shown(site: Site, page: Page) -> None:
    with site.connect() as manager:
        manager.create_queue(r"private$\audited")
        manager.delete_queue(r"private$\audited")
    page.goto(f"{site.url}/0/security")
    page.get_by_text("everybody on this computer may do everything").first.wait_for()
    assert page.locator("tr", has_text="root").get_by_text("administrator").count() == 1
    assert page.locator("tr", has_text="audited").count() >= 1


def test_login_with_token_and_user(login_site: Site, page: Page) -> None:
    page.goto(f"{login_site.url}/0/queues")
    page.wait_for_url("**/login?**")
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("alert").get_by_text("The login was refused: the token is wrong").wait_for()
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/0/queues")
    page.get_by_role("link", name=r"private$\orders", exact=True).wait_for()
    page.goto(f"{login_site.url}/0/security")
    assert page.locator("tr", has_text="login refused").count() >= 1
    page.get_by_role("button", name=re.compile("Log out")).click()
    page.get_by_text("You have logged out.").wait_for()
    page.goto(f"{login_site.url}/0/queues")
    page.wait_for_url("**/login?**")
    assert TOKEN not in page.content()


def test_a_user_may_do_here_what_the_manager_allows(login_site: Site, page: Page) -> None:
    log_in(page, login_site, "ann")
    page.goto(f"{login_site.url}/0/security")
    page.get_by_role("heading", name="You have no right to do this").wait_for()
    page.get_by_text("Only monitors and administrators may make this call.").wait_for()
    page.goto(f"{login_site.url}/0/purge?name=private%24%5Corders")
    page.get_by_role("button", name="Purge 0 messages").click()
    page.locator(".notice.bad", has_text="no right to").wait_for()


def test_a_change_is_in_the_audit_log_under_the_users_name(login_site: Site, page: Page) -> None:
    log_in(page, login_site, "root")
    page.goto(f"{login_site.url}/0/new")
    page.get_by_label("Path").fill("by-root")
    page.get_by_role("button", name="Create").click()
    page.get_by_text(r"Created private$\by-root.").wait_for()
    page.get_by_role("link", name="Delete…").click()
    page.get_by_role("button", name="Delete 0 messages").click()
    page.goto(f"{login_site.url}/0/security")
    row = page.locator("tr", has_text="by-root").first
    assert "root" in row.inner_text()


def test_a_program_at_another_port_learns_no_cookie_and_ends_no_login(login_site: Site, page: Page) -> None:
    """Browsers send a cookie to every port of its host, and take one from every port."""
    heard: list[str] = []

    class Stranger(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            heard.append(self.headers.get("Cookie", ""))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.send_header("Set-Cookie", f"{cookie['name']}={'0' * 43}; Path=/")
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    log_in(page, login_site, "root")
    page.get_by_role("button", name=re.compile("Log out")).wait_for()
    (cookie,) = (each for each in page.context.cookies() if "console" in each["name"])
    with ThreadingHTTPServer(("127.0.0.1", 0), Stranger) as server:
        threading.Thread(target=server.serve_forever).start()
        for path in ("/", "/0/queues"):
            page.goto(f"http://127.0.0.1:{server.server_port}{path}", wait_until="networkidle")
        server.shutdown()
    assert heard
    assert cookie["value"] not in " ".join(heard)
    assert sum(each["name"] == cookie["name"] for each in page.context.cookies()) == 2
    page.goto(f"{login_site.url}/0/security")  # the address without the path that the cookie is bound to
    page.get_by_role("heading", name="Security").wait_for()
    page.goto(login_site.url)
    page.get_by_role("button", name=re.compile("Log out")).click()
    page.get_by_text("You have logged out.").wait_for()
    page.goto(f"{login_site.url}/0/security")
    page.get_by_role("button", name="Log in").wait_for()


def test_several_managers_and_one_that_is_down(site: Site, browser: Browser, tmp_path: Path) -> None:
    with guarded(tmp_path) as other, console_of(site.api, other.api) as url:
        context = browser.new_context()
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.goto(url)
        page.locator("section[aria-label=alpha] .tile", has_text="messages").wait_for()
        page.get_by_text("The manager wants a login.").wait_for()
        other.server.end(signal.SIGKILL)
        page.goto(url)
        page.locator(".attention").get_by_text("The manager does not answer").wait_for()
        page.goto(f"{url}/1/queues")
        page.get_by_role("heading", name=re.compile("does not answer")).wait_for()
        page.get_by_text(re.compile("Connection refused")).wait_for()
        context.close()


def test_the_keyboard_reaches_every_page(site: Site, page: Page) -> None:
    page.goto(site.url)
    page.keyboard.press("?")
    page.get_by_role("heading", name="Keyboard shortcuts").wait_for()
    page.keyboard.press("Escape")
    for key, title in (
        ("q", "Queues"),
        ("d", "Dead letters"),
        ("f", "Failed messages"),
        ("n", "Network"),
        ("s", "Security"),
        ("m", "Send a message"),
    ):
        page.keyboard.press("g")
        page.keyboard.press(key)
        page.get_by_role("heading", name=title, exact=True).wait_for()
        page.wait_for_load_state()  # the script that reads the keys


def test_dark_mode_is_remembered(site: Site, page: Page) -> None:
    page.goto(f"{site.url}/0/queues")
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(paper)
    page.keyboard.press("t")
    assert page.evaluate(paper) != light
    page.reload()
    assert page.evaluate(paper) != light


@pytest.mark.parametrize("width", [1280, 390])
def test_no_page_is_wider_than_the_screen(site: Site, page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    name = "name=private%24%5Corders"
    urls = ["/", "/login", *(f"/0/{each}" for each in PAGES), *(f"/0/{each}?{name}" for each in QUEUE_PAGES)]
    urls.append(f"/0/message?{name}&id=0&place=first")
    for each in urls:
        page.goto(f"{site.url}{each}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, each
