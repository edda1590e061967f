"""One manager as one person may use it: typed calls of its HTTP API."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from postroad.client.aio.runtime import JoinedSends
from postroad.client.aio.transport import Transport
from postroad.client.exchange import Address, Exchange, WholeReply
from postroad.client.http_backend import HttpBackend
from postroad.client.payloads import queue_path
from postroad.errors import AccessDenied
from postroad.reports.access_list import named_sids
from postroad.reports.enterprise import DirectoryInfo, Route
from postroad.reports.info import CallerInfo, LoginInfo, UserInfo
from postroad.reports.operations import Resent
from postroad.reports.plain import from_json

PACKETS_AT_ONCE = 1000
MAX_NAMED = 100  # SIDs and GUIDs in one question
# A caller for whom rights on queues do not matter asks for this one, because there may be thousands of queues.
ANY_QUEUE = r"private$\admin_queue$"


class LoginNeeded(AccessDenied):
    """The manager answered 401: it wants credentials, or different ones."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """A token, a user with a password, or neither. `name` is that of somebody who logged in by Kerberos; the token is
    then that of a session, which ends."""

    token: str | None = field(default=None, repr=False)
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    name: str | None = None

    @property
    def who(self) -> str:
        if self.name is not None:
            return self.name
        if self.user is not None:
            return self.user
        return "nobody" if self.token is None else "token"


NO_CREDENTIALS = Credentials()
# For a manager that admits every client with a certificate. The certificate is the console's, so it does not identify
# the person.
_BY_CERTIFICATE = "client certificate"


@dataclass(frozen=True, slots=True)
class AuditEvents:
    """`file` has all events. Without a file, the manager remembers only the last ones."""

    file: str | None
    events: Sequence[Mapping[str, object]]


class _Transport(Transport):
    async def ask(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None, wait: float | None
    ) -> WholeReply:
        reply = await super().ask(method, target, headers, body, wait)
        if reply.status == HTTPStatus.UNAUTHORIZED:
            raise LoginNeeded(str(self._address.error(reply.status, reply.media_type, reply.content)))
        return reply


class ManagerClient(HttpBackend):
    """The calls of every client, and those that only the console needs."""

    def __init__(
        self,
        url: str,
        credentials: Credentials = NO_CREDENTIALS,
        tls: ssl.SSLContext | None = None,
        caller: Mapping[str, str] | None = None,
    ) -> None:
        """`tls` says which server to trust; without it, the system decides. `caller` is the header that says for whom
        the console calls."""
        self.credentials = credentials
        address = Address(url, credentials.token, user=credentials.user, password=credentials.password)
        if tls is not None and address.tls is not None:
            address.tls = tls
        address.headers["Postroad-Client"] = f"console {address.headers['Postroad-Client']}"
        address.headers |= caller or {}
        transport = _Transport(address)
        super().__init__(address, transport, JoinedSends)
        self._calls = Exchange(address, transport)

    async def is_administrator(self) -> bool:
        """Whether the caller is an administrator. Raises LoginNeeded if the credentials are wrong, or if they identify
        only the console."""
        try:
            listeners = await self.exposure()
        except LoginNeeded:
            raise
        except AccessDenied:
            return False
        if (await self.caller(ANY_QUEUE)).role != "administrator":
            return False
        identified = self.credentials.user is not None or self.credentials.name is not None
        if not identified and any(
            each.listener == "api" and each.authentication.startswith(_BY_CERTIFICATE) for each in listeners
        ):
            raise LoginNeeded(
                "the manager has no token, and the certificate that it wants is the console's: log in as a user"
            )
        return True

    async def begin_session(self) -> tuple[Credentials, str]:
        """Exchanges the Kerberos ticket of this client's caller. Returns the credentials from now on, and the server's
        answer for the caller. Raises LoginNeeded if the manager refuses the ticket."""
        answer = await self._calls.request("POST", "/login")
        login = from_json(LoginInfo, json.loads(answer.content))
        return Credentials(token=login.token, name=login.who), answer.headers.get("www-authenticate", "")

    async def caller(self, queue: str | None = None) -> CallerInfo:
        """Who calls, with the rights on `queue`, or on every queue that the caller may see."""
        return from_json(CallerInfo, await self._calls.json("GET", "/whoami", query={"queue": queue}))

    async def directory(self) -> DirectoryInfo:
        return from_json(DirectoryInfo, await self._calls.json("GET", "/directory"))

    async def route_without(self, destination: str, source: str | None, closed: Sequence[str]) -> Route:
        """The route if these links (`A-B`) were closed."""
        query = {"to": destination, "from": source, "without": ",".join(closed) or None}
        return from_json(Route, await self._calls.json("GET", "/route", query=query))

    async def resend(
        self, name: str, lookup_ids: Sequence[int], to: str | None, ttbr: int | None, failed: bool = False
    ) -> list[Resent]:
        """Sends messages again: to `to`, to where they were sent before, or if `failed`, to where they failed."""
        order: dict[str, object] = {"lookup_ids": list(lookup_ids), "failed": failed}
        order |= {} if to is None else {"to": to}
        order |= {} if ttbr is None else {"time_to_be_received": ttbr}
        answer = await self._calls.json("POST", queue_path(name, "resend"), order, member="resent")
        return [from_json(Resent, each) for each in answer]

    async def resend_changed(self, name: str, lookup_id: int, changes: Mapping[str, object]) -> str:
        """Sends a message again with some properties changed. Returns the new id."""
        path = queue_path(name, f"messages/{lookup_id}/resend")
        found: list[str] = await self._calls.json("POST", path, dict(changes), member="ids")
        return found[0]

    async def users(self) -> list[UserInfo]:
        return [from_json(UserInfo, each) for each in await self._calls.json("GET", "/users", member="users")]

    async def names(self, identifiers: Iterable[object]) -> dict[str, str]:
        """The names of users, accounts and managers by their SIDs and GUIDs, as far as the caller may see them."""
        asked = ",".join([*dict.fromkeys(str(each) for each in identifiers if each)][:MAX_NAMED])
        with suppress(AccessDenied):
            return dict(await self._calls.json("GET", "/names", query={"of": asked}, member="names")) if asked else {}
        return {}

    async def acl_names(self, name: str) -> dict[str, str]:
        """The names of those whom a queue's access list names by SID."""
        answer: dict[str, Any] = await self._calls.json("GET", queue_path(name, "acl"))
        return answer["names"] if "names" in answer else await self.names(named_sids(answer["sddl"])[:MAX_NAMED])

    async def audit(self, limit: int) -> AuditEvents:
        found: dict[str, Any] = await self._calls.json("GET", "/audit", query={"limit": limit})
        return AuditEvents(found["file"], found["events"])

    async def packets(self, name: str, after: int) -> tuple[bytes, int | None]:
        """The packets after the lookup id `after`, back to back, and the lookup id of the last one, which is None at
        the end."""
        query = {"after": after, "limit": PACKETS_AT_ONCE}
        answer = await self._calls.request("GET", queue_path(name, "packets"), query)
        last = answer.headers.get("postroad-last-lookup-id")
        return answer.content, None if last is None else int(last)
