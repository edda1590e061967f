"""Network namespaces of Linux on one segment. A relay carries its packets and sometimes loses one.

Only root may make them. `unavailable()` says why it is not possible.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_CLONE_NEWNET = 0x40000000
_PREFIX = "10.77.0"


class Namespace:
    """A network namespace, and a thread that lives in it. Processes that this thread starts live there too."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)
        try:
            self.task = self.run(_enter_new)
        except BaseException:
            self.close()
            raise

    def run(self, function: Callable[P, R], *arguments: P.args, **named: P.kwargs) -> R:
        return self._thread.submit(function, *arguments, **named).result()

    def close(self) -> None:
        self._thread.shutdown()


def _enter_new() -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    _ip("link", "set", "lo", "up")
    return threading.get_native_id()


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def unavailable() -> str | None:
    """Why there can be no namespaces with a link between them. None if there can be."""
    if sys.platform != "linux" or shutil.which("ip") is None:
        return "needs Linux and the program ip"
    try:
        with ExitStack() as stack:
            Segment(stack).join()
    except (OSError, subprocess.CalledProcessError) as error:
        return f"cannot make network namespaces: {error}"
    return None


class Segment:
    """Namespaces that hear each other through a relay. Each has the interface `eth0` and its own address."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._middle = self._new()
        self._links: list[str] = []
        self._relay: subprocess.Popen[str] | None = None

    def _new(self) -> Namespace:
        namespace = Namespace()
        self._stack.callback(namespace.close)
        return namespace

    def join(self) -> tuple[Namespace, str]:
        """Adds a namespace with this address. All must join before the relay starts."""
        namespace = self._new()
        number = len(self._links) + 1
        link, address = f"port{number}", f"{_PREFIX}.{number}"
        self._links.append(link)
        self._middle.run(_ip, "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", str(namespace.task))
        self._middle.run(_ip, "link", "set", link, "up")
        namespace.run(_ip, "address", "add", f"{address}/24", "dev", "eth0")
        namespace.run(_ip, "link", "set", "eth0", "up")
        return namespace, address

    def start_relay(self, loss: float) -> None:
        """Starts a relay. `loss` is the chance of losing a PGM packet at each receiver."""
        command = [sys.executable, "-m", "tests.segment_relay", str(loss), *self._links]
        self._relay = self._middle.run(subprocess.Popen, command, stdout=subprocess.PIPE, text=True)
        self._stack.callback(self.stop_relay)
        assert self._relay.stdout is not None
        assert self._relay.stdout.readline() == "ready\n"

    def start_bridge(self) -> None:
        """Starts a bridge instead of a relay: the kernel carries the packets and loses none."""
        self._middle.run(_ip, "link", "add", "name", "bridge0", "type", "bridge", "mcast_snooping", "0")
        for link in self._links:
            self._middle.run(_ip, "link", "set", link, "master", "bridge0")
        self._middle.run(_ip, "link", "set", "bridge0", "up")

    def stop_relay(self) -> int:
        """Stops the relay and returns how many packets it has lost. 0 if it was already stopped."""
        relay, self._relay = self._relay, None
        if relay is None:
            return 0
        relay.send_signal(signal.SIGTERM)
        output, _ = relay.communicate()
        return int(output)
