"""PGM by rate and processor time: our cores and transport, compared with libpgm, in network namespaces on a bridge.

`python -m benchmarks.multicast` needs root for the namespaces. It measures libpgm if the development files of libpgm
are installed. Every message is one packet of 1 KiB, because libpgm cannot send larger ones. No figure makes the run
fail.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.namespaces import Namespace, Segment, unavailable
from tests.pgm_peers import OURS, PeerProcess, compile_libpgm_peer, libpgm_missing

GROUP, PORT = "239.50.1.1", 8001
SIZE = 1024
PACKET = 20 + 24 + SIZE  # IP, PGM and payload: what the rate limit counts
FULL_SPEED = 20_000_000  # bytes per second; at higher rates libpgm's receivers lose packets
KEPT = (70_000, 500_000, 2_000_000)  # rates that must be kept
KEPT_S = 5.0  # how long each rate lasts
PATIENCE_S = 30.0  # for the next packet, because libpgm does not repair everything
BURST_S = 0.040  # the token bucket: this much leaves at once at the beginning


@dataclass(frozen=True, slots=True)
class Figures:
    packets_per_s: float
    sender_us: float  # processor time per packet
    receiver_us: float
    lost: int


class Place:
    """Two members of one segment."""

    def __init__(self, stack: ExitStack) -> None:
        segment = Segment(stack)
        self._members: list[tuple[Namespace, str]] = [segment.join(), segment.join()]
        segment.start_bridge()

    def run(self, command: Sequence[str], rate: int, packets: int) -> Figures:
        """Runs one sender and one receiver of the same kind."""
        variables = os.environ | {"PGM_PEER_UNHASHED": "1"}
        (near, here), (far, there) = self._members
        receiver = PeerProcess(command, far, "receive", there, GROUP, PORT, rate, packets, 0, env=variables)
        sender = PeerProcess(command, near, "send", here, GROUP, PORT, rate, packets, SIZE, env=variables)
        sender.go()
        times: list[float] = []
        while len(times) < packets:
            at, line = receiver.line(PATIENCE_S)
            if not line:
                break
            if line != "reset":
                times.append(at)
        receiver.close()
        sender.close()
        seconds = times[-1] - times[0] if len(times) > 1 else 0.0
        return Figures(
            (len(times) - 1) / max(seconds, 1e-6),
            sender.cpu_us / packets,
            receiver.cpu_us / packets,
            packets - len(times),
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packets", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    why = unavailable()
    if why is not None:
        print(why, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        place = Place(stack)
        contenders: dict[str, Sequence[str]] = {"Postroad": OURS}
        missing = libpgm_missing()
        if missing is None:
            contenders["libpgm"] = compile_libpgm_peer(Path(directory))
        else:
            print(f"without libpgm: {missing}")
        _compare(place, contenders, arguments.packets, arguments.rounds)
        _rates(place)
    return 0


def _compare(place: Place, contenders: dict[str, Sequence[str]], packets: int, rounds: int) -> None:
    best: dict[str, Figures] = {}
    for _ in range(rounds):
        for name, command in contenders.items():
            found = place.run(command, FULL_SPEED, packets)
            before = best.get(name, found)
            best[name] = Figures(
                max(before.packets_per_s, found.packets_per_s),
                min(before.sender_us, found.sender_us),
                min(before.receiver_us, found.receiver_us),
                max(before.lost, found.lost),
            )
    print(f"{packets} packets of {SIZE} bytes, rate limit {FULL_SPEED // 1_000_000} MB/s, best of {rounds} rounds")
    for name, each in best.items():
        print(
            f"{name:10} {each.packets_per_s:9,.0f} packets/s  CPU us a packet: sender {each.sender_us:6.1f}, receiver "
            f"{each.receiver_us:6.1f}  lost {each.lost}"
        )


def _rates(place: Place) -> None:
    for rate in KEPT:
        packets = max(100, int(rate * KEPT_S / PACKET))
        found = place.run(OURS, rate, packets)
        # The content of the bucket leaves at once, and takes no time.
        sent = PACKET * (packets - 1) - max(rate * BURST_S, 1400)
        kept = sent / ((packets - 1) / found.packets_per_s)
        print(f"rate limit {rate // 1000:5} kB/s: kept {kept / 1000:8.1f} kB/s ({kept / rate - 1:+.1%})")


if __name__ == "__main__":
    sys.exit(main())
