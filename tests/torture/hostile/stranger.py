"""What every attack uses: chance, an address of its own, what a stranger can know, and a check for what leaks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.torture.hostile.honest import SECRET
from tests.torture.hostile.stage import ALPHA, BETA, MANAGERS, Target

ADDRESSES = tuple(f"127.0.66.{number}" for number in range(1, 7))
CANARY = "127.0.66.200"  # a host that has nothing to do with anything: whoever calls it was made to
ANSWER_TIMEOUT_S = 3.0
_SECRETS = (SECRET.encode(), SECRET.encode("utf-16-le"))


class Refused(Exception):
    """The manager has closed the connection, or accepts none. A stranger has to expect that."""


@dataclass(slots=True)
class Findings:
    """What strangers got that does not belong to them."""

    attacks: dict[str, int] = field(default_factory=dict)
    leaks: list[str] = field(default_factory=list)
    calls_to_canary: int = 0


@dataclass(slots=True)
class Line:
    """One connection of a stranger."""

    stranger: Stranger
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        try:
            self.writer.write(data)
            await asyncio.wait_for(self.writer.drain(), ANSWER_TIMEOUT_S)
        except (OSError, TimeoutError) as fault:
            raise Refused(str(fault)) from None

    async def read(self, most: int = 65536, timeout: float = ANSWER_TIMEOUT_S) -> bytes:
        """Returns what has come; nothing if nothing comes for a while. It must never belong to anybody else."""
        try:
            data = await asyncio.wait_for(self.reader.read(most), timeout)
        except TimeoutError:
            return b""
        except OSError as fault:
            raise Refused(str(fault)) from None
        if any(secret in data for secret in _SECRETS):
            self.stranger.findings.leaks.append(self.stranger.doing)
        return data

    async def read_all(self, seconds: float) -> None:
        with contextlib.suppress(Refused):
            async with asyncio.timeout(seconds):
                while await self.read(timeout=seconds):
                    pass


@dataclass(slots=True)
class Stranger:
    """One attacker. `doing` is the attack in progress, for reports."""

    chance: random.Random
    findings: Findings
    known: Path
    doing: str = ""

    def target(self) -> Target:
        return self.chance.choice(MANAGERS)

    def other(self, target: Target) -> Target:
        return BETA if target is ALPHA else ALPHA

    def newest_id(self, manager: Target) -> int:
        """The id of a message that an honest manager has just sent, as if somebody had seen it."""
        try:
            found = json.loads((self.known / f"{manager.name}.json").read_text())["ids"]
            return int(found[-1].rpartition("\\")[2])
        except (OSError, ValueError, KeyError, IndexError):
            return self.chance.randrange(1, 1 << 31)

    @contextlib.asynccontextmanager
    async def line(self, host: str, port: int) -> AsyncIterator[Line]:
        source = self.chance.choice(ADDRESSES)
        try:
            reader, writer = await asyncio.wait_for(
                asyncio.open_connection(host, port, local_addr=(source, 0)), ANSWER_TIMEOUT_S
            )
        except (OSError, TimeoutError) as fault:
            raise Refused(str(fault)) from None
        try:
            yield Line(self, reader, writer)
        finally:
            writer.transport.abort()
