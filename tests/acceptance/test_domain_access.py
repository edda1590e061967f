"""Who may use a queue, by Active Directory: accounts, groups, certificates and access lists of a real domain."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen
from uuid import uuid4

import pytest

import postroad as client
from postroad.directory.distinguished_names import child
from postroad.directory.ldap_connection import SdFlags
from postroad.security.descriptors import EVERYONE, Sid
from postroad.security.directory_rights import directory_descriptor
from postroad.security.sddl import parse_sddl
from postroad.wire.records import UserSignCertificate
from tests.commands import Outcome, ServerProcess, postroad
from tests.domain import ADMINISTRATOR, BASE, PASSWORD, Controller, add_enterprise
from tests.domain_accounts import DISABLED, NORMAL, Domain, certificates, domain_of
from tests.enterprises import client as member
from tests.enterprises import directory, queue, site
from tests.signers import Files, key_files

PATIENCE_S = 60
HOST, SENDER = "127.0.91.11", "127.0.91.12"
BINARY, HTTP = 11891, 18091
PEERS = "".join(f'"{host}" = {{{{ binary = {BINARY}, http = {HTTP} }}}}\n' for host in (HOST, SENDER))
COMMON = f"""
[manager]
name = "{{name}}"
data = "data/{{name}}"
[listen]
host = "{{host}}"
binary = {BINARY}
ping = false
http = {HTTP}
rpc = 0
api = 0
[binary]
retry_connect_s = 0.2
resend_s = [1, 1, 1]
[peers]
{PEERS}
"""
DOMAIN = """
[directory]
ldap = "{ldap}"
user = "{user}"
password_file = "password"
ca_certificates = "{ca}"
refresh_s = 0.3
online_s = 1
administrators = ["POSTROAD\\\\MSMQ Admins"]
"""
LOCAL = r".\orders"
ORDERS = f"DIRECT=TCP:{HOST}\\orders"


class Network:
    """`alpha` is in the domain, and `beta` sends to it from outside."""

    def __init__(self, place: Path, domain: Domain, controller: Controller, stack: ExitStack) -> None:
        self.domain = domain
        self.controller = controller
        self._orders = child("CN", "orders", f"CN=msmq,CN=alpha,CN=Computers,{BASE}")
        (place / "password").write_text(PASSWORD)
        (place / "password").chmod(0o600)
        self.files: Files = key_files(place)
        self.inner = domain.group("inner")
        self.outer = domain.group("outer", self.inner)
        self.ann = domain.user("ann", mSMQSignCertificates=certificates(self.files.der))
        domain.join(self.inner, self.ann)
        add_enterprise(domain.connection, directory(site("London"), member("alpha", "London"), queue(r"alpha\orders")))
        self.allow(f"(A;;0x4;;;{self.outer})")
        names = {"ldap": controller.ldaps, "user": ADMINISTRATOR, "ca": controller.ca_certificates}
        self.alpha = self._serve(place, "alpha", HOST, DOMAIN.format(**names), stack)
        self.beta = self._serve(place, "beta", SENDER, "", stack)
        self.manager = stack.enter_context(client.connect(self.alpha.api))
        self.queue = self.manager.queue(LOCAL)

    def _serve(self, place: Path, name: str, host: str, more: str, stack: ExitStack) -> ServerProcess:
        file = place / f"{name}.toml"
        file.write_text(COMMON.format(name=name, host=host) + more)
        process = ServerProcess(file)
        stack.callback(process.close)
        return process

    def allow(self, entries: str) -> None:
        """Replaces the queue's access list in the directory."""
        descriptor = directory_descriptor(parse_sddl(f"D:{entries}"))
        self.domain.connection.modify(
            self._orders, {"nTSecurityDescriptor": [descriptor.encode()]}, sd_flags=SdFlags.DACL
        )

    def run(self, *arguments: str) -> Outcome:
        return postroad(*arguments, api=self.alpha.api)

    def send(self, *, signed: bool = True) -> None:
        signing = ("--sign", str(self.files.certificate), "--key", str(self.files.key), "--sender-id", str(self.ann))
        done = postroad("send", ORDERS, "--body", "ten", *(signing if signed else ()), api=self.beta.api)
        assert (done.code, done.errors) == (0, "")

    @property
    def refused(self) -> dict[str, int]:
        return dict(self.manager.info().messages_refused)

    def arrives(self, *, signed: bool = True) -> bool:
        """Sends a message, and says whether the queue took it."""
        before, messages = sum(self.refused.values()), self.queue.info().messages
        self.send(signed=signed)
        until(lambda: sum(self.refused.values()) > before or self.queue.info().messages > messages)
        return self.queue.info().messages > messages

    def posts(self) -> bool:
        """Sends a message by SOAP, and says whether the queue took it."""
        before, messages = sum(self.refused.values()), self.queue.info().messages
        done = postroad("send", f"DIRECT=HTTP://{HOST}:{HTTP}/msmq/orders", "--body", "ten", api=self.beta.api)
        assert (done.code, done.errors) == (0, "")
        until(lambda: sum(self.refused.values()) > before or self.queue.info().messages > messages)
        return self.queue.info().messages > messages


def until(happened: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(scope="module")
def network(new_controller: Callable[[], Controller], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    controller = new_controller()
    controller.start()
    with ExitStack() as stack:
        domain = stack.enter_context(domain_of(controller))
        yield Network(tmp_path_factory.mktemp("domain"), domain, controller, stack)


@pytest.fixture(autouse=True)
def restored(network: Network) -> Iterator[None]:
    """Afterwards, Ann is again a member of a group that may write."""
    yield
    network.allow(f"(A;;0x4;;;{network.outer})")
    until(network.arrives)


def test_a_member_of_a_group_in_a_group_may_send_with_a_certificate_of_the_directory(network: Network) -> None:
    assert network.arrives()
    message = network.queue.receive(timeout=PATIENCE_S).describe()
    assert (message["sender_id"], message["authentication_level"]) == (str(network.ann), 3)
    assert not network.arrives(signed=False)


def test_a_change_of_a_group_takes_effect_within_the_refresh(network: Network) -> None:
    network.domain.leave(network.outer, network.inner)
    try:
        until(lambda: not network.arrives())
        assert network.refused["access-denied"] > 0
    finally:
        network.domain.join(network.outer, network.inner)
    until(network.arrives)


def test_a_disabled_account_may_do_nothing(network: Network) -> None:
    network.allow("(A;;0x4;;;WD)(A;;0x4;;;AN)")
    network.domain.set(network.ann, userAccountControl=DISABLED)
    try:
        until(lambda: not network.arrives())
        until(lambda: network.arrives(signed=False))
    finally:
        network.domain.set(network.ann, userAccountControl=NORMAL)
    until(network.arrives)


def test_a_certificate_that_was_taken_back_proves_nothing(network: Network) -> None:
    before = network.refused.get("certificate-not-registered", 0)
    network.domain.connection.modify(network.domain.dn(network.ann), {"mSMQSignCertificates": []})
    try:
        until(lambda: not network.arrives())
        assert network.refused["certificate-not-registered"] > before
    finally:
        network.domain.set(network.ann, mSMQSignCertificates=certificates(network.files.der))
    until(network.arrives)


@pytest.mark.spec("QB-3.1.5.8.3-24")
def test_a_list_that_is_changed_in_the_directory_takes_effect(network: Network) -> None:
    assert not network.arrives(signed=False)
    network.allow("(A;;0x4;;;WD)(A;;0x4;;;AN)")
    until(lambda: network.arrives(signed=False))
    network.allow(f"(D;;0x4;;;{network.ann})(A;;0x4;;;WD)")
    until(lambda: not network.arrives())
    assert network.arrives(signed=False)


@pytest.mark.spec("SRM-3.1.5.1.12-03")
def test_a_message_by_soap_is_checked_against_the_list_in_the_directory(network: Network) -> None:
    assert not network.posts()
    network.allow("(A;;0x4;;;WD)")
    until(network.posts)


def test_a_list_that_was_set_here_counts_until_the_default_is_restored(network: Network) -> None:
    assert network.run("queue", "acl", "set", LOCAL, "--sddl", "O:BAD:(A;;0x4;;;AN)").code == 0
    assert network.arrives(signed=False)
    assert not network.arrives()
    assert network.run("queue", "acl", "set", LOCAL, "--default").code == 0
    assert network.arrives()
    assert not network.arrives(signed=False)


def test_lists_show_names_and_take_them(network: Network) -> None:
    shown = network.run("queue", "acl", "show", LOCAL)
    assert rf"POSTROAD\outer ({network.outer})" in shown.text
    try:
        for who in (r"POSTROAD\ann", "ann@postroad.test", str(network.ann)):
            shown = network.run("queue", "acl", "grant", LOCAL, who, "receive")
            assert (shown.code, shown.errors) == (0, "")
            assert rf"POSTROAD\ann ({network.ann})" in shown.text
            assert f"(A;;0x3;;;{network.ann})" in network.run("queue", "acl", "show", LOCAL, "--sddl").text
            network.run("queue", "acl", "revoke", LOCAL, who, "receive")
            assert f"(A;;0x3;;;{network.ann})" not in network.run("queue", "acl", "show", LOCAL, "--sddl").text
        (found,) = network.run("queue", "acl", "show", LOCAL, "--json").objects
        assert found["names"][str(network.outer)] == r"POSTROAD\outer"
        refused = network.run("queue", "acl", "grant", LOCAL, r"POSTROAD\nobody", "receive")
        assert refused.code != 0
        assert r"POSTROAD\\nobody" in refused.last_error
    finally:
        assert network.run("queue", "acl", "set", LOCAL, "--default").code == 0


def test_a_sender_without_a_sid_has_that_of_the_account_that_registered_the_certificate(network: Network) -> None:
    digest = UserSignCertificate.of(uuid4(), network.files.der).digest
    network.domain.set(network.ann, mSMQDigests=digest)
    files = ("--sign", str(network.files.certificate), "--key", str(network.files.key))
    sent = network.run("send", LOCAL, "--body", "ten", "--label", "by digest", *files)
    assert (sent.code, sent.errors) == (0, "")
    found = [each.describe() for each in network.queue.messages() if each.label == "by digest"]
    assert [(each["sender_id"], each["authentication_level"]) for each in found] == [(str(network.ann), 3)]


def test_a_renamed_account_is_shown_by_its_new_name(network: Network) -> None:
    network.allow(f"(A;;0x4;;;{network.ann})")
    until(lambda: rf"POSTROAD\ann ({network.ann})" in network.run("queue", "acl", "show", LOCAL).text)
    network.domain.set(network.ann, sAMAccountName="anna")
    try:
        until(lambda: rf"POSTROAD\anna ({network.ann})" in network.run("queue", "acl", "show", LOCAL).text)
    finally:
        network.domain.set(network.ann, sAMAccountName="ann")


def test_the_api_names_sids_and_guids(network: Network) -> None:
    identifier = network.manager.info().id
    unknown = Sid(5, (*network.ann.sub_authorities[:-1], 999_999))
    asked = ",".join([str(network.ann), str(network.outer), identifier, str(EVERYONE), str(unknown), "nonsense", "*"])
    with urlopen(f"{network.alpha.api}/api/v1/names?{urlencode({'of': asked})}", timeout=PATIENCE_S) as answer:
        found = json.load(answer)
    assert found == {
        "names": {str(network.ann): r"POSTROAD\ann", str(network.outer): r"POSTROAD\outer", identifier: "alpha"}
    }


def test_while_the_directory_is_away_what_is_known_goes_on_counting(network: Network) -> None:
    assert network.arrives()
    network.controller.stop()
    try:
        until(lambda: any("accounts" in each for each in network.run("status", "--json").objects[0]["attention"]))
        assert network.arrives()
        assert not network.arrives(signed=False)
        assert str(network.outer) in network.run("queue", "acl", "show", LOCAL).text
        refused = network.run("queue", "acl", "grant", LOCAL, r"POSTROAD\somebody", "receive")
        assert refused.code != 0
    finally:
        network.controller.start()
    until(lambda: not any("accounts" in each for each in network.run("status", "--json").objects[0]["attention"]))
    network.domain.reopen()
