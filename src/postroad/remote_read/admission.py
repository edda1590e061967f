"""Whether remote readers have to log in, as the configuration says it. Settings that would let strangers read by
accident, or nobody at all, are refused."""

from __future__ import annotations

from postroad.config import Configuration
from postroad.rpc.providers import AUTH_EXTRA, can_authenticate, providers

_NOT_THERE = "or set listen.rpc = false"
_LET_THEM = "set rpc.anonymous = true to let everybody read and purge"


def readers_log_in(config: Configuration, reachable: bool) -> bool:
    """`reachable` says that other computers can reach the listener. ConfigurationError says what to set."""
    rpc = config.rpc
    if config.listen.rpc is None:
        return False
    exposed = f"remote readers (listen.rpc) on {config.listen.host} can come from other computers"
    if rpc.authenticate and rpc.anonymous:
        config.fail("rpc.anonymous", "is true, and so is rpc.authenticate: set one of them")
    if rpc.authenticate is False and reachable and not rpc.anonymous:
        config.fail(
            "rpc.authenticate",
            f"is false, and {exposed}: remove it and add a [[user]], {_LET_THEM}, {_NOT_THERE}",
        )
    authenticate = reachable and not rpc.anonymous if rpc.authenticate is None else rpc.authenticate
    if not authenticate:
        return False
    why = "rpc.authenticate is true" if rpc.authenticate else exposed
    if not can_authenticate():
        config.fail("rpc.authenticate", f"{why}, and logins cannot be checked: {AUTH_EXTRA}, {_LET_THEM}, {_NOT_THERE}")
    if not config.users and not providers({}, config.manager.name):
        config.fail(
            "user",
            f"is missing, and {why}: add a [[user]] with a name and a password, {_LET_THEM}, {_NOT_THERE}",
        )
    return True
