"""The console as a web application: its pages by path, and what happens before and after each page."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from urllib.parse import unquote, urlencode

from postroad.console.history import Watch
from postroad.console.manager_client import Credentials, LoginNeeded
from postroad.console.pages import (
    dead_letters,
    failed,
    jobs,
    login,
    messages,
    network,
    overview,
    queue,
    queues,
    security,
    send,
)
from postroad.console.rendering import templates
from postroad.console.sessions import COOKIE, HEADERS, VISITOR, Guard, Networks, Session, Sessions, client_address, same
from postroad.console.visit import BadRequest, Form, PageNotFound, TooLarge, Visit, local_path
from postroad.errors import (
    AccessDenied,
    InvalidArgument,
    ManagerUnavailable,
    MessageAlreadyReceived,
    MessageNotFound,
    PostroadError,
    QueueExists,
    QueueNotFound,
)
from postroad.net.endpoints import plain_address
from postroad.net.exchange import HTML, ClientLeft, Request, Response, text
from postroad.net.http import TaskApp
from postroad.net.routes import Route, Routes

log = logging.getLogger(__name__)

STATIC = Path(__file__).parent / "static"
CSRF = b"x-csrf"
MAX_DIGITS = 6  # in the number of a manager
FORWARDED_FOR = b"x-forwarded-for"
TOO_MANY_SESSIONS = "too many people are logged in: try again later\n"

_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

Page = Callable[[Visit], Awaitable[Response]]
Action = Callable[[Visit, Form], Awaitable[Response]]

# Pages, for GET. {m} is the number of the manager.
PAGES: dict[str, Page] = {
    "/": overview.show,
    "/login": login.show,
    "/{m:int}/queues": queues.show,
    "/{m:int}/new": queues.show_new,
    "/{m:int}/queue": queue.show,
    "/{m:int}/purge": queue.show_purge,
    "/{m:int}/delete": queue.show_delete,
    "/{m:int}/messages": messages.show_list,
    "/{m:int}/message": messages.show_one,
    "/{m:int}/search": messages.show_search,
    "/{m:int}/send": send.show,
    "/{m:int}/job": jobs.show,
    "/{m:int}/dead": dead_letters.show,
    "/{m:int}/failed": failed.show,
    "/{m:int}/failed/group": failed.show_group,
    "/{m:int}/network": network.show,
    "/{m:int}/trace": network.show_trace,
    "/{m:int}/security": security.show,
    "/{m:int}/export": messages.export,
    "/{m:int}/body": messages.body,
}
# Forms, for POST.
ACTIONS: dict[str, Action] = {
    "/login": login.log_in,
    "/logout": login.log_out,
    "/{m:int}/new": queues.create,
    "/{m:int}/queue": queue.change,
    "/{m:int}/purge": queue.purge,
    "/{m:int}/delete": queue.delete,
    "/{m:int}/pause": queue.pause,
    "/{m:int}/resume": queue.resume,
    "/{m:int}/access": queue.change_access,
    "/{m:int}/messages": messages.act,
    "/{m:int}/search": messages.search,
    "/{m:int}/send": send.send,
    "/{m:int}/cancel": jobs.cancel,
    "/{m:int}/dead": dead_letters.resend,
    "/{m:int}/failed": failed.resend,
}


@dataclass(frozen=True, slots=True)
class Settings:
    """`apis` are the URLs of the managers. The console samples managers with `credentials`, and proves with `key` that
    it may name the addresses of people. `names` are hosts by which browsers may call it. `proxies` may name the
    addresses of their clients. `port` keeps the cookies of two consoles on one host apart. `api_certificate` (PEM) is
    the only certificate to trust; with None, the system decides."""

    apis: Sequence[str]
    credentials: Credentials = field(default_factory=Credentials)
    key: bytes | None = None
    names: frozenset[str] = frozenset()
    proxies: Networks = ()
    port: int = 0
    secure: bool = False
    api_certificate: str | None = None


class Console(TaskApp):
    """The application and its state."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._settings = settings
        self._watches = [
            Watch(url, settings.credentials, settings.api_certificate, settings.key) for url in settings.apis
        ]
        self._sessions = Sessions()
        self._templates = templates()
        self._guard = Guard(settings.names)
        self._routes = Routes(self.routes())
        self._files = {f"/static/{each.name}": _File.read(each) for each in STATIC.iterdir() if each.suffix in _TYPES}
        self._tasks: set[asyncio.Task[None]] = set()

    async def renew(self, credentials: Credentials, api_certificate: str | None) -> None:
        """Replaces the credentials and the certificate of the settings."""
        for watch in self._watches:
            await watch.renew(credentials, api_certificate)

    def routes(self) -> list[Route[Endpoint]]:
        endpoints: dict[str, dict[str, Endpoint]] = {path: {"GET": self._page(page)} for path, page in PAGES.items()}
        for path, action in ACTIONS.items():
            endpoints.setdefault(path, {})["POST"] = self._action(action)
        endpoints["/{m:int}/import"] = {"POST": self._upload}
        return [Route(path, by_method) for path, by_method in endpoints.items()]

    def start(self) -> None:
        self._tasks = {asyncio.get_running_loop().create_task(watch.run()) for watch in self._watches}

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._sessions.close()
        for watch in self._watches:
            await watch.close()

    async def respond(self, request: Request) -> Response:
        path, base = unquote(request.path), ""
        if path.startswith("/~"):  # the path to which a cookie is bound
            base, _, rest = path[1:].partition("/")
            path, base = f"/{rest}", f"/{base}"
        if path == "/healthz":
            return text("ok\n")
        if (file := self._files.get(path)) is not None and request.method in ("GET", "HEAD"):
            return file.response(request)
        found = self._routes.find(request.method, path)
        if found is None:
            return await self._answer(Asked(request, path, base, {}), _missing)
        if found.endpoint is None:
            return text("Method Not Allowed", HTTPStatus.METHOD_NOT_ALLOWED, {"allow": ", ".join(found.methods)})
        return await found.endpoint(Asked(request, path, base, found.parameters))

    # What happens before and after each page

    def _page(self, page: Page) -> Endpoint:
        async def endpoint(asked: Asked) -> Response:
            return await self._answer(asked, page)

        return endpoint

    def _action(self, action: Action) -> Endpoint:
        async def page(visit: Visit) -> Response:
            form = await visit.form()
            self._check_csrf(visit.session, form.text("csrf"))
            try:
                return await action(visit, form)
            except (LoginNeeded, BadRequest, TooLarge, PageNotFound):
                raise
            except PostroadError as error:
                if not form.text("back"):
                    raise
                visit.session.notify(str(error), is_error=True)
                return visit.go(local_path(form.text("back")))

        return self._page(page)

    async def _upload(self, asked: Asked) -> Response:
        """Serves the upload of a file. Its script sends the token in a header, because a file is no form."""

        async def page(visit: Visit) -> Response:
            self._check_csrf(visit.session, asked.request.header(CSRF))
            return await messages.import_packets(visit)

        return await self._answer(asked, page)

    async def _answer(self, asked: Asked, page: Page) -> Response:
        request = asked.request
        refusal = self._guard.refusal(request.method, request.headers)
        if refusal is not None:
            return _with_headers(text(f"{refusal}\n", HTTPStatus.FORBIDDEN))
        secure = self._settings.secure
        peer = request.connection.peer
        if self._settings.proxies:
            forwarded = ",".join(value.decode("latin-1") for name, value in request.fields if name == FORWARDED_FOR)
            address = client_address(peer, forwarded, self._settings.proxies)
            secure |= address != plain_address(peer) and request.header(b"x-forwarded-proto").lower() == "https"
        else:
            address = peer
        session_cookie, visitor_cookie = (
            f"{'__Host-' if secure else ''}{each}_{self._settings.port}" for each in (COOKIE, VISITOR)
        )
        session = await self._find(asked, session_cookie, visitor_cookie)
        visit = Visit(
            request,
            asked.path,
            asked.base,
            session,
            self._sessions,
            self._watches,
            self._templates,
            address,
            secure,
        )
        answer = await self._run(visit, page, asked.parameters.get("m"))
        if not self._sessions.keep(session, address):
            await session.close()
            return _with_headers(text(TOO_MANY_SESSIONS, HTTPStatus.SERVICE_UNAVAILABLE))
        kept = session in self._sessions
        name, path = (session_cookie, session.base or "/") if session.logged_in else (visitor_cookie, "/")
        if _cookie(request, name) != session.identifier and (kept or answer.media_type == HTML):
            cookie = f"{name}={session.identifier}; HttpOnly; Path={path}; SameSite=strict"
            answer.headers["set-cookie"] = f"{cookie}; Secure" if secure else cookie
        return _with_headers(answer)

    async def _find(self, asked: Asked, session_cookie: str, visitor_cookie: str) -> Session:
        """The session of a request. A login's cookie that comes to another path than its own is not ours and counts for
        nothing."""
        request = asked.request
        found = await self._sessions.find(_cookie(request, session_cookie))
        if found.logged_in and (asked.base == found.base or not Guard.is_browser(request.headers)):
            return found
        found = await self._sessions.find(_cookie(request, visitor_cookie))
        return await self._sessions.find(None) if found.logged_in else found

    async def _run(self, visit: Visit, page: Page, manager: str | None) -> Response:
        try:
            if manager is not None:
                if len(manager) > MAX_DIGITS or int(manager) >= len(self._watches):
                    raise PageNotFound("the console has no such manager")
                visit.manager = int(manager)
                await visit.ask_rights()
            return await page(visit)
        except LoginNeeded as error:
            return self._to_login(visit, error)
        except ClientLeft:
            raise
        except PostroadError as error:
            return _error_page(visit, error)
        except Exception:
            log.exception("a page of the console failed")
            return _error_page(visit, ConsoleFailed("the console failed; its log has the details"))

    def _check_csrf(self, session: Session, given: str) -> None:
        if not same(given, session.csrf):
            raise BadRequest("the session of this page has ended: load the page again, then repeat what you did")

    def _to_login(self, visit: Visit, error: LoginNeeded) -> Response:
        if visit.is_fragment:
            return text("log in again", HTTPStatus.UNAUTHORIZED)
        request = visit.request
        asked = f"?{request.query.decode('latin-1')}" if request.query else ""
        here = f"{visit.path}{asked}" if request.method == "GET" else "/"
        if visit.index in visit.session.access:
            visit.session.notify(f"{visit.watch.title}: {error}", is_error=True)
        base = visit.base or visit.session.base  # of an ended login: the page's script then forgets it
        return visit.go(f"{base}/login?{urlencode({'manager': visit.index, 'next': here})}")


async def _missing(visit: Visit) -> Response:
    raise PageNotFound(f"there is no page {visit.path}")


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for a page: its path, the base path before it, and its parameters."""

    request: Request
    path: str
    base: str
    parameters: Mapping[str, str]


Endpoint = Callable[[Asked], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class _File:
    """One of the console's own files. It does not change while the console runs."""

    content: bytes
    media_type: str
    tag: str

    @classmethod
    def read(cls, path: Path) -> _File:
        content = path.read_bytes()
        return cls(content, _TYPES[path.suffix], f'"{sha256(content).hexdigest()[:32]}"')

    def response(self, request: Request) -> Response:
        if request.header(b"if-none-match") == self.tag:
            return Response(status=HTTPStatus.NOT_MODIFIED, headers={"etag": self.tag})
        return Response(self.content, media_type=self.media_type, headers={"etag": self.tag})


class ConsoleFailed(PostroadError):
    """An error in the console itself."""


_STATUSES: dict[type[PostroadError], tuple[HTTPStatus, str]] = {
    ConsoleFailed: (HTTPStatus.INTERNAL_SERVER_ERROR, "The console failed"),
    ManagerUnavailable: (HTTPStatus.BAD_GATEWAY, "The manager is down"),
    PageNotFound: (HTTPStatus.NOT_FOUND, "There is no such page"),
    QueueNotFound: (HTTPStatus.NOT_FOUND, "There is no such queue"),
    MessageNotFound: (HTTPStatus.NOT_FOUND, "The message is not there"),
    MessageAlreadyReceived: (HTTPStatus.GONE, "The message was received"),
    AccessDenied: (HTTPStatus.FORBIDDEN, "You have no right to do this"),
    QueueExists: (HTTPStatus.CONFLICT, "The queue exists already"),
    BadRequest: (HTTPStatus.BAD_REQUEST, "The request cannot be answered"),
    TooLarge: (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The form is too large"),
    InvalidArgument: (HTTPStatus.BAD_REQUEST, "The request cannot be answered"),
}


def _error_page(visit: Visit, error: PostroadError) -> Response:
    status, title = HTTPStatus.BAD_REQUEST, "This did not work"
    for kind, found in _STATUSES.items():
        if isinstance(error, kind):
            status, title = found
            break
    if isinstance(error, ManagerUnavailable) and visit.manager is not None:
        title = f"{visit.watch.title} does not answer"
    if visit.is_fragment:
        return visit.show("problem.html", HTTPStatus.OK, title=title, sentence=str(error))
    return visit.show("error.html", status, title=title, sentence=str(error))


def _cookie(request: Request, name: str) -> str | None:
    """The value of a cookie; the first if there are several. A program at another port can set a cookie of the same
    name, but a browser sends the one with the longest path first."""
    for each in request.header(b"cookie").split(";"):
        found, equals, value = each.partition("=")
        if equals and found.strip() == name:
            return value.strip()
    return None


def _with_headers(answer: Response) -> Response:
    for name, value in HEADERS.items():
        answer.headers.setdefault(name, value)
    return answer
