"""A domain none of whose controllers answers, [MS-MQDMPR] 3.1.7.1.20 and 21: what is read then, and who still asks."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from postroad.directory.domain_copy import Changes, DomainCopy, Stamp
from postroad.directory.ldap_connection import LdapSettings
from postroad.directory.ldap_watch import DomainSettings, LdapWatch
from postroad.directory.objects import QueueManager
from postroad.manager.composition import build_embedded
from postroad.store.memory import MemoryStore
from tests.enterprises import client, guid, link, queue, server, site

SITES = [site("London"), site("Paris")]
LINKS = [link("London", "Paris")]
MANAGERS: list[QueueManager] = [client("alpha", "London"), server("beta", "Paris")]
QUEUES = [queue(r"alpha\orders"), queue(r"beta\orders")]


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[LdapWatch]:
    """It has a copy that was confirmed at second 0, and starts at second 10."""
    copy = DomainCopy()
    copy.apply(Changes(sites=SITES, links=LINKS, managers=MANAGERS, queues=QUEUES))
    file = tmp_path / "copy"
    with socket.socket() as closed:  # nobody else gets this port while it is bound, and it does not listen
        closed.bind(("127.0.0.1", 0))
        url = f"ldaps://127.0.0.1:{closed.getsockname()[1]}"
        copy.confirm(Stamp("DC=corp,DC=local", "CN=dc1", "i", 1, url), 0.0)
        file.write_bytes(b"".join(copy.lines()))
        password = tmp_path / "password"
        password.write_text("secret")
        ldap = LdapSettings(servers=(url,), user="alpha", password_file=password)
        made = LdapWatch(DomainSettings(ldap=ldap, own="alpha", copy_file=file), 10.0)
        yield made
        made.close()


@pytest.mark.spec("DM-3.1.7.1.20-04", "DM-3.1.7.1.21-03")
def test_while_no_controller_answers_the_last_good_copy_does(watch: LdapWatch) -> None:
    found = watch.directory
    assert not watch.online
    assert found.queue(guid(r"beta\orders")) == QUEUES[1]
    assert found.manager(guid("beta")) == MANAGERS[1]
    assert found.site_named("Paris") == SITES[1]
    assert (found.links, found.managers, found.queue(guid("nothing"))) == (tuple(LINKS), tuple(MANAGERS), None)
    assert watch.failures == 1  # nobody has asked for any of it


@pytest.mark.spec("DM-3.1.7.1.20-06")
def test_a_read_that_somebody_asks_for_does_not_wait_for_the_timer(watch: LdapWatch) -> None:
    assert (watch.failures, watch.online_at) == (1, 70.0)
    watch.reload(11.0)
    assert watch.failures == 1
    watch.reload(11.0, asked=True)
    assert (watch.failures, watch.online, watch.online_at) == (2, False, 70.0)
    watch.online = True
    watch.reload(12.0, asked=True)
    assert (watch.failures, watch.online, watch.online_at) == (3, True, 70.0)
    assert watch.last_error is not None
    watch.reload(13.0)
    assert (watch.failures, watch.online, watch.online_at) == (4, False, 73.0)


@pytest.mark.spec("DM-3.1.1.1-06")
def test_a_manager_without_a_directory_is_never_offline() -> None:
    manager = build_embedded("alpha", MemoryStore())
    assert manager.directory_state() is None
