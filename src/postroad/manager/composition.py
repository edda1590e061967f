"""The parts of a queue manager, and the one place that joins them.

`postroad serve`, managers in programs, tests and benchmarks are all built here from a configuration. To get other
settings than the defaults of `postroad serve`, pass another configuration.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from uuid import UUID, uuid4

from postroad.config import Configuration, LimitSettings, SecuritySettings, SenderIds, default_configuration
from postroad.directory.account_reader import Reader
from postroad.directory.snapshot import Directory
from postroad.directory.watch import Watch
from postroad.errors import InvalidArgument
from postroad.manager.keys import Keys, KeySeal, StoredKeys
from postroad.manager.lookups import Lookups
from postroad.manager.manager import IDENTITY_STATE, Manager
from postroad.manager.standing import Standing
from postroad.net.limits import Limits
from postroad.queues.core_settings import Chance, CoreSettings, LeaseTimes
from postroad.queues.local import LocalQueueManager
from postroad.queues.owners import Held
from postroad.routing import Router
from postroad.security.accounts import Accounts
from postroad.security.audit import AuditLog
from postroad.security.descriptors import Sid
from postroad.security.guard import ManagerCertificates, Protection
from postroad.security.keys import KeyRing
from postroad.security.signatures import PROFILES
from postroad.security.users import User, Users, derive_sid
from postroad.store.express import ExpressStore
from postroad.store.interface import Store
from postroad.store.memory import MemoryStore
from postroad.validation.queue_properties import MAX_QUOTA_KB

SECRET = Chance(uuid4, secrets.randbelow)


def build_manager(
    config: Configuration,
    store: Store,
    *,
    make: Callable[..., Manager] = Manager,
    identifier: UUID | None = None,
    hosts: Iterable[str] = (),
    watch: Watch | None = None,
    keys: StoredKeys | None = None,
    key_place: Path | KeySeal | None = None,
    certificates: Mapping[str, tuple[bytes, ...]] = MappingProxyType({}),
    audit: AuditLog | None = None,
    limits: Limits | None = None,
    account_reader: Reader | None = None,
    standing: Standing | None = None,
    clock: Callable[[], float] = time.time,
) -> Manager:
    """Builds a manager on an open store, without listeners. The caller has read the files, such as keys and the
    directory.

    Without an identifier, the manager has the one in the store, or a new one. Raises ConfigurationError for invalid
    users.
    """
    identifier = identifier or _stored_identifier(store) or uuid4()
    directory = Directory() if watch is None else watch.directory
    router = Router(identifier, directory, clock(), config.directory.query_s)
    ring = KeyRing({}) if keys is None else keys.ring
    accounts = None if account_reader is None else Accounts(time.monotonic, config.directory.refresh_s)
    core = build_core(
        config,
        identifier,
        store,
        SECRET,
        router,
        hosts=hosts,
        protection=build_protection(config.security, ring, certificates, accounts, router.certificates),
        express=MemoryStore(),  # so that readers on other threads see whole batches
        key_clock=time.monotonic,
    )
    return make(
        core,
        store,
        clock,
        router=router,
        watch=watch,
        keys=Keys(core, key_place, None if keys is None else keys.made_at_s, clock),
        audit=audit or AuditLog(),
        limits=limits or build_limits(config.limits),
        metrics_queues=config.metrics.queues,
        standing=standing,
        lookups=None
        if accounts is None or account_reader is None
        else Lookups(accounts, account_reader, time.monotonic, config.directory.administrators),
    )


def build_embedded(name: str, store: Store) -> Manager:
    """Builds a manager in a program. No stranger can reach it, so the disk is its only quota."""
    config = default_configuration(name)
    return build_manager(replace(config, manager=replace(config.manager, quota_kb=MAX_QUOTA_KB)), store)


def build_core(
    config: Configuration,
    identifier: UUID,
    store: Store,
    chance: Chance,
    router: Router,
    *,
    hosts: Iterable[str] = (),
    protection: Protection | None = None,
    public_keys: Callable[[UUID], bytes] | None = None,
    express: ExpressStore | None = None,
    key_clock: Callable[[], float] | None = None,
) -> LocalQueueManager:
    """Builds the part of a manager without disk, clock and randomness of its own. Peers of the configuration and
    managers of the directory are known hosts."""
    peers = {peer.host.lower() for peer in config.peers}

    def knows_host(host: str) -> bool:
        directory = router.directory
        return host in peers or (directory.manager_at(host) or directory.manager_named(host)) is not None

    return LocalQueueManager(
        config.manager.name,
        identifier,
        store,
        chance,
        core_settings(config, identifier),
        insecure_nacks=config.binary.insecure_nacks,
        hardened_security=config.security.hardened,
        hosts=hosts,
        express=express,
        knows_host=knows_host,
        locate=router.locate,
        base_priority=router.base_priority,
        public_keys=public_keys or router.public_keys,
        protection=protection,
        key_clock=key_clock,
    )


def core_settings(config: Configuration, identifier: UUID) -> CoreSettings:
    """The settings that can change while a manager runs. Raises ConfigurationError for invalid users."""
    limits, quota_kb = config.limits, config.manager.quota_kb
    held = {kind: getattr(limits, kind.setting) for kind in Held}
    held[Held.LOCKED_MB] <<= 20
    return CoreSettings(
        quota_kb=None if quota_kb == MAX_QUOTA_KB else quota_kb,
        outgoing_queues=limits.outgoing_queues,
        held=held,
        relay=config.relay.allow,
        users=build_users(config, identifier),
        tickets=config.rpc.keytab is not None or config.api.keytab is not None,
        claimed_senders=config.security.sender_ids is SenderIds.CLAIMED,
        leases=LeaseTimes(receive_s=config.leases.receive_s, transaction_s=config.leases.transaction_s),
        journal_days=config.manager.keep_journal_days,
        strict_names=config.manager.strict_names,
    )


def build_limits(settings: LimitSettings, descriptors: int | None = None) -> Limits:
    return Limits(settings.connections, settings.connections_per_address, settings.unfinished_input_mb, descriptors)


def build_protection(
    security: SecuritySettings,
    ring: KeyRing,
    certificates: Mapping[str, tuple[bytes, ...]],
    accounts: Accounts | None = None,
    manager_certificates: ManagerCertificates = lambda manager: (),
) -> Protection:
    return Protection(
        secrets.token_bytes,
        ring,
        certificates,
        manager_certificates,
        profile=PROFILES[security.signature_profile],
        accepted_hashes=security.accept_hashes,
        accepted_ciphers=security.accept_ciphers,
        accepted_versions=security.accept_signatures,
        send_cipher=security.send_cipher,
        accounts=accounts,
    )


def build_users(config: Configuration, manager: UUID) -> Users:
    """The configured users. Raises ConfigurationError for a name or SID that no user can have, and for a SID that two
    users have."""
    users: dict[Sid, User] = {}
    for index, each in enumerate(config.users, 1):
        sid = each.sid or derive_sid(manager, each.name)
        if sid in users:
            fault = f"must be unique, got {sid}, which {users[sid].name} has too"
            config.fail(f"user[{index}].sid", fault)
        try:
            users[sid] = User(each.name, sid, frozenset(each.groups), each.administrator, each.monitor, each.principal)
        except InvalidArgument as error:
            key, _, fault = str(error).partition(" ")
            config.fail(f"user[{index}].{key}", fault)
    return Users(users.values())


def _stored_identifier(store: Store) -> UUID | None:
    stored = store.state(IDENTITY_STATE).get(IDENTITY_STATE)
    return UUID(bytes=stored) if stored else None
