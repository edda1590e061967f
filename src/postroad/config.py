"""The configuration of one queue manager: every setting of its TOML file with type, range and default.

What a setting does is in other modules.
"""

# ruff: noqa: RUF009  (a setting is a dataclass field, made by a function)

from __future__ import annotations

import platform
import re
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from enum import Enum
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit
from uuid import UUID

from postroad.errors import ConfigurationError, IllegalIdentifier
from postroad.names import DirectName, PathName, QueueKind
from postroad.net import ports
from postroad.queues.core_settings import DEFAULT_QUOTA_KB, MAX_OUTGOING
from postroad.security.algorithms import CIPHERS, DEFAULT_CIPHER, DEFAULT_CIPHERS, DEFAULT_HASHES, HASHES
from postroad.security.descriptors import SecurityDescriptor, Sid
from postroad.security.relay import RelayRule
from postroad.security.sddl import SDDL
from postroad.security.signatures import DEFAULT_VERSIONS, LISTED, PROFILES, VERSIONS
from postroad.validation.fields import required, setting, table, tables, tables_by_key
from postroad.validation.kinds import (
    FILE,
    GUID,
    HOST,
    LISTEN_PORT,
    MANAGER_NAME,
    PATH,
    PORT_MAX,
    SWITCH,
    UINT16_MAX,
    UINT32,
    UINT32_MAX,
    URL,
    FieldFault,
    Kind,
    choice,
    items,
    line,
    listed,
    number,
    parsed,
    quoted,
    whole,
)
from postroad.validation.queue_properties import NO_BASE_PRIORITY, QueueSettings
from postroad.validation.toml import Place, load, read_file, refuse_duplicates
from postroad.wire.constants import RESEND_TABLE_S

YEAR_S = 365 * 86400
WITH_API = -2  # for console: its standard port if api has its own, on a loopback address; else off
WITH_RPC = -1  # for rpc_read: its standard port if rpc has its own, else the same port as rpc

MAX_SCHEMA_BYTES = 63  # PostgreSQL cuts longer names

_TOKEN = re.compile(r"[\x21-\x7e]+")


# Kinds of values that occur only in this file


def _queue_path(text: str) -> PathName:
    r"""A queue to create: `private$\orders`, or the same with a computer before it."""
    name = PathName.parse(text)
    if name.tail.kind is QueueKind.SYSTEM:
        raise FieldFault(f"must not be one of the queue manager's own queues, which always exist, got {quoted(text)}")
    if name.tail.journal or name.tail.subqueue is not None:
        raise FieldFault(f"must not be a journal or subqueue, which come with their queue, got {quoted(text)}")
    return name


def _token(text: str) -> str:
    if not _TOKEN.fullmatch(text):
        raise FieldFault("must have visible ASCII characters only, without spaces")
    return text


def _relay_rule(text: str) -> RelayRule:
    """A network or a host pattern of `[relay] allow`."""
    try:
        return RelayRule.parse(text)
    except ValueError as fault:
        raise FieldFault(str(fault)) from None


def _network(text: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(text)
    except ValueError as fault:
        raise FieldFault(f"must be an address or a network: {fault}") from None


def _word(known: Iterable[str]) -> Kind[str]:
    """One of the words of a table."""
    words = {each: each for each in known}

    def read(text: str) -> str:
        try:
            return words[text.lower()]
        except KeyError:
            raise FieldFault(f"must be {listed(words)}, got {quoted(text)}") from None

    return parsed(listed(words), read, 64)


def _ldap_urls(text: str) -> tuple[str, ...]:
    """URLs of domain controllers, separated by spaces."""
    for each in text.split():
        try:
            split = urlsplit(each)
            right = split.scheme in ("ldap", "ldaps") and split.hostname and split.port != 0
        except ValueError:
            right = False
        if not right or split.path not in ("", "/") or split.query or split.username is not None:
            raise FieldFault(f"must be ldaps://HOST or ldap://HOST, several separated by spaces, got {quoted(each)}")
    return tuple(each.rstrip("/") for each in text.split())


def _sid(text: str) -> Sid:
    try:
        return Sid.parse(text)
    except IllegalIdentifier as fault:
        raise FieldFault(str(fault)) from None


def _principal(text: str) -> str:
    name, at, realm = text.rpartition("@")
    if not at or not name or not realm or " " in text:
        raise FieldFault(f"must be a name and a realm, as in ann@CORP.LOCAL, got {quoted(text)}")
    return text


def _queue_url(text: str) -> str:
    DirectName.from_wire(URL(text))
    return text


def _database_url(text: str) -> str:
    if not text.startswith(("postgresql://", "postgres://")):
        raise FieldFault("must be postgresql://USER@HOST/DATABASE")
    return text


def _schema(text: str) -> str:
    if not text or text.startswith("pg_") or len(text.encode()) > MAX_SCHEMA_BYTES:
        raise FieldFault(f"must have 1 to {MAX_SCHEMA_BYTES} bytes and not begin with pg_, got {quoted(text)}")
    return text


DATABASE_URL = parsed("text", _database_url, 4096, secret=True)
SCHEMA = parsed("text", _schema, 63)
TOKEN = parsed("text", _token, 4096, secret=True)
SID = parsed("a SID, as in S-1-5-21-1-2-3-1001", _sid, 256)
PRINCIPAL = parsed("a Kerberos principal, as in ann@CORP.LOCAL", _principal, 256)
QUEUE_URL = parsed("text", _queue_url, 2048)
RESEND_TABLE = items(number(0.001, YEAR_S), least=1, most=1000)
PEER_PORT = whole(1, PORT_MAX)
_HELD = whole(1, 10_000_000)
SECONDS = number(1, YEAR_S)


class StandardPort(int):
    """The port of a listener that the file does not set. If the port is in use, the manager starts without that
    listener."""


# The sections


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerSettings:
    """`[manager]`"""

    name: str = required(MANAGER_NAME)
    id: UUID | None = setting(GUID, None)
    data: Path | None = setting(PATH, None)
    quota_kb: int = setting(UINT32, DEFAULT_QUOTA_KB)
    keep_journal_days: float | None = setting(number(0.04, 36_500), None)  # None: journals keep everything
    strict_names: bool = setting(SWITCH, False)  # queues are made with names of [MS-MQMQ] 2.1.1 alone


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """`[store]`: the place of everything that must survive. Without `url`, files in the data directory. `schema` is the
    manager's own in that database; absent: the manager's name. `key_file` encrypts the private keys in the database."""

    url: str | None = setting(DATABASE_URL, None, secret=True)  # it may hold a password
    password_file: Path | None = setting(FILE, None)
    key_file: Path | None = setting(FILE, None)
    schema: str | None = setting(SCHEMA, None)
    lease_s: float = setting(number(1, 3600), 10.0)


class LogLevel(Enum):
    """How much is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """`[log]`. The option --log-level of `postroad serve` overrides it."""

    level: LogLevel | None = setting(choice(LogLevel), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenSettings:
    """`[listen]`: a port of None is off. If `rpc_read` is off, remote readers use the port of `rpc`."""

    host: str = setting(HOST, "127.0.0.1")
    binary: int | None = setting(LISTEN_PORT, ports.BINARY)
    ping: int | None = setting(LISTEN_PORT, ports.PING)
    http: int | None = setting(LISTEN_PORT, StandardPort(ports.HTTP))
    https: int | None = setting(LISTEN_PORT, None)
    rpc: int | None = setting(LISTEN_PORT, ports.RPC_HANDSHAKE)
    rpc_read: int | None = setting(LISTEN_PORT, WITH_RPC)
    api: int | None = setting(LISTEN_PORT, ports.API)
    amqp: int | None = setting(LISTEN_PORT, None)
    epm: int | None = setting(LISTEN_PORT, StandardPort(ports.ENDPOINT_MAPPER))
    console: int | None = setting(LISTEN_PORT, WITH_API)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings:
    """`[api]`: who may use it from other computers. `keytab` is for Kerberos; absent, that of `[rpc]` counts."""

    token: str | None = setting(TOKEN, None, secret=True)
    token_file: Path | None = setting(FILE, None)  # after the load, `token` has its content
    client_ca: Path | None = setting(FILE, None)
    tls_certificate: Path | None = setting(FILE, None)
    tls_key: Path | None = setting(FILE, None)
    keytab: Path | None = setting(PATH, None)
    require_channel_binding: bool = setting(SWITCH, False)  # of logins by Kerberos over TLS


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """`[console]`: `proxies` are addresses and networks of reverse proxies, whose `X-Forwarded-For` is believed."""

    proxies: tuple[IPv4Network | IPv6Network, ...] = setting(items(parsed("text", _network, 64), most=1000), ())


@dataclass(frozen=True, slots=True, kw_only=True)
class BinarySettings:
    """`[binary]`: MS-MQQB"""

    window_size: int = setting(whole(1, UINT16_MAX), 1024)
    ack_timeout_ms: int = setting(whole(20_000, 120_000), 120_000)  # the range of [MS-MQQB] 2.2.2.1
    insecure_nacks: bool = setting(SWITCH, False)
    retry_connect_s: float = setting(number(0.001, YEAR_S), 1.0)
    resend_s: tuple[float, ...] = setting(RESEND_TABLE, RESEND_TABLE_S)
    cleanup_ms: int | None = setting(whole(1, UINT32_MAX), None)  # None: the default of the manager's role
    ping: bool = setting(SWITCH, False)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRedirection:
    """An entry of `[[srmp.inbound]]` or `[[srmp.receipts]]`: a URL, and the queue that replaces it."""

    source: str = required(URL, key="from")
    target: str = required(QUEUE_URL, key="to")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRedirection:
    """An entry of `[[srmp.outbound]]`: a URL, and the URL of the host to connect to instead."""

    source: str = required(URL, key="from")
    target: str = required(URL, key="to")


@dataclass(frozen=True, slots=True, kw_only=True)
class SrmpSettings:
    """`[srmp]`: MC-MQSRM, its redirections, and how it reaches others by HTTP."""

    retransmission_ms: int = setting(whole(1, UINT32_MAX), 20_000)
    resend_s: tuple[float, ...] = setting(RESEND_TABLE, RESEND_TABLE_S)
    cleanup_ms: int = setting(whole(1, UINT32_MAX), 300_000)
    clock_tolerance_s: float = setting(number(0, YEAR_S), 300.0)
    hosts: tuple[str, ...] = setting(items(HOST), ())
    store_and_forward: bool = setting(SWITCH, False)
    inbound: tuple[QueueRedirection, ...] = setting(tables(QueueRedirection), ())
    outbound: tuple[HostRedirection, ...] = setting(tables(HostRedirection), ())
    outbound_exceptions: tuple[str, ...] = setting(items(URL), ())
    receipts: tuple[QueueRedirection, ...] = setting(tables(QueueRedirection), ())
    receipts_url: str | None = setting(QUEUE_URL, None)
    proxy: str | None = setting(URL, None, secret=True)  # it may hold a password
    no_proxy: tuple[str, ...] = setting(items(HOST), ())
    ca_certificates: Path | None = setting(FILE, None)
    tls_certificate: Path | None = setting(FILE, None)
    tls_key: Path | None = setting(FILE, None)


class Encapsulation(Enum):
    """What carries PGM packets: IP protocol 113, or UDP."""

    RAW = "raw"
    UDP = "udp"


@dataclass(frozen=True, slots=True, kw_only=True)
class MulticastSettings:
    """`[multicast]`: SOAP over PGM. `interfaces` are names or addresses. If empty: the interface of the default
    route."""

    enabled: bool = setting(SWITCH, False)
    interfaces: tuple[str, ...] = setting(items(line(64), distinct=True), ())
    encapsulation: Encapsulation = setting(choice(Encapsulation), Encapsulation.RAW)
    port_udp: int = setting(PEER_PORT, 3055)
    rate_kb_s: int = setting(whole(1, 10_000_000), 70)  # TXW_MAX_RTE
    window_s: int = setting(whole(1, 86_400), 300)  # TXW_SECS
    hops: int = setting(whole(1, 255), 1)
    router_alert: bool = setting(SWITCH, True)
    receipts: bool = setting(SWITCH, False)  # by HTTP, to senders that ask for them


class RpcLevel(Enum):
    """How an authenticated remote reader must protect its calls ([MS-RPCE] 2.2.1.1.8)."""

    CONNECT = "connect"
    INTEGRITY = "integrity"
    PRIVACY = "privacy"


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcSettings:
    """`[rpc]`: MS-MQQP. With `authenticate`, only an authenticated user can open queues. `keytab` has the keys of this
    manager's services for Kerberos. Without `ntlm`, nobody logs in by NTLM."""

    authenticate: bool | None = setting(SWITCH, None)  # None: true if other computers can reach the listener
    anonymous: bool = setting(SWITCH, False)
    minimum_level: RpcLevel = setting(choice(RpcLevel), RpcLevel.INTEGRITY)
    keytab: Path | None = setting(PATH, None)
    ntlm: bool = setting(SWITCH, True)


@dataclass(frozen=True, slots=True, kw_only=True)
class AmqpSettings:
    """`[amqp]`: AMQP 1.0. With a certificate, all connections use TLS; with `client_ca`, clients can log in with
    theirs."""

    certificate: Path | None = setting(FILE, None)
    key: Path | None = setting(FILE, None)
    client_ca: Path | None = setting(FILE, None)
    idle_timeout_s: float = setting(number(2, YEAR_S), 60.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectorySettings:
    """`[directory]`: a file, or Active Directory by LDAP.

    `poll_s` is how often the file is checked for changes, and `refresh_s` how often a domain controller is asked for
    them; the others are from the specifications.
    """

    file: Path | None = setting(PATH, None)
    ldap: tuple[str, ...] = setting(parsed("text", _ldap_urls, 4096), ())
    base: str | None = setting(line(4096), None)
    user: str | None = setting(line(1024), None)
    password_file: Path | None = setting(PATH, None)
    keytab: Path | None = setting(PATH, None)
    ca_certificates: Path | None = setting(PATH, None)
    publish: bool = setting(SWITCH, False)
    site: str | None = setting(line(64), None)  # of this manager; None: as the directory has it
    routing_server: bool | None = setting(SWITCH, None)  # likewise
    poll_s: float = setting(number(0.05, YEAR_S), 5.0)
    refresh_s: float = setting(number(0.05, YEAR_S), 15.0)
    online_s: float = setting(SECONDS, 60.0)  # [MS-MQDMPR] 3.1.2.5
    sites_update_s: float = setting(SECONDS, 43_200.0)  # [MS-MQDMPR] 3.1.2.1
    site_gates_update_s: float = setting(SECONDS, 3_600.0)  # [MS-MQDMPR] 3.1.2.2
    query_s: float = setting(SECONDS, 3_600.0)  # [MS-MQBR] 3.1.3
    administrators: tuple[str, ...] = setting(items(line(256), most=100), ())  # names and SIDs of the domain


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """An entry of `[peers]`: the ports of a host that does not use the standard ones."""

    host: str
    binary: int = setting(PEER_PORT, ports.BINARY)
    ping: int = setting(PEER_PORT, ports.PING)
    http: int = setting(PEER_PORT, ports.HTTP)
    https: int = setting(PEER_PORT, ports.HTTPS)
    rpc: int = setting(PEER_PORT, ports.RPC_HANDSHAKE)


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """`[[user]]`: a user who can authenticate. Without `sid`, the user has one that follows from the name. `principal`
    is the user's name in Kerberos."""

    name: str = required(line(256))
    sid: Sid | None = setting(SID, None)
    groups: tuple[Sid, ...] = setting(items(SID, most=1000), ())
    administrator: bool = setting(SWITCH, False)
    monitor: bool = setting(SWITCH, False)
    principal: str | None = setting(PRINCIPAL, None)
    password: str = setting(line(256, secret=True), "", secret=True)  # after the load, empty only with a principal
    password_file: Path | None = setting(FILE, None)


class SenderIds(Enum):
    """Which sender of an unsigned message counts: nobody, or the one that the message names."""

    VERIFIED = "verified"
    CLAIMED = "claimed"


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySettings:
    """`[security]`: the algorithms of signatures and encryption, and whether unsigned senders are believed."""

    accept_hashes: tuple[str, ...] = setting(items(_word(HASHES), least=1, distinct=True), DEFAULT_HASHES)
    accept_ciphers: tuple[str, ...] = setting(items(_word(CIPHERS), least=1, distinct=True), DEFAULT_CIPHERS)
    accept_signatures: tuple[str, ...] = setting(items(_word(VERSIONS), least=1, distinct=True), DEFAULT_VERSIONS)
    send_cipher: str = setting(_word(CIPHERS), DEFAULT_CIPHER)
    signature_profile: str = setting(_word(PROFILES), LISTED.word)
    sender_ids: SenderIds = setting(choice(SenderIds), SenderIds.VERIFIED)
    hardened: bool = setting(SWITCH, False)  # HardenedSecurity of [MS-MQDMPR] 3.1.1.1: messages by HTTP only, no RPC


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """`[[certificate]]`: a sender whose signatures count, and the file with its certificate (PEM or DER)."""

    sid: Sid = required(SID)
    file: Path = required(FILE)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSettings:
    """`[limits]`: how much strangers can make the manager hold. Reaching a limit causes one log line and counts in a
    metric."""

    connections: int = setting(whole(16, 1_000_000), 4096)
    connections_per_address: int = setting(whole(1, 1_000_000), 256)
    unfinished_input_mb: int = setting(whole(8, 1 << 20), 256)
    remote_managers: int = setting(whole(1, 10_000_000), 10_000)
    outgoing_queues: int = setting(whole(1, 1_000_000), MAX_OUTGOING)
    amqp_sessions: int = setting(whole(1, 65_536), 256)  # of one connection
    amqp_links: int = setting(whole(1, 65_536), 1024)  # of one connection
    amqp_frame_kb: int = setting(whole(4, 4096), 128)
    # For each user, or each address without a user, over all listeners.
    transactions_per_user: int = setting(_HELD, 1000)
    locked_messages_per_user: int = setting(_HELD, 100_000)
    locked_mb_per_user: int = setting(_HELD, 256)
    open_queues_per_user: int = setting(_HELD, 4096)
    cursors_per_user: int = setting(_HELD, 4096)
    waiting_reads_per_user: int = setting(_HELD, 8192)
    holds_per_user: int = setting(_HELD, 1000)
    submissions_per_user: int = setting(_HELD, 100_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaySettings:
    """`[relay]`: hosts that this manager may call for messages of strangers."""

    allow: tuple[RelayRule, ...] = setting(items(parsed("text", _relay_rule, 253), most=10_000), ())


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSettings:
    """`[leases]`: how long a client may be silent before the manager takes its locked messages back."""

    receive_s: float = setting(SECONDS, 60.0)
    transaction_s: float = setting(SECONDS, 60.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """`[audit]`: a file with one JSON line for each change by a person, and for each refused login."""

    file: Path | None = setting(PATH, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSettings:
    """`[metrics]`: `queues` get series of their own; all others share one."""

    queues: int = setting(whole(0, 1_000_000), 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class TracingSettings:
    """`[tracing]`: OpenTelemetry spans of each message, to a file or to a collector."""

    enabled: bool = setting(SWITCH, False)
    service: str | None = setting(line(255), None)
    file: Path | None = setting(PATH, None)
    endpoint: str | None = setting(line(2048), None)
    label_prefix: bool = setting(SWITCH, False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredQueue(QueueSettings):
    """`[[queue]]`: a queue that exists from the start."""

    path: PathName = required(parsed("text", _queue_path))
    acl: SecurityDescriptor | None = setting(SDDL, None)


# The whole file


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    manager: ManagerSettings = required(table(ManagerSettings))
    store: StoreSettings = setting(table(StoreSettings), StoreSettings())
    listen: ListenSettings = setting(table(ListenSettings), ListenSettings())
    api: ApiSettings = setting(table(ApiSettings), ApiSettings())
    console: ConsoleSettings = setting(table(ConsoleSettings), ConsoleSettings())
    binary: BinarySettings = setting(table(BinarySettings), BinarySettings())
    srmp: SrmpSettings = setting(table(SrmpSettings), SrmpSettings())
    multicast: MulticastSettings = setting(table(MulticastSettings), MulticastSettings())
    rpc: RpcSettings = setting(table(RpcSettings), RpcSettings())
    amqp: AmqpSettings = setting(table(AmqpSettings), AmqpSettings())
    directory: DirectorySettings = setting(table(DirectorySettings), DirectorySettings())
    limits: LimitSettings = setting(table(LimitSettings), LimitSettings())
    relay: RelaySettings = setting(table(RelaySettings), RelaySettings())
    leases: LeaseSettings = setting(table(LeaseSettings), LeaseSettings())
    audit: AuditSettings = setting(table(AuditSettings), AuditSettings())
    metrics: MetricsSettings = setting(table(MetricsSettings), MetricsSettings())
    tracing: TracingSettings = setting(table(TracingSettings), TracingSettings())
    log: LogSettings = setting(table(LogSettings), LogSettings())
    security: SecuritySettings = setting(table(SecuritySettings), SecuritySettings())
    certificates: tuple[Certificate, ...] = setting(tables(Certificate), (), key="certificate")
    peers: tuple[Peer, ...] = setting(tables_by_key(Peer, HOST, "host"), ())
    users: tuple[User, ...] = setting(tables(User), (), key="user")
    queues: tuple[ConfiguredQueue, ...] = setting(tables(ConfiguredQueue), (), key="queue")


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration(_File):
    """The settings of `postroad serve`. `file` is None if there is no file and everything is a default."""

    file: Path | None
    data: Path

    @property
    def schema(self) -> str:
        """Of the store in a database."""
        return self.store.schema or self.manager.name

    def fail(self, key: str, fault: str) -> NoReturn:
        """Refuses a setting for a reason that appears only when the server uses it."""
        raise ConfigurationError(str(self.file or "default configuration"), key, fault)


def load_configuration(file: Path) -> Configuration:
    """Reads and checks the whole file; raises ConfigurationError on the first fault."""
    settings = load(file, _File)
    place = Place(str(file))
    settings = _with_secrets(settings, place)
    _check_store(settings.store, place.inside("store"))
    _check_ports(settings.listen, place)
    _check_tls(settings.api, place.inside("api"))
    if settings.api.client_ca is not None and settings.api.tls_certificate is None:
        fault = "is missing: client_ca needs TLS, because only TLS carries client certificates; set it and tls_key"
        place.inside("api").inside("tls_certificate").fail(fault)
    _check_tls(settings.srmp, place.inside("srmp"))
    if settings.listen.https is not None and settings.srmp.tls_certificate is None:
        place.inside("srmp").inside("tls_certificate").fail("is missing: listen.https needs a certificate and its key")
    _check_amqp(settings.amqp, place.inside("amqp"))
    _check_directory(settings.directory, place.inside("directory"))
    if settings.directory.publish and settings.manager.id is not None:
        fault = "must be absent where directory.publish is true: the directory chooses the manager's id"
        place.inside("manager").inside("id").fail(fault)
    refuse_duplicates(settings.users, place.inside("user"), "name")
    refuse_duplicates(settings.users, place.inside("user"), "principal", lambda user: user.principal or (user.name,))
    if not settings.rpc.ntlm and settings.rpc.keytab is None:
        place.inside("rpc").inside("keytab").fail("is missing: without it and with ntlm = false, nobody could log in")
    for index, queue in enumerate(settings.queues, 1):
        if not queue.path.is_local and queue.path.computer.lower() != settings.manager.name.lower():
            fault = f"must be a queue of {settings.manager.name}, got {queue.path}"
            place.inside("queue").item(index).inside("path").fail(fault)
        if queue.base_priority and queue.path.tail.kind is not QueueKind.PUBLIC:
            place.inside("queue").item(index).inside("base_priority").fail(NO_BASE_PRIORITY)
    refuse_duplicates(settings.queues, place.inside("queue"), "path", lambda queue: queue.path.tail)
    if settings.security.hardened:
        if settings.multicast.enabled:
            fault = "must be false where security.hardened is true: messages travel by HTTP alone then"
            place.inside("multicast").inside("enabled").fail(fault)
        listen = replace(settings.listen, binary=None, ping=None, rpc=None, rpc_read=None, epm=None, amqp=None)
        settings = replace(settings, listen=listen)
    data = settings.manager.data or file.parent / "data" / settings.manager.name
    return Configuration(**_values(settings), file=file, data=data)


def default_configuration(name: str | None = None) -> Configuration:
    """The defaults: a manager with this computer's name, or another one, and its data in ./data/NAME."""
    if name is None:
        name = re.sub(r"[^A-Za-z0-9_-]", "-", platform.node().partition(".")[0]).strip("-")
    if not name or name.lower() == "localhost":
        name = "postroad"
    return Configuration(manager=ManagerSettings(name=name), file=None, data=Path("data") / name)


def _values(settings: _File) -> dict[str, Any]:
    return {each.name: getattr(settings, each.name) for each in fields(settings)}


def _with_secrets(settings: _File, place: Place) -> _File:
    """The configuration with the tokens and passwords from their files."""
    api = settings.api
    if api.token_file is not None:
        inside = place.inside("api").inside("token_file")
        if api.token is not None:
            inside.fail("must not be set together with api.token")
        api = replace(api, token=_secret(api.token_file, inside, TOKEN))
    users = []
    for index, user in enumerate(settings.users, 1):
        inside = place.inside("user").item(index)
        if user.password_file is not None:
            if user.password:
                inside.inside("password_file").fail("must not be set together with password")
            user = replace(
                user, password=_secret(user.password_file, inside.inside("password_file"), line(4096, secret=True))
            )
        elif not user.password and user.principal is None:
            fault = "is missing: set password or password_file, or principal for a user who logs in by Kerberos alone"
            inside.inside("password").fail(fault)
        users.append(user)
    return replace(settings, api=api, users=tuple(users))


def _secret(file: Path, place: Place, kind: Kind[str]) -> str:
    """Reads the secret from a file that has only this one line."""
    try:
        lines = read_file(file).decode().splitlines()
    except UnicodeDecodeError:
        place.fail(f"{file} must be UTF-8 text")
    if len(lines) != 1 or not lines[0].strip():
        place.fail(f"{file} must hold one line with the secret, and nothing else")
    try:
        return kind(lines[0].strip())
    except FieldFault as fault:
        place.fail(fault.fault)


def _check_ports(listen: ListenSettings, place: Place) -> None:
    """Refuses two listeners on one TCP port, with a clearer error than the second listener would get. Ping is UDP."""
    taken: dict[int, str] = {}
    for name in ("binary", "http", "https", "rpc", "rpc_read", "api", "amqp", "epm", "console"):
        number: int | None = getattr(listen, name)
        if number and number in taken:
            place.inside("listen").inside(name).fail(f"must differ from listen.{taken[number]}, got port {number}")
        if number:
            taken[number] = name


def _check_store(store: StoreSettings, place: Place) -> None:
    if store.url is None:
        for name in ("password_file", "key_file", "schema"):
            if getattr(store, name) is not None:
                place.inside(name).fail("needs url: set url to the database of the store")


def _check_directory(settings: DirectorySettings, place: Place) -> None:
    if settings.file is not None and settings.ldap:
        place.inside("ldap").fail("must not be set together with file: the directory has one source")
    if not settings.ldap:
        for name in ("base", "user", "password_file", "keytab", "ca_certificates"):
            if getattr(settings, name) is not None:
                place.inside(name).fail("needs ldap: set ldap to the URL of a domain controller")
        if settings.publish:
            place.inside("publish").fail("needs ldap: set ldap to the URL of a domain controller")
    for name in ("site", "routing_server"):
        if getattr(settings, name) is not None and not settings.publish:
            place.inside(name).fail("needs publish = true: it is what the manager publishes of itself")
    if settings.password_file is not None and settings.keytab is not None:
        place.inside("keytab").fail("must not be set together with password_file: one of them logs in")
    if settings.user is None and (settings.password_file is not None or settings.keytab is not None):
        place.inside("user").fail("is missing: set it to the user whose password or key the file has")


def _check_amqp(settings: AmqpSettings, place: Place) -> None:
    for name, here, other in (
        ("certificate", settings.certificate, settings.key),
        ("key", settings.key, settings.certificate),
    ):
        if here is None and other is not None:
            place.inside(name).fail("is missing: a certificate and its key must be set together")
    if settings.client_ca is not None and settings.certificate is None:
        fault = "is missing: client_ca needs TLS, because only TLS carries client certificates; set it and key"
        place.inside("certificate").fail(fault)


def _check_tls(section: ApiSettings | SrmpSettings, place: Place) -> None:
    for name, here, other in (
        ("tls_certificate", section.tls_certificate, section.tls_key),
        ("tls_key", section.tls_key, section.tls_certificate),
    ):
        if here is None and other is not None:
            place.inside(name).fail("is missing: a certificate and its key must be set together")
