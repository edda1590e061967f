"""What every manager is built from: its defaults are those of the configuration, wherever it is built."""

from __future__ import annotations

from uuid import UUID

import pytest

from postroad.binary.session import BinarySettings
from postroad.config import default_configuration
from postroad.manager import build_embedded, build_manager
from postroad.manager.composition import core_settings
from postroad.net.limits import Limits
from postroad.queues.core_settings import CoreSettings
from postroad.server.listeners import binary_settings, soap_settings
from postroad.soap.settings import SoapSettings
from postroad.store import MemoryStore

CONFIG = default_configuration("alpha")


def test_the_defaults_of_the_protocols_are_those_of_the_configuration() -> None:
    remote_managers = CONFIG.limits.remote_managers
    assert binary_settings(CONFIG.binary, remote_managers) == BinarySettings()
    assert soap_settings(CONFIG.srmp, remote_managers, CONFIG.security.accept_hashes) == SoapSettings()


def test_the_defaults_of_a_core_are_those_of_the_configuration() -> None:
    found = core_settings(CONFIG, UUID(int=1))
    expected = CoreSettings()
    for name in CoreSettings.__slots__:
        if name != "users":
            assert getattr(found, name) == getattr(expected, name), name
    assert list(found.users) == list(expected.users) == []


def test_the_limits_are_those_of_the_configuration() -> None:
    manager = build_manager(CONFIG, MemoryStore())
    assert {each.name: each.maximum for each in manager.limits.all} == {
        each.name: each.maximum for each in Limits().all
    }


@pytest.mark.parametrize("host", ["far", "10.0.0.9"])
def test_strangers_make_a_manager_call_nobody(host: str) -> None:
    manager = build_manager(CONFIG, MemoryStore())
    assert not manager.core.delivery.relay.allows(host)


def test_two_managers_give_ids_that_nobody_can_guess() -> None:
    found = {build_manager(CONFIG, MemoryStore()).core.counters.take_message_ids(1) for _ in range(4)}
    assert len(found) > 1


def test_a_manager_in_a_program_has_no_quota_but_its_disk() -> None:
    assert build_embedded("alpha", MemoryStore()).core.settings.quota_kb is None
