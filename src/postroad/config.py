"""The configuration of one queue manager, as its TOML file has it: every setting with its type, range and default.

Sections of protocols that this version does not speak yet are checked all the same. What a setting does is elsewhere.
"""

# ruff: noqa: RUF009  (a setting is a dataclass field, made by a function)

from __future__ import annotations

import platform
import re
from dataclasses import dataclass, fields, replace
from enum import Enum
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit
from uuid import UUID

from postroad.errors import ConfigurationError, IllegalName
from postroad.names import DirectName, PathName, QueueKind
from postroad.queues.collection import MAX_LABEL
from postroad.queues.properties import DEFAULT_JOURNAL_QUOTA_KB, QueuePrivacy
from postroad.security.relay import RelayRule
from postroad.settings import (
    Place,
    Table,
    choice,
    guid,
    host_name,
    items,
    load,
    manager_name,
    number,
    path,
    read_file,
    refuse_duplicates,
    required,
    secret_text,
    setting,
    switch,
    tables_by_key,
    text,
    whole,
)
from postroad.wire.constants import RESEND_TABLE_S

UINT16_MAX = 0xFFFF
UINT32_MAX = 0xFFFFFFFF
PORT_MAX = 65535
DEFAULT_QUOTA_KB = 8 << 20  # 8 GiB of messages, journals and dead letters among them: strangers can fill no more
YEAR_S = 365 * 86400
WITH_RPC = -1  # of rpc_read: the standard port where rpc has its own, else the same port as rpc

_TOKEN = re.compile(r"[\x21-\x7e]+")
_PASSWORD = re.compile(r"//[^/]*@")  # of a URL that brings a user and a password


# Readers of what only a queue manager's configuration holds


def port_number(value: object, place: Place) -> int | None:
    """A port to listen on, 0 for any free one, false for off."""
    if value is False:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= PORT_MAX:
        shown = repr(value).lower() if isinstance(value, bool) else repr(value)
        place.fail(f"{shown} is no port: a whole number from 1 to {PORT_MAX}, 0 for any free one, or false for off")
    return value


def queue_path(value: object, place: Place) -> PathName:
    r"""A queue to be here: `private$\orders`, or with a computer before it."""
    try:
        name = PathName.parse(text(1024)(value, place))
    except IllegalName as fault:
        place.fail(str(fault))
    if name.tail.kind is QueueKind.SYSTEM:
        place.fail(f"{value!r} is one of the queue manager's own queues, which are always there")
    if name.tail.journal or name.tail.subqueue is not None:
        place.fail(f"{value!r}: journals and subqueues come with their queue")
    return name


def api_token(value: object, place: Place) -> str:
    token = secret_text(4096)(value, place)
    if not _TOKEN.fullmatch(token):
        place.fail("a token has visible ASCII characters and no spaces")
    return token


def relay_rule(value: object, place: Place) -> RelayRule:
    """A network or a host pattern of `[relay] allow`."""
    try:
        return RelayRule.parse(text(253)(value, place))
    except ValueError as fault:
        place.fail(str(fault))


def existing_file(value: object, place: Place) -> Path:
    file = path(value, place)
    if not file.is_file():
        place.fail(f"there is no file {file}")
    return file


def url(value: object, place: Place) -> str:
    """An http or https URL with a host; one that means more than itself may end in an asterisk."""
    string = text(2048)(value, place)
    try:
        parts = urlsplit(string)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        valid = False
    if not valid:
        shown = _PASSWORD.sub("//...@", string)
        place.fail(f"{shown!r} is no URL of HTTP or HTTPS, as in http://alpha/msmq/private$/orders")
    return string


def queue_url(value: object, place: Place) -> str:
    """The URL of a queue."""
    string = url(value, place)
    try:
        DirectName.from_wire(string)
    except IllegalName as fault:
        place.fail(str(fault))
    return string


class StandardPort(int):
    """The port of a listener that nobody has asked for: it is done without where it cannot be had."""


quota = whole(0, UINT32_MAX)
resend_table = items(number(0.001, YEAR_S), least=1, most=1000)


# The sections


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerSettings:
    """`[manager]`"""

    name: str = required(manager_name)
    id: UUID | None = setting(guid, None)
    data: Path | None = setting(path, None)
    quota_kb: int = setting(quota, DEFAULT_QUOTA_KB)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenSettings:
    """`[listen]`: a port of None is off; for `rpc_read` that means that remote readers use `rpc`'s."""

    host: str = setting(host_name, "127.0.0.1")
    binary: int | None = setting(port_number, 1801)
    ping: int | None = setting(port_number, 3527)
    http: int | None = setting(port_number, StandardPort(80))
    https: int | None = setting(port_number, None)
    rpc: int | None = setting(port_number, 2103)
    rpc_read: int | None = setting(port_number, WITH_RPC)
    api: int | None = setting(port_number, 8180)
    epm: int | None = setting(port_number, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings:
    """`[api]`: who may use it from other computers."""

    token: str | None = setting(api_token, None, secret=True)
    token_file: Path | None = setting(existing_file, None)  # what it holds is in `token` once the file is loaded
    client_ca: Path | None = setting(existing_file, None)
    tls_certificate: Path | None = setting(existing_file, None)
    tls_key: Path | None = setting(existing_file, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class BinarySettings:
    """`[binary]`: MS-MQQB"""

    window_size: int = setting(whole(1, UINT16_MAX), 64)
    ack_timeout_ms: int = setting(whole(20_000, 120_000), 120_000)  # what [MS-MQQB] 2.2.2.1 allows
    insecure_nacks: bool = setting(switch, False)
    retry_connect_s: float = setting(number(0.001, YEAR_S), 1.0)
    resend_s: tuple[float, ...] = setting(resend_table, RESEND_TABLE_S)
    ping: bool = setting(switch, False)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRedirection:
    """One of `[[srmp.inbound]]` or `[[srmp.receipts]]`: a URL, and the queue that takes its place."""

    source: str = required(url, key="from")
    target: str = required(queue_url, key="to")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRedirection:
    """One of `[[srmp.outbound]]`: a URL, and whose host is connected to instead."""

    source: str = required(url, key="from")
    target: str = required(url, key="to")


@dataclass(frozen=True, slots=True, kw_only=True)
class SrmpSettings:
    """`[srmp]`: MC-MQSRM, its redirections, and how HTTP reaches others."""

    retransmission_ms: int = setting(whole(1, UINT32_MAX), 20_000)
    resend_s: tuple[float, ...] = setting(resend_table, RESEND_TABLE_S)
    cleanup_ms: int = setting(whole(1, UINT32_MAX), 300_000)
    hosts: tuple[str, ...] = setting(items(host_name), ())
    store_and_forward: bool = setting(switch, False)
    inbound: tuple[QueueRedirection, ...] = setting(items(Table(QueueRedirection)), ())
    outbound: tuple[HostRedirection, ...] = setting(items(Table(HostRedirection)), ())
    outbound_exceptions: tuple[str, ...] = setting(items(url), ())
    receipts: tuple[QueueRedirection, ...] = setting(items(Table(QueueRedirection)), ())
    receipts_url: str | None = setting(queue_url, None)
    proxy: str | None = setting(url, None, secret=True)  # it may hold a password
    no_proxy: tuple[str, ...] = setting(items(host_name), ())
    ca_certificates: Path | None = setting(existing_file, None)
    tls_certificate: Path | None = setting(existing_file, None)
    tls_key: Path | None = setting(existing_file, None)


class RpcLevel(Enum):
    """How much of its calls an authenticated remote reader must protect ([MS-RPCE] 2.2.1.1.8)."""

    CONNECT = "connect"
    INTEGRITY = "integrity"
    PRIVACY = "privacy"


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcSettings:
    """`[rpc]`: MS-MQQP. With `authenticate`, queues open only for a `[[user]]` who has proved to be one."""

    authenticate: bool | None = setting(switch, None)  # None: where other computers can reach the listener
    anonymous: bool = setting(switch, False)
    minimum_level: RpcLevel = setting(choice(RpcLevel), RpcLevel.INTEGRITY)


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectorySettings:
    """`[directory]`: `poll_s` is how often to see whether the file was written; the others are the specifications'."""

    file: Path | None = setting(path, None)
    poll_s: float = setting(number(0.05, YEAR_S), 5.0)
    sites_update_s: float = setting(number(1, YEAR_S), 43_200.0)  # [MS-MQDMPR] 3.1.2.1
    site_gates_update_s: float = setting(number(1, YEAR_S), 3_600.0)  # [MS-MQDMPR] 3.1.2.2
    query_s: float = setting(number(1, YEAR_S), 3_600.0)  # [MS-MQBR] 3.1.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One line of `[peers]`: the ports of a host that does not use the standard ones."""

    host: str
    binary: int = setting(whole(1, PORT_MAX), 1801)
    ping: int = setting(whole(1, PORT_MAX), 3527)
    http: int = setting(whole(1, PORT_MAX), 80)
    https: int = setting(whole(1, PORT_MAX), 443)
    rpc: int = setting(whole(1, PORT_MAX), 2103)


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """`[[user]]`: who may authenticate."""

    name: str = required(text(256))
    password: str = setting(secret_text(256), "", secret=True)  # never empty once the file is loaded
    password_file: Path | None = setting(existing_file, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSettings:
    """`[limits]`: what strangers can make the manager hold. A limit reached is one log line and one metric."""

    connections: int = setting(whole(16, 1_000_000), 4096)
    connections_per_address: int = setting(whole(1, 1_000_000), 256)
    unfinished_input_mb: int = setting(whole(8, 1 << 20), 256)
    remote_managers: int = setting(whole(1, 10_000_000), 10_000)
    outgoing_queues: int = setting(whole(1, 1_000_000), 10_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaySettings:
    """`[relay]`: hosts that messages of strangers may make this manager call."""

    allow: tuple[RelayRule, ...] = setting(items(relay_rule, most=10_000), ())


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSettings:
    """`[leases]`: how long a client may be silent before what it has taken goes back."""

    receive_s: float = setting(number(1, YEAR_S), 60.0)
    transaction_s: float = setting(number(1, YEAR_S), 60.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """`[audit]`: a file that gets one JSON line for each change by people, and for each refused login."""

    file: Path | None = setting(path, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredQueue:
    """`[[queue]]`: a queue that is here from the start. A quota of None is no limit."""

    path: PathName = required(queue_path)
    transactional: bool = setting(switch, False)
    journal: bool = setting(switch, False)
    quota_kb: int | None = setting(quota, None)
    journal_quota_kb: int = setting(quota, DEFAULT_JOURNAL_QUOTA_KB)
    authenticate: bool = setting(switch, False)
    privacy: QueuePrivacy = setting(choice(QueuePrivacy), QueuePrivacy.OPTIONAL)
    label: str = setting(text(MAX_LABEL, empty=True), "")
    abort_limit: int | None = setting(whole(1, UINT32_MAX), None)


# The whole file


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    manager: ManagerSettings = required(Table(ManagerSettings))
    listen: ListenSettings = setting(Table(ListenSettings), ListenSettings())
    api: ApiSettings = setting(Table(ApiSettings), ApiSettings())
    binary: BinarySettings = setting(Table(BinarySettings), BinarySettings())
    srmp: SrmpSettings = setting(Table(SrmpSettings), SrmpSettings())
    rpc: RpcSettings = setting(Table(RpcSettings), RpcSettings())
    directory: DirectorySettings = setting(Table(DirectorySettings), DirectorySettings())
    limits: LimitSettings = setting(Table(LimitSettings), LimitSettings())
    relay: RelaySettings = setting(Table(RelaySettings), RelaySettings())
    leases: LeaseSettings = setting(Table(LeaseSettings), LeaseSettings())
    audit: AuditSettings = setting(Table(AuditSettings), AuditSettings())
    peers: tuple[Peer, ...] = setting(tables_by_key(Peer, host_name, "host"), ())
    users: tuple[User, ...] = setting(items(Table(User)), (), key="user")
    queues: tuple[ConfiguredQueue, ...] = setting(items(Table(ConfiguredQueue)), (), key="queue")


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration(_File):
    """What `postroad serve` runs on. `file` is None where there is no file and everything is a default."""

    file: Path | None
    data: Path

    def fail(self, key: str, fault: str) -> NoReturn:
        """Refuses a setting for a reason that shows only when it is used."""
        raise ConfigurationError(str(self.file or "default configuration"), key, fault)


def load_configuration(file: Path) -> Configuration:
    """Reads and checks the whole file; raises ConfigurationError on the first fault."""
    settings = load(file, _File)
    place = Place(str(file))
    settings = _with_secrets(settings, place)
    _check_ports(settings.listen, place)
    _check_tls(settings.api, place.inside("api"))
    if settings.api.client_ca is not None and settings.api.tls_certificate is None:
        fault = "is missing: client_ca asks for certificates of clients, which only TLS carries; set it and tls_key"
        place.inside("api").inside("tls_certificate").fail(fault)
    _check_tls(settings.srmp, place.inside("srmp"))
    if settings.listen.https is not None and settings.srmp.tls_certificate is None:
        place.inside("srmp").inside("tls_certificate").fail("is missing: listen.https needs a certificate and its key")
    refuse_duplicates(settings.users, place.inside("user"), "name")
    for index, queue in enumerate(settings.queues, 1):
        if not queue.path.is_local and queue.path.computer.lower() != settings.manager.name.lower():
            fault = f"{queue.path} is on {queue.path.computer}; queues are made on {settings.manager.name} only"
            place.inside("queue").item(index).inside("path").fail(fault)
    refuse_duplicates(settings.queues, place.inside("queue"), "path", lambda queue: queue.path.tail)
    data = settings.manager.data or file.parent / "data" / settings.manager.name
    return Configuration(**_values(settings), file=file, data=data)


def default_configuration() -> Configuration:
    """Without a file: a manager with this computer's name, its data in ./data/NAME, every listener at its default."""
    name = re.sub(r"[^A-Za-z0-9_-]", "-", platform.node().partition(".")[0]).strip("-")
    if not name or name.lower() == "localhost":
        name = "postroad"
    return Configuration(manager=ManagerSettings(name=name), file=None, data=Path("data") / name)


def _values(settings: _File) -> dict[str, Any]:
    return {each.name: getattr(settings, each.name) for each in fields(settings)}


def _with_secrets(settings: _File, place: Place) -> _File:
    """Tokens and passwords that stand in files of their own, read."""
    api = settings.api
    if api.token_file is not None:
        inside = place.inside("api").inside("token_file")
        if api.token is not None:
            inside.fail("there is api.token too: give one of them")
        api = replace(api, token=api_token(_secret(api.token_file, inside), inside))
    users = []
    for index, user in enumerate(settings.users, 1):
        inside = place.inside("user").item(index)
        if user.password_file is not None:
            if user.password:
                inside.inside("password_file").fail("there is a password too: give one of them")
            user = replace(user, password=_secret(user.password_file, inside.inside("password_file")))
        elif not user.password:
            inside.inside("password").fail("is missing: set password or password_file")
        users.append(user)
    return replace(settings, api=api, users=tuple(users))


def _secret(file: Path, place: Place) -> str:
    """The first line of a file that holds a secret and nothing else."""
    try:
        lines = read_file(file).decode().splitlines()
    except UnicodeDecodeError:
        place.fail(f"{file} is not UTF-8 text")
    if len(lines) != 1 or not lines[0].strip():
        place.fail(f"{file} must hold one line with the secret, and nothing else")
    return secret_text(4096)(lines[0].strip(), place)


def _check_ports(listen: ListenSettings, place: Place) -> None:
    """Two listeners on one TCP port would fail later, and less clearly; ping is UDP."""
    taken: dict[int, str] = {}
    for name in ("binary", "http", "https", "rpc", "rpc_read", "api", "epm"):
        number: int | None = getattr(listen, name)
        if number and number in taken:
            place.inside("listen").inside(name).fail(f"port {number} is listen.{taken[number]}'s already")
        if number:
            taken[number] = name


def _check_tls(section: ApiSettings | SrmpSettings, place: Place) -> None:
    for name, here, other in (
        ("tls_certificate", section.tls_certificate, section.tls_key),
        ("tls_key", section.tls_key, section.tls_certificate),
    ):
        if here is None and other is not None:
            place.inside(name).fail("is missing: a certificate and its key go together")
