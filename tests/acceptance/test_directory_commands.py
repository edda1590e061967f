"""`postroad directory show`, `export` and `check` on a real domain, through a running manager and without one."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

import pytest

from postroad.directory.ldap_connection import LdapSettings, connect
from tests.commands import PATIENCE_S, Outcome, ServerProcess, postroad, serving
from tests.domain import ADMINISTRATOR, BASE, DOMAIN, PASSWORD, Controller, add_enterprise
from tests.enterprises import client, directory, link, queue, server, site

QUIET = "[listen]\napi = 0\nbinary = false\nping = false\nhttp = false\nrpc = false\n"


@pytest.fixture
def controller(new_controller: Callable[[], Controller], tmp_path: Path) -> Controller:
    """A domain with two sites; alpha and beta are queue managers of it."""
    made = new_controller()
    made.start()
    (tmp_path / "password").write_text(PASSWORD)
    settings = LdapSettings(
        servers=(made.ldaps,),
        user=ADMINISTRATOR,
        password_file=tmp_path / "password",
        ca_certificates=made.ca_certificates,
    )
    with connect(settings) as opened:
        add_enterprise(
            opened,
            directory(
                site("London"),
                site("Paris"),
                link("London", "Paris", 3, "lon-gate par-gate"),
                server("lon-gate", "London"),
                server("par-gate", "Paris"),
                client("alpha", "London"),
                client("beta", "Paris"),
                queue(r"alpha\orders"),
                queue(r"beta\orders"),
            ),
        )
    return made


def configuration(
    place: Path, controller: Controller, more: str = "", name: str = "alpha", listen: str = QUIET
) -> Path:
    file = place / f"{name}.toml"
    file.write_text(
        f'[manager]\nname = "{name}"\n{listen}[directory]\nldap = "ldaps://127.9.9.9 {controller.ldaps}"\n'
        f'user = "{ADMINISTRATOR}"\npassword_file = "password"\nca_certificates = "{controller.ca_certificates}"\n'
        f"refresh_s = 0.2\nonline_s = 1\n{more}"
    )
    return file


def until(command: Callable[[], Outcome], right: Callable[[Outcome], bool]) -> Outcome:
    """Runs the command again until its outcome is right."""
    end = time.monotonic() + PATIENCE_S
    while True:
        found = command()
        if right(found) or time.monotonic() > end:
            return found
        time.sleep(0.1)


def console(running: ServerProcess, path: str) -> str:
    with urlopen(f"http://{running.ready['listen']['console']}{path}", timeout=PATIENCE_S) as answer:
        return str(answer.read().decode())


def test_a_manager_in_a_domain(controller: Controller, tmp_path: Path) -> None:
    config = configuration(tmp_path, controller, listen=f"{QUIET}console = 0\n")
    with serving(config) as running:
        api = running.api

        def show() -> Outcome:
            return postroad("directory", "show", "--json", api=api)

        (shown,) = show().objects
        assert (shown["kind"], shown["source"], shown["online"]) == ("ldap", controller.ldaps, True)
        assert {each["name"] for each in shown["sites"]} == {"Default-First-Site-Name", "London", "Paris"}
        assert {each["path"] for each in shown["queues"]} == {r"alpha\orders", r"beta\orders"}
        assert r"beta\orders" in postroad("directory", "show", api=api).text
        assert postroad("route", "beta", api=api).lines[1] == "next hop  lon-gate"
        table = postroad("route", "table", "--from", "lon-gate", api=api)
        assert "par-gate" in table.lines[1]
        page = console(running, "/0/network?to=beta")
        assert "London - Paris, cost 3" in page
        assert re.search(r'class="site used[^>]*><title>Paris: beta, par-gate', page)
        assert "Default-First-Site-Name" not in page  # nobody of MSMQ is there
        exported = tmp_path / "exported.toml"
        assert postroad("directory", "export", str(exported), api=api).code == 0
        there = postroad("route", "table", "--from", "lon-gate", "--enterprise", str(exported))
        assert there.lines == table.lines
        assert postroad("directory", "check", api=api).code == 0
        controller.edit(f"dn: CN=new,CN=msmq,CN=alpha,CN=Computers,{BASE}\nchangetype: add\nobjectClass: mSMQQueue\n")
        listed = until(lambda: postroad("queue", "list", api=api), lambda found: r"alpha\new" in found.text)
        assert r"alpha\new" in listed.text
        controller.stop()
        offline = until(show, lambda found: not found.objects[0]["online"])
        assert not offline.objects[0]["online"]
        (status,) = postroad("status", "--json", api=api).objects
        assert status["manager"]["directory"]["online"] is False
        assert "does not answer" in status["manager"]["directory_error"]
    with serving(config) as running:  # with the last good copy
        (shown,) = postroad("directory", "show", "--json", api=running.api).objects
        assert not shown["online"]
        assert {each["path"] for each in shown["queues"]} == {r"alpha\orders", r"alpha\new", r"beta\orders"}
        controller.start()
        api = running.api
        online = until(
            lambda: postroad("directory", "show", "--json", api=api), lambda found: bool(found.objects[0]["online"])
        )
        assert online.objects[0]["online"]


@pytest.mark.spec("DM-3.1.1.2-02")
def test_the_same_without_a_manager(controller: Controller, tmp_path: Path) -> None:
    config = str(configuration(tmp_path, controller))
    host = f"dn: CN=beta,CN=Computers,{BASE}\nchangetype: modify\nadd: dNSHostName\ndNSHostName: beta.{DOMAIN}\n"
    controller.edit(host)
    (shown,) = postroad("directory", "show", "--json", "-c", config).objects
    paths = {each["path"]: each["qualified_path"] for each in shown["queues"]}
    assert paths == {r"alpha\orders": None, r"beta\orders": rf"beta.{DOMAIN}\orders"}
    assert len(shown["managers"]) == 4
    export = postroad("directory", "export", "-c", config)
    assert export.text.count("[[manager]]") == 4
    assert not (tmp_path / "data").exists()
    assert postroad("serve", "--check", "-c", config).code == 0
    assert not (tmp_path / "data").exists()


def test_a_check_names_what_is_missing_and_what_mends_it(controller: Controller, tmp_path: Path) -> None:
    def missing(found: Outcome) -> dict[str, str]:
        (check,) = found.objects
        assert found.code == (0 if check["ready"] else 1)
        return {each["what"]: each["do"] for each in check["findings"] if each["state"] == "missing"}

    def check(config: Path) -> Outcome:
        return postroad("directory", "check", "--json", "-c", str(config))

    assert missing(check(configuration(tmp_path, controller))) == {}
    assert missing(check(configuration(tmp_path, controller, name="gamma"))) == {
        "computer": "samba-tool computer create gamma (Windows: New-ADComputer gamma)"
    }
    controller.tool("computer", "create", "gamma")
    assert missing(check(configuration(tmp_path, controller, name="gamma"))) == {
        "queue manager": "set publish = true in [directory]"
    }
    assert missing(check(configuration(tmp_path, controller, "publish = true\n", name="gamma"))) == {}
    controller.add_user("reader")
    reader = configuration(tmp_path, controller, "publish = true\n", name="gamma")
    reader.write_text(reader.read_text().replace(ADMINISTRATOR, "reader@POSTROAD.TEST"))
    found = missing(check(reader))
    assert list(found) == ["permissions"]
    assert found["permissions"].startswith("samba-tool dsacl set --objectdn='CN=gamma,")
    kerberos = configuration(tmp_path, controller)
    kerberos.write_text(kerberos.read_text() + f'[rpc]\nkeytab = "{controller.keytab("DC1$")}"\n')
    assert missing(check(kerberos)) == {
        "service principal": "samba-tool spn add host/alpha alpha$ (Windows: setspn -S host/alpha alpha)"
    }
    (tmp_path / "password").write_text("wrong")
    assert list(missing(check(configuration(tmp_path, controller)))) == [
        "controller ldaps://127.9.9.9",
        f"controller {controller.ldaps}",
    ]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ('file = "e.toml"\nldap = "ldaps://dc"\n', "directory.ldap: must not be set together with file"),
        ('ldap = "http://dc"\n', "directory.ldap: must be ldaps://HOST or ldap://HOST"),
        ('base = "DC=a"\n', "directory.base: needs ldap"),
        ('ldap = "ldaps://dc"\nkeytab = "k"\n', "directory.user: is missing"),
        ('ldap = "ldaps://dc"\nuser = "u"\nkeytab = "k"\npassword_file = "p"\n', "directory.keytab: must not be set"),
        (
            'ldap = "ldaps://nobody.invalid"\n',
            "directory.ldap: the directory cannot be read, and there is no copy of it",
        ),
        ('ldap = "ldaps://127.9.9.9"\nbase = "orders"\n', "directory.base: a DN must be a list of NAME=VALUE"),
    ],
)
def test_settings_that_cannot_be(tmp_path: Path, settings: str, words: str) -> None:
    config = tmp_path / "a.toml"
    config.write_text(f'[manager]\nname = "alpha"\n{QUIET}[directory]\n{settings}')
    found = postroad("serve", "-c", str(config))
    assert found.code == 2
    assert words in found.last_error
