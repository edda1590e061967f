"""The console as a web application: its pages by path, and what happens before and after each of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from postroad.console.history import Watch
from postroad.console.manager_client import Credentials, LoginNeeded
from postroad.console.pages import (
    dead_letters,
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

log = logging.getLogger(__name__)

STATIC = Path(__file__).parent / "static"
FRAGMENT = "x-fragment"  # the header of a script that refreshes a part of a page
CSRF = "x-csrf"
TOO_MANY_SESSIONS = "too many people are logged in: try again later\n"
BASE = "postroad.base"  # key in the scope: what was before the path of the page

Page = Callable[[Visit], Awaitable[Response]]
Action = Callable[[Visit, Form], Awaitable[Response]]

# GET of pages; {m} is the number of the manager.
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
    "/{m:int}/network": network.show,
    "/{m:int}/trace": network.show_trace,
    "/{m:int}/security": security.show,
    "/{m:int}/export": messages.export,
    "/{m:int}/body": messages.body,
}
# POST of forms.
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
}


@dataclass(frozen=True, slots=True)
class Settings:
    """`apis` are the URLs of the managers. `credentials` are what the console itself samples them with, `key` is what
    it vouches to them with for the address of a person. `names` are hosts that it may be called by; `proxies` may say
    whom they call for; `port` tells the cookies of two consoles on one host apart. `api_certificate` (PEM) is the only
    one to trust; None: those that the system trusts."""

    apis: Sequence[str]
    credentials: Credentials = field(default_factory=Credentials)
    key: bytes | None = None
    names: frozenset[str] = frozenset()
    proxies: Networks = ()
    port: int = 0
    secure: bool = False
    api_certificate: str | None = None


class Console:
    """The application and what it remembers."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._watches = [
            Watch(url, settings.credentials, settings.api_certificate, settings.key) for url in settings.apis
        ]
        self._sessions = Sessions()
        self._templates = templates()
        self._guard = Guard(settings.names)

    async def renew(self, credentials: Credentials, api_certificate: str | None) -> None:
        """Other ones than those of the settings, from now on."""
        for watch in self._watches:
            await watch.renew(credentials, api_certificate)

    def routes(self) -> list[Route | Mount]:
        routes: list[Route | Mount] = [Route(path, self._page(page), methods=["GET"]) for path, page in PAGES.items()]
        routes += [Route(path, self._action(action), methods=["POST"]) for path, action in ACTIONS.items()]
        routes.append(Route("/{m:int}/import", self._upload, methods=["POST"]))
        routes.append(Route("/healthz", _healthz))
        routes.append(Mount("/static", StaticFiles(directory=STATIC)))
        return routes

    def app(self) -> ASGIApp:
        pages = Starlette(
            routes=self.routes(), lifespan=self._lifespan, exception_handlers={HTTPStatus.NOT_FOUND: self._missing}
        )

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http" and scope["path"].startswith("/~"):  # the path that a cookie is bound to
                base, _, rest = scope["path"][1:].partition("/")
                scope = {**scope, "path": f"/{rest}", "raw_path": f"/{rest}".encode(), BASE: f"/{base}"}
            await pages(scope, receive, send)

        return app

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(watch.run()) for watch in self._watches]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._sessions.close()
            for watch in self._watches:
                await watch.close()

    # Before and after each page

    def _page(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            return await self._answer(request, page)

        return endpoint

    def _action(self, action: Action) -> Callable[[Request], Awaitable[Response]]:
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

    async def _upload(self, request: Request) -> Response:
        """A file is not a form: its script brings the token in a header."""

        async def page(visit: Visit) -> Response:
            self._check_csrf(visit.session, request.headers.get(CSRF, ""))
            return await messages.import_packets(visit)

        return await self._answer(request, page)

    async def _answer(self, request: Request, page: Page) -> Response:
        refusal = self._guard.refusal(request.method, request.headers)
        if refusal is not None:
            return _with_headers(PlainTextResponse(f"{refusal}\n", HTTPStatus.FORBIDDEN))
        secure = self._settings.secure
        peer = request.client.host if request.client else ""
        if self._settings.proxies:
            address = client_address(peer, ",".join(request.headers.getlist("x-forwarded-for")), self._settings.proxies)
            secure |= address != plain_address(peer) and request.headers.get("x-forwarded-proto", "").lower() == "https"
        else:
            address = peer
        session_cookie, visitor_cookie = (
            f"{'__Host-' if secure else ''}{each}_{self._settings.port}" for each in (COOKIE, VISITOR)
        )
        session = await self._find(request, session_cookie, visitor_cookie)
        visit = Visit(request, session, self._sessions, self._watches, self._templates, address, secure)
        answer = await self._run(visit, page)
        if not self._sessions.keep(session, address):
            await session.close()
            return _with_headers(PlainTextResponse(TOO_MANY_SESSIONS, HTTPStatus.SERVICE_UNAVAILABLE))
        kept = session in self._sessions
        name, path = (session_cookie, session.base or "/") if session.logged_in else (visitor_cookie, "/")
        if _cookie(request, name) != session.identifier and (kept or answer.media_type == HTMLResponse.media_type):
            answer.set_cookie(name, session.identifier, path=path, httponly=True, samesite="strict", secure=secure)
        return _with_headers(answer)

    async def _find(self, request: Request, session_cookie: str, visitor_cookie: str) -> Session:
        """The session of a request. A browser that sends the cookie of a login to another path than it is bound to did
        not get it from here."""
        found = await self._sessions.find(_cookie(request, session_cookie))
        if found.logged_in and (request.scope.get(BASE, "") == found.base or not Guard.is_browser(request.headers)):
            return found
        found = await self._sessions.find(_cookie(request, visitor_cookie))
        return await self._sessions.find(None) if found.logged_in else found

    async def _run(self, visit: Visit, page: Page) -> Response:
        try:
            manager = visit.request.path_params.get("m")
            if manager is not None:
                if manager >= len(self._watches):
                    raise PageNotFound("the console has no such manager")
                visit.manager = manager
                await visit.ask_rights()
            return await page(visit)
        except LoginNeeded as error:
            return self._to_login(visit, error)
        except ClientDisconnect:
            return Response()
        except PostroadError as error:
            return _error_page(visit, error)
        except Exception:
            log.exception("a page of the console failed")
            return _error_page(visit, ConsoleFailed("this is an error in the console; its log has the details"))

    def _check_csrf(self, session: Session, given: str) -> None:
        if not same(given, session.csrf):
            raise BadRequest("the session of this page has ended: load the page again, then repeat what you did")

    def _to_login(self, visit: Visit, error: LoginNeeded) -> Response:
        request = visit.request
        if request.headers.get(FRAGMENT):
            return PlainTextResponse("log in again", HTTPStatus.UNAUTHORIZED)
        asked = f"?{request.url.query}" if request.url.query else ""
        here = f"{request.url.path}{asked}" if request.method == "GET" else "/"
        if visit.index in visit.session.access:
            visit.session.notify(f"{visit.watch.title}: {error}", is_error=True)
        base = request.scope.get(BASE, visit.session.base)  # of a login that has ended: its script then forgets it
        return visit.go(f"{base}/login?{urlencode({'manager': visit.index, 'next': here})}")

    async def _missing(self, request: Request, error: Exception) -> Response:
        async def page(visit: Visit) -> Response:
            raise PageNotFound(f"there is no page {request.url.path}")

        return await self._answer(request, page)


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
    if visit.request.headers.get(FRAGMENT):
        return visit.show("problem.html", HTTPStatus.OK, title=title, sentence=str(error))
    return visit.show("error.html", status, title=title, sentence=str(error))


def _cookie(request: Request, name: str) -> str | None:
    """The first of several: a program at another port can set one of this name too, and a browser sends the cookie with
    the longest path first."""
    for each in request.headers.get("cookie", "").split(";"):
        found, equals, value = each.partition("=")
        if equals and found.strip() == name:
            return value.strip()
    return None


def _with_headers(answer: Response) -> Response:
    for name, value in HEADERS.items():
        answer.headers.setdefault(name, value)
    return answer


async def _healthz(request: Request) -> Response:
    return PlainTextResponse("ok\n")
