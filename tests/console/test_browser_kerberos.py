"""Logging in to the console with a Kerberos ticket, and the form for a browser that shows none."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.commands import ServerProcess, serving
from tests.console.sites import GUARDED, PASSWORD, Site
from tests.kerberos import ANN, Realm, run

if TYPE_CHECKING:
    from playwright.sync_api import Page

CURL = shutil.which("curl")


@pytest.fixture(scope="module")
def server(realm: Realm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    patch = pytest.MonkeyPatch()
    patch.setenv("KRB5_CONFIG", str(realm.controller.krb5_conf))
    config = tmp_path_factory.mktemp("guarded") / "guarded.toml"
    user = f'[[user]]\nname = "boss"\nprincipal = "{ANN}"\nmonitor = true\n'
    config.write_text(f'{GUARDED}keytab = "{realm.keytab}"\n{user}')
    with serving(config) as found:
        yield found
    patch.undo()


@pytest.mark.skipif(CURL is None, reason="curl is not installed")
def test_a_ticket_logs_in_through_the_console(realm: Realm, server: ServerProcess, tmp_path: Path) -> None:
    url = Site(server).url.replace("127.0.0.1", "localhost").rstrip("/")

    def curl(path: str, *options: str) -> str:
        jar = str(tmp_path / "cookies")
        return run(realm, str(CURL), "-s", "-i", "-b", jar, "-c", jar, *options, url + path).stdout

    found = re.search('name="csrf" value="([0-9a-f]+)"', curl("/login"))
    assert found is not None
    form = f"csrf={found[1]}&kerberos=on&user=&next=/"
    asked = curl("/login", "-d", form)
    assert "401 Unauthorized" in asked
    assert "www-authenticate: Negotiate\n" in asked
    logged_in = curl("/login", "-d", form, "--negotiate", "-u", ":")
    assert "303 See Other" in logged_in
    assert re.search("www-authenticate: Negotiate [A-Za-z0-9+/]", logged_in)
    base = re.search("location: (/~[0-9a-f]{32})/", logged_in)
    assert base is not None
    assert "boss" in curl(f"{base[1]}/0/queues")
    repeated = curl("/login", "-d", form.replace(found[1], "0" * 64), "--negotiate", "-u", ":")
    assert "400 Bad Request" in repeated


def test_a_browser_without_a_ticket_gets_the_form(server: ServerProcess, page: Page) -> None:
    page.goto(Site(server).url.replace("127.0.0.1", "localhost"))
    page.wait_for_url("**/login?**")
    page.get_by_role("button", name="Use a Kerberos ticket").click()
    page.get_by_text("Your browser showed no Kerberos ticket").wait_for()
    page.get_by_label("User").fill("eye")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(lambda url: "/login" not in url)
