"""One request of one person: its manager, the fields of its form, and the page that answers it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, urlencode

from jinja2 import Environment

from postroad.console.history import Watch
from postroad.console.jobs import Job
from postroad.console.manager_client import ANY_QUEUE, ManagerClient
from postroad.console.rendering import visible
from postroad.console.search import Reader
from postroad.console.sessions import Access, Connect, Session, Sessions
from postroad.errors import PostroadError
from postroad.net.exchange import HTML, BodyTooLarge, Request, Response, redirect
from postroad.reports.info import CallerInfo, QueueInfo

MAX_FORM_BYTES = 12 << 20  # a message of 4 MiB, percent-encoded
MAX_LOGIN_BYTES = 16 << 10
FRAGMENT = b"x-fragment"
MOST_DIGITS = 20  # of a number in a form: Python reads no more than a few thousand
OLD_S = 2.0  # the greatest age of a user's own list of queues


class PageNotFound(PostroadError):
    """The console has no such page."""


class BadRequest(PostroadError):
    """No page of the console makes such a request."""


class TooLarge(PostroadError):
    """The form is larger than any form of the console."""


@dataclass(frozen=True, slots=True)
class Form:
    """The fields of a form or a query."""

    fields: dict[str, list[str]]

    def text(self, name: str, default: str = "") -> str:
        return self.fields.get(name, [default])[0].strip()

    def raw(self, name: str) -> str:
        """A value as it came, such as the name of a queue in a link: it may begin or end with a space."""
        return self.fields.get(name, [""])[0]

    def number(self, name: str, default: int, least: int = 0, most: int = (1 << 64) - 1) -> int:
        text = self.text(name)
        if not text:
            return default
        number = _number(text)
        if number is None or not least <= number <= most:
            what = f"must be a whole number from {least} to {most}, got {text[:60]!r}"
            raise BadRequest(f"{name.replace('_', ' ')}: {what}")
        return number

    def several(self, name: str) -> list[str]:
        return self.fields.get(name, [])

    def numbers(self, name: str) -> list[int]:
        return [number for each in self.several(name) if (number := _number(each)) is not None]

    def on(self, name: str) -> bool:
        return name in self.fields


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) <= MOST_DIGITS else None


def _fields(what: str, text: str, most: int) -> Form:
    try:
        return Form(parse_qs(text, keep_blank_values=True, max_num_fields=most))
    except ValueError:
        raise BadRequest(f"the {what} has too many fields") from None


@dataclass(slots=True)
class Visit:
    """`manager` is None on pages about all managers. `path` is that of the page, and `base` precedes it. `address` is
    the person's. `secure` means TLS."""

    request: Request
    path: str
    base: str
    session: Session
    sessions: Sessions
    watches: Sequence[Watch]
    templates: Environment
    address: str
    secure: bool
    manager: int | None = None
    caller: CallerInfo | None = None  # who the manager says this is

    @property
    def is_fragment(self) -> bool:
        """Whether a script refreshes a part of a page."""
        return bool(self.request.header(FRAGMENT))

    @property
    def query(self) -> Form:
        return _fields("query", self.request.query.decode("latin-1"), 200)

    async def form(self) -> Form:
        most = MAX_FORM_BYTES if self.session in self.sessions else MAX_LOGIN_BYTES
        try:
            text = (await self.request.body(most)).decode("utf-8", "replace")
        except BodyTooLarge:
            raise TooLarge(f"a form must have at most {most} bytes") from None
        return _fields("form", text, 20_000)

    # The manager

    @property
    def index(self) -> int:
        if self.manager is None:
            raise PageNotFound("this page is not about a manager")
        return self.manager

    @property
    def watch(self) -> Watch:
        return self.watches[self.index]

    def connect(self, manager: int) -> Connect:
        """A client with which this person calls a manager."""
        return partial(self.watches[manager].connect, address=self.address)

    async def access(self) -> Access:
        access = await self.session.on(self.index, self.connect(self.index))
        if access.administrator:
            await self.watch.lend(access.client)
        return access

    async def ask_rights(self) -> None:
        """Asks what the person may do now, so that pages show only buttons that work."""
        access = await self.access()
        self.caller = await access.client.caller(ANY_QUEUE if access.administrator else None)

    def may(self, right: str, path: str = "") -> bool:
        """Whether the person has a right: a word of access lists, for the queue with this path or name, or one of
        `create` (queues), `look` (at the manager's own pages), `act` (change anything), `read` (messages of any queue)
        and `administer`."""
        caller = self.caller
        if caller is None:
            return False
        if caller.role == "administrator":
            return True
        found = {
            "create": caller.create_queues,
            "look": caller.role == "monitor",
            "act": caller.role == "user",
            "administer": False,
            "read": any("peek" in words for words in caller.queues.values()),
        }
        if right in found:
            return found[right]
        wanted = path.replace("/", "\\").lower()
        return any(
            right in words for each, words in caller.queues.items() if each.lower() in (wanted, f"system${wanted}")
        )

    async def client(self) -> ManagerClient:
        return (await self.access()).client

    async def reader(self) -> Reader:
        return Reader(await self.client(), self.watch.is_busy)

    async def queues(self) -> list[QueueInfo]:
        """The queues that this user may see. An administrator gets those that the console remembers, if they are
        fresh."""
        access, now = await self.access(), time.monotonic()
        if access.administrator and self.watch.is_fresh and await access.client.is_administrator():
            return self.watch.queues
        if now - access.queues_at > OLD_S:
            access.queues, access.queues_at = await access.client.queues(), now
        return access.queues

    def job(self, identifier: str, *kinds: str) -> Job | None:
        """A job of one of these kinds that the person has begun on this manager."""
        job = self.session.jobs.get(identifier)
        return job if job is not None and job.manager == self.index and job.kind in kinds else None

    def changed(self) -> None:
        """Notes that the user has changed something on this manager."""
        self.watch.ask_now()
        access = self.session.access.get(self.index)
        if access is not None:
            access.queues_at = float("-inf")

    # Answers

    def url(self, page: str, /, **query: object) -> str:
        """The URL of a page of this manager."""
        given = {name: value for name, value in query.items() if value not in (None, "")}
        return f"{self.session.base}/{self.index}/{page}{'?' if given else ''}{urlencode(given)}"

    def show(self, template: str, status: HTTPStatus = HTTPStatus.OK, **values: Any) -> Response:
        access = None if self.manager is None else self.session.access.get(self.manager)
        text = self.templates.get_template(template).render(
            visit=self,
            managers=list(enumerate(self.watches)),
            manager=self.manager,
            who=None if access is None else access.client.credentials.who,
            administrator=access is not None and access.administrator,
            csrf=self.session.csrf,
            base=self.session.base,
            here=self.path,
            now=time.time(),
            **values,
        )
        return Response(visible(text).encode("utf-8", "replace"), status, HTML)  # a label may contain half a character

    def go(self, url: str) -> Response:
        """Sends the browser to another page, after a form."""
        return redirect(url)

    def done(self, sentence: str, url: str) -> Response:
        """Sends the browser to a page that also says what has been changed."""
        self.session.notify(sentence)
        if self.manager is not None:
            self.changed()
        return self.go(url)


def local_path(text: str, default: str = "/") -> str:
    """A page of the console, from the text of a form. Never another site."""
    return (
        text if text.startswith("/") and not text.startswith("//") and "\\" not in text.partition("?")[0] else default
    )
