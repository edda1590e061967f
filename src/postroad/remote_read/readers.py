"""What a manager asks about its remote readers. It works without a listener for them too."""

from __future__ import annotations

from postroad.config import Configuration
from postroad.reports.info import LockInfo, ReaderInfo
from postroad.rpc.gss import AUTH_EXTRA, can_authenticate


class RemoteReaders:
    """The remote readers. This one has none: it stands in where there is no listener."""

    def readers(self) -> list[ReaderInfo]:
        return []

    def locks(self, now: float) -> list[LockInfo]:
        """Messages that readers have locked and not acknowledged."""
        return []

    @property
    def settled(self) -> tuple[int, int]:
        """Messages that readers have acknowledged, and messages that went back."""
        return 0, 0


# Whether remote readers must log in. This follows from the configuration. Settings that would by accident let strangers
# read, or let nobody read, are refused.


_TURN_OFF = "or set listen.rpc = false"
_ALLOW_ALL = "set rpc.anonymous = true to let everybody read and purge"


def readers_log_in(config: Configuration, reachable: bool) -> bool:
    """Whether remote readers must log in. `reachable` means that other computers can reach the listener. Raises
    ConfigurationError, which says what to set."""
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
    if not config.users and rpc.keytab is None:
        config.fail(
            "user",
            f"is missing, and {why}: add a [[user]] with a name and a password, set rpc.keytab for Kerberos, "
            f"{_ALLOW_ALL}, {_TURN_OFF}",
        )
    return True
