"""Users, groups and computers of a domain for tests, made by LDAP and taken away at the end of a test."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from uuid import uuid4

from postroad.directory.account_reader import AccountReader
from postroad.directory.distinguished_names import child
from postroad.directory.ldap_connection import LdapConnection, LdapSettings, connect
from postroad.errors import DirectoryError
from postroad.security.accounts import Account
from postroad.security.descriptors import Sid
from postroad.wire.records import UserSignCertificate, encode_user_certificates
from tests.domain import ADMINISTRATOR, BASE, PASSWORD, Controller

DISABLED, NORMAL = "546", "544"  # of userAccountControl


@dataclass
class Domain:
    """A domain whose objects go when the test ends."""

    settings: LdapSettings
    connection: LdapConnection
    reader: AccountReader
    made: list[str]

    def reopen(self) -> None:
        """After a restart of the controller."""
        self.connection.close()
        self.connection = connect(self.settings)

    def user(self, name: str, **attributes: str | bytes) -> Sid:
        return self._add(name, "user", {"userAccountControl": NORMAL, **attributes})

    def group(self, name: str, *members: Sid) -> Sid:
        sid = self._add(name, "group", {"groupType": "-2147483646"})  # global, for security
        for member in members:
            self.join(sid, member)
        return sid

    def join(self, group: Sid, member: Sid) -> None:
        self.connection.modify(self.dn(group), add={"member": [self.dn(member)]})

    def leave(self, group: Sid, member: Sid) -> None:
        self.connection.modify(self.dn(group), remove={"member": [self.dn(member)]})

    def set(self, sid: Sid, **attributes: str | bytes) -> None:
        self.connection.modify(self.dn(sid), {name: [value] for name, value in attributes.items()})

    def dn(self, sid: Sid) -> str:
        found = self.connection.read(f"<SID={sid}>", ("objectSid",))
        assert found is not None
        return found.dn

    def _add(self, name: str, kind: str, attributes: dict[str, str | bytes]) -> Sid:
        dn = child("CN", name, f"CN=Users,{BASE}")
        with suppress(DirectoryError):
            self.connection.delete(dn)
        given = {"sAMAccountName": name} | attributes
        self.connection.add(dn, {"objectClass": [kind]} | {key: [value] for key, value in given.items()})
        self.made.append(dn)
        found = self.connection.read(dn, ("objectSid",))
        assert found is not None
        return Sid.decode(found.first("objectsid") or b"")

    def account(self, sid: Sid) -> Account:
        account = self.reader.by_sid(sid)
        assert account is not None
        return account


def settings_of(controller: Controller) -> LdapSettings:
    password = controller.directory / "password"
    password.write_text(PASSWORD)
    password.chmod(0o600)
    return LdapSettings(
        servers=(controller.ldaps,),
        user=ADMINISTRATOR,
        password_file=password,
        ca_certificates=controller.ca_certificates,
    )


@contextmanager
def domain_of(controller: Controller) -> Iterator[Domain]:
    settings = settings_of(controller)
    with AccountReader(lambda: connect(settings), time.time) as reader:
        found = Domain(settings, connect(settings), reader, [])
        try:
            yield found
        finally:
            for dn in reversed(found.made):
                with suppress(DirectoryError):
                    found.connection.delete(dn)
            found.connection.close()


def certificates(*some: bytes) -> bytes:
    """The attribute mSMQSignCertificates of somebody with these certificates."""
    return encode_user_certificates([UserSignCertificate.of(uuid4(), each) for each in some])
