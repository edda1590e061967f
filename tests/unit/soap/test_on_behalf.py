"""What a manager writes because of a message by HTTP goes only to queues that the message's sender could write to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from postroad.security.relay import ANY_HOST
from postroad.soap.elements import DeliveryReceiptRequest, Services
from tests.unit.soap.network import ACKS, DEADLETTER, ORDERS, Network, Station, stranger_message


def closed(station: Station, path: str, how: str) -> None:
    words: dict[str, dict[str, object]] = {
        "open": {},
        "list": {"acl": "O:BAD:(A;;0x4;;;BA)"},
        "signature": {"authenticate": True},
        "encryption": {"privacy": "body"},
        "quota": {"quota_kb": 0},
    }
    station.core.change_queue(station.queue(path), station.network.now, **words[how])
    station.network.run()


@pytest.mark.parametrize("how", ["open", "list", "signature", "encryption", "quota"])
def test_a_delivery_receipt_comes_only_where_its_cause_could_write(network: Network, beta: Station, how: str) -> None:
    closed(beta, ACKS, how)
    asked = Services(False, DeliveryReceiptRequest(beta.url(ACKS)))
    envelope = replace(stranger_message(beta.url(ORDERS)), services=asked)
    assert beta.ask(envelope) == 200
    assert len(beta.labels(ORDERS)) == 1
    assert len(beta.labels(ACKS)) == (how == "open")
    assert beta.core.delivery.tally.unwritten == (how != "open")


@pytest.mark.parametrize("known", [False, True])
def test_a_refused_message_of_a_stranger_leaves_no_dead_letter(network: Network, beta: Station, known: bool) -> None:
    closed(beta, ORDERS, "signature")
    beta.use(relay=(ANY_HOST,) if known else ())
    assert beta.ask(stranger_message(beta.url(ORDERS), dead_letter=True)) == 200
    assert (beta.labels(ORDERS), len(beta.labels(DEADLETTER))) == ([], int(known))
    assert sum(beta.core.delivery.tally.refused.values()) == 1
