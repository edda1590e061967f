"""Bodies, cut, changed and made up: each gets an answer, and none costs much.

`python -m tests.torture.bodies --seconds 3600` first cuts every sample at every length and flips every bit of it in
turn, then goes on with changes by chance until the time is over. It prints the dearest inputs; an exception ends it.
"""

from __future__ import annotations

import argparse
import json
import random
import time
import tracemalloc
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from postroad.bodies import decode, message_type
from tests.unit.bodies.test_decode import WHOLE
from tests.unit.bodies.test_headers import SAMPLES as EXTENSIONS

FILE = Path(__file__).parents[1] / "data" / "bodies" / "samples.jsonl"
BODY_TYPES = (0, 768, 1, 2, 3, 4, 6, 7, 8, 11, 14, 30, 31, 64, 68, 69, 72, 0x1011, 0x2011, 0x1008, 0x2003)
WHOLE_FLIPS = 4096  # bytes: of longer samples some bits are left out
MEASURED = 500  # every so many inputs, memory is measured too: that is slow
SLOW_S, LARGE_BYTES = 0.1, 50 << 20


@dataclass(frozen=True, slots=True)
class Input:
    name: str
    body: bytes
    body_type: int
    extension: bytes = b""


@dataclass(slots=True)
class Tally:
    inputs: int = 0
    slowest_s: float = 0.0
    largest_bytes: int = 0
    slow: int = 0
    large: int = 0
    dearest: list[str] = field(default_factory=list)

    def try_one(self, each: Input) -> None:
        measured = self.inputs % MEASURED == 0
        if measured:
            tracemalloc.start()
        started = time.process_time()
        try:
            json.dumps(decode(each.body, each.body_type, each.extension).fields())
            message_type(each.body, each.body_type, each.extension)
        except BaseException:
            print(f"{each.name}: body type {each.body_type}, {each.body.hex()}, {each.extension.hex()}")
            raise
        took = time.process_time() - started
        self.inputs += 1
        if measured:
            used = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            self.large += used > LARGE_BYTES
            self.largest_bytes = max(self.largest_bytes, used)
        else:
            self.slow += took > SLOW_S
            if took > self.slowest_s:
                self.slowest_s = took
                self.dearest.append(f"{took * 1000:8.1f} ms  {each.name}, {len(each.body):,} bytes")

    def __str__(self) -> str:
        lines = [f"{self.inputs:,} inputs, the slowest {self.slowest_s * 1000:.1f} ms"]
        lines.append(f"{self.slow} above {SLOW_S * 1000:.0f} ms of processor time")
        lines.append(f"at most {self.largest_bytes / (1 << 20):.1f} MiB, {self.large} above {LARGE_BYTES >> 20} MiB")
        return "\n".join([*lines, *self.dearest[-5:]])


def samples() -> list[Input]:
    found = [Input(f"own {number}", body, 0) for number, body in enumerate(WHOLE)]
    found += [Input(f"extension {number}", b"{}", 0, extension) for number, extension in enumerate(EXTENSIONS)]
    for line in FILE.read_text(encoding="utf-8").splitlines() if FILE.exists() else ():
        sample = json.loads(line)
        extension = b64decode(sample["extension_base64"] or "")
        found.append(Input(sample["name"], b64decode(sample["body_base64"]), sample["body_type"], extension))
    return found


def cut_and_flipped(sample: Input) -> Iterator[Input]:
    """At every length; each bit in turn."""
    for length in range(0, len(sample.body), max(1, len(sample.body) // WHOLE_FLIPS)):
        yield Input(sample.name, sample.body[:length], sample.body_type, sample.extension)
    for length in range(len(sample.extension)):
        yield Input(sample.name, b"", sample.body_type, sample.extension[:length])
    step = max(1, len(sample.body) // WHOLE_FLIPS)
    for place in range(0, len(sample.body) * 8, step):
        yield Input(sample.name, _flipped(sample.body, place), sample.body_type)
    for place in range(len(sample.extension) * 8):
        yield Input(sample.name, b"", sample.body_type, _flipped(sample.extension, place))


def _flipped(data: bytes, place: int) -> bytes:
    made = bytearray(data)
    made[place // 8] ^= 1 << place % 8
    return bytes(made)


def by_chance(found: list[Input], chance: random.Random) -> Input:
    """Noise, or parts of two samples with some bytes changed, under any type."""
    one, other = chance.choice(found), chance.choice(found)
    if chance.random() < 0.1:
        return Input("noise", chance.randbytes(chance.randrange(400)), chance.choice(BODY_TYPES), chance.randbytes(40))
    body = bytearray(
        one.body[: chance.randrange(len(one.body) + 1)] + other.body[chance.randrange(len(other.body) + 1) :]
    )
    for _ in range(chance.randrange(8)):
        place = chance.randrange(len(body) + 1)
        body[place : place + chance.randrange(4)] = chance.randbytes(chance.randrange(4))
    if chance.random() < 0.02:
        body *= chance.randrange(1, 200)
    kind = one.body_type if chance.random() < 0.8 else chance.choice(BODY_TYPES)
    return Input(f"{one.name} and {other.name}", bytes(body[: 4 << 20]), kind, other.extension)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long changes by chance go on")
    parser.add_argument("--seed", type=int, default=29)
    parser.add_argument("--only-chance", action="store_true", help="leave out the cuts and the flipped bits")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="cut and flip only every Nth sample")
    options = parser.parse_args()
    found, tally = samples(), Tally()
    if not options.only_chance:
        for sample in found[:: options.every]:
            for each in cut_and_flipped(sample):
                tally.try_one(each)
        print(f"every sample cut and flipped: {tally}", flush=True)
    chance, end = random.Random(options.seed), time.monotonic() + options.seconds
    while time.monotonic() < end:
        tally.try_one(by_chance(found, chance))
    print(tally)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
