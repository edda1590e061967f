"""The keys of a running manager: its own key pairs, and session keys for messages that it sends.

RSA runs in worker threads. Only the event loop uses the caches of session keys.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Final
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from postroad.errors import InvalidArgument, LocalProtocolError, PostroadError, StorageError
from postroad.message import Message
from postroad.names import FormatName, PathName
from postroad.queues.local import LocalQueueManager
from postroad.reports.info import KeyInfo, KeysInfo
from postroad.runtime.private_files import open_private, tighten
from postroad.security.algorithms import PROVIDERS
from postroad.security.keys import KeyRing, make_private_key, public_key_der

# The file with a manager's private keys. Only its owner can read it. It is replaced as a whole, and on disk before
# anybody relies on it.


KEY_FILE: Final = "keys.pem"  # in the data directory
_NEW: Final = ".new"
_TITLE: Final = "The private keys of a queue manager. Keep them secret."
_MADE: Final = "made: "
_MAX_BYTES: Final = 1 << 20
_REMEDY: Final = (
    "restore it from a backup; or move it away, and the next start makes new keys, but nobody can then decrypt "
    "messages for the old ones"
)


@dataclass(frozen=True, slots=True)
class StoredKeys:
    """`made_at_s` is when the newest keys were made, or None if the file does not say."""

    ring: KeyRing
    made_at_s: int | None


def load_keys(file: Path) -> StoredKeys | None:
    """Reads the keys; None if there is no file. Raises StorageError if the file cannot be read or is damaged."""
    try:
        with file.open("rb") as opened:
            data = opened.read(_MAX_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"{file}: the private keys cannot be read: {error.strerror}; {_REMEDY}") from None
    try:
        return decode_keys(data)
    except InvalidArgument as fault:
        raise StorageError(f"{file}: the private keys are damaged: {fault}; {_REMEDY}") from None


def decode_keys(data: bytes) -> StoredKeys:
    """Raises InvalidArgument."""
    try:
        text = data.decode("ascii")
    except UnicodeDecodeError:
        raise InvalidArgument("it must be ASCII text") from None
    return StoredKeys(KeyRing.from_pem(text), _made_at(text))


def encode_keys(keys: StoredKeys) -> bytes:
    made = "" if keys.made_at_s is None else f"{_MADE}{datetime.fromtimestamp(keys.made_at_s, UTC).isoformat()}\n"
    return f"{_TITLE}\n{made}{keys.ring.to_pem()}".encode("ascii")


def write_keys(file: Path, keys: StoredKeys) -> None:
    """Replaces the keys. After a crash, the file has either the old keys or the new ones. Raises StorageError."""
    data = encode_keys(keys)
    new = file.with_name(file.name + _NEW)
    try:
        with os.fdopen(open_private(new, os.O_WRONLY | os.O_TRUNC), "wb") as opened:
            opened.write(data)
            opened.flush()
            os.fsync(opened.fileno())
        new.replace(file)
        _sync_directory(file.parent)
    except OSError as error:
        raise StorageError(f"{file}: the private keys cannot be written: {error.strerror}") from None


def _made_at(text: str) -> int | None:
    for line in text.splitlines()[:2]:
        if line.startswith(_MADE):
            try:
                return int(datetime.fromisoformat(line.removeprefix(_MADE)).timestamp())
            except ValueError:
                return None
    return None


def _sync_directory(directory: Path) -> None:
    """Makes the new name of the file durable. Windows cannot open a directory and does not need this."""
    if os.name == "nt":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_keys(file: Path, now: float) -> StoredKeys:
    """Reads the keys, or makes new ones at the first start. Takes a while, so call it in a thread. Raises
    StorageError."""
    stored = load_keys(file)
    tighten(file)
    if stored is None:
        stored = StoredKeys(KeyRing.make(make_private_key), int(now))
        write_keys(file, stored)
    return stored


# The same keys in the state of a store in a database, where others than this computer's user may read.


KEYS_STATE: Final = "manager/keys"
_PLAIN: Final = b"plain\n"
_SEALED: Final = b"sealed\n"
_SALT_BYTES: Final = 16
_NONCE_BYTES: Final = 12


class KeySeal:
    """Writes keys for a database, encrypted with a secret if there is one."""

    def __init__(self, secret: bytes | None) -> None:
        self._secret = secret

    def encode(self, keys: StoredKeys) -> bytes:
        text = encode_keys(keys)
        if self._secret is None:
            return _PLAIN + text
        salt, nonce = os.urandom(_SALT_BYTES), os.urandom(_NONCE_BYTES)
        return _SEALED + salt + nonce + self._cipher(salt).encrypt(nonce, text, KEYS_STATE.encode())

    def decode(self, value: bytes) -> StoredKeys:
        """Raises InvalidArgument, whose text says what is wrong with the secret."""
        if value.startswith(_PLAIN):
            return decode_keys(value[len(_PLAIN) :])
        if self._secret is None:
            raise InvalidArgument(
                "is missing: the private keys in the database are encrypted; set it to the file with their key"
            )
        salt, nonce, sealed = (
            value[len(_SEALED) :][:_SALT_BYTES],
            value[len(_SEALED) + _SALT_BYTES :][:_NONCE_BYTES],
            value[len(_SEALED) + _SALT_BYTES + _NONCE_BYTES :],
        )
        try:
            return decode_keys(self._cipher(salt).decrypt(nonce, sealed, KEYS_STATE.encode()))
        except InvalidTag:
            raise InvalidArgument(
                "has another key than the one that encrypted the private keys in the database"
            ) from None

    def is_current(self, value: bytes) -> bool:
        """Whether a value is encrypted as it should be."""
        return value.startswith(_PLAIN if self._secret is None else _SEALED)

    def _cipher(self, salt: bytes) -> AESGCM:
        assert self._secret is not None
        return AESGCM(Scrypt(salt, length=32, n=1 << 14, r=8, p=1).derive(self._secret))


class Keys:
    """The keys of one manager. `place` is the file or the seal for the store's state that has them; None for a manager
    without keys of its own, to which no other manager sends."""

    def __init__(
        self,
        core: LocalQueueManager,
        place: Path | KeySeal | None,
        made_at_s: int | None,
        clock: Callable[[], float],
        key_clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._core = core
        self._place = place
        self._commit: Callable[[Callable[[], None]], Awaitable[None]] | None = None
        self._made_at_s = made_at_s
        self._clock = clock
        # A clock that ignores changes of the system's time, which could keep session keys alive too long.
        self._key_clock = key_clock
        self._rotating = Lock()
        self._rotated: list[Callable[[], object]] = []
        self._cleanup_at: float | None = None  # by `key_clock`

    def commit_by(self, commit: Callable[[Callable[[], None]], Awaitable[None]]) -> None:
        """`commit` runs a change of the state, and returns once it is durable."""
        self._commit = commit

    # The manager's own

    def backup(self) -> bytes | None:
        """The content of the file with the keys; None if the manager has none. Raises StorageError."""
        if isinstance(self._place, Path):
            try:
                return self._place.read_bytes()
            except OSError as error:
                raise StorageError(f"{self._place}: the private keys cannot be read: {error.strerror}") from None
        ring = self._core.protection.ring
        return None if self._place is None else encode_keys(StoredKeys(ring, self._made_at_s))

    def describe(self) -> KeysInfo:
        ring = self._core.protection.ring
        return KeysInfo(
            public_keys=ring.public_keys.hex() if ring.keys else "",
            made_at_s=self._made_at_s,
            keys=tuple(
                KeyInfo(
                    provider=PROVIDERS[level].name,
                    bits=keys[0].key_size,
                    fingerprint=f"sha256:{sha256(public_key_der(keys[0].public_key())).hexdigest()}",
                    previous=len(keys) - 1,
                )
                for level, keys in ring.keys.items()
                if keys
            ),
        )

    async def rotate(self) -> KeysInfo:
        """Makes new keys, which are in use and on disk when this returns. The previous ones still decrypt messages
        under way."""
        if self._place is None:
            raise LocalProtocolError("an embedded queue manager has no keys: `postroad serve` makes and rotates them")
        if isinstance(self._place, Path):
            await asyncio.to_thread(self._rotate, self._place)
        else:
            await self._rotate_in_store(self._place)
        for rotated in self._rotated:
            rotated()
        return self.describe()

    def watch(self, rotated: Callable[[], object]) -> None:
        """`rotated` is called when there are new keys."""
        self._rotated.append(rotated)

    def _rotate(self, file: Path) -> None:
        """Runs in a thread. It goes on even if the caller leaves, so that the manager always uses the keys in the
        file."""
        with self._rotating:
            protection = self._core.protection
            stored = StoredKeys(protection.ring.rotated(make_private_key), int(self._clock()))
            write_keys(file, stored)
            protection.use_keys(stored.ring)
            self._made_at_s = stored.made_at_s

    async def _rotate_in_store(self, seal: KeySeal) -> None:
        protection = self._core.protection
        stored = StoredKeys(await asyncio.to_thread(protection.ring.rotated, make_private_key), int(self._clock()))
        value = await asyncio.to_thread(seal.encode, stored)
        assert self._commit is not None
        await self._commit(lambda: self._core.tick.set_state(KEYS_STATE, value))
        protection.use_keys(stored.ring)
        self._made_at_s = stored.made_at_s

    # Session keys

    async def prepare(self, destination: FormatName | PathName | str, messages: Sequence[Message]) -> None:
        """Makes the session keys that `core.send` will need. Leaves errors to `core.send`."""
        words = {each.encrypt for each in messages if each.encrypt is not None}
        try:
            managers = self._core.destination_managers(destination)
        except PostroadError:
            return  # `core.send` raises the same error
        await asyncio.gather(*(self._prepare(manager, word) for manager in managers for word in words))

    async def _prepare(self, manager: UUID, word: str) -> None:
        securing = self._core.securing
        wanted = securing.missing_key(manager, word, self._key_clock())
        if wanted is not None:
            made = await asyncio.to_thread(securing.make_key, wanted)
            if made is not None:
                securing.keep_key(wanted, made, self._key_clock())

    def cleanup(self) -> None:
        """[MS-MQQB] 3.1.6.10 to 3.1.6.13. Call it about once a second, on the event loop."""
        now = self._key_clock()
        if self._cleanup_at is not None and now < self._cleanup_at:
            return
        protection = self._core.protection
        caches = (protection.guard, protection.opener, protection.sealer)
        left = [seconds for each in caches if (seconds := each.cleanup(now)) is not None]
        self._cleanup_at = now + min(left) if left else None
