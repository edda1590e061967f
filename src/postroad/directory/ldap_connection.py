"""A connection to a domain controller by LDAP: TLS or Kerberos, paged searches, changes, and errors as sentences.

Every call blocks, so the event loop calls it in a thread. The messages are ldap3's; the connection is ours, because
ldap3's own does not match IP addresses in certificates, and bounds neither the time nor the size of an answer.
Only this module knows ldap3 and pyspnego.
"""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn
from urllib.parse import urlsplit

from postroad.directory.distinguished_names import normal
from postroad.errors import LdapError, LdapFault
from postroad.security.kerberos import end_point_binding

PAGE_ENTRIES = 1000  # MaxPageSize of Active Directory
MAX_ENTRIES = 2_000_000  # of one search
_MAX_PAGES = 20_000  # of one search; a page may have fewer entries than asked for
_MAX_MESSAGE_BYTES = 16 << 20  # of one message
_MAX_PAGE_BYTES = 64 << 20
_MAX_PAGE_MESSAGES = 4 * PAGE_ENTRIES  # entries and references
_MAX_RANGES = 1000  # of one attribute
_MAX_BIND_STEPS = 10
_MAX_PASSWORD_BYTES = 4096
_READ_BYTES = 1 << 16

_START_TLS = "1.3.6.1.4.1.1466.20037"
_NOTICE_OF_DISCONNECTION = 0  # the message id of an unsolicited notification
_PAGED = "1.2.840.113556.1.4.319"
_SHOW_DELETED = "1.2.840.113556.1.4.417"  # [MS-ADTS] 3.1.1.3.4.1.14
_EXTENDED_DN = "1.2.840.113556.1.4.529"  # [MS-ADTS] 3.1.1.3.4.1.5
_SD_FLAGS = "1.2.840.113556.1.4.801"  # [MS-ADTS] 3.1.1.3.4.1.11

_RANGE = re.compile(r"(.+);range=(\d+)-(\d+|\*)", re.IGNORECASE)
_DATA_CODE = re.compile(r"\bdata ([0-9a-fA-F]{1,8})\b")
# The Windows codes in the text of an LDAP result 49, [MS-ADTS] 2.2.1.1 for what they are
_ACCOUNT_FAULTS = {
    0x530: "the account may not log in at this time",
    0x531: "the account may not log in from this computer",
    0x532: "the password has expired",
    0x533: "the account is disabled",
    0x701: "the account has expired",
    0x773: "the password must be changed",
    0x775: "the account is locked",
}


class Scope(IntEnum):
    BASE = 0
    CHILDREN = 1
    SUBTREE = 2


class SdFlags(IntFlag):
    """The parts of nTSecurityDescriptor to read or write. Reading the SACL needs a privilege."""

    OWNER = 1
    GROUP = 2
    DACL = 4
    SACL = 8


DESCRIPTOR = SdFlags.OWNER | SdFlags.GROUP | SdFlags.DACL


@dataclass(frozen=True, slots=True, kw_only=True)
class LdapSettings:
    """How to reach the domain. With a password file: simple bind over TLS. Without: Kerberos, with the keytab, or with
    the credentials cache.

    ldaps:// is TLS from the start. ldap:// starts TLS for a password, and lets Kerberos seal the connection itself.
    Nothing is ever sent in the clear.
    """

    servers: tuple[str, ...]  # tried in turn
    base: str | None = None  # None: the domain's own
    user: str | None = None
    password_file: Path | None = None
    keytab: Path | None = None
    ca_certificates: Path | None = None  # None: the system's
    connect_timeout_s: float = 5.0  # of one address
    timeout_s: float = 30.0  # of one request, and of one page of a search


@dataclass(frozen=True, slots=True)
class LdapEntry:
    """An object. The names of attributes are in lower case; their values are as the server gave them."""

    dn: str
    attributes: Mapping[str, tuple[bytes, ...]]

    def first(self, attribute: str) -> bytes | None:
        """The first value of an attribute, whose name is in lower case."""
        values = self.attributes.get(attribute)
        return values[0] if values else None


@dataclass(frozen=True, slots=True)
class RootDse:
    """What a domain controller says of itself, [MS-ADTS] 3.1.1.3.2."""

    domain: str  # defaultNamingContext
    configuration: str  # configurationNamingContext
    root_domain: str  # rootDomainNamingContext
    service: str  # dsServiceName: this controller's NTDS Settings
    host: str
    highest_usn: int
    time: str  # currentTime, as in 20261119211435.0Z


def connect(settings: LdapSettings) -> LdapConnection:
    """Connects to the first server that answers. Raises LdapError: its sentence names every server that was tried.

    A refused password ends the attempt: trying it elsewhere could lock the account.
    """
    _require_ldap3()
    faults: list[LdapError] = []
    for url in settings.servers:
        try:
            return _connect(url, settings)
        except LdapError as fault:
            faults.append(fault)
            if fault.fault in (LdapFault.WRONG_PASSWORD, LdapFault.ACCOUNT):
                break
    if not faults:
        raise LdapError(LdapFault.NAME_NOT_FOUND, "the directory has no server to ask")
    raise LdapError(faults[-1].fault, "; ".join(map(str, faults)), faults[-1].code) from faults[-1]


def _connect(url: str, settings: LdapSettings) -> LdapConnection:
    try:
        return LdapConnection(url, settings)
    except LdapError as fault:
        host = urlsplit(url).netloc.partition(":")[0]
        if fault.fault is not LdapFault.STRONG_AUTHENTICATION or url != f"ldaps://{host}":
            raise
        # Samba takes no Kerberos inside TLS unless it is told to. Kerberos proves the same, and seals as well.
        return LdapConnection(f"ldap://{host}", settings)


class LdapConnection:
    """One connection, bound and ready. Not for several threads at once. After NO_ANSWER or BAD_ANSWER it is closed."""

    def __init__(self, url: str, settings: LdapSettings) -> None:
        split = urlsplit(url)
        self.url = url
        self.host = split.hostname or ""
        self._settings = settings
        self._message_id = 0
        tls = split.scheme == "ldaps"
        kerberos = settings.password_file is None
        self._channel = _Channel(url, self.host, split.port or (636 if tls else 389), settings)
        try:
            if tls:
                self._channel.start_tls(settings.ca_certificates)
            elif not kerberos:
                self._start_tls()
            if kerberos:
                self._bind_kerberos()
            else:
                self._bind_simple()
            self.root = self._root()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> LdapConnection:
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def base(self) -> str:
        """The DN under which to look for computers."""
        return self._settings.base or self.root.domain

    def close(self) -> None:
        self._channel.close()

    def refresh(self) -> None:
        """Reads the root DSE again."""
        self.root = self._root()

    # Reading

    def search(
        self,
        base: str,
        text: str,
        attributes: Sequence[str],
        *,
        scope: Scope = Scope.SUBTREE,
        deleted: bool = False,
        extended: bool = False,
        limit: int = MAX_ENTRIES,
    ) -> Iterator[LdapEntry]:
        """The objects that match a filter, page by page. Make the filter with `distinguished_names`.

        With `deleted`, deleted objects too. With `extended`, every DN starts with `<GUID=...>;`.
        References to other servers are passed over. Raises LdapError, also after some entries; SIZE_LIMIT if there are
        more than `limit`.
        """
        flags = [self._control(_SHOW_DELETED, None)] if deleted else []
        if extended:
            flags.append(self._control(_EXTENDED_DN, _encode_flags(1)))  # 1: GUIDs as text
        cookie = b""
        count = 0
        for _ in range(_MAX_PAGES):
            controls = [self._control(_PAGED, _encode_page(PAGE_ENTRIES, cookie)), *flags]
            entries, result = self._page(base, text, attributes, scope, controls)
            _check(self.url, f"search of {base}", result)
            count += len(entries)
            if count > limit:
                self._fail(LdapFault.SIZE_LIMIT, f"must return at most {limit} objects under {base}, got more")
            for entry in entries:
                yield self._whole(entry)
            cookie = _cookie(self.url, result)
            if not cookie:
                return
        self._fail(LdapFault.BAD_ANSWER, f"must end its answer in {_MAX_PAGES} pages, but did not")

    def read(self, dn: str, attributes: Sequence[str], text: str = "(objectClass=*)") -> LdapEntry | None:
        """One object, or None if there is none that matches. `dn` may be `<GUID=...>` or `<SID=...>`."""
        entries, result = self._page(dn, text, attributes, Scope.BASE, [])
        if result.code == 32:
            return None
        _check(self.url, f"read of {dn or 'the root DSE'}", result)
        return self._whole(entries[0]) if entries else None

    # Changing

    def add(self, dn: str, attributes: Mapping[str, Sequence[bytes | str]], sd_flags: SdFlags | None = None) -> None:
        """Adds an object. Attributes without values are left out: a directory cannot keep an empty value."""
        from ldap3.operation.add import add_operation

        request = add_operation(dn, {name: _values(values) for name, values in attributes.items() if values}, False)
        self._change("addRequest", request, f"creation of {dn}", sd_flags)

    def modify(
        self,
        dn: str,
        replace: Mapping[str, Sequence[bytes | str]] | None = None,
        *,
        add: Mapping[str, Sequence[bytes | str]] | None = None,
        remove: Mapping[str, Sequence[bytes | str]] | None = None,
        sd_flags: SdFlags | None = None,
    ) -> None:
        """Changes an object, all or nothing. Replacing by no value removes the attribute."""
        from ldap3.operation.modify import modify_operation

        changes: dict[str, list[tuple[int, list[bytes]]]] = {}
        for operation, wanted in ((0, add), (1, remove), (2, replace)):
            for name, values in (wanted or {}).items():
                changes.setdefault(name, []).append((operation, _values(values)))
        request = modify_operation(dn, changes, False)
        self._change("modifyRequest", request, f"change of {dn}", sd_flags)

    def delete(self, dn: str) -> None:
        """Deletes an object that has no children."""
        from ldap3.operation.delete import delete_operation

        self._change("delRequest", delete_operation(dn), f"deletion of {dn}", None)

    # Messages

    def _page(
        self, base: str, text: str, attributes: Sequence[str], scope: Scope, controls: list[Any]
    ) -> tuple[list[LdapEntry], _Result]:
        from ldap3.core.exceptions import LDAPExceptionError
        from ldap3.operation.search import search_operation

        if any(each.lower() == "ntsecuritydescriptor" for each in attributes):
            controls = [*controls, self._control(_SD_FLAGS, _encode_flags(DESCRIPTOR))]
        try:
            seconds = max(1, int(self._settings.timeout_s))
            request = search_operation(
                base, text, int(scope), 0, list(attributes), 0, seconds, False, auto_escape=False, auto_encode=False
            )
        except LDAPExceptionError as fault:
            self._fail(LdapFault.REFUSED, f"was not asked, because the filter {text[:200]!r} is invalid: {fault}")
        identifier = self._send("searchRequest", request, controls)
        entries: list[LdapEntry] = []
        size = 0
        count = 0
        while True:
            message, length = self._receive(identifier)
            count, size = count + 1, size + length
            if size > _MAX_PAGE_BYTES or count > _MAX_PAGE_MESSAGES:
                most = f"{PAGE_ENTRIES} objects and {_MAX_PAGE_BYTES >> 20} MiB"
                self._broken(f"must return at most {most} a page, got more")
            if message["protocolOp"] == 5:
                return entries, self._result(message)
            if message["protocolOp"] == 4:
                entries.append(self._entry(message["payload"]))
            elif message["protocolOp"] != 19:  # a reference to another server, which is not followed
                self._broken(f"must answer a search, got operation {message['protocolOp']}")

    def _whole(self, entry: LdapEntry) -> LdapEntry:
        """The entry with all values of attributes that the server gave in part: [MS-ADTS] 3.1.1.3.1.3.3."""
        if not any(";" in name for name in entry.attributes):
            return entry
        found = dict(entry.attributes)
        for key, values in entry.attributes.items():
            matched = _RANGE.fullmatch(key)
            if matched is None:
                continue
            del found[key]
            found[matched[1]] = (*values, *self._rest(entry.dn, matched[1], len(values), matched[3] == "*"))
        return LdapEntry(entry.dn, found)

    def _rest(self, dn: str, attribute: str, start: int, complete: bool) -> Iterator[bytes]:
        for _ in range(_MAX_RANGES):
            if complete:
                return
            entries, result = self._page(dn, "(objectClass=*)", [f"{attribute};range={start}-*"], Scope.BASE, [])
            _check(self.url, f"read of {dn}", result)
            found = [(_RANGE.fullmatch(key), values) for each in entries for key, values in each.attributes.items()]
            matched, values = next(((match, held) for match, held in found if match is not None), (None, ()))
            if matched is None or not values or int(matched[2]) != start:
                self._broken(f"must return the values of {attribute} from number {start} on, but did not")
            yield from values
            start += len(values)
            complete = matched[3] == "*"
        self._broken(f"must return {attribute} of {dn} in at most {_MAX_RANGES} parts, but did not")

    def _change(self, kind: str, request: Any, what: str, sd_flags: SdFlags | None) -> None:
        controls = [] if sd_flags is None else [self._control(_SD_FLAGS, _encode_flags(sd_flags))]
        _check(self.url, what, self._ask(kind, request, controls))

    def _ask(self, kind: str, request: Any, controls: list[Any]) -> _Result:
        message, _ = self._receive(self._send(kind, request, controls))
        return self._result(message)

    def _send(self, kind: str, request: Any, controls: list[Any]) -> int:
        from ldap3.protocol.rfc4511 import Controls, LDAPMessage, MessageID, ProtocolOp
        from ldap3.utils.asn1 import encode

        self._message_id += 1
        message = LDAPMessage()
        message["messageID"] = MessageID(self._message_id)
        message["protocolOp"] = ProtocolOp().setComponentByName(kind, request)
        if controls:
            held = Controls()
            for place, control in enumerate(controls):
                held.setComponentByPosition(place, control)
            message["controls"] = held
        self._channel.send(encode(message), self._settings.timeout_s)
        return self._message_id

    def _receive(self, identifier: int) -> tuple[dict[str, Any], int]:
        from ldap3.utils.asn1 import decode_message_fast

        data = self._channel.receive()
        try:
            message: dict[str, Any] = decode_message_fast(data)
            found = message["messageID"]
        except Exception as fault:  # ldap3 raises what its parts raise
            self._broken(f"sent a message that cannot be decoded ({type(fault).__name__})")
        if found == _NOTICE_OF_DISCONNECTION:
            self.close()
            self._fail(LdapFault.NO_ANSWER, "closed the connection")
        if found != identifier:
            self._broken(f"must answer request {identifier}, but answered {found}")
        return message, len(data)

    def _result(self, message: dict[str, Any]) -> _Result:
        try:
            payload = message["payload"]
            controls = {
                bytes(parts[0][3]).decode("ascii"): bytes(parts[-1][3])
                for parts in (each[3] for each in message["controls"] or ())
                if len(parts) > 1
            }
            credentials = next((bytes(each[3]) for each in payload[3:] if each[0] == 2 and each[2] == 7), None)
            code, text = int(payload[0][3]), bytes(payload[2][3]).decode("utf-8", "replace").rstrip("\0")
        except Exception as fault:
            self._broken(f"sent a result that cannot be decoded ({type(fault).__name__})")
        return _Result(code, text, credentials, controls)

    def _entry(self, payload: Any) -> LdapEntry:
        try:
            return LdapEntry(
                bytes(payload[0][3]).decode(),
                {
                    bytes(each[3][0][3]).decode("ascii").lower(): tuple(bytes(value[3]) for value in each[3][1][3])
                    for each in payload[1][3]
                },
            )
        except Exception as fault:
            self._broken(f"sent an object that cannot be decoded ({type(fault).__name__})")

    @staticmethod
    def _control(identifier: str, value: bytes | None) -> Any:
        from ldap3.protocol.controls import build_control

        return build_control(identifier, True, value, encode_control_value=False)

    # Logging in

    def _start_tls(self) -> None:
        from ldap3.operation.extended import extended_operation

        result = self._ask("extendedReq", extended_operation(_START_TLS), [])
        if result.code != 0:
            self._fail(LdapFault.TLS, f"refused StartTLS: {_shown(result)}", result.code)
        self._channel.start_tls(self._settings.ca_certificates)

    def _bind_simple(self) -> None:
        from ldap3.operation.bind import bind_operation

        assert self._channel.encrypted  # a password never leaves in the clear
        user = self._settings.user
        if user is None:
            self._fail(LdapFault.REFUSED, "needs the user whose password the password file has")
        result = self._ask("bindRequest", bind_operation(3, "SIMPLE", user, self._password()), [])
        self._check_bind(result, user)

    def _password(self) -> bytes:
        file = self._settings.password_file
        assert file is not None
        try:
            with file.open("rb") as stream:
                text = stream.read(_MAX_PASSWORD_BYTES + 1)
        except OSError as fault:
            self._fail(LdapFault.WRONG_PASSWORD, f"cannot be asked: {file} cannot be read: {fault.strerror}")
        password = text.rstrip(b"\r\n")
        if not password or len(text) > _MAX_PASSWORD_BYTES:
            # An empty password would be an anonymous bind, which succeeds: RFC 4513 5.1.2.
            self._fail(LdapFault.WRONG_PASSWORD, f"cannot be asked: {file} must have one line, the password")
        return password

    def _bind_kerberos(self) -> None:
        context = _KerberosClient(self, self._settings, self._channel.certificate)
        token: bytes | None = context.start()
        for _ in range(_MAX_BIND_STEPS):
            result = self._sasl(token)
            if result.code != 14 or context.complete:
                break
            token = context.step(result.credentials or b"")
        else:
            self._broken("must end the Kerberos login, but did not")
        if not context.complete or result.code != 14:
            self._check_bind(result, context.user)
            self._broken("ended the Kerberos login without proving who it is")
        answer, limit = context.layer(result.credentials or b"", sealed=not self._channel.encrypted)
        self._check_bind(self._sasl(answer), context.user)
        if not self._channel.encrypted:
            self._channel.seal(context, limit)

    def _sasl(self, token: bytes | None) -> _Result:
        from ldap3.operation.bind import bind_operation

        return self._ask("bindRequest", bind_operation(3, "SASL", "", None, "GSSAPI", token), [])

    def _check_bind(self, result: _Result, user: str) -> None:
        if result.code == 0:
            return
        code = _DATA_CODE.search(result.text)
        number = int(code[1], 16) if code else None
        if result.code == 49 and number in _ACCOUNT_FAULTS:
            self._fail(LdapFault.ACCOUNT, f"refused {user}: {_ACCOUNT_FAULTS[number]}", 49)
        if result.code == 49:
            self._fail(LdapFault.WRONG_PASSWORD, f"refused {user}: the user or the password is wrong", 49)
        if result.code == 8:
            self._fail(
                LdapFault.STRONG_AUTHENTICATION, f"refused {user}: it wants another protection of the connection", 8
            )
        self._fail(LdapFault.REFUSED, f"refused {user}: {_shown(result)}", result.code)

    def _root(self) -> RootDse:
        names = ("defaultNamingContext", "configurationNamingContext", "rootDomainNamingContext", "dsServiceName")
        more = ("dnsHostName", "highestCommittedUSN", "currentTime")
        entry = self.read("", [*names, *more])
        held = {name: entry.first(name.lower()) or b"" if entry else b"" for name in (*names, *more)}
        texts = {name: value.decode("utf-8", "replace") for name, value in held.items()}
        if not texts[names[0]] or not texts[names[1]] or not texts["highestCommittedUSN"].isdecimal():
            self._fail(LdapFault.BAD_ANSWER, "must be a domain controller of Active Directory, but its root DSE is not")
        return RootDse(
            domain=texts[names[0]],
            configuration=texts[names[1]],
            root_domain=texts[names[2]] or texts[names[0]],
            service=normal(texts[names[3]]),
            host=texts["dnsHostName"],
            highest_usn=int(texts["highestCommittedUSN"]),
            time=texts["currentTime"],
        )

    # Faults

    def _fail(self, fault: LdapFault, sentence: str, code: int | None = None) -> NoReturn:
        raise LdapError(fault, f"{self.url} {sentence}", code)

    def _broken(self, sentence: str) -> NoReturn:
        """The server violates the protocol, so nothing more that it says can be trusted."""
        self.close()
        self._fail(LdapFault.BAD_ANSWER, sentence)


@dataclass(frozen=True, slots=True)
class _Result:
    code: int
    text: str
    credentials: bytes | None = None
    controls: Mapping[str, bytes] = field(default_factory=dict)


def _check(url: str, what: str, result: _Result) -> None:
    if result.code == 0:
        return
    faults = {
        1: LdapFault.REFUSED,
        3: LdapFault.SIZE_LIMIT,
        4: LdapFault.SIZE_LIMIT,
        8: LdapFault.STRONG_AUTHENTICATION,
        11: LdapFault.SIZE_LIMIT,
        32: LdapFault.NOT_FOUND,
        50: LdapFault.NO_PERMISSION,
        51: LdapFault.NO_ANSWER,
        52: LdapFault.NO_ANSWER,
        68: LdapFault.EXISTS,
    }
    fault = faults.get(result.code, LdapFault.REFUSED)
    raise LdapError(fault, f"{url} refused the {what}: {_shown(result)}", result.code)


def _shown(result: _Result) -> str:
    from ldap3.core.results import RESULT_CODES

    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", RESULT_CODES.get(result.code, "unknown result")).lower()
    text = " ".join(result.text.split())[:300]
    return f"{words} (LDAP result {result.code}{', ' + ascii(text) if text else ''})"


def _values(values: Sequence[bytes | str]) -> list[bytes]:
    return [each.encode() if isinstance(each, str) else each for each in values]


def _encode_page(size: int, cookie: bytes) -> bytes:
    from ldap3.protocol.rfc2696 import Cookie, RealSearchControlValue, Size
    from ldap3.utils.asn1 import encode

    value = RealSearchControlValue()
    value.setComponentByName("size", Size(size))
    value.setComponentByName("cookie", Cookie(cookie))
    return bytes(encode(value))


def _cookie(url: str, result: _Result) -> bytes:
    from ldap3.utils.asn1 import decode_sequence

    value = result.controls.get(_PAGED)
    if value is None:
        return b""
    try:
        parts = decode_sequence(value, 0, len(value))[0][3]
        return bytes(parts[1][3])
    except Exception:
        raise LdapError(LdapFault.BAD_ANSWER, f"{url} sent a page that cannot be decoded") from None


def _encode_flags(flags: int) -> bytes:
    return bytes((0x30, 3, 2, 1, int(flags)))


def _require_ldap3() -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # ldap3 uses old names of pyasn1
            import_module("ldap3.operation.search")
    except ImportError:
        raise LdapError(
            LdapFault.LIBRARY_MISSING, "the directory of a domain needs ldap3: pip install 'postroad[domain]'"
        ) from None


class _Channel:
    """A socket that carries whole messages, with TLS or sealed, each with a deadline and a greatest size."""

    def __init__(self, url: str, host: str, port: int, settings: LdapSettings) -> None:
        self._url = url
        self._host = host
        self._buffer = bytearray()  # what has arrived and is not used yet, in the clear
        self._raw = bytearray()  # sealed
        self._deadline = 0.0
        self._context: _KerberosClient | None = None
        self._most = 0  # bytes that may be sealed at once
        self.encrypted = False
        self.certificate: bytes | None = None
        self._socket = self._connect(port, settings.connect_timeout_s)
        self._timeout_s = settings.timeout_s

    def _connect(self, port: int, timeout_s: float) -> socket.socket:
        try:
            found = socket.getaddrinfo(self._host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as fault:
            raise LdapError(
                LdapFault.NAME_NOT_FOUND, f"{self._url}: the name {self._host!r} cannot be resolved: {fault}"
            ) from None
        reasons: list[str] = []
        for family, kind, protocol, _, address in found[:16]:
            made = socket.socket(family, kind, protocol)
            try:
                made.settimeout(timeout_s)
                made.connect(address)
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return made
            except OSError as fault:
                made.close()
                words = f"no answer within {timeout_s:g} s" if isinstance(fault, TimeoutError) else fault.strerror
                reasons.append(f"{address[0]}: {words}")
        raise LdapError(LdapFault.NO_ANSWER, f"{self._url} does not answer ({'; '.join(reasons)})")

    def start_tls(self, authorities: Path | None) -> None:
        """Raises LdapError if the certificate is not one for this host from a trusted authority."""
        if self._buffer:  # sent in the clear, before TLS, and to be believed afterwards
            self.close()
            raise LdapError(LdapFault.TLS, f"{self._url} must send nothing between StartTLS and TLS, but did")
        try:
            context = ssl.create_default_context(cafile=None if authorities is None else str(authorities))
        except (OSError, ssl.SSLError) as fault:
            raise LdapError(
                LdapFault.CERTIFICATE_UNTRUSTED, f"ca_certificates: {authorities} cannot be used: {fault}"
            ) from None
        try:
            self._socket.settimeout(self._timeout_s)
            self._socket = context.wrap_socket(self._socket, server_hostname=self._host)
        except ssl.SSLCertVerificationError as fault:
            raise _certificate_error(self._url, self._host, fault) from None
        except (ssl.SSLError, OSError) as fault:
            raise LdapError(LdapFault.TLS, f"{self._url} does not start TLS: {_reason(fault)}") from None
        assert isinstance(self._socket, ssl.SSLSocket)
        self.certificate = self._socket.getpeercert(binary_form=True)
        self.encrypted = True

    def seal(self, context: _KerberosClient, most: int) -> None:
        """From now on, Kerberos encrypts every message: RFC 4752 3.3."""
        self._context, self._most = context, most

    def send(self, data: bytes, timeout_s: float) -> None:
        """Sends one message, and gives its answer this much time."""
        self._deadline = time.monotonic() + timeout_s
        if self._context is not None:
            parts = (data[place : place + self._most] for place in range(0, len(data), self._most))
            sealed = (self._context.wrap(part) for part in parts)
            data = b"".join(len(part).to_bytes(4, "big") + part for part in sealed)
        try:
            self._socket.settimeout(timeout_s)
            self._socket.sendall(data)
        except OSError as fault:
            self._lost(fault)

    def receive(self) -> bytes:
        """The next message, whole."""
        header = self._read_header()
        while header is None:
            self._more()
            header = self._read_header()
        while len(self._buffer) < header:
            self._more()
        data = bytes(self._buffer[:header])
        del self._buffer[:header]
        return data

    def _read_header(self) -> int | None:
        """The size of the message that starts the buffer, or None if its header is not complete."""
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        octets = buffer[1] & 0x7F if buffer[1] & 0x80 else 0
        if buffer[0] != 0x30 or (buffer[1] & 0x80 and not 1 <= octets <= 4):
            self._broken("must send LDAP messages, got other bytes")
        if len(buffer) < 2 + octets:
            return None
        size = 2 + octets + (int.from_bytes(buffer[2 : 2 + octets], "big") if octets else buffer[1])
        if size > _MAX_MESSAGE_BYTES:
            self._broken(f"must send messages of at most {_MAX_MESSAGE_BYTES >> 20} MiB, got one of {size} bytes")
        return size

    def _more(self) -> None:
        """Waits for more bytes in the buffer."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            self._lost(TimeoutError())
        try:
            self._socket.settimeout(left)
            data = self._socket.recv(_READ_BYTES)
        except OSError as fault:
            self._lost(fault)
        if not data:
            self._lost(None)
        if self._context is None:
            self._buffer += data
            return
        self._raw += data
        while len(self._raw) >= 4:
            size = int.from_bytes(self._raw[:4], "big")
            if size > _MAX_MESSAGE_BYTES:
                self._broken(f"must seal at most {_MAX_MESSAGE_BYTES >> 20} MiB at once, got {size} bytes")
            if len(self._raw) < 4 + size:
                return
            self._buffer += self._context.unwrap(bytes(self._raw[4 : 4 + size]))
            del self._raw[: 4 + size]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()

    def _lost(self, fault: OSError | None) -> NoReturn:
        self.close()
        reason = "closed the connection" if fault is None else f"stopped answering: {_reason(fault)}"
        raise LdapError(LdapFault.NO_ANSWER, f"{self._url} {reason}") from None

    def _broken(self, sentence: str) -> NoReturn:
        self.close()
        raise LdapError(LdapFault.BAD_ANSWER, f"{self._url} {sentence}")


def _reason(fault: OSError) -> str:
    if isinstance(fault, TimeoutError):
        return "no answer in time"
    if isinstance(fault, ssl.SSLError):
        return fault.reason or str(fault)
    return fault.strerror or str(fault) or type(fault).__name__


def _certificate_error(url: str, host: str, fault: ssl.SSLCertVerificationError) -> LdapError:
    """OpenSSL's codes: 9 and 10 for the time, 62 to 64 for the name, and all others for the authority."""
    if fault.verify_code in (9, 10):
        word = "has expired" if fault.verify_code == 10 else "is not valid yet"
        return LdapError(LdapFault.CERTIFICATE_EXPIRED, f"{url}: its certificate {word}: renew it, or check the clock")
    if fault.verify_code in (62, 63, 64):
        do = f"use a name from the certificate in the URL, or give the controller a certificate for {host}"
        return LdapError(LdapFault.CERTIFICATE_OTHER_HOST, f"{url}: its certificate is not for {host}: {do}")
    do = "name the domain's certificate authority in ca_certificates"
    why = fault.verify_message
    return LdapError(LdapFault.CERTIFICATE_UNTRUSTED, f"{url}: its certificate is not trusted ({why}): {do}")


# Kerberos

# Codes of MIT krb5, krb5_err.et
_KERBEROS_FAULTS = {
    -1765328352: (LdapFault.TICKET_EXPIRED, "the ticket has expired: get a new one with kinit"),
    -1765328347: (LdapFault.CLOCK_SKEW, "the clocks differ too much: set this computer's clock by the domain's"),
    -1765328377: (LdapFault.SERVICE_UNKNOWN, "the domain has no service ldap/{host}: use the controller's own name"),
    -1765328378: (LdapFault.ACCOUNT, "the domain has no such user"),
    -1765328366: (LdapFault.ACCOUNT, "the account is disabled, locked or has expired"),
    -1765328361: (LdapFault.ACCOUNT, "the password has expired"),
    -1765328360: (LdapFault.WRONG_PASSWORD, "the keytab has another key than the domain: export it again"),
    -1765328228: (LdapFault.NO_ANSWER, "no Kerberos server of the realm answers"),
    -1765328164: (LdapFault.NAME_NOT_FOUND, "no Kerberos server of the realm can be resolved"),
    -1765328230: (LdapFault.NAME_NOT_FOUND, "no Kerberos server of the realm is known: see krb5.conf"),
    -1765328174: (LdapFault.NO_TICKET, "the keytab cannot be read: see that the file exists"),
    -1765328203: (LdapFault.NO_TICKET, "the keytab has no key of this user"),
    -1765328189: (LdapFault.NO_TICKET, "there is no ticket: run kinit, or set keytab"),
    -1765328243: (LdapFault.NO_TICKET, "there is no ticket of this user: run kinit, or set keytab"),
    2: (LdapFault.NO_TICKET, "the keytab does not exist"),
    13: (LdapFault.NO_TICKET, "the keytab cannot be read"),
}


class _KerberosClient:
    """The client's side of SASL GSSAPI, RFC 4752."""

    def __init__(self, connection: LdapConnection, settings: LdapSettings, certificate: bytes | None) -> None:
        self._url, self._host = connection.url, connection.host
        self.user = settings.user or "the user of the credentials cache"
        try:
            import gssapi  # noqa: F401
            import spnego
        except ImportError:
            raise LdapError(
                LdapFault.LIBRARY_MISSING, "Kerberos needs pyspnego with gssapi: pip install 'postroad[domain]'"
            ) from None
        self._spnego = spnego
        credential: Any = settings.user
        if settings.keytab is not None:
            if settings.user is None:
                raise LdapError(LdapFault.NO_TICKET, f"{self._url}: a keytab needs a user")
            credential = spnego.KerberosKeytab(keytab=str(settings.keytab), principal=settings.user)
        # On TLS, a domain controller refuses a login that also asks for Kerberos' own protection.
        wanted = spnego.ContextReq.mutual_auth
        bindings = None
        if certificate is None:
            wanted |= (
                spnego.ContextReq.integrity | spnego.ContextReq.confidentiality | spnego.ContextReq.sequence_detect
            )
        else:
            bindings = spnego.channel_bindings.GssChannelBindings(application_data=end_point_binding(certificate))
        with self._faults():
            self._context = spnego.client(
                credential,
                hostname=self._host,
                service="ldap",
                protocol="kerberos",
                channel_bindings=bindings,
                context_req=wanted,
            )

    @property
    def complete(self) -> bool:
        return bool(self._context.complete)

    def start(self) -> bytes | None:
        with self._faults():
            return self._context.step()

    def step(self, token: bytes) -> bytes | None:
        with self._faults():
            return self._context.step(token) or b""

    def layer(self, token: bytes, *, sealed: bool) -> tuple[bytes, int]:
        """Chooses the protection: 1 is none, 4 is sealing. Returns the answer, and how much may be sealed at once."""
        with self._faults():
            offered = self._context.unwrap(token).data
        if len(offered) != 4 or not offered[0] & (4 if sealed else 1):
            raise LdapError(LdapFault.BAD_ANSWER, f"{self._url} offers no protection that is safe here")
        # 24 bits of size; a sealed message is a little larger than what it seals
        most = max(1024, int.from_bytes(offered[1:], "big") - 1024) if sealed else 0
        mine = b"\x04" + (0xFFFFFF).to_bytes(3, "big") if sealed else b"\x01\0\0\0"
        with self._faults():
            return self._context.wrap(mine, encrypt=False).data, most

    def wrap(self, data: bytes) -> bytes:
        with self._faults():
            return self._context.wrap(data, encrypt=True).data

    def unwrap(self, data: bytes) -> bytes:
        with self._faults():
            result = self._context.unwrap(data)
        if not result.encrypted:
            raise LdapError(LdapFault.BAD_ANSWER, f"{self._url} must seal every message, but did not")
        return result.data

    @contextlib.contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except LdapError:
            raise
        except Exception as fault:  # gssapi, krb5 and pyspnego have bases of their own
            raise self._error(fault) from None

    def _error(self, fault: Exception) -> LdapError:
        causes: list[BaseException] = []
        cause: BaseException | None = fault
        while cause is not None and len(causes) < 10:
            causes.append(cause)
            cause = getattr(cause, "base_error", None) or cause.__cause__ or cause.__context__
        for each in causes:
            for code in (getattr(each, "min_code", None), getattr(each, "err_code", None)):
                known = None if code is None else _KERBEROS_FAULTS.get(_signed(code))
                if known is not None:
                    sentence = known[1].format(host=self._host)
                    return LdapError(known[0], f"{self._url} cannot be asked as {self.user}: {sentence}")
        text = " ".join(str(causes[-1] if str(causes[-1]) else fault).split())[:300]
        return LdapError(LdapFault.NO_TICKET, f"{self._url} cannot be asked as {self.user}: Kerberos failed: {text}")


def _signed(code: int) -> int:
    return code - (1 << 32) if code >= 1 << 31 else code
