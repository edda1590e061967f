"""The keys of a running manager: its own key pairs, and the session keys of messages that it sends.

RSA runs in worker threads. The caches of session keys belong to the event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from threading import Lock
from uuid import UUID

from postroad.errors import LocalProtocolError, PostroadError
from postroad.manager.key_file import StoredKeys, load_keys, write_keys
from postroad.message import Message
from postroad.names import FormatName, PathName
from postroad.queues.local import LocalQueueManager
from postroad.runtime.private_files import tighten
from postroad.security.algorithms import PROVIDERS
from postroad.security.keys import KeyRing, make_private_key, public_key_der
from postroad.values.info import KeyInfo, KeysInfo


def open_keys(file: Path, now: float) -> StoredKeys:
    """The keys in the file; at the first start, new ones. Takes a while: call it in a thread. Raises StorageError."""
    stored = load_keys(file)
    tighten(file)
    if stored is None:
        stored = StoredKeys(KeyRing.make(make_private_key), int(now))
        write_keys(file, stored)
    return stored


class Keys:
    """`file` is None for a manager without keys of its own, which no other manager sends to."""

    def __init__(
        self,
        core: LocalQueueManager,
        file: Path | None,
        made_at_s: int | None,
        clock: Callable[[], float],
        key_clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._core = core
        self.file = file
        self._made_at_s = made_at_s
        self._clock = clock
        self._key_clock = key_clock  # a step of the system's time must not keep a session key alive
        self._rotating = Lock()
        self._cleanup_at: float | None = None  # by `key_clock`

    # The manager's own

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
        """New keys, in use and on disk when this returns. The previous ones still decrypt what is on its way."""
        if self.file is None:
            raise LocalProtocolError("an embedded queue manager has no keys: `postroad serve` makes and rotates them")
        await asyncio.to_thread(self._rotate, self.file)
        return self.describe()

    def _rotate(self, file: Path) -> None:
        """In a thread. It goes on if the caller leaves, so the manager always uses what the file has."""
        with self._rotating:
            protection = self._core.protection
            stored = StoredKeys(protection.ring.rotated(make_private_key), int(self._clock()))
            write_keys(file, stored)
            protection.use_keys(stored.ring)
            self._made_at_s = stored.made_at_s

    # Session keys

    async def prepare(self, destination: FormatName | PathName | str, messages: Sequence[Message]) -> None:
        """Makes the session keys that `core.send` will need. What cannot be encrypted is left to `core.send`."""
        words = {each.encrypt for each in messages if each.encrypt is not None}
        try:
            managers = self._core.destination_managers(destination)
        except PostroadError:
            return  # `core.send` raises the same
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
