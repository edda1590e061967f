"""Connections to a real domain controller: how to log in, what is checked, what can be changed, and what faults say."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from postroad.directory import distinguished_names as names
from postroad.directory.ldap_connection import LdapConnection, LdapSettings, Scope, connect
from postroad.errors import LdapError, LdapFault
from tests.certificates import Authority
from tests.domain import ADMINISTRATOR, BASE, CONFIGURATION, PASSWORD, Controller


@pytest.fixture(autouse=True)
def kerberos(domain_controller: Controller, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KRB5_CONFIG", str(domain_controller.krb5_conf))
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/none")


@pytest.fixture
def settings(domain_controller: Controller, tmp_path: Path) -> LdapSettings:
    return password_settings(domain_controller, tmp_path)


def password_settings(controller: Controller, place: Path, password: str = PASSWORD) -> LdapSettings:
    file = place / "password"
    file.write_text(password + "\n")
    return LdapSettings(
        servers=(controller.ldaps,),
        user=ADMINISTRATOR,
        password_file=file,
        ca_certificates=controller.ca_certificates,
        connect_timeout_s=10,
    )


@pytest.fixture
def connection(settings: LdapSettings) -> Iterator[LdapConnection]:
    with connect(settings) as opened:
        yield opened


def fault(settings: LdapSettings) -> LdapError:
    with pytest.raises(LdapError) as caught:
        connect(settings).close()
    return caught.value


@pytest.mark.parametrize("scheme", ["ldaps", "ldap"])
@pytest.mark.parametrize("login", ["password", "keytab", "cache"])
def test_every_login_reads_the_root_and_the_sites(
    domain_controller: Controller, settings: LdapSettings, monkeypatch: pytest.MonkeyPatch, scheme: str, login: str
) -> None:
    settings = replace(settings, servers=(f"{scheme}://{domain_controller.address}",))
    if login != "password":
        pytest.importorskip("gssapi")
    if login == "keytab":
        settings = replace(settings, password_file=None, keytab=domain_controller.keytab("Administrator"))
    if login == "cache":
        settings = replace(settings, password_file=None)
        monkeypatch.setenv("KRB5CCNAME", f"FILE:{domain_controller.credentials_cache()}")
    with connect(settings) as opened:
        assert (opened.root.domain, opened.root.configuration) == (BASE, CONFIGURATION)
        assert opened.root.highest_usn > 0
        found = list(opened.search(CONFIGURATION, names.equals("objectClass", "site"), ["cn", "nTSecurityDescriptor"]))
    assert b"Default-First-Site-Name" in [entry.first("cn") for entry in found]
    assert found[0].first("ntsecuritydescriptor")


def test_kerberos_inside_tls_binds_the_channel(
    new_controller: Callable[[], Controller], settings: LdapSettings
) -> None:
    pytest.importorskip("gssapi")
    controller = new_controller()
    controller.set_option("ldap server require strong auth", "allow_sasl_over_tls")
    controller.start()
    os.environ["KRB5_CONFIG"] = str(controller.krb5_conf)
    keytab = controller.keytab("Administrator")
    settings = replace(settings, servers=(controller.ldaps,), password_file=None, keytab=keytab)
    with connect(replace(settings, ca_certificates=controller.ca_certificates)) as opened:
        assert opened.url.startswith("ldaps:")


def test_a_dead_first_server_is_passed_over(settings: LdapSettings) -> None:
    with connect(replace(settings, servers=("ldaps://127.9.9.9", *settings.servers))) as opened:
        assert opened.url == settings.servers[0]


def test_each_cause_has_its_own_sentence(domain_controller: Controller, settings: LdapSettings, tmp_path: Path) -> None:
    wrong = password_settings(domain_controller, tmp_path, "wrong")
    assert fault(wrong).fault is LdapFault.WRONG_PASSWORD
    assert fault(replace(settings, password_file=Path("/dev/null"))).fault is LdapFault.WRONG_PASSWORD
    assert fault(replace(settings, servers=("ldaps://127.9.9.9",))).fault is LdapFault.NO_ANSWER
    assert fault(replace(settings, servers=("ldaps://nobody.invalid",))).fault is LdapFault.NAME_NOT_FOUND
    stranger = Authority(tmp_path, "stranger").file
    assert fault(replace(settings, ca_certificates=stranger)).fault is LdapFault.CERTIFICATE_UNTRUSTED
    pytest.importorskip("gssapi")
    kerberos = replace(settings, password_file=None)
    assert fault(kerberos).fault is LdapFault.NO_TICKET
    assert "kinit" in str(fault(kerberos))
    assert fault(replace(kerberos, keytab=tmp_path / "none")).fault is LdapFault.NO_TICKET


@pytest.mark.parametrize(("host", "days", "found"), [("127.0.0.9", 1, "OTHER_HOST"), ("", -1, "EXPIRED")])
def test_a_certificate_must_be_valid_and_for_the_host(
    new_controller: Callable[[], Controller], tmp_path: Path, host: str, days: int, found: str
) -> None:
    controller = new_controller()
    controller.use_certificate(*controller.authority.issue(host or controller.address, days=days))
    controller.start()
    assert fault(password_settings(controller, tmp_path)).fault is LdapFault[f"CERTIFICATE_{found}"]


@pytest.mark.parametrize(
    ("user", "change", "words"),
    [
        ("shut-out", ("disable", "shut-out"), "disabled"),
        ("long-past", ("setexpiry", "long-past", "--days=-1"), "expired"),
    ],
)
def test_an_account_that_cannot_log_in_is_told_from_a_wrong_password(
    domain_controller: Controller, settings: LdapSettings, user: str, change: tuple[str, ...], words: str
) -> None:
    domain_controller.add_user(user)
    domain_controller.tool("user", *change)
    found = fault(replace(settings, user=f"{user}@POSTROAD.TEST"))
    assert found.fault is LdapFault.ACCOUNT
    assert words in str(found)


def test_a_locked_account_is_told_from_a_wrong_password(
    domain_controller: Controller, settings: LdapSettings, tmp_path: Path
) -> None:
    domain_controller.add_user("guessed")
    policy = ["domain", "passwordsettings", "pso"]
    lockout = ["--account-lockout-threshold=2", "--account-lockout-duration=30", "--reset-account-lockout-after=30"]
    domain_controller.tool(*policy, "create", "guessed", "1", *lockout)
    domain_controller.tool(*policy, "apply", "guessed", "guessed")
    right = replace(settings, user="guessed@POSTROAD.TEST")
    connect(right).close()
    (tmp_path / "guess").write_text("guess")
    for _ in range(2):
        assert fault(replace(right, password_file=tmp_path / "guess")).fault is LdapFault.WRONG_PASSWORD
    found = fault(right)
    assert found.fault is LdapFault.ACCOUNT
    assert "locked" in str(found)


def test_an_attribute_that_comes_in_ranges_is_whole(settings: LdapSettings) -> None:
    """A real controller: Windows gives at most 1,500 values at once, and this one as many as it is asked for."""
    values = [number.to_bytes(16, "big") for number in range(1, 1601)]
    computer = names.child("CN", "Ranges", f"CN=Computers,{BASE}")
    with connect(settings) as opened:
        opened.add(computer, {"objectClass": ["computer"], "sAMAccountName": ["RANGES$"]})
        opened.add(f"CN=msmq,{computer}", {"objectClass": ["mSMQConfiguration"], "mSMQSites": values})
        found = opened.read(f"CN=msmq,{computer}", ["mSMQSites;range=0-1499"])
        assert found is not None
        assert sorted(found.attributes["msmqsites"]) == values
        opened.delete(f"CN=msmq,{computer}")
        opened.delete(computer)


def test_a_ticket_that_has_expired(
    domain_controller: Controller, settings: LdapSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("gssapi")
    cache = domain_controller.credentials_cache(ADMINISTRATOR, PASSWORD, "-l", "1s")
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{cache}")
    kerberos = replace(settings, password_file=None)
    assert first_fault(kerberos).fault is LdapFault.TICKET_EXPIRED


def first_fault(settings: LdapSettings) -> LdapError:
    """Connects until that fails: a ticket lasts a second, and its clock is the controller's."""
    while True:
        try:
            connect(settings).close()
        except LdapError as found:
            return found


def test_objects_are_added_changed_and_deleted(connection: LdapConnection) -> None:
    computer = names.child("CN", "Changes", f"CN=Computers,{BASE}")
    queues = names.child("CN", "msmq", computer)
    connection.add(computer, {"objectClass": ["computer"], "sAMAccountName": ["CHANGES$"]})
    connection.add(queues, {"objectClass": ["mSMQConfiguration"], "mSMQSites": []})
    with pytest.raises(LdapError) as caught:
        connection.add(queues, {"objectClass": ["mSMQConfiguration"]})
    assert caught.value.fault is LdapFault.EXISTS
    with pytest.raises(LdapError) as caught:
        connection.modify(queues, {"mSMQSites": [b"short"]})
    assert (caught.value.fault, caught.value.code) == (LdapFault.REFUSED, 21)
    connection.modify(queues, {"mSMQQuota": ["5"]}, add={"mSMQSites": [b"a" * 16, b"b" * 16]})
    connection.modify(queues, remove={"mSMQSites": [b"a" * 16]})
    found = connection.read(queues, ["mSMQQuota", "mSMQSites"])
    assert found is not None
    assert found.attributes == {"msmqquota": (b"5",), "msmqsites": (b"b" * 16,)}
    connection.delete(queues)
    connection.delete(computer)
    assert connection.read(queues, ["cn"]) is None
    deleted = names.all_of(names.equals("isDeleted", "TRUE"), names.equals("objectClass", "mSMQConfiguration"))
    assert list(connection.search(BASE, deleted, ["objectGUID"], deleted=True))


def test_a_user_without_rights_is_told_so(
    domain_controller: Controller, settings: LdapSettings, connection: LdapConnection
) -> None:
    domain_controller.add_user("plain-reader")
    with connect(replace(settings, user="plain-reader@POSTROAD.TEST")) as opened:
        assert opened.read(BASE, ["dc"]) is not None
        with pytest.raises(LdapError) as caught:
            opened.add(f"CN=x,CN=Computers,{BASE}", {"objectClass": ["container"]})
    assert caught.value.fault is LdapFault.NO_PERMISSION


def test_a_search_over_many_pages_returns_every_object(connection: LdapConnection) -> None:
    place = f"OU=Many,{BASE}"
    connection.add(place, {"objectClass": ["organizationalUnit"]})
    for number in range(1100):
        connection.add(f"OU=o{number},{place}", {"objectClass": ["organizationalUnit"]})
    found = [each.dn for each in connection.search(place, "(objectClass=*)", ["ou"], scope=Scope.CHILDREN)]
    assert len(set(found)) == len(found) == 1100
    with pytest.raises(LdapError) as caught:
        list(connection.search(place, "(objectClass=*)", ["ou"], limit=1050))
    assert caught.value.fault is LdapFault.SIZE_LIMIT
