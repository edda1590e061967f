"""The two attacked managers, as real processes, and what can be seen of them from outside."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from tests.certificates import Authority

TOKEN = "honest-token"
USER, PASSWORD = "reader", "an honest password"
GUEST, GUEST_PASSWORD = "guest", "known to strangers"  # a user without any right but what everybody has
BINARY, PING, HTTP, HTTPS, RPC, API, CONSOLE = 11801, 13527, 18080, 18443, 12103, 18180, 18181
UNFINISHED_MB = 32
QUOTA_MB = 128
SLACK_MB = 192  # the interpreter, the libraries, what SQLite keeps, and what the honest workload holds
PATIENCE_S = 90

RECOVERABLE, TRANSACTIONAL, OPEN = r"private$\recoverable", r"private$\transactional", r"private$\open"
LOCAL, REMOTE, BY_HTTP = r"private$\local", r"private$\remote", r"private$\http"
DYING, ANSWERED, ANSWERS = r"private$\dying", r"private$\answered", r"private$\answers"
CLOSED = r"private$\closed"  # nobody but the owner may write here
LEFT = r"private$\left"  # everybody may receive here, and strangers leave while they wait

_CONFIGURATION = """
[manager]
name = "{name}"
id = "{id}"
data = "data-{name}"
quota_kb = {quota_kb}
[listen]
host = "{host}"
binary = {binary}
ping = {ping}
http = {http}
https = {https}
rpc = {rpc}
api = {api}
console = {console}
[api]
token = "{token}"
[rpc]
authenticate = true
[binary]
retry_connect_s = 0.2
resend_s = [2.0, 5.0]
[srmp]
tls_certificate = "{certificate}"
tls_key = "{key}"
resend_s = [2.0, 5.0]
retransmission_ms = 2000
[limits]
connections = 300
connections_per_address = 100
unfinished_input_mb = {unfinished_mb}
remote_managers = 500
outgoing_queues = 200
[[user]]
name = "{user}"
password = "{password}"
[[user]]
name = "{guest}"
password = "{guest_password}"
[peers]
"{alpha}" = {{ binary = {binary}, ping = {ping}, http = {http}, rpc = {rpc} }}
"{beta}" = {{ binary = {binary}, ping = {ping}, http = {http}, rpc = {rpc} }}
{directory}
{queues}
"""
_FOR_NOBODY = "authenticate = true\nprivacy = 'body'\nacl = 'O:BAD:(D;;0x4;;;AN)(D;;0x4;;;WD)'\n"
_QUEUES = (
    (RECOVERABLE, False, ""),
    (TRANSACTIONAL, True, ""),
    (LOCAL, True, ""),
    (REMOTE, False, ""),
    (BY_HTTP, False, ""),
    (DYING, False, ""),
    (ANSWERED, False, ""),
    (ANSWERS, False, ""),
    (OPEN, False, "quota_kb = 4096\n"),
    (CLOSED, False, _FOR_NOBODY),
    (LEFT, False, "acl = 'O:BAD:(A;;0x7;;;WD)'\n"),
)


@dataclass(frozen=True, slots=True)
class Target:
    """What an attacker knows of a manager: its address and its identifier."""

    name: str
    host: str
    id: UUID

    @property
    def url(self) -> str:
        return f"http://{self.host}:{API}"


ALPHA = Target("alpha", "127.0.41.1", UUID("a1fa0000-0000-4000-8000-000000000001"))
BETA = Target("beta", "127.0.41.2", UUID("be1a0000-0000-4000-8000-000000000002"))
MANAGERS = (ALPHA, BETA)


class Process:
    """One `postroad serve`. `peak_mb` and `log` are what the operator would see."""

    def __init__(self, directory: Path, target: Target, *, with_directory: bool) -> None:
        self.target = target
        self._file = directory / f"{target.name}.toml"
        self._file.write_text(_configuration(target, directory, with_directory=with_directory))
        self._log = directory / f"{target.name}.log"
        with self._log.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "postroad", "serve", "-c", str(self._file)],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(self.log)
        json.loads(line)

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def peak_mb(self) -> dict[str, float]:
        """For the manager and its console, which is its only child."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        names = (self.target.name, f"{self.target.name}'s console")
        return {name: _peak_mb(pid) for name, pid in zip(names, (str(self.process.pid), *children), strict=True)}

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def stop(self) -> int:
        """Returns the exit code. 0 is a clean stop."""
        if self.alive:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.communicate(timeout=PATIENCE_S)  # which waits, and closes the pipe
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            return -1
        return self.process.returncode


def _peak_mb(pid: str) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def _configuration(target: Target, directory: Path, *, with_directory: bool) -> str:
    known = ""
    if with_directory:
        file = directory / "enterprise.toml"
        lines = ['[[site]]\nname = "here"']
        lines += [
            f'[[manager]]\nname = "{each.name}"\nid = "{each.id}"\naddress = "{each.host}"\nsites = ["here"]'
            for each in MANAGERS
        ]
        file.write_text("\n".join(lines))
        known = '[directory]\nfile = "enterprise.toml"'
    queues = "\n".join(
        f"[[queue]]\npath = '{path}'\ntransactional = {str(transactional).lower()}\n{properties}"
        for path, transactional, properties in _QUEUES
    )
    certificate, key = Authority(directory, f"{target.name}-authority").issue(target.host)
    return _CONFIGURATION.format(
        certificate=certificate,
        key=key,
        https=HTTPS,
        name=target.name,
        id=target.id,
        host=target.host,
        binary=BINARY,
        ping=PING,
        http=HTTP,
        rpc=RPC,
        api=API,
        console=CONSOLE,
        token=TOKEN,
        user=USER,
        password=PASSWORD,
        guest=GUEST,
        guest_password=GUEST_PASSWORD,
        quota_kb=QUOTA_MB * 1024,
        unfinished_mb=UNFINISHED_MB,
        alpha=ALPHA.host,
        beta=BETA.host,
        directory=known,
        queues=queues,
    )
