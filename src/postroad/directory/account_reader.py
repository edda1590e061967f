"""Reads accounts from Active Directory: by SID, by name, and by the digest of a certificate, [MS-MQDSSM] 3.1.6.4.6.

Every call blocks. What is remembered is in security/accounts.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from hashlib import md5
from types import TracebackType
from typing import Final, Protocol, TypeVar

from postroad.directory.distinguished_names import all_of, any_of, equals, present
from postroad.directory.ldap_connection import LdapConnection, LdapEntry
from postroad.errors import DirectoryError, InvalidArgument, LdapError, LdapFault, RemoteProtocolError
from postroad.security.accounts import MAX_GROUPS, Account
from postroad.security.descriptors import Sid
from postroad.wire.records import decode_user_certificates

log = logging.getLogger(__name__)

_T = TypeVar("_T")

MAX_CERTIFICATES: Final = 1000  # of one account; each message compares its own with all of them
_BUILT_IN: Final = 32  # S-1-5-32-...: groups of one computer, here of the domain controller
_DISABLED: Final = 0x2  # ADS_UF_ACCOUNTDISABLE of userAccountControl, [MS-ADTS] 2.2.16
_NEVER: Final = (0, 0x7FFFFFFFFFFFFFFF)  # accountExpires, [MS-ADA1] 2.2
_EPOCH_S: Final = 11_644_473_600  # from 1601 to 1970
_ATTRIBUTES: Final = (
    "objectSid",
    "sAMAccountName",
    "userPrincipalName",
    "userAccountControl",
    "accountExpires",
    "tokenGroups",
    "mSMQSignCertificates",
)
_FOUND: Final = ("objectSid",)
_MAX_NAME: Final = 1024  # characters; a userPrincipalName has at most that many
_SEVERAL: Final = 100  # accounts with one name; more is an error too
_GONE: Final = (LdapFault.NO_ANSWER, LdapFault.BAD_ANSWER)  # the connection is of no more use


class Reader(Protocol):
    """Whoever can be asked for accounts. Raises DirectoryError if it cannot answer."""

    def by_sid(self, sid: Sid) -> Account | None: ...

    def by_name(self, name: str) -> Account | None: ...

    def by_certificate(self, certificate: bytes) -> Account | None: ...

    def domain(self) -> Sid: ...

    def close(self) -> None: ...


class AccountReader:
    """Asks one domain over a connection of its own, which it opens when it needs one. For one thread at a time."""

    def __init__(self, connect: Callable[[], LdapConnection], clock: Callable[[], float]) -> None:
        self._connect = connect
        self._clock = clock
        self._connection: LdapConnection | None = None
        self._names: tuple[str, str, Sid] | None = None  # of the domain: CORP, corp.local and its SID

    def __enter__(self) -> AccountReader:
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    # Questions

    def by_sid(self, sid: Sid) -> Account | None:
        return self._ask(lambda connection: self._by_sid(connection, sid))

    def by_name(self, name: str) -> Account | None:
        r"""The account that `CORP\ann` or `ann@corp.local` names. None for a name of another domain.

        Raises InvalidArgument if several accounts have the name.
        """
        return self._ask(lambda connection: self._by_name(connection, name))

    def by_certificate(self, certificate: bytes) -> Account | None:
        """The account that has registered this certificate (DER). None if several have: nobody knows whose it is."""
        return self._ask(lambda connection: self._by_certificate(connection, certificate))

    def domain(self) -> Sid:
        """The SID of the domain."""
        return self._ask(self._domain)[2]

    def _ask(self, question: Callable[[LdapConnection], _T]) -> _T:
        """Asks again over a new connection where the old one has ended: controllers close idle ones."""
        connection = self._connection
        if connection is not None:
            try:
                return question(connection)
            except LdapError as fault:
                if fault.fault not in _GONE:
                    raise
                self.close()
        connection = self._connection = self._connect()
        try:
            return question(connection)
        except LdapError as fault:
            if fault.fault in _GONE:
                self.close()
            raise

    def _by_sid(self, connection: LdapConnection, sid: Sid) -> Account | None:
        entry = connection.read(f"<SID={sid}>", _ATTRIBUTES)
        if entry is None:
            return None
        netbios = self._domain(connection)[0]
        try:
            account = self.account(entry, netbios)
        except LdapError:
            raise
        except DirectoryError as fault:
            log.warning("account cannot be read, so it may do nothing", extra={"sid": sid, "reason": fault})
            return Account(sid, str(sid), fault="it cannot be read")
        return account if account.sid == sid else None

    def _by_name(self, connection: LdapConnection, name: str) -> Account | None:
        if len(name) > _MAX_NAME or not name.isprintable():  # a controller may end a name at NUL
            return None
        netbios, dns, _ = self._domain(connection)
        domain, backslash, account = name.partition("\\")
        if backslash:
            if domain.casefold() not in (netbios.casefold(), dns.casefold()) or not account:
                return None
            text = equals("sAMAccountName", account)
        else:
            account, at, realm = name.rpartition("@")
            if not at or not account:
                return None
            text = equals("userPrincipalName", name)
            if realm.casefold() == dns.casefold():
                text = any_of(text, equals("sAMAccountName", account))
        return self._one(connection, all_of(present("objectSid"), text), name)

    def _by_certificate(self, connection: LdapConnection, certificate: bytes) -> Account | None:
        digest = md5(certificate, usedforsecurity=False).digest()  # [MS-MQDMPR] 3.1.1.15 CertificateDigestList
        try:
            account = self._one(connection, equals("mSMQDigests", digest), "the certificate")
        except InvalidArgument as fault:
            log.warning("certificate registered twice, so it counts for nobody", extra={"reason": fault})
            return None
        return account if account is not None and certificate in account.certificates else None

    def _one(self, connection: LdapConnection, text: str, what: str) -> Account | None:
        found = [_sid(each) for each in connection.search(connection.base, text, _FOUND, limit=_SEVERAL)]
        if len(found) > 1:
            raise InvalidArgument(f"{what} must be of one account, got {', '.join(map(str, found))}: use the SID")
        return self._by_sid(connection, found[0]) if found else None

    # Answers

    def _domain(self, connection: LdapConnection) -> tuple[str, str, Sid]:
        if self._names is None:
            root = connection.root
            entry = connection.read(root.domain, ("objectSid",))
            text = all_of(equals("objectClass", "crossRef"), equals("nCName", root.domain))
            found = next(
                connection.search(f"CN=Partitions,{root.configuration}", text, ("nETBIOSName", "dnsRoot")), None
            )
            if entry is None or found is None:
                raise DirectoryError(
                    f"{connection.url} does not let this manager read {root.domain}: grant it read access"
                )
            self._names = _text(found, "netbiosname") or "", _text(found, "dnsroot") or "", _sid(entry)
        return self._names

    def account(self, entry: LdapEntry, netbios: str) -> Account:
        """What an entry says. Raises DirectoryError."""
        name = _text(entry, "samaccountname")
        groups, fault = _groups(entry), self._fault(entry)
        if len(groups) > MAX_GROUPS:  # without some of them, a list that denies one would let the account in
            fault, groups = f"it is in {len(groups)} groups, and at most {MAX_GROUPS} can count", frozenset()
        sid = _sid(entry)
        return Account(
            sid,
            str(sid) if name is None else f"{netbios}\\{name}" if netbios else name,
            _text(entry, "userprincipalname"),
            groups,
            _certificates(entry),
            fault,
        )

    def _fault(self, entry: LdapEntry) -> str | None:
        if _number(entry, "useraccountcontrol") & _DISABLED:
            return "it is disabled"
        expires = _number(entry, "accountexpires")
        if expires not in _NEVER and expires / 10_000_000 - _EPOCH_S <= self._clock():
            return "it has expired"
        return None


def _sid(entry: LdapEntry) -> Sid:
    try:
        return Sid.decode(entry.first("objectsid") or b"")
    except RemoteProtocolError as fault:
        raise DirectoryError(f"{entry.dn}: objectSid cannot be read: {fault}") from None


def _groups(entry: LdapEntry) -> frozenset[Sid]:
    """Without those of one computer, S-1-5-32-...: who is an administrator of the controller is none of ours."""
    found = set()
    for value in entry.attributes.get("tokengroups", ()):
        try:
            sid = Sid.decode(value)
        except RemoteProtocolError:
            raise DirectoryError(f"{entry.dn}: tokenGroups has a value that is no SID") from None
        if sid.sub_authorities[0] != _BUILT_IN:
            found.add(sid)
    return frozenset(found)


def _certificates(entry: LdapEntry) -> tuple[bytes, ...]:
    """Those of mSMQSignCertificates. An account that has bad ones has none."""
    value = entry.first("msmqsigncertificates")
    if value is None:
        return ()
    try:
        found = tuple(each.certificate for each in decode_user_certificates(value))
    except RemoteProtocolError as fault:
        log.warning("registered certificates cannot be read", extra={"account": entry.dn, "reason": fault})
        return ()
    if len(found) > MAX_CERTIFICATES:
        log.warning(
            "too many registered certificates: none of them counts",
            extra={"account": entry.dn, "certificates": len(found), "most": MAX_CERTIFICATES},
        )
        return ()
    return found


def _text(entry: LdapEntry, attribute: str) -> str | None:
    value = entry.first(attribute)
    return None if value is None else value.decode("utf-8", "replace")


def _number(entry: LdapEntry, attribute: str) -> int:
    value = entry.first(attribute)
    try:
        return 0 if value is None else int(value)
    except ValueError:
        raise DirectoryError(f"{entry.dn}: {attribute} must be a number, got {value!r}") from None
