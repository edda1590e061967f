"""Login and logout. The credentials stay in the console's memory and go to the manager with each call."""

from __future__ import annotations

import re
import secrets
from http import HTTPStatus

from postroad.console.manager_client import Credentials, LoginNeeded
from postroad.console.visit import Form, Visit, local_path
from postroad.errors import InvalidArgument, ManagerUnavailable
from postroad.net.exchange import Response

NO_TICKET = (
    "Your browser showed no Kerberos ticket. Log in with a user and a password, or get a ticket (kinit) and allow this "
    "address in the browser's settings for integrated authentication."
)
_BASE = re.compile("/~[0-9a-f]{32}")


async def show(visit: Visit) -> Response:
    manager = min(visit.query.number("manager", 0), len(visit.watches) - 1)
    return _page(visit, manager, local_path(visit.query.text("next", "/")))


def _page(visit: Visit, manager: int, following: str, fault: str = "", user: str = "") -> Response:
    status = HTTPStatus.UNAUTHORIZED if fault else HTTPStatus.OK
    return visit.show("login.html", status, chosen=manager, following=following, fault=fault, user=user)


async def log_in(visit: Visit, form: Form) -> Response:
    chosen = form.number("manager", 0, 0, len(visit.watches) - 1)
    user, token = form.text("user"), form.text("token")
    following, answer = local_path(form.text("next", "/")), ""
    credentials = Credentials(user=user, password=form.raw("password")) if user else Credentials(token=token or None)
    ticket = visit.request.header(b"authorization") if form.on("kerberos") else None
    if ticket is not None and not ticket.lower().startswith("negotiate "):
        return _ask_for_ticket(_page(visit, chosen, following, NO_TICKET))
    try:
        async with visit.sessions.logins.place(visit.address):
            if ticket is not None:
                credentials, answer = await visit.watches[chosen].exchange_ticket(ticket, visit.address)
            access = await visit.session.log_in(chosen, visit.connect(chosen), credentials)
    except TimeoutError:
        return _page(visit, chosen, following, "too many logins are under way: try again in a moment", user)
    except LoginNeeded as error:
        return _page(visit, chosen, following, f"The login was refused: {error}", user)
    except (InvalidArgument, ManagerUnavailable) as error:
        return _page(visit, chosen, following, str(error), user)
    visit.session.renew("" if visit.secure else _base(form))
    if access.administrator:
        await visit.watches[chosen].lend(access.client)
    response = visit.go(visit.session.base + following)
    if answer:  # proves to the browser who the server is
        response.headers["www-authenticate"] = answer
    return response


def _ask_for_ticket(page: Response) -> Response:
    """A browser that has a ticket and may show it here repeats the form with it, [RFC 4559] 4. Any other shows the
    page."""
    page.headers["www-authenticate"] = "Negotiate"
    return page


def _base(form: Form) -> str:
    """The path to which the login's cookie is bound. The browser chooses it, so that it can find it again. With TLS
    there is none: no program at another port has a certificate for this host."""
    chosen = form.text("base")
    return chosen if _BASE.fullmatch(chosen) else f"/~{secrets.token_hex(16)}"


async def log_out(visit: Visit, form: Form) -> Response:
    for manager, access in visit.session.access.items():
        await visit.watches[manager].give_back(access.client.credentials)
    await visit.session.close()
    base, visit.session.base, visit.session.renewed = visit.session.base, "", True
    visit.session.notify("You have logged out.")
    return visit.go(f"{base}/login")  # the login page's script forgets the path
