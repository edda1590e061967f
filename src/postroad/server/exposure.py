"""Who can reach this queue manager and what they may do: a row for each listener, and warnings.

Each listener has its own rules. This module describes them and decides nothing.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from postroad.config import Configuration, RpcLevel
from postroad.net.endpoints import is_loopback
from postroad.reports.info import ListenerInfo
from postroad.runtime.logs import TABLE
from postroad.runtime.private_files import others_can_read

log = logging.getLogger(__name__)

SHORT_TOKEN = 16  # characters: a shorter one can be guessed
NOBODY, TOKEN, CERTIFICATE = "none", "token", "client certificate"
KERBEROS = "kerberos"
PLAIN, TLS = "none", "tls"
_LEVELS = {
    RpcLevel.CONNECT: "per call: none, signed or sealed",
    RpcLevel.INTEGRITY: "per call: signed or sealed",
    RpcLevel.PRIVACY: "per call: sealed",
}


@dataclass(frozen=True, slots=True)
class RpcFacts:
    """Authentication of the listener for remote readers, and its second address."""

    authenticate: bool
    mechanisms: tuple[str, ...] = ()
    read_address: str | None = None


def exposure(
    config: Configuration, addresses: Mapping[str, str], *, reachable: bool, rpc: RpcFacts
) -> tuple[ListenerInfo, ...]:
    """A row for each listener in `addresses`, in the order of the table."""
    everybody = "everybody" if reachable else "everybody on this computer"
    alone = "; hardened: by HTTP alone, and nobody reads remotely" if config.security.hardened else ""
    rows = {
        "binary": (NOBODY, PLAIN, f"{everybody} may send messages"),
        "ping": (NOBODY, PLAIN, f"{everybody} may ask whether the manager accepts messages"),
        "http": (NOBODY, PLAIN, f"{everybody} may send messages{alone}"),
        "https": (NOBODY, TLS, f"{everybody} may send messages{alone}"),
        "rpc": _rpc(config, everybody, rpc),
        "epm": (NOBODY, PLAIN, f"{everybody} may ask for the ports of rpc"),
        "api": _api(config, everybody),
        "amqp": _amqp(config, everybody),
        "console": _api(config, everybody),
    }
    return tuple(
        ListenerInfo(name, addresses[name], reachable, *row) for name, row in rows.items() if name in addresses
    )


def multicast_exposure(address: str) -> ListenerInfo:
    reachable = not is_loopback(address)
    everybody = "everybody on the network segment" if reachable else "everybody on this computer"
    allows = f"{everybody} may send messages to queues with a multicast address"
    return ListenerInfo("multicast", address, reachable, NOBODY, PLAIN, allows)


def _rpc(config: Configuration, everybody: str, facts: RpcFacts) -> tuple[str, str, str]:
    if facts.authenticate:
        words, encryption = f"users ({', '.join(facts.mechanisms) or 'ntlm'})", _LEVELS[config.rpc.minimum_level]
        who = "users" if facts.mechanisms else "no one (there is no [[user]])"
    else:
        words, encryption, who = NOBODY, PLAIN, everybody
    also = "" if facts.read_address is None else f"; on {facts.read_address} too"
    return words, encryption, f"{who} may read, receive and purge{also}"


def _api(config: Configuration, everybody: str) -> tuple[str, str, str]:
    api = config.api
    encryption = PLAIN if api.tls_certificate is None else TLS
    keytab = api.keytab is not None or config.rpc.keytab is not None
    needed = [*([TOKEN] if api.token is not None else []), *([CERTIFICATE] if api.client_ca is not None else [])]
    if not needed:
        return NOBODY, encryption, f"{everybody} may do everything"
    words = " and ".join(needed)
    users = "; users may do what access lists allow" if config.users or keytab else ""
    also = f", or {KERBEROS}" if keytab else ""
    return f"{words}{also}", encryption, f"callers with the {words} may do everything{users}"


def _amqp(config: Configuration, everybody: str) -> tuple[str, str, str]:
    amqp, api = config.amqp, config.api
    encryption = PLAIN if amqp.certificate is None else TLS
    if api.token is None and api.client_ca is None and is_loopback(config.listen.host):
        return NOBODY, encryption, f"{everybody} may send to and receive from every queue"
    ways = [*(["password"] if config.users else []), *([TOKEN] if api.token is not None else [])]
    ways += [CERTIFICATE] if amqp.client_ca is not None else []
    return " or ".join(ways) or NOBODY, encryption, "users may send and receive as access lists allow"


def is_open_to_strangers(listener: ListenerInfo) -> bool:
    """Whether other computers can reach it without authentication, unencrypted."""
    return listener.reachable and listener.authentication == NOBODY and listener.encryption == PLAIN


def readable_secrets(config: Configuration) -> Iterator[tuple[str, Path]]:
    """Files with secrets that other users of this computer can read, each with its setting."""
    files = [("api.token_file", config.api.token_file), ("api.tls_key", config.api.tls_key)]
    files += [("srmp.tls_key", config.srmp.tls_key), ("amqp.key", config.amqp.key)]
    files += [(f"user[{index}].password_file", user.password_file) for index, user in enumerate(config.users, 1)]
    if config.api.token is not None and config.api.token_file is None:
        files += [("api.token", config.file)]
    files += [
        (f"user[{index}].password", config.file)
        for index, user in enumerate(config.users, 1)
        if user.password_file is None
    ]
    seen: set[Path] = set()
    for key, file in files:
        if file is not None and file not in seen and others_can_read(file):
            seen.add(file)
            yield key, file


def announce(config: Configuration, listeners: tuple[ListenerInfo, ...]) -> None:
    """Logs the table, and warns of probable mistakes."""
    log.info("listeners", extra={TABLE: [asdict(each) for each in listeners]})
    for each in listeners:
        if is_open_to_strangers(each):
            facts = {"listener": each.listener, "address": each.address, "allows": each.allows}
            log.warning("listener is open to other computers without authentication or encryption", extra=facts)
    rpc = next((each for each in listeners if each.listener == "rpc"), None)
    people = config.api.token is not None or bool(config.users)
    if people and rpc and not rpc.reachable and rpc.authentication == NOBODY and not config.rpc.anonymous:
        log.warning(
            "remote readers need no login: every user of this computer may read and purge the queues",
            extra={"setting": "rpc.authenticate", "do": "set it to true, or set listen.rpc = false"},
        )
    token = config.api.token
    if token is not None and len(token) < SHORT_TOKEN:
        log.warning(
            "the API token is easy to guess",
            extra={
                "setting": "api.token" if config.api.token_file is None else "api.token_file",
                "do": f"set a token of at least {SHORT_TOKEN} characters, for example from `openssl rand -hex 32`",
            },
        )
    for key, file in readable_secrets(config):
        command = f"chmod 600 {shlex.quote(str(file))}"
        log.warning("other users can read a file with a secret", extra={"setting": key, "file": file, "do": command})
