"""The enterprise file as a directory: names become identifiers, and nothing is lost."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from postroad.directory.file import (
    SITE_NAMESPACE,
    Enterprise,
    derived_site_id,
    format_enterprise,
    load_enterprise,
    read_directory,
)
from postroad.directory.review import review
from postroad.directory.snapshot import Directory
from postroad.errors import ConfigurationError
from postroad.routing import Routes
from postroad.security.access import Token, allowed
from postroad.security.descriptors import SecurityDescriptor
from postroad.security.rights import QueueRight

GATE, ALPHA, ORDERS = (UUID(f"0000000{number}-0000-4000-8000-000000000000") for number in range(3))
FILE = Path("enterprise.toml")
TEXT = rf"""
[[site]]
name = "London"
gates = ["alpha"]
[[site]]
name = "paris"
id = "{ORDERS}"
[[link]]
sites = ["london", "PARIS"]
cost = 3
gates = ["GATE"]
[[link]]
sites = ["paris", "london"]
[[manager]]
name = "gate"
id = "{GATE}"
address = "127.0.0.2"
sites = ["london", "paris"]
routing_server = true
[[manager]]
name = "Alpha"
id = "{ALPHA}"
sites = ["london"]
in_routing_servers = ["gate"]
out_routing_servers = ["Gate"]
[[queue]]
path = 'ALPHA\orders'
id = "{ORDERS}"
"""


def read(text: str) -> Directory:
    return read_directory(load_enterprise(FILE, text.encode()))


def test_the_file_as_a_directory() -> None:
    found = read(TEXT)
    london, paris = found.sites
    assert (london.identifier, london.name) == (derived_site_id("london"), "London")
    assert (paris.identifier, london.site_gate_identifier_list) == (ORDERS, (ALPHA,))
    one, other = found.links
    assert (one.site1_identifier, one.site2_identifier, one.actual_cost) == (london.identifier, ORDERS, 3)
    assert one.site_gate_identifier_list == (GATE,)
    assert (other.actual_cost, other.identifier != one.identifier) == (1, True)
    gate, alpha = found.managers
    assert (gate.identifier, gate.computer_name, gate.host) == (GATE, "gate", "127.0.0.2")
    assert (gate.site_identifier_list, gate.routing_server) == ((london.identifier, ORDERS), True)
    assert (alpha.host, alpha.routing_server) == ("Alpha", False)
    assert (alpha.in_routing_server_identifier_list, alpha.out_routing_server_identifier_list) == ((GATE,), (GATE,))
    (orders,) = found.queues
    assert (str(orders.pathname), orders.identifier, orders.queue_manager_identifier) == (
        r"ALPHA\orders",
        ORDERS,
        ALPHA,
    )


def test_an_empty_file_is_an_empty_directory() -> None:
    found = read("")
    assert (found.sites, found.links, found.managers, found.queues) == ((), (), (), ())
    assert read_directory(Enterprise()).managers == ()


@pytest.mark.parametrize(
    ("name", "identifier"),
    [
        ("london", "e73dc2c9-d182-5817-888a-fb4b6c8722ab"),
        ("LONDON", "e73dc2c9-d182-5817-888a-fb4b6c8722ab"),
        ("paris", "81c40202-142b-5148-bcef-bf30ff63ae47"),
    ],
)
def test_a_site_without_an_id_has_the_same_one_on_every_machine(name: str, identifier: str) -> None:
    (site,) = read(f'[[site]]\nname = "{name}"\n').sites
    assert str(site.identifier) == identifier


def test_the_example_of_the_reference_is_sound() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "enterprise.md").read_text(encoding="utf-8")
    example = page.partition("```toml\n")[2].partition("```")[0]
    found = read(example)
    assert review(found) == ()
    assert Routes(found).route("alpha", "par-gate").path == ("alpha", "lon-gate", "par-gate")
    assert str(SITE_NAMESPACE) in page
    assert str(derived_site_id("london")) in page


@pytest.mark.spec("DM-3.1.1.7-01")
def test_a_site_that_is_there_twice_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"site\[2\]\.name: must be unique, but site\[1\] has London too"):
        read('[[site]]\nname = "london"\n[[site]]\nname = "London"\n')


@pytest.mark.spec("BR-3.1.1.1-01", "DM-3.1.1.8-01")
@pytest.mark.parametrize("cost", ["0", "1000000", "1.5", '"3"'])
def test_a_cost_that_no_link_can_have_is_refused(cost: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(TEXT.replace("cost = 3", f"cost = {cost}"))
    assert caught.value.key == "link[1].cost"


def test_an_access_list_comes_back_from_an_export() -> None:
    found = read(f'{TEXT}acl = "O:BAD:(D;;0x4;;;AN)(A;;GW;;;WD)"\n')
    (queue,) = found.queues
    security = SecurityDescriptor.decode(queue.security)
    assert allowed(security, Token.everyone(), QueueRight.WRITE_MESSAGE.value)
    assert not allowed(security, Token.anonymous(), QueueRight.WRITE_MESSAGE.value)
    assert not allowed(security, Token.everyone(), QueueRight.PEEK_MESSAGE.value)
    again = read(format_enterprise(found, {queue.identifier: queue.security}))
    assert again.queues == found.queues
    assert read(format_enterprise(found)).queues[0].security == b""


def test_an_access_list_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"queue\[1\]\.acl"):
        read(f'{TEXT}acl = "everybody"\n')
