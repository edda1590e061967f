"""The console beside its manager, by plain HTTP: how it starts and ends, and what it refuses."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest

from postroad.console.sessions import MAX_SESSIONS
from tests.certificates import Authority
from tests.commands import serving
from tests.console.sites import GUARDED, PASSWORD, PATIENCE_S, TOKEN, Site, guarded, wait_for

FORM = "application/x-www-form-urlencoded"


def ask(
    site: Site, method: str, path: str, form: dict[str, str] | None = None, **headers: str
) -> tuple[int, dict[str, str], str]:
    parts = urlsplit(site.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE_S)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        connection.request(
            method, path, urlencode(form) if form else None, sent | ({"Content-Type": FORM} if form else {})
        )
        answer = connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, found, answer.read().decode()
    finally:
        connection.close()


def test_pages_have_a_strict_policy_and_a_cookie_that_scripts_cannot_read(login_site: Site) -> None:
    status, headers, text = ask(login_site, "GET", "/login")
    assert status == 200
    assert "unsafe" not in headers["content-security-policy"]
    assert {"httponly", "samesite=strict"} <= {each.strip().lower() for each in headers["set-cookie"].split(";")}
    assert headers["cache-control"] == "no-store"
    assert not re.search(r"<script(?! src=)|<style| style=| on[a-z]+=", text)


def test_a_foreign_host_is_refused(login_site: Site) -> None:
    assert ask(login_site, "GET", "/login", Host="evil.example")[0] == 403
    assert ask(login_site, "GET", "/login", Host="guarded")[0] == 200  # the manager's own name


def test_a_form_needs_the_secret_of_its_session(login_site: Site) -> None:
    _, headers, text = ask(login_site, "GET", "/login")
    cookie = headers["set-cookie"].partition(";")[0]
    csrf = re.search(r'name="csrf" value="([^"]+)"', text)
    assert csrf is not None
    form = {"token": TOKEN, "next": "/0/queues"}
    status, _, page = ask(login_site, "POST", "/login", form, Cookie=cookie)
    assert status == 400
    assert "load the page again" in page
    other = ask(login_site, "POST", "/login", form | {"csrf": csrf[1]}, Cookie=cookie, Origin="http://evil.example")
    assert other[0] == 403
    status, headers, _ = ask(login_site, "POST", "/login", form | {"csrf": csrf[1]}, Cookie=cookie)
    assert status == 303
    fresh = headers["set-cookie"].partition(";")[0]
    assert fresh != cookie  # whoever knew the old one does not have the new session
    assert ask(login_site, "GET", headers["location"], Cookie=fresh)[0] == 200
    assert ask(login_site, "GET", "/0/queues", Cookie=cookie)[0] == 303


def test_a_flood_of_visitors_logs_nobody_out(login_site: Site) -> None:
    """As many as the console remembers, and some more; each brings no cookie."""
    _, headers, text = ask(login_site, "GET", "/login")
    cookie = headers["set-cookie"].partition(";")[0]
    csrf = re.search(r'name="csrf" value="([^"]+)"', text)
    assert csrf is not None
    form = {"token": TOKEN, "next": "/0/queues", "csrf": csrf[1]}
    _, headers, _ = ask(login_site, "POST", "/login", form, Cookie=cookie)
    session = headers["set-cookie"].partition(";")[0]
    connection = http.client.HTTPConnection(urlsplit(login_site.url).netloc, timeout=PATIENCE_S)
    for _ in range(MAX_SESSIONS + 50):
        connection.request("GET", "/0/queues")
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 303
    connection.close()
    assert ask(login_site, "GET", "/0/queues", Cookie=session)[0] == 200


def test_the_console_ends_with_its_manager_and_the_port_is_free_at_once(tmp_path: Path) -> None:
    with guarded(tmp_path) as first:
        wait_for(lambda: ask(first, "GET", "/healthz")[0] == 200)
        port = first.url.rpartition(":")[2]
        first.server.end(signal.SIGKILL)
    config = tmp_path / "guarded.toml"
    config.write_text(GUARDED.replace("console = 0", f"console = {port}"))
    with serving(config) as server:
        assert ask(Site(server), "GET", "/healthz")[0] == 200
        assert server.ready["listen"]["console"] == f"127.0.0.1:{port}"
        assert server.end()[0] == 0


def test_without_the_extra_the_manager_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['jinja2'] = None\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    config = tmp_path / "alpha.toml"
    config.write_text(GUARDED)
    with serving(config) as server:
        assert "console" not in server.ready["listen"]
        assert "the console is off" in server.log
        assert "pip install 'postroad[console]'" in server.log


def test_a_console_that_others_can_reach_needs_tls(tmp_path: Path) -> None:
    config = tmp_path / "open.toml"
    config.write_text(GUARDED.replace("[listen]\n", '[listen]\nhost = "0.0.0.0"\n'))
    with (
        pytest.raises(AssertionError, match=r"api\.tls_certificate: is missing: other computers can reach the console"),
        serving(config),
    ):
        pass


def test_a_reload_brings_another_certificate_and_token_and_logs_nobody_out(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, _ = authority.issue("127.0.0.1")
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    tls = 'token_file = "token"\ntls_certificate = "127.0.0.1.pem"\ntls_key = "127.0.0.1.key"\n'
    config = tmp_path / "guarded.toml"
    config.write_text(GUARDED.replace(f'token = "{TOKEN}"\n', tls))
    context = ssl.create_default_context(cafile=str(authority.file))

    with serving(config) as server:
        where = server.ready["listen"]["console"]

        def connect() -> tuple[http.client.HTTPSConnection, str]:
            connection = http.client.HTTPSConnection(where, context=context, timeout=PATIENCE_S)
            connection.connect()
            found = connection.sock.getpeercert(binary_form=True)
            assert isinstance(found, bytes)
            return connection, ssl.DER_cert_to_PEM_cert(found)

        def page(connection: http.client.HTTPSConnection, method: str, path: str, **form: str) -> tuple[int, str, str]:
            connection.request(method, path, urlencode(form), {"Content-Type": FORM, "Cookie": "; ".join(cookies)})
            answer = connection.getresponse()
            cookies.extend(each.partition(";")[0] for each in answer.headers.get_all("set-cookie", []))
            return answer.status, answer.headers.get("location", ""), answer.read().decode()

        def log_in(connection: http.client.HTTPSConnection, user: str) -> str:
            csrf = re.search(r'name="csrf" value="([^"]+)"', page(connection, "GET", "/login")[2])
            assert csrf is not None
            form = {"user": user, "password": PASSWORD, "next": "/0/queues", "csrf": csrf[1]}
            status, location, text = page(connection, "POST", "/login", **form)
            assert status == 303, text
            return location

        def is_renewed() -> bool:
            new, found = connect()
            new.close()
            return found == certificate.read_text()

        cookies: list[str] = []
        old, served = connect()
        assert served == certificate.read_text()
        location = log_in(old, "root")
        assert page(old, "GET", location)[0] == 200
        authority.issue("127.0.0.1")
        (tmp_path / "token").write_text("another-token-that-is-long-enough\n")
        os.kill(server.pid, signal.SIGHUP)
        wait_for(is_renewed)
        assert page(old, "GET", location)[0] == 200  # the connection and the login go on
        cookies.clear()
        new, _ = connect()
        assert page(new, "GET", log_in(new, "root"))[0] == 200  # the console trusts the new certificate
        old.close()
        new.close()


def test_a_half_written_certificate_is_one_line_in_the_log_and_the_console_keeps_the_old_one(tmp_path: Path) -> None:
    """The console as its manager runs it, which tells it of files that somebody is just writing."""
    certificate, key = Authority(tmp_path).issue("127.0.0.1")
    first = certificate.read_text()
    context = ssl.create_default_context(cadata=first)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    files = ["--tls-certificate", str(certificate), "--tls-key", str(key)]
    given = json.dumps({"tls_certificate": str(certificate), "tls_key": str(key)}).encode() + b"\n"
    with socket.create_server(("127.0.0.1", 0)) as listener, (tmp_path / "log").open("wb") as log:
        where, number = listener.getsockname(), str(listener.fileno())
        command = [sys.executable, "-m", "postroad", "console", "--api", "https://127.0.0.1:1", "--descriptor", number]
        with subprocess.Popen(
            [*command, *files], stdin=subprocess.PIPE, stderr=log, pass_fds=(listener.fileno(),)
        ) as console:
            assert console.stdin is not None

            def served() -> str:
                with (
                    socket.create_connection(where, PATIENCE_S) as plain,
                    context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
                ):
                    return ssl.DER_cert_to_PEM_cert(connection.getpeercert(binary_form=True) or b"")

            def lines() -> list[str]:
                return (tmp_path / "log").read_text().splitlines()

            console.stdin.write(given)
            console.stdin.flush()
            assert served() == first
            halves = [b"", first[:40].encode(), first[: len(first) // 2].encode(), first[:-30].encode(), b"\xff\xfe"]
            for number_of, half in enumerate(halves, 1):
                certificate.write_bytes(half)
                console.stdin.write(given)
                console.stdin.flush()
                wait_for(lambda: len(lines()) >= number_of)  # noqa: B023  # it is called at once
                assert served() == first
            for line in lines():
                assert "the console keeps its certificate" in line
                assert "api.tls_certificate: cannot be used" in line
            assert len(lines()) == len(halves)
            Authority(tmp_path).issue("127.0.0.1")
            context.load_verify_locations(cadata=certificate.read_text())
            console.stdin.write(given)
            console.stdin.flush()
            wait_for(lambda: served() == certificate.read_text())
            console.stdin.close()
            assert console.wait(PATIENCE_S) == 0
