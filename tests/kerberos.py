"""People and services of the test domain, with their tickets and keytabs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.domain import PASSWORD, REALM, Controller

HOST = "alpha.postroad.test"  # the tests resolve it to the loopback address
OTHER = "other.postroad.test"  # a service whose key our server does not have
ANN = f"ann@{REALM}"
BOB = f"bob@{REALM}"
_AES = "msDS-SupportedEncryptionTypes: 24"
_NAMES = (HOST, "localhost", "127.0.0.1")


@dataclass
class Realm:
    """`ann` (in the group `clerks`) and `bob` are people, and `alpha` is the account of our server."""

    controller: Controller
    keytab: Path
    old_keytab: Path  # its keys are for RC4
    other_keytab: Path
    _caches: dict[str, Path] = field(default_factory=dict)

    def cache(self, user: str = "ann") -> Path:
        """The credentials cache of somebody who has logged in."""
        if user not in self._caches:
            self._caches[user] = self.controller.credentials_cache(user)
        return self._caches[user]

    def environment(self, user: str | None = "ann") -> dict[str, str]:
        cache = self.controller.directory / "no-cache" if user is None else self.cache(user)
        return {"KRB5_CONFIG": str(self.controller.krb5_conf), "KRB5CCNAME": f"FILE:{cache}"}

    def sid(self, name: str) -> str:
        found = self.controller.tool("user" if name in ("ann", "bob") else "group", "show", name)
        return next(line.split()[1] for line in found.splitlines() if line.startswith("objectSid:"))

    @contextmanager
    def logged_in(self, user: str | None = "ann") -> Iterator[None]:
        """The environment of a client of ours in this process."""
        patch = pytest.MonkeyPatch()
        for name, value in self.environment(user).items():
            patch.setenv(name, value)
        try:
            yield
        finally:
            patch.undo()


@pytest.fixture(scope="session")
def realm(domain_controller: Controller) -> Realm:
    if find_spec("gssapi") is None:
        pytest.skip("Kerberos needs the extra `domain`")
    directory = domain_controller.directory
    for user in ("ann", "bob"):
        domain_controller.add_user(user)
    domain_controller.tool("group", "add", "clerks")
    domain_controller.tool("group", "addmembers", "clerks", "ann")
    domain_controller.add_user("old", PASSWORD, f"host/old.{HOST}")
    domain_controller.add_user("other", PASSWORD, f"host/{OTHER}", f"HTTP/{OTHER}")
    services = [f"{service}/{name}" for service in ("host", "HTTP") for name in _NAMES]
    domain_controller.add_user("alpha", PASSWORD, *services)
    editor = directory / "editor"
    editor.write_text(f'#!/bin/sh\nsed -i "1a {_AES}" "$1"\n')
    editor.chmod(0o700)
    domain_controller.tool("user", "edit", "alpha", f"--editor={editor}")
    for service in services:
        domain_controller.tool("domain", "exportkeytab", str(directory / "alpha.keytab"), f"--principal={service}")
    return Realm(
        domain_controller,
        directory / "alpha.keytab",
        domain_controller.keytab(f"host/old.{HOST}"),
        domain_controller.keytab(f"host/{OTHER}"),
    )


def run(realm: Realm, *command: str, user: str | None = "ann") -> subprocess.CompletedProcess[str]:
    """Runs a program as somebody of the domain."""
    environment = os.environ | realm.environment(user)
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
