"""Every route of the console, as nobody, with a form of somebody else, and as a monitor: nothing is shown and nothing
is changed beyond the right. A route that is not in the tables fails the first test."""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest

from postroad import Message
from postroad.console.app import Console, Settings
from tests.commands import serving
from tests.console.sites import GUARDED, PASSWORD, PATIENCE_S, TOKEN, Site, guarded, wait_for

ORDERS, OTHER = r"private$\orders", r"private$\payments"
BODY, LABEL = "the body of a secret", "the label of a secret"
FORM = "application/x-www-form-urlencoded"

# What each route is called with; ID is the lookup id of a message.
PAGES: dict[str, dict[str, str]] = {
    "/": {},
    "/login": {},
    "/{m:int}/queues": {},
    "/{m:int}/new": {},
    "/{m:int}/queue": {"name": ORDERS},
    "/{m:int}/purge": {"name": ORDERS},
    "/{m:int}/delete": {"name": ORDERS},
    "/{m:int}/messages": {"name": ORDERS},
    "/{m:int}/message": {"name": ORDERS, "id": "ID"},
    "/{m:int}/search": {"name": ORDERS},
    "/{m:int}/send": {"from": ORDERS, "id": "ID"},
    "/{m:int}/job": {"id": "0"},
    "/{m:int}/dead": {},
    "/{m:int}/failed": {"name": ORDERS},
    "/{m:int}/failed/group": {"name": ORDERS, "job": "0", "group": "0"},
    "/{m:int}/network": {},
    "/{m:int}/trace": {"id": "{8f3c1f6e-5d0f-4a7e-9a55-1d6a3f9b1a01}\\1"},
    "/{m:int}/security": {},
    "/{m:int}/export": {"name": ORDERS},
    "/{m:int}/body": {"name": ORDERS, "id": "ID"},
}
FORMS: dict[str, dict[str, str]] = {
    "/login": {},
    "/logout": {},
    "/{m:int}/new": {"path": "by-a-monitor"},
    "/{m:int}/queue": {"name": ORDERS, "label": "changed"},
    "/{m:int}/purge": {"name": ORDERS},
    "/{m:int}/delete": {"name": ORDERS},
    "/{m:int}/pause": {"name": "DIRECT=TCP:127.0.0.99\\private$\\far"},
    "/{m:int}/resume": {"name": "DIRECT=TCP:127.0.0.99\\private$\\far"},
    "/{m:int}/access": {"name": ORDERS, "edit": "grant", "who": "eye", "right": "full"},
    "/{m:int}/messages": {"name": ORDERS, "action": "delete", "id": "ID"},
    "/{m:int}/search": {"name": ORDERS, "body": "secret"},
    "/{m:int}/send": {"to": ORDERS, "body": "more", "delivery": "express"},
    "/{m:int}/cancel": {"id": "0"},
    "/{m:int}/dead": {"queue": "system$;deadletter", "reason": "x", "destination": "y", "how": "send"},
    "/{m:int}/failed": {"name": ORDERS, "id": "ID"},
    "/{m:int}/import": {},
}


@pytest.fixture(scope="module")  # no test of this file may change it
def secret_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with guarded(tmp_path_factory.mktemp("secret")) as running:
        with running.connect(TOKEN) as manager:
            manager.queue(ORDERS).send(Message(BODY, label=LABEL, recoverable=True))
            manager.send(r"DIRECT=TCP:127.0.0.99\private$\far", Message("x", recoverable=True))
        yield running


class Visitor:
    """A browser without scripts: it keeps cookies and the secret of its forms."""

    def __init__(self, site: Site) -> None:
        self.netloc = urlsplit(site.url).netloc
        self.cookies: dict[str, str] = {}
        self.base = self.csrf = ""

    def ask(
        self, method: str, path: str, values: dict[str, str], body: str | bytes | None = None, **headers: str
    ) -> tuple[int, dict[str, str], str]:
        connection = http.client.HTTPConnection(self.netloc, timeout=PATIENCE_S)
        sent = {"Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())} | headers
        if method == "GET" and values:
            path = f"{path}?{urlencode(values)}"
        elif method == "POST":
            body, sent["Content-Type"] = urlencode(values) if body is None else body, FORM
        try:
            connection.request(method, self.base + path, body, sent)
            answer = connection.getresponse()
            for line in answer.headers.get_all("Set-Cookie") or ():
                name, _, value = line.partition(";")[0].partition("=")
                self.cookies[name] = value
            text = answer.read().decode("utf-8", "replace")
        finally:
            connection.close()
        found = re.search(r'name="csrf" (?:value|content)="([^"]+)"', text)
        self.csrf = found[1] if found else self.csrf
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, text

    def log_in(self, user: str) -> Visitor:
        self.ask("GET", "/login", {})
        status, headers, _ = self.ask("POST", "/login", {"csrf": self.csrf, "user": user, "password": PASSWORD})
        assert status == 303
        self.base = headers["location"].rstrip("/")
        self.ask("GET", "/0/queues", {})
        return self


def lookup_id(site: Site) -> str:
    with site.connect(TOKEN) as manager:
        (message,) = manager.queue(ORDERS).messages()
        return str(message.lookup_id)


def given(site: Site, values: dict[str, str]) -> dict[str, str]:
    return {name: lookup_id(site) if value == "ID" else value for name, value in values.items()}


def state(site: Site) -> object:
    """Everything that a route could change."""
    steady = ("path", "label", "messages", "messages_in", "paused", "journal", "quota_kb")
    with site.connect(TOKEN) as manager:
        queues = [{name: value for name, value in asdict(each).items() if name in steady} for each in manager.queues()]
        return queues, manager.queue(ORDERS).acl(), [each.packet for each in manager.queue(ORDERS).messages()]


def test_every_route_is_in_a_table() -> None:
    pages, forms = set[str](), set[str]()
    for route in Console(Settings(["http://127.0.0.1:1"])).routes():
        for method in route.endpoints:
            (forms if method == "POST" else pages).add(route.template)
    assert pages == set(PAGES)
    assert forms == set(FORMS)


@pytest.mark.parametrize("path", PAGES)
def test_nobody_sees_anything_but_the_login(secret_site: Site, path: str) -> None:
    nobody = Visitor(secret_site)
    status, headers, text = nobody.ask("GET", path.replace("{m:int}", "0"), given(secret_site, PAGES[path]))
    if path == "/login":
        assert status == 200
    else:
        assert (status, headers["location"].partition("?")[0], text) == (303, "/login", "")
    assert not any("console" in name for name in nobody.cookies)
    assert "private$" not in text
    assert len(text) < 10_000


@pytest.mark.parametrize("path", FORMS)
def test_nobody_changes_anything_and_nothing_is_read_of_a_large_form(secret_site: Site, path: str) -> None:
    before = state(secret_site)
    for values in ({}, {"csrf": "x"}, {"csrf": "own"}):
        nobody = Visitor(secret_site)
        nobody.ask("GET", "/login", {})
        sent = given(secret_site, FORMS[path]) | {
            name: nobody.csrf if value == "own" else value for name, value in values.items()
        }
        status, headers, _ = nobody.ask("POST", path.replace("{m:int}", "0"), sent)
        assert status in (303, 400, 401)
        assert status != 303 or headers["location"].startswith("/login")
        assert not any("console" in name for name in nobody.cookies)
    status, _, _ = Visitor(secret_site).ask("POST", path.replace("{m:int}", "0"), {}, "a=" + "b" * 100_000)
    assert status in (303, 400, 413)
    assert state(secret_site) == before


@pytest.mark.parametrize("path", [each for each in FORMS if each not in ("/login", "/logout")])
def test_a_form_of_somebody_else_changes_nothing(secret_site: Site, path: str) -> None:
    root, eye = Visitor(secret_site).log_in("root"), Visitor(secret_site).log_in("eye")
    before = state(secret_site)
    for csrf in ("", "x", eye.csrf):
        values = given(secret_site, FORMS[path]) | {"csrf": csrf}
        status, _, text = root.ask("POST", path.replace("{m:int}", "0"), values, **{"X-Csrf": csrf})
        assert status == 400
        assert "load the page again" in text
    status, _, _ = root.ask("POST", path.replace("{m:int}", "0"), {"csrf": root.csrf}, Origin="http://127.0.0.1:9")
    assert status == 403
    assert state(secret_site) == before


@pytest.mark.parametrize("path", [each for each in FORMS if each not in ("/login", "/logout")])
def test_a_monitor_changes_nothing(secret_site: Site, path: str) -> None:
    eye = Visitor(secret_site).log_in("eye")
    before = state(secret_site)
    values = given(secret_site, FORMS[path]) | {"csrf": eye.csrf}
    status, _, text = eye.ask("POST", path.replace("{m:int}", "0"), values, **{"X-Csrf": eye.csrf})
    assert status in (200, 303, 400, 403, 404), text
    wait_for(lambda: state(secret_site) == before)
    assert LABEL not in text
    assert BODY not in text


@pytest.mark.parametrize("path", PAGES)
def test_a_monitor_sees_pages_without_messages_and_without_buttons(secret_site: Site, path: str) -> None:
    eye = Visitor(secret_site).log_in("eye")
    _, _, text = eye.ask("GET", path.replace("{m:int}", "0"), given(secret_site, PAGES[path]))
    assert LABEL not in text
    assert BODY not in text
    if path in ("/{m:int}/purge", "/{m:int}/delete", "/{m:int}/new", "/{m:int}/search", "/login"):
        return  # nothing leads there
    forms = re.findall(r'<form method="post" action="([^"]*)"(.*?)</form>', text, re.DOTALL)
    assert {action.rpartition("/")[2] for action, inside in forms if "<button" in inside} <= {"logout"}
    for link in ("/send", "/new", "/messages?", "/message?", "/purge", "/delete", "/export", "/search?", "data-upload"):
        assert f"/0{link}" not in text, link


def test_a_monitor_sees_the_pages(secret_site: Site) -> None:
    eye = Visitor(secret_site).log_in("eye")
    for path in ("/", "/0/queues", "/0/queue?name=private%24%5Corders", "/0/network", "/0/security", "/0/trace"):
        assert eye.ask("GET", path, {})[0] == 200


def test_a_file_that_is_larger_than_the_budget_of_unfinished_input_is_imported(tmp_path: Path) -> None:
    config = tmp_path / "small.toml"
    config.write_text(f"{GUARDED}[limits]\nunfinished_input_mb = 24\n")
    with serving(config) as server:
        site = Site(server)
        with site.connect(TOKEN) as manager:
            for _ in range(12):
                manager.queue(ORDERS).send(Message(bytes(3 << 20)))
            content = b"".join(each.packet for each in manager.queue(ORDERS).messages())
            root = Visitor(site).log_in("root")
            path = f"/0/import?{urlencode({'name': ORDERS})}"
            status, _, text = root.ask("POST", path, {}, content, **{"X-Csrf": root.csrf})
            assert (status, "next" in text) == (200, True)
            assert manager.queue(ORDERS).info().messages == 24


def test_an_administrator_sees_them_all(secret_site: Site) -> None:
    """The honest twin: what is refused above is refused for its caller, not for its form."""
    root = Visitor(secret_site).log_in("root")
    for path, values in PAGES.items():
        status, _, text = root.ask("GET", path.replace("{m:int}", "0"), given(secret_site, values))
        expected = {"/{m:int}/job": 404, "/{m:int}/failed/group": 400}  # of jobs that were never begun
        assert status == expected.get(path, 200), (path, text)
    values = {"name": ORDERS, "label": "changed", "csrf": root.csrf}
    assert root.ask("POST", "/0/queue", values)[0] == 303
    with secret_site.connect(TOKEN) as manager:
        assert manager.queue(ORDERS).info().label == "changed"


@pytest.mark.parametrize("path", PAGES)
def test_no_query_is_a_fault_of_the_console(secret_site: Site, path: str) -> None:
    """Also of somebody who is not logged in: each such fault would be a traceback in the log."""
    huge = dict.fromkeys(("id", "limit", "after", "manager", "page"), "9" * 5000)
    many = {f"x{number}": "y" for number in range(300)}
    for visitor in (Visitor(secret_site), Visitor(secret_site).log_in("eye")):
        for values in (huge, many):
            status, _, _ = visitor.ask("GET", path.replace("{m:int}", "0"), PAGES[path] | values)
            assert status < 500


def test_a_huge_number_in_a_form_is_no_fault_of_the_console(secret_site: Site) -> None:
    visitor = Visitor(secret_site).log_in("eye")
    for path, values in FORMS.items():
        huge = dict.fromkeys(("id", "limit", "priority", "quota_kb"), "9" * 5000)
        if path not in ("/login", "/logout"):
            status, _, _ = visitor.ask("POST", path.replace("{m:int}", "0"), values | huge | {"csrf": visitor.csrf})
            assert status < 500
