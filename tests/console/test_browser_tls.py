"""The console of managers whose API needs TLS, and of one that admits only clients with a certificate, in a browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.certificates import Authority
from tests.commands import serving
from tests.console.sites import GUARDED, PASSWORD, PATIENCE_S, TOKEN, Site, console_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAME = "alpha.corp.example"
MUTUAL = (
    GUARDED.partition("[api]")[0]
    + '[api]\ntls_certificate = "127.0.0.1.pem"\ntls_key = "127.0.0.1.key"\nclient_ca = "clients.pem"\n'
)


@dataclass(frozen=True, slots=True)
class Mutual:
    """A manager whose API wants certificates of its clients, and where the files for it are."""

    api: str
    directory: Path
    log: str

    def variables(self, client: str | None) -> dict[str, str]:
        trusted = {"SSL_CERT_FILE": str(self.directory / "authority.pem")}
        if client is None:
            return trusted
        files = {"POSTROAD_CLIENT_CERT": f"{client}.pem", "POSTROAD_CLIENT_KEY": f"{client}.key"}
        return trusted | {name: str(self.directory / file) for name, file in files.items()}


@pytest.fixture(scope="module")  # tests only look at it
def mutual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mutual]:
    directory = tmp_path_factory.mktemp("mutual")
    Authority(directory).issue("127.0.0.1")
    Authority(directory, "clients").issue("console")
    Authority(directory, "strangers").issue("stranger")
    config = directory / "mutual.toml"
    config.write_text(MUTUAL)
    with serving(config) as server:
        yield Mutual(server.api.replace("http:", "https:"), directory, server.log)


def fill_in(page: Page, user: str, password: str) -> None:
    page.get_by_label("User").fill(user)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()


def test_the_console_beside_a_manager_trusts_its_certificate_whoever_issued_it(
    browser: Browser, tmp_path: Path
) -> None:
    Authority(tmp_path).issue(NAME)  # an issuer that no system knows, and a name that is not the address
    config = tmp_path / "guarded.toml"
    config.write_text(f'{GUARDED}tls_certificate = "{NAME}.pem"\ntls_key = "{NAME}.key"\n')
    with serving(config) as server:
        context = browser.new_context(ignore_https_errors=True)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_S * 1000)
        page.goto(Site(server).url.replace("http:", "https:"))
        page.wait_for_url("**/login?**")
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button", name="Log in").click()
        page.locator("section[aria-label=guarded] .tile", has_text="messages").wait_for()
        page.locator("figure svg.chart").first.wait_for()  # the console itself asks too
        context.close()


def test_a_user_logs_in_where_the_console_has_a_certificate(mutual: Mutual, page: Page) -> None:
    with console_of(mutual.api, variables=mutual.variables("console")) as url:
        page.goto(f"{url}/0/queues")
        page.wait_for_url("**/login?**")
        fill_in(page, "root", "a wrong password")
        page.get_by_role("alert").get_by_text("The login was refused: the user or the password is wrong").wait_for()
        fill_in(page, "root", PASSWORD)
        page.get_by_role("heading", name="Queues").wait_for()
        page.get_by_text(r"private$\payments").wait_for()
        page.goto(f"{url}/0/security")
        assert page.locator("tr", has_text="login refused").count() >= 1
        page.get_by_role("button", name=re.compile("Log out root")).click()
        page.wait_for_url("**/login")


def test_the_consoles_certificate_lets_nobody_else_in(mutual: Mutual, page: Page) -> None:
    with console_of(mutual.api, variables=mutual.variables("console")) as url:
        for token in ("", "any token"):  # the manager has none, and would take every one
            page.goto(f"{url}/0/security")
            page.wait_for_url("**/login?**")
            page.get_by_label("Token").fill(token)
            page.get_by_role("button", name="Log in").click()
            page.get_by_role("alert").get_by_text(re.compile("certificate that it wants is the console's")).wait_for()
        fill_in(page, "ann", PASSWORD)
        page.goto(f"{url}/0/security")
        page.get_by_role("heading", name="You have no right to do this").wait_for()


@pytest.mark.parametrize(
    ("client", "words"),
    [(None, "set POSTROAD_CLIENT_CERT"), ("stranger", "client_ca issued this client's certificate")],
)
def test_a_console_without_the_certificate_says_what_to_do(
    mutual: Mutual, page: Page, client: str | None, words: str
) -> None:
    assert "the console is off: the API needs a client certificate" in mutual.log
    with console_of(mutual.api, variables=mutual.variables(client)) as url:
        page.goto(url)
        page.locator(".attention").get_by_text(re.compile(f"The manager does not answer: .*{words}")).wait_for()
