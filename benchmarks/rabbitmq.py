"""A real RabbitMQ with its plugins for AMQP 1.0 and shovels, in a scratch directory, on loopback. It is no service of
the system: Debian's package is enough."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

HOME = Path("/usr/lib/rabbitmq/bin")
PLUGINS = ("rabbitmq_amqp1_0", "rabbitmq_shovel")
START_S = 90
DECLARE = 'rabbit_amqqueue:declare(rabbit_misc:r(<<"/">>, queue, <<"%s">>), true, false, [], none, <<"guest">>).'


def missing() -> str | None:
    """Why RabbitMQ cannot run here, or None."""
    for program in (HOME / "rabbitmq-server", HOME / "rabbitmqctl", "epmd"):
        if shutil.which(program) is None:
            return f"{program} is missing: install rabbitmq-server"
    return None


class RabbitMQ:
    """One node. Ports and data stay the same from start to start. Its one user is guest."""

    def __init__(self, directory: Path, port: int, distribution: int, mapper: int) -> None:
        self.directory, self.port = directory, port
        home = directory / "home"
        home.mkdir(parents=True)
        cookie = home / ".erlang.cookie"
        cookie.write_text("ONLYHERE")
        cookie.chmod(0o400)
        (directory / "plugins").write_text(f"[{','.join(PLUGINS)}].\n")
        (directory / "rabbitmq.conf").write_text(
            f"listeners.tcp.default = 127.0.0.1:{port}\ndisk_free_limit.absolute = 100MB\n"
        )
        self.environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {
            "HOME": str(home),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(mapper),
            "RABBITMQ_NODENAME": "one@localhost",
            "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
            "RABBITMQ_LOG_BASE": str(directory / "log"),
            "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(directory / "generated"),
            "RABBITMQ_PID_FILE": str(directory / "pid"),
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }
        self.log = (directory / "output").open("ab")
        command = ["epmd", "-address", "127.0.0.1", "-port", str(mapper)]
        self.mapper = self._spawn(command)
        self.start()

    def _spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,
        )

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}"

    def start(self) -> None:
        self.process = self._spawn([str(HOME / "rabbitmq-server")])
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            time.sleep(0.2)
        raise RuntimeError(f"RabbitMQ did not start: see {self.directory}/output")

    def control(self, *arguments: str) -> str:
        command = [str(HOME / "rabbitmqctl"), "--quiet", *arguments]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"rabbitmqctl {arguments[0]}: {done.stdout}{done.stderr}")
        return done.stdout

    def declare(self, queue: str) -> None:
        """Makes a durable queue: what a client of AMQP 1.0 makes is not durable."""
        self.control("eval", DECLARE % queue)

    def shovel(self, name: str, **settings: Any) -> None:
        """Starts a shovel, or changes it. `src_uri` is `src-uri`."""
        value = json.dumps({key.replace("_", "-"): each for key, each in settings.items()})
        self.control("set_parameter", "shovel", name, value)

    def kill(self) -> None:
        """kill -9 on all of its processes."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def pids(self) -> list[int]:
        """Its processes."""
        group = self.process.pid
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with suppress(OSError):
                    if os.getpgid(int(entry.name)) == group:
                        found.append(int(entry.name))
        return found

    def end(self) -> None:
        self.kill()
        self.mapper.kill()
        self.mapper.wait()
        self.log.close()
