"""What a start reads and checks before it opens anything. `postroad serve --check` and a reload do the same."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import NoReturn
from uuid import UUID

from postroad.api.server import TlsFiles, refuse_strangers
from postroad.config import Configuration
from postroad.directory import distinguished_names
from postroad.directory.account_reader import AccountReader
from postroad.directory.ldap_connection import LdapSettings, connect
from postroad.directory.ldap_watch import COPY_FILE, DomainSettings, LdapWatch
from postroad.directory.objects import QueueManager
from postroad.directory.snapshot import Directory
from postroad.directory.watch import DirectoryWatch, UpdateTimers, Watch
from postroad.errors import ConfigurationError, DirectoryError, InvalidArgument, PostroadError
from postroad.net.endpoints import endpoint, is_loopback
from postroad.net.tls import server_tls
from postroad.remote_read.readers import readers_log_in
from postroad.security.kerberos import Acceptor, Keytab
from postroad.server.console_process import console_port
from postroad.server.protection import check_libraries, read_certificates

REPLAY_CACHE = "kerberos.replay"  # in the data directory: a login counts once, also after a restart
WILDCARDS = frozenset({"0.0.0.0", "::"})
_LOOPBACK = ("127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Prepared:
    """What the files say. `digests` has the digest of each file, by the setting that names it."""

    watch: Watch | None
    directory: Directory
    entry: QueueManager | None  # this manager's own, in the directory
    identifier: UUID | None  # None: the data directory decides
    reachable: bool
    authenticate_readers: bool
    api_files: TlsFiles | None
    api_tls: ssl.SSLContext | None
    https_tls: ssl.SSLContext | None
    amqp_tls: ssl.SSLContext | None
    client_tls: ssl.SSLContext | None  # None without SOAP
    rpc_acceptor: Acceptor | None  # of Kerberos tickets
    api_acceptor: Acceptor | None
    certificates: Mapping[str, tuple[bytes, ...]]
    digests: Mapping[str, bytes]


async def prepare(config: Configuration, watch: Watch | None = None, *, keep: bool = True) -> Prepared:
    """Reads and checks the files and the directory. Changes nothing but the kept copy of a domain, and with `keep`
    False not even that. Raises ConfigurationError on the first fault. `watch` is the one already in use, if any."""
    if watch is not None:
        await asyncio.to_thread(watch.check)  # reading a large file takes a second
        return await _prepare(config, watch)
    watch = await asyncio.to_thread(open_watch, config, keep=keep)
    try:
        return await _prepare(config, watch)
    except BaseException:
        if watch is not None:
            watch.close()
        raise


async def _prepare(config: Configuration, watch: Watch | None) -> Prepared:
    directory = Directory() if watch is None else watch.directory
    entry = directory.manager_named(config.manager.name)
    identifier = _identifier(config, entry)
    addresses = await _addresses(config)
    reachable = not all(is_loopback(each) for _, each in addresses)
    authenticate_readers = readers_log_in(config, reachable)
    digests = {key: _digest(file) for key, file in _files(config)}  # first, so that a later change of a file shows
    api_files, api_tls, https_tls, amqp_tls = _server_tls(config)
    _refuse_silent_amqp(config, reachable)
    if config.listen.api is not None:
        with _named(config):
            refuse_strangers(config.listen.host, addresses[0][1], config.api.token, api_files)
        console_port(config, reachable)
    _check_host(config, addresses)
    check_libraries(config)
    return Prepared(
        watch,
        directory,
        entry,
        identifier,
        reachable,
        authenticate_readers,
        api_files,
        api_tls,
        https_tls,
        amqp_tls,
        _client_tls(config),
        *_acceptors(config),
        read_certificates(config),
        digests,
    )


def refuse_listener(config: Configuration, key: str, what: str, error: OSError) -> NoReturn:
    """Raises the error for a listener that cannot open. An address of another computer is a fault of the configuration;
    any other cause lies with this computer."""
    words = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
    if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
        config.fail("listen.host", f"{what}: {words}; set it to an address of this computer")
    if error.errno == errno.EACCES:
        raise PostroadError(f"{key}: {what}: {words}; set a port above 1023, or run with the right to listen on it")
    raise PostroadError(f"{key}: {what}: {words}; stop the program that uses it, or set another port") from None


def own_hosts(config: Configuration, entry: QueueManager | None) -> set[str]:
    """Hosts, besides the manager's name, that mean this manager in a direct format name."""
    host = config.listen.host
    hosts = {*_LOOPBACK} if host in WILDCARDS else {host.lower()}
    if config.listen.http is not None or config.listen.https is not None:
        hosts |= {each.lower() for each in config.srmp.hosts}
    found = () if entry is None else (*entry.addresses, entry.qualified_computer_name)
    return hosts | {each.lower() for each in found if each is not None}


def open_watch(config: Configuration, *, keep: bool = True) -> Watch | None:
    """The configured source of the directory. Blocks."""
    settings = config.directory
    timers = UpdateTimers(settings.sites_update_s, settings.site_gates_update_s)
    if settings.file is not None:
        return DirectoryWatch(settings.file, time.time(), timers, settings.poll_s)
    if not settings.ldap:
        return None
    try:
        return LdapWatch(domain_settings(config), time.time(), keep=keep)
    except DirectoryError as fault:
        config.fail("directory.ldap", f"the directory cannot be read, and there is no copy of it: {fault}")


def domain_settings(config: Configuration) -> DomainSettings:
    settings = config.directory
    if settings.base is not None:
        try:
            distinguished_names.split(settings.base)
        except DirectoryError as fault:
            config.fail("directory.base", str(fault))
    return DomainSettings(
        ldap=ldap_settings(config),
        own=config.manager.name,
        copy_file=config.data / COPY_FILE,
        poll_s=settings.refresh_s,
        publish=settings.publish,
        service_keytab=config.rpc.keytab or config.api.keytab,
        online_s=settings.online_s,
        timers=UpdateTimers(settings.sites_update_s, settings.site_gates_update_s),
    )


def ldap_settings(config: Configuration) -> LdapSettings:
    settings = config.directory
    return LdapSettings(
        servers=settings.ldap,
        base=settings.base,
        user=settings.user,
        password_file=settings.password_file,
        keytab=settings.keytab,
        ca_certificates=settings.ca_certificates,
    )


def account_reader(config: Configuration) -> AccountReader | None:
    """Who asks the domain for accounts. None without a domain. It connects once somebody asks."""
    return AccountReader(partial(connect, ldap_settings(config)), time.time) if config.directory.ldap else None


def _identifier(config: Configuration, entry: QueueManager | None) -> UUID | None:
    """The manager's id by its files; None if they have none."""
    own = config.manager.id
    if entry is None:
        return own
    if own is not None and own != entry.identifier:
        fault = f"must be {entry.identifier}, the id of {entry.computer_name} in the directory, got {own}"
        config.fail("manager.id", fault)
    return entry.identifier


async def _addresses(config: Configuration) -> list[tuple[socket.AddressFamily, str]]:
    host = config.listen.host
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        refuse_listener(config, "listen.host", f"cannot listen on {host}", error)
    return [(each[0], str(each[4][0])) for each in found]


def _check_host(config: Configuration, addresses: list[tuple[socket.AddressFamily, str]]) -> None:
    """Refuses addresses of other computers. The test binds a UDP socket for a moment."""
    listen = config.listen
    wanted = ((name, getattr(listen, name)) for name in ("binary", "ping", "http", "https", "rpc", "api", "amqp"))
    first = next(((name, port) for name, port in wanted if port is not None), None)
    if first is None:
        return
    for family, address in addresses:
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.bind((address, 0))
            except OSError as error:
                if error.errno == errno.EADDRNOTAVAIL:
                    where = endpoint(listen.host, first[1])
                    refuse_listener(config, f"listen.{first[0]}", f"cannot listen on {where}", error)


# The files


def _refuse_silent_amqp(config: Configuration, reachable: bool) -> None:
    """Refuses AMQP for other computers where nobody could log in."""
    amqp = config.amqp
    if config.listen.amqp is None or not reachable:
        return
    exposed = f"other computers can reach listen.amqp on {config.listen.host}"
    if amqp.certificate is None:
        config.fail("amqp.certificate", f"is missing: {exposed}, and passwords need TLS; set it and amqp.key")
    if not config.users and config.api.token is None:
        config.fail("user", f"is missing: {exposed}, and nobody could log in; add a [[user]], or set api.token_file")


def _server_tls(
    config: Configuration,
) -> tuple[TlsFiles | None, ssl.SSLContext | None, ssl.SSLContext | None, ssl.SSLContext | None]:
    """TLS for the API, the HTTPS listener and AMQP."""
    api, srmp, files, api_tls, https_tls = config.api, config.srmp, None, None, None
    amqp, amqp_tls = config.amqp, None
    with _named(config):
        if config.listen.https is not None and srmp.tls_certificate is not None and srmp.tls_key is not None:
            https_tls = server_tls("srmp", srmp.tls_certificate, srmp.tls_key)
        if config.listen.api is not None and api.tls_certificate is not None and api.tls_key is not None:
            files = TlsFiles(api.tls_certificate, api.tls_key, api.client_ca)
            api_tls = server_tls("api", api.tls_certificate, api.tls_key, api.client_ca)
        if config.listen.amqp is not None and amqp.certificate is not None and amqp.key is not None:
            amqp_tls = server_tls(
                "amqp", amqp.certificate, amqp.key, amqp.client_ca, setting="certificate", required=False
            )
    return files, api_tls, https_tls, amqp_tls


def server_tls_files(config: Configuration) -> tuple[TlsFiles | None, ssl.SSLContext | None]:
    """TLS for the API alone."""
    files, context, *_ = _server_tls(config)
    return files, context


def _client_tls(config: Configuration) -> ssl.SSLContext | None:
    trusted = config.srmp.ca_certificates
    if config.listen.http is None and config.listen.https is None:
        return None
    try:
        return ssl.create_default_context(cafile=None if trusted is None else str(trusted))
    except (OSError, ssl.SSLError) as error:
        config.fail("srmp.ca_certificates", f"cannot be used: {error}")


def _acceptors(config: Configuration) -> tuple[Acceptor | None, Acceptor | None]:
    """Kerberos for remote readers and for the API, with one keytab for both or one for each."""
    rpc = api = None
    if config.rpc.keytab is not None and config.listen.rpc is not None:
        rpc = _acceptor(config, "rpc.keytab", config.rpc.keytab, None)
    if config.listen.api is not None and (keytab := config.api.keytab or config.rpc.keytab) is not None:
        key = "rpc.keytab" if config.api.keytab is None else "api.keytab"
        api = _acceptor(config, key, keytab, config.data / REPLAY_CACHE)
    return rpc, api


def _acceptor(config: Configuration, key: str, file: Path, replay_cache: Path | None) -> Acceptor:
    try:
        return Acceptor(Keytab.read(file), replay_cache)
    except InvalidArgument as fault:
        config.fail(key, str(fault))


def _files(config: Configuration) -> list[tuple[str, Path]]:
    """Every configured file that a start reads, by its setting."""
    api, srmp = config.api, config.srmp
    found = [
        ("api.token_file", api.token_file),
        ("api.tls_certificate", api.tls_certificate),
        ("api.tls_key", api.tls_key),
        ("api.client_ca", api.client_ca),
        ("srmp.tls_certificate", srmp.tls_certificate),
        ("srmp.tls_key", srmp.tls_key),
        ("srmp.ca_certificates", srmp.ca_certificates),
        ("amqp.certificate", config.amqp.certificate),
        ("amqp.key", config.amqp.key),
        ("amqp.client_ca", config.amqp.client_ca),
        ("rpc.keytab", config.rpc.keytab),
        ("api.keytab", config.api.keytab),
        ("directory.file", config.directory.file),
        ("directory.password_file", config.directory.password_file),
        ("directory.keytab", config.directory.keytab),
        ("directory.ca_certificates", config.directory.ca_certificates),
    ]
    found += [("store.password_file", config.store.password_file), ("store.key_file", config.store.key_file)]
    found += [(f"user[{index}].password_file", each.password_file) for index, each in enumerate(config.users, 1)]
    found += [(f"certificate[{index}].file", each.file) for index, each in enumerate(config.certificates, 1)]
    return [(key, file) for key, file in found if file is not None]


def _digest(file: Path) -> bytes:
    try:
        return sha256(file.read_bytes()).digest()
    except OSError:  # whatever needs the file reports it
        return b""


@contextmanager
def _named(config: Configuration) -> Iterator[None]:
    """Adds the configuration's file to faults of parts that do not know it."""
    try:
        yield
    except ConfigurationError as fault:
        config.fail(fault.key, fault.fault)
