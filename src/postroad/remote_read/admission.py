"""Whether remote readers must log in, from the configuration. Refuses settings that would by accident let strangers
read, or let no one read."""

from __future__ import annotations

from postroad.config import Configuration
from postroad.rpc.providers import AUTH_EXTRA, can_authenticate, providers

_TURN_OFF = "or set listen.rpc = false"
_ALLOW_ALL = "set rpc.anonymous = true to let everybody read and purge"


def readers_log_in(config: Configuration, reachable: bool) -> bool:
    """`reachable` says that other computers can reach the listener. ConfigurationError says what to set."""
    rpc = config.rpc
    if config.listen.rpc is None:
        return False
    exposed = f"other computers can reach listen.rpc on {config.listen.host}"
    if rpc.authenticate and rpc.anonymous:
        config.fail("rpc.anonymous", "must not be true together with rpc.authenticate")
    if rpc.authenticate is False and reachable and not rpc.anonymous:
        config.fail(
            "rpc.authenticate",
            f"must not be false, because {exposed}: remove it and add a [[user]], {_ALLOW_ALL}, {_TURN_OFF}",
        )
    authenticate = reachable and not rpc.anonymous if rpc.authenticate is None else rpc.authenticate
    if not authenticate:
        return False
    why = "rpc.authenticate is true" if rpc.authenticate else exposed
    if not can_authenticate():
        config.fail("rpc.authenticate", f"{why}, but logins cannot be checked: {AUTH_EXTRA}, {_ALLOW_ALL}, {_TURN_OFF}")
    if not config.users and not providers({}, config.manager.name):
        config.fail(
            "user", f"is missing, and {why}: add a [[user]] with a name and a password, {_ALLOW_ALL}, {_TURN_OFF}"
        )
    return True
