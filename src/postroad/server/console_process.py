"""The web console of a manager: a child process that gets a listening socket.

The manager never waits for the console and works without it. If the console ends, the manager starts it again. If the
manager ends, for whatever reason, the console ends too, because its standard input closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import importlib.util
import json
import logging
import os
import socket
import sys
import time

from postroad.config import WITH_API, Configuration
from postroad.net import ports
from postroad.net.endpoints import endpoint

log = logging.getLogger(__name__)

FIRST_RETRY_S = 1.0
LAST_RETRY_S = 60.0
STABLE_S = 30.0  # a console that ran this long is restarted at once
BIND_S = 2.0  # within which the console of a killed manager ends
STOP_S = 5.0
INSTALL = "pip install 'postroad[console]'"


def console_port(config: Configuration, reachable: bool) -> int | None:
    """The port of the console; None without a console. Raises ConfigurationError if other computers could read its
    passwords."""
    port = config.listen.console
    if port == WITH_API:
        port = ports.CONSOLE if config.listen.api == ports.API and not reachable else None
    plain = config.api.tls_certificate is None and config.api.client_ca is None
    if port is not None and reachable and plain and _off() is None:
        config.fail(
            "api.tls_certificate",
            "is missing: other computers can reach the console, and its passwords need TLS; set it and tls_key, "
            "or set listen.console to false",
        )
    return port


def _off() -> str | None:
    """What to do if this process cannot run a console."""
    if sys.platform == "win32":  # where a child cannot take over a socket
        return "run `postroad console`"
    return INSTALL if importlib.util.find_spec("jinja2") is None else None


class ConsoleProcess:
    """The console of a running manager. Call `start`, then `stop`."""

    def __init__(self, config: Configuration, api_url: str, reachable: bool, key: str) -> None:
        """`key` proves to the API that the console may name the addresses of people."""
        self._key = key
        self._config = config
        self._api_url = api_url
        self._reachable = reachable
        self._listener: socket.socket | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._process: asyncio.subprocess.Process | None = None

    @property
    def address(self) -> str:
        assert self._listener is not None
        host, port = self._listener.getsockname()[:2]
        return endpoint(host, port)

    @property
    def url(self) -> str:
        return f"http{'' if self._config.api.tls_certificate is None else 's'}://{self.address}/"

    async def start(self) -> bool:
        """Starts the console, and returns whether it is on. Raises OSError if the configured port is not available."""
        is_default = self._config.listen.console == WITH_API
        port = console_port(self._config, self._reachable)
        if port is None:
            return False
        if (remedy := _off()) is not None:
            log.info("the console is off", extra={"do": remedy})
            return False
        if self._config.api.client_ca is not None:
            log.info(
                "the console is off: the API needs a client certificate",
                extra={"do": "run `postroad console` with POSTROAD_CLIENT_CERT and POSTROAD_CLIENT_KEY"},
            )
            return False
        try:
            self._listener = await self._bind(port)
        except OSError as error:
            if not is_default:
                raise
            log.warning("the console is off", extra={"port": port, "reason": os.strerror(error.errno or 0)})
            return False
        self._keeper = asyncio.create_task(self._keep(), name="postroad-console")
        return True

    async def _bind(self, port: int) -> socket.socket:
        found = await asyncio.get_running_loop().getaddrinfo(
            self._config.listen.host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, _, _, _, address = found[0]
        patience = time.monotonic() + BIND_S
        while True:
            try:
                return socket.create_server(address[:2], family=family)
            except OSError as error:
                if error.errno != errno.EADDRINUSE or time.monotonic() > patience:
                    raise
            await asyncio.sleep(0.1)

    async def _keep(self) -> None:
        retry_s = FIRST_RETRY_S
        while True:
            began = time.monotonic()
            code = await self._run()
            if time.monotonic() - began > STABLE_S:
                retry_s = FIRST_RETRY_S
            log.warning("the console ended, starting it again", extra={"code": code, "in_s": retry_s})
            await asyncio.sleep(retry_s)
            retry_s = min(2 * retry_s, LAST_RETRY_S)

    async def _run(self) -> int:
        """Runs one process to its end."""
        assert self._listener is not None
        config, descriptor = self._config, self._listener.fileno()
        command = [sys.executable, "-m", "postroad", "console", "--api", self._api_url]
        command += ["--descriptor", str(descriptor), "--host", config.listen.host, "--name", config.manager.name]
        for each in config.console.proxies:
            command += ["--proxy", str(each)]
        if config.api.tls_certificate is not None:
            command += ["--tls-certificate", str(config.api.tls_certificate), "--tls-key", str(config.api.tls_key)]
        self._process = process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=2,
            pass_fds=(descriptor,),
            start_new_session=True,
        )
        assert process.stdin is not None
        with contextlib.suppress(ConnectionError):
            process.stdin.write(self._given())
            await process.stdin.drain()
        return await process.wait()

    def renew(self, config: Configuration) -> None:
        """Gives the running process, and later ones, what a reload has read."""
        self._config = config
        process = self._process
        if process is not None and process.stdin is not None and process.returncode is None:
            process.stdin.write(self._given())

    def _given(self) -> bytes:
        api, limits = self._config.api, self._config.limits
        given = {
            "token": api.token,
            "key": self._key,
            "tls_certificate": None if api.tls_certificate is None else str(api.tls_certificate),
            "tls_key": None if api.tls_key is None else str(api.tls_key),
            "connections": limits.connections,
            "connections_per_address": limits.connections_per_address,
            "unfinished_input_mb": limits.unfinished_input_mb,
        }
        return f"{json.dumps(given)}\n".encode()

    async def stop(self) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        process = self._process
        if process is not None and process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(STOP_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
        if self._listener is not None:
            self._listener.close()
