"""What a queue manager posts, as seen on the way: [MC-MQSRM] 2.2, from the sender's side."""

from __future__ import annotations

import pytest

from postroad.errors import MessageTooLarge, PostroadError
from postroad.message import Message
from postroad.soap.elements import StreamReceipt
from tests.unit.soap.network import ACKS, LEDGER, ORDERS, Network, Station


@pytest.mark.spec("SRM-2.2.6-01", "SRM-6-16")
def test_msmq_is_in_every_kind_of_message(network: Network, alpha: Station, beta: Station) -> None:
    admin = alpha.direct(ACKS)
    for recoverable in (False, True):
        alpha.send(beta.direct(ORDERS), Message(b"x", recoverable=recoverable, ack="full", admin_queue=admin))
    alpha.send_transactional(beta.direct(LEDGER), Message(b"x", dead_letter=True))
    beta.receive(ORDERS)
    beta.receive(LEDGER)
    network.wait(60)
    envelopes = [exchange.envelope for exchange in network.exchanges]
    assert all(envelope.msmq is not None for envelope in envelopes)
    assert {(each.services is not None and each.services.durable) for each in envelopes} == {False, True}
    for kind in ("stream", "delivery_receipt", "commitment_receipt", "stream_receipt"):
        assert any(getattr(envelope, kind) is not None for envelope in envelopes), kind
    assert network.final_receipts("beta")


@pytest.mark.spec("SRM-2.2.4.3-04", "SRM-2.2.4.3-05")
def test_no_id_comes_twice(network: Network, alpha: Station, beta: Station) -> None:
    alpha.send(beta.direct(ORDERS), *map(str, range(20)))
    alpha.restart()
    alpha.send(beta.direct(ORDERS), *map(str, range(20)))
    alpha.send_transactional(beta.direct(LEDGER), *map(str, range(20)))
    posts = network.user_posts("alpha")
    assert len(posts) == len({post.envelope.path.id for post in posts}) == 60
    for post in posts:
        assert post.envelope.path.id.endswith(f"@{alpha.identifier}")
        assert post.envelope.msmq is not None
        assert post.envelope.msmq.source_qm_guid == alpha.identifier
    assert sorted(view.message_id for view in beta.messages(ORDERS)) == sorted(
        int(post.envelope.path.id.removeprefix("uuid:").partition("@")[0]) for post in posts[:40]
    )


@pytest.mark.spec("SRM-2.2.5.3.1-04", "SRM-2.2.5.3.2-02", "SRM-2.2.5.3.4-03", "SRM-2.2.5.3.4-04", "SRM-2.2.5.2.1-02")
def test_a_stream_starts_with_its_first_message(network: Network, alpha: Station, beta: Station) -> None:
    alpha.send_transactional(beta.direct(LEDGER), *"abc")
    posts = network.user_posts("alpha")
    assert [post.stream.current for post in posts] == [1, 2, 3]
    assert {post.stream.stream_id.guid for post in posts} == {alpha.identifier}
    assert len({post.stream.stream_id for post in posts}) == 1
    assert posts[0].stream.send_receipts_to == "http://alpha/MSMQ/PRIVATE$/order_queue$"
    assert [post.stream.send_receipts_to for post in posts[1:]] == [None, None]
    assert all(post.envelope.services is not None and post.envelope.services.durable for post in posts)


@pytest.mark.spec("SRM-2.2.5.6-01", "SRM-2.2.5.6-02", "SRM-2.2.5.6-03", "SRM-2.2.5.6-04")
def test_a_stream_receipt_releases_what_it_names(network: Network, alpha: Station, beta: Station) -> None:
    there = beta.direct(LEDGER)
    alpha.send_transactional(there, *"abc")
    assert alpha.waiting(there) == ["a", "b", "c"]
    network.wait(1)
    (receipt,) = network.stream_receipts("beta")
    stream_id = network.user_posts("alpha")[0].stream.stream_id
    assert receipt.envelope.stream_receipt == StreamReceipt(stream_id, 3)
    assert alpha.waiting(there) == []


@pytest.mark.spec("SRM-1.6-01")
def test_what_is_too_large_is_refused_here(network: Network, alpha: Station, beta: Station) -> None:
    with pytest.raises(MessageTooLarge):
        alpha.send(beta.direct(ORDERS), Message(bytes(4 * 1024 * 1024 + 1)))
    with pytest.raises(PostroadError):  # nothing is sent to groups, whatever its size
        alpha.send("MULTICAST=234.1.1.1:8001", Message(bytes(64 * 1024 + 1)))
    assert network.exchanges == []
