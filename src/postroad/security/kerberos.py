"""Kerberos by the system's GSSAPI library: keytabs, tickets that clients show, and tickets for servers, [RFC 4121].

It needs the extra `domain`. A keytab and a replay cache belong to one acceptor; the environment of the process is never
changed. Whose account a ticket belongs to is in rpc/tickets.py, and SPNEGO in rpc/negotiate.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import new as new_hash
from importlib.util import find_spec
from pathlib import Path
from struct import Struct, error, unpack_from
from typing import TYPE_CHECKING, Any, Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.x509 import load_der_x509_certificate

from postroad.errors import AuthenticationFailed, InvalidArgument
from postroad.runtime.private_files import others_can_read

if TYPE_CHECKING:
    from gssapi import SecurityContext
    from gssapi.raw import GSSError

DOMAIN_EXTRA: Final = "run pip install 'postroad[domain]'"
_OID: Final = bytes.fromhex("06092a864886f712010202")  # 1.2.840.113554.1.2.2 in DER
# Octets of one token. Windows makes tickets of at most 48,000 octets (MaxTokenSize), also with 1,015 groups.
MAX_TOKEN: Final = 0x10000
MAX_KEYTAB: Final = 1 << 20  # octets: thousands of keys
_KEYTAB_VERSION: Final = b"\x05\x02"
_INITIAL: Final = 0x60  # the tag of a first token, RFC 2743 3.1
_AP_REQ: Final = b"\x01\x00"  # RFC 4121 4.1
_BARE_AP_REQ: Final = 0x6E  # its own tag, RFC 4120 5.5.1: in the DCE style it travels without a frame
_NO_REPLAYS: Final = "none:"
_ERRORS: Final = (-1765328384) & 0xFFFFFFFF  # Kerberos' errors in GSSAPI's minor codes: this plus the number
_ERROR_NUMBERS: Final = 256
_LOGON_INFO: Final = b"urn:mspac:logon-info"


def kerberos_available() -> bool:
    """Whether the extra `domain` has installed GSSAPI."""
    return find_spec("gssapi") is not None


# Keytabs


@dataclass(frozen=True, slots=True)
class Keytab:
    """A file with keys of services, and the names of these: `host/alpha.corp.local@CORP.LOCAL`."""

    file: Path
    principals: tuple[str, ...]

    @classmethod
    def read(cls, file: Path) -> Keytab:
        """Reads the names in a keytab. Raises InvalidArgument with a sentence if it is of no use to a server."""
        try:
            with file.open("rb") as opened:
                data = opened.read(MAX_KEYTAB + 1)
        except OSError as fault:
            raise InvalidArgument(f"{file} cannot be read: {fault.strerror}") from None
        if others_can_read(file):
            raise InvalidArgument(
                f"{file} can be read by other users of this computer, who could then be this server: chmod 600 it"
            )
        try:
            principals = tuple(dict.fromkeys(_keytab_principals(data)))
        except (ValueError, error, IndexError):
            raise InvalidArgument(f"{file} must be a keytab, as ktutil, ktpass and samba-tool write it") from None
        if not principals:
            raise InvalidArgument(f"{file} is empty: it must hold the key of a service, such as host/{_EXAMPLE}")
        if not any(_is_service(each) for each in principals):
            raise InvalidArgument(
                f"{file} must hold the key of a service, such as host/{_EXAMPLE} or HTTP/{_EXAMPLE}, "
                f"got only {', '.join(principals[:5])}"
            )
        return cls(file, principals)

    @property
    def realms(self) -> frozenset[str]:
        return frozenset(each.rpartition("@")[2] for each in self.principals)


_EXAMPLE: Final = "alpha.corp.local@CORP.LOCAL"


def _is_service(principal: str) -> bool:
    """Whether the name can be that of a service: with an instance, or a computer's account."""
    name = principal.rpartition("@")[0]
    return "/" in name or name.endswith("$")


def _keytab_principals(data: bytes) -> Iterator[str]:
    """The names of all keys in MIT's format 2. A hole is a record with a negative size."""
    if len(data) > MAX_KEYTAB or (data and not data.startswith(_KEYTAB_VERSION)):
        raise ValueError
    offset = len(_KEYTAB_VERSION)
    while offset + 4 <= len(data):
        (size,) = unpack_from(">i", data, offset)
        offset += 4
        if size == 0:
            return
        if size > 0:
            if offset + size > len(data):
                raise ValueError
            yield _keytab_principal(data[offset : offset + size])
        offset += abs(size)


_COUNT: Final = Struct(">H")


def _keytab_principal(record: bytes) -> str:
    (count,) = _COUNT.unpack_from(record)
    offset, parts = _COUNT.size, []
    for _ in range(count + 1):
        (size,) = _COUNT.unpack_from(record, offset)
        offset += _COUNT.size
        if offset + size > len(record):
            raise ValueError
        parts.append(record[offset : offset + size].decode("utf-8", "replace"))
        offset += size
    return f"{'/'.join(parts[1:])}@{parts[0]}"


# What clients show


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a ticket proves. `realm` is that of the server's key, which opened it.

    `logon_info` is the KERB_VALIDATION_INFO of [MS-PAC] 2.5, if the ticket has one. The library has verified its
    signature with the server's key, so only the domain's controllers can have written it.
    """

    principal: str
    realm: str
    lifetime_s: float
    logon_info: bytes | None = None
    bound: bool = False  # to the TLS connection


class Acceptor:
    """Accepts tickets for the services of a keytab. It reads the file for each ticket, so new keys count at once."""

    def __init__(self, keytab: Keytab, replay_cache: Path | None = None) -> None:
        """Without `replay_cache`, clients must prove in a third leg that they know the session key. Raises
        InvalidArgument."""
        try:
            import gssapi
        except ImportError as fault:
            raise InvalidArgument(f"Kerberos is not available: {fault}; {DOMAIN_EXTRA}") from None
        rcache = _NO_REPLAYS if replay_cache is None else f"file2:{replay_cache.absolute()}"
        try:
            self._credentials = gssapi.Credentials(
                usage="accept",
                mechs=[gssapi.MechType.kerberos],
                store={"keytab": f"FILE:{keytab.file.absolute()}", "rcache": rcache},
            )
        except gssapi.raw.GSSError as fault:
            raise InvalidArgument(f"{keytab.file} cannot be used: {_reason(fault)}") from None
        self.keytab = keytab

    def begin(self, end_point: bytes | None = None, *, dce: bool = False) -> AcceptorContext:
        """`end_point` is the channel binding of a TLS connection: a client that names another one is refused. With
        `dce`, clients must use the DCE style."""
        context = _context(creds=self._credentials, usage="accept", channel_bindings=_bindings(end_point))
        return AcceptorContext(context, dce=dce)


class AcceptorContext:
    """One client's tokens. In the DCE style, clients send the first one with or without its frame; the library takes
    only the latter."""

    def __init__(self, context: SecurityContext, *, dce: bool) -> None:
        self.gss = context
        self._dce = dce
        self._began = False

    def step(self, token: bytes) -> bytes:
        """Takes a token, and returns the answer. Raises AuthenticationFailed."""
        if len(token) > MAX_TOKEN:
            raise AuthenticationFailed(f"a Kerberos token must have at most {MAX_TOKEN} octets, got {len(token)}")
        if not self._began:
            bare = _bare(token)
            token = bare if self._dce else token
        self._began = True
        with _refusals("the Kerberos ticket was refused"):
            answer = self.gss.step(token) or b""
            # Only the third leg of this style proves that the client did not copy the first one from somebody.
            if self._dce and self.gss.complete and not self._has_third_leg:
                raise AuthenticationFailed("the client must authenticate in the DCE style, with three legs")
            return answer

    @property
    def _has_third_leg(self) -> bool:
        from gssapi import RequirementFlag

        return RequirementFlag.dce_style in self.gss.actual_flags

    @cached_property
    def ticket(self) -> Ticket:
        """What the complete context proves."""
        from gssapi import RequirementFlag

        with _refusals("the Kerberos ticket was refused"):
            name, lifetime, flags = self.gss.initiator_name, self.gss.lifetime, self.gss.actual_flags
            realm = str(self.gss.target_name).rpartition("@")[2]
            return Ticket(str(name), realm, float(lifetime), _logon_info(name), RequirementFlag.channel_bound in flags)


def _logon_info(name: object) -> bytes | None:
    attributes = getattr(name, "attributes", None)
    if attributes is None or _LOGON_INFO not in attributes:
        return None
    found = attributes[_LOGON_INFO]
    return next(iter(found.values), None) if found.authenticated else None


def _bare(token: bytes) -> bytes:
    """The AP-REQ in a first token. Checks its frame, before the native library reads anything."""
    if len(token) < 4 or token[0] not in (_INITIAL, _BARE_AP_REQ):
        raise AuthenticationFailed("the token must be that of a Kerberos ticket")
    count = token[1] & 0x7F if token[1] & 0x80 else 0
    start = 2 + count
    size = int.from_bytes(token[2:start], "big") if count else token[1]
    if count > 4 or start + size != len(token):
        raise AuthenticationFailed("the Kerberos token is incomplete")
    if token[0] == _BARE_AP_REQ:
        return token
    if not token.startswith(_OID + _AP_REQ, start):
        raise AuthenticationFailed("the token must be that of a Kerberos ticket")
    return token[start + len(_OID + _AP_REQ) :]


# What a client sends


def initiate(
    host: str, service: str, *, end_point: bytes | None = None, dce: bool = False, spnego: bool = False
) -> tuple[SecurityContext, bytes]:
    """A client's context for `service` at `host`, with mutual authentication, and its first token.

    The ticket comes from the credentials cache (KRB5CCNAME), or the client's keytab (KRB5_CLIENT_KTNAME). This may ask
    a domain controller, so it blocks. Raises AuthenticationFailed with a sentence that says what is missing.
    """
    try:
        import gssapi
    except ImportError as fault:
        raise AuthenticationFailed(f"Kerberos is not available: {fault}; {DOMAIN_EXTRA}") from None
    flag = gssapi.RequirementFlag
    flags = flag.mutual_authentication | flag.integrity | flag.confidentiality
    flags |= flag.replay_detection | flag.out_of_sequence_detection
    if dce:
        flags |= flag.dce_style
    try:
        return _initiate(gssapi, host, service, end_point, flags, spnego=spnego)
    except AuthenticationFailed:
        if spnego:  # whose library does not tell what went wrong
            _initiate(gssapi, host, service, end_point, flags, spnego=False)
        raise


def _initiate(
    gssapi: Any, host: str, service: str, end_point: bytes | None, flags: Any, *, spnego: bool
) -> tuple[SecurityContext, bytes]:
    mechanism = gssapi.OID.from_int_seq("1.3.6.1.5.5.2") if spnego else gssapi.MechType.kerberos
    with _refusals(f"no Kerberos ticket for {service}/{host}"):
        context = _context(
            name=gssapi.Name(f"{service}@{host}", gssapi.NameType.hostbased_service),
            creds=gssapi.Credentials(usage="initiate", mechs=[mechanism]),
            usage="initiate",
            mech=mechanism,
            flags=flags,
            channel_bindings=_bindings(end_point),
        )
        return context, context.step(None) or b""


def proceed(context: SecurityContext, answer: bytes, who: str) -> bytes:
    """Takes a server's token, and returns the next one for it. Raises AuthenticationFailed if the server is not `who`.
    It has proved that only once the context is complete."""
    if len(answer) > MAX_TOKEN:
        raise AuthenticationFailed(f"a Kerberos token must have at most {MAX_TOKEN} octets, got {len(answer)}")
    with _refusals(f"{who} cannot prove by Kerberos who it is"):
        return context.step(answer) or b""


def end_point_binding(certificate: bytes) -> bytes:
    """The channel binding `tls-server-end-point` of a server's certificate (DER), RFC 5929 4."""
    try:
        algorithm = load_der_x509_certificate(certificate).signature_hash_algorithm
    except (ValueError, UnsupportedAlgorithm):
        algorithm = None
    name = "sha256" if algorithm is None or algorithm.name in ("md5", "sha1") else algorithm.name
    return b"tls-server-end-point:" + new_hash(name, certificate).digest()


# GSSAPI's library


def _bindings(end_point: bytes | None) -> Any:
    if end_point is None:
        return None
    from gssapi.raw import ChannelBindings

    return ChannelBindings(application_data=end_point)


def _context(**arguments: Any) -> SecurityContext:
    return _context_type()(**arguments)


@cache
def _context_type() -> type[SecurityContext]:
    """A context whose `step` raises at once. The library's own would hand out an error token first."""
    from gssapi import SecurityContext

    class Context(SecurityContext):
        pass

    setattr(Context, "__DEFER_STEP_ERRORS__", False)  # noqa: B010  (the metaclass overwrites what the body of the class says)
    return Context


_SENTENCES: Final = {
    6: "the domain does not know this user (kinit with another principal)",
    7: "the domain knows no such service (add the service principal name to the server's account)",
    24: "the password or the keytab is wrong (kinit again)",
    31: "it was made for another key (write the keytab again, and let clients kinit again)",
    32: "the ticket has expired (kinit again)",
    33: "the ticket is not valid yet (the clocks differ: synchronize them)",
    34: "it was used before: somebody repeats a login",
    35: "it is for another server",
    37: "the clocks differ by more than five minutes (synchronize them)",
    41: "it was changed on its way",
    44: "it was made with another version of the key (write the keytab again)",
    45: "the keytab has no key for it (write the service's key into the keytab)",
    141: "there is no ticket (run kinit)",
    154: "the realm is unknown (check krb5.conf)",
    156: "no domain controller answers (check krb5.conf and the network)",
    181: "the keytab has no key for it (write the service's key into the keytab)",
    195: "there is no ticket (run kinit)",
}


@contextmanager
def _refusals(what: str) -> Iterator[None]:
    """Turns errors of the library into AuthenticationFailed."""
    from gssapi.raw import GSSError

    try:
        yield
    except GSSError as fault:
        raise AuthenticationFailed(f"{what}: {_reason(fault)}") from None


def _reason(fault: GSSError) -> str:
    from gssapi import exceptions

    if isinstance(fault, exceptions.BadChannelBindingsError):
        return "it belongs to another TLS connection (is there a proxy between client and server?)"
    if isinstance(fault, exceptions.ExpiredCredentialsError):
        return _SENTENCES[32]
    number = fault.min_code - _ERRORS
    if number in _SENTENCES:
        return _SENTENCES[number]
    if isinstance(fault, exceptions.MissingCredentialsError):
        return _SENTENCES[195]
    texts = [each.decode("utf-8", "replace") if isinstance(each, bytes) else each for each in _texts(fault)]
    return "; ".join(each.rstrip(".") for each in texts if each) or "GSSAPI gives no reason"


def _texts(fault: GSSError) -> Iterator[str | bytes]:
    """The library's own words for the mechanism's code, or for the general one."""
    known = 0 <= fault.min_code - _ERRORS < _ERROR_NUMBERS
    yield from fault.get_all_statuses(fault.min_code if known else fault.maj_code, not known)
