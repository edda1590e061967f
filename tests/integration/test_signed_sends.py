"""Messages that an application signs with its own key: the manager composes exactly what was signed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import postroad
from postroad import Message, Signer
from postroad.errors import CannotSign, InvalidArgument, NotAuthenticated, QueueNotFound
from postroad.names import parse_name
from postroad.security.guard import Protection
from postroad.security.signatures import PROFILES, Profile, Verified, verify
from postroad.wire.view import MessageView
from tests.faces import FACES, opened
from tests.security_vectors import ADVANCED
from tests.served import API, served
from tests.signers import PASSWORD, SID, Files, elliptic_key_file, key_files, pkcs12_file, short_key_files

PUBLIC = UUID(int=77)
OTHER = UUID(int=88)
DESTINATIONS = [
    r"private$\orders",
    r".\private$\orders",
    r"alpha\private$\orders",
    r"ALPHA\Private$\ORDERS",
    r"DIRECT=OS:alpha\private$\orders",
    r"DIRECT=OS:.\private$\orders",
    r"beta\private$\orders",
    r"DIRECT=OS:beta\private$\Orders",
    r"DIRECT=TCP:192.0.2.7\private$\orders",
    "DIRECT=http://beta/msmq/private$/orders",
    rf"PRIVATE={OTHER}\0000000c",
    f"PUBLIC={PUBLIC}",
    r"DIRECT=OS:beta\private$\a,DIRECT=OS:gamma\private$\b",
    rf"DIRECT=OS:gamma\private$\b,PUBLIC={PUBLIC},PRIVATE={OTHER}\0000000c,DIRECT=OS:alpha\private$\orders",
]
PROPERTIES: list[dict[str, Any]] = [
    {},
    {"label": "order 1 \N{SNOWMAN}"},
    {"correlation_id": rf"{{{UUID(int=5)}}}\7"},
    {"ack": "full", "admin_queue": r"private$\replies"},
    {"ack": "reach-queue", "admin_queue": r"DIRECT=OS:beta\private$\acks"},
    {"ack": 0, "admin_queue": r"private$\replies"},
    {"response_queue": r"private$\replies"},
    {"response_queue": r".\private$\replies"},
    {"response_queue": r"gamma\private$\replies"},
    {"response_queue": f"PUBLIC={UUID(int=6)}"},
    {"response_queue": rf"PRIVATE={UUID(int=9)}\00000007"},
    {"response_queue": parse_name(r"DIRECT=OS:delta\private$\x")},
    {"priority": 7},
    {"recoverable": True},
    {"journal": True},
    {"dead_letter": True},
    {"dead_letter_queue": r"private$\replies"},
    {"body_type": 8},
    {"body_type": 0x11},
    {"extension": b"\1\2\3"},
    {"app_tag": 0xFFFFFFFF},
    {"trace": f"PUBLIC={UUID(int=7)}"},
    {"time_to_reach_queue": 60, "time_to_be_received": 90},
    {"connector_type": UUID(int=8), "message_class": 0x0100},
]
ALL = {name: value for each in PROPERTIES for name, value in each.items()}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return key_files(tmp_path_factory.mktemp("keys"), ADVANCED)


@pytest.fixture
def signer(files: Files) -> Signer:
    return Signer.load(files.certificate, files.key)


@pytest.fixture(params=FACES)
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    with opened(request.param, tmp_path / "data") as found:
        for path in ("orders", "replies"):
            found.create_queue(rf"private$\{path}")
        found.create_queue(r"private$\ordered", transactional=True)
        yield found


def sent(manager: Any, ids: list[str]) -> list[bytes]:
    """The packets with these ids, from every queue that can have them, outgoing queues too."""
    names = [each.path for each in manager.queues() if "=" in each.path or each.path.endswith(("orders", "ordered"))]
    found = {str(each.id): each.packet for name in names for each in manager.queue(name).messages()}
    return [found[each] for each in ids]


def verified(packet: bytes, files: Files) -> Verified | None:
    found = verify(packet, files.der)
    return found if isinstance(found, Verified) else None


def assert_verified(manager: Any, files: Files, name: str, message: Message, *, transactional: bool = False) -> None:
    ids = manager.queue(name).send([message], transactional=transactional)
    packets = sent(manager, ids)
    assert len(packets) == name.count(",") + 1
    expected = Verified(5, "3.0", "sha512") if "," in name else Verified(3, "2.0", "sha512")
    assert [verified(packet, files) for packet in packets] == [expected] * len(packets)


@pytest.mark.spec("QB-3.1.7.1.4-01", "QB-3.1.7.1.4-03")
@pytest.mark.parametrize("name", DESTINATIONS)
def test_a_signature_is_right_for_every_kind_of_destination(
    manager: Any, signer: Signer, files: Files, name: str
) -> None:
    assert_verified(manager, files, name, Message("ten boxes", sign=signer))
    assert_verified(manager, files, name, Message("ten boxes", sign=signer, **ALL))


@pytest.mark.parametrize("transactional", [False, True])
def test_a_signature_is_right_with_every_property(
    manager: Any, signer: Signer, files: Files, transactional: bool
) -> None:
    for name in (r"private$\ordered" if transactional else r"private$\orders", rf"PRIVATE={OTHER}\0000000c"):
        for properties in PROPERTIES:
            message = Message("zehn Kästen", sign=signer, **properties)
            assert_verified(manager, files, name, message, transactional=transactional)


def test_a_signature_is_right_with_any_choice_of_properties(manager: Any, signer: Signer, files: Files) -> None:
    choose = random.Random(15)
    for _ in range(40):
        chosen = {name: value for each in choose.sample(PROPERTIES, 6) for name, value in each.items()}
        name = choose.choice(DESTINATIONS)
        bodies: list[str | bytes] = ["", "text", b"\0\1\2", "é" * 5000]
        body = choose.choice(bodies)
        assert_verified(manager, files, name, Message(body, sign=signer, **chosen))


def test_a_batch_and_a_transaction_are_signed_message_by_message(manager: Any, signer: Signer, files: Files) -> None:
    messages = [Message(f"{number}", sign=signer, priority=number % 8) for number in range(20)]
    packets = sent(manager, manager.queue(r"private$\orders").send([*messages, Message("plain"), messages[0]]))
    assert [verified(packet, files) is not None for packet in packets] == [True] * 20 + [False, True]
    with manager.transaction() as transaction:
        ids = manager.queue(r"private$\ordered").send(messages, transaction)
    assert all(verified(packet, files) for packet in sent(manager, ids))


@pytest.mark.spec("QB-3.1.7.1.4-02", "DM-3.1.1.12-19")
def test_the_signature_for_several_destinations_is_in_the_header_of_their_list(
    manager: Any, signer: Signer, files: Files
) -> None:
    packets = sent(manager, manager.queue(DESTINATIONS[-2]).send([Message("x", sign=signer)]))
    for view in map(MessageView, packets):
        assert view.security_header is not None
        assert view.multi_queue_header is not None
        assert view.security_header.signature == b""
        assert view.security_header.sender_certificate == files.der
        assert len(view.multi_queue_header.signature) == 128


def test_a_response_queue_of_one_of_several_destinations_is_refused(manager: Any, signer: Signer) -> None:
    several = rf"DIRECT=OS:beta\private$\a,PRIVATE={OTHER}\0000000c"
    with pytest.raises(CannotSign, match="by a direct name"):
        manager.queue(several).send(Message("x", sign=signer, response_queue=rf"PRIVATE={OTHER}\00000007"))
    assert manager.queue(r"private$\orders").info().messages == 0


@pytest.mark.parametrize(
    ("version", "name", "fault"),
    [
        ("3.0", r"private$\orders", "use version 2.0"),
        ("2.0", r"DIRECT=OS:a\private$\x,DIRECT=OS:b\private$\x", "use version 3.0"),
    ],
)
def test_a_version_that_does_not_fit_the_destinations_is_refused(
    manager: Any, files: Files, version: str, name: str, fault: str
) -> None:
    signer = Signer.load(files.certificate, files.key, version=version)
    with pytest.raises(CannotSign, match=fault):
        manager.queue(name).send(Message("x", sign=signer))


@pytest.mark.parametrize(
    ("version", "hash", "level"), [("2.0", "sha512", 3), ("2.0", "sha256", 3), (None, "sha256", 3)]
)
def test_a_local_queue_says_how_its_message_was_authenticated(
    manager: Any, files: Files, version: str | None, hash: str, level: int
) -> None:
    orders = manager.queue(r"private$\orders")
    orders.send(Message("x", sign=Signer.load(files.certificate, files.key, version=version, hash=hash)))
    message = orders.receive(timeout=5)
    assert (message.authentication_level, message.hash, message.authenticated) == (level, hash, True)
    assert (message.sender_id, message.encrypted, message.cipher) == (None, False, None)
    fields = message.describe()
    assert {
        name: fields[name] for name in ("authentication_level", "hash", "cipher", "authenticated", "sender_id")
    } == {
        "authentication_level": level,
        "hash": hash,
        "cipher": None,
        "authenticated": True,
        "sender_id": None,
    }


def test_version_1_0_is_refused_unless_the_setting_names_it(manager: Any, files: Files) -> None:
    orders = manager.queue(r"private$\orders")
    with pytest.raises(NotAuthenticated, match="version-refused"):
        orders.send(Message("x", sign=Signer.load(files.certificate, files.key, version="1.0")))
    assert orders.info().messages == 0


def test_a_destination_that_does_not_exist_is_reported_before_anything_is_signed(manager: Any, signer: Signer) -> None:
    with pytest.raises(QueueNotFound, match="there is no queue"):
        manager.queue(r"private$\nothing").send(Message("x", sign=signer))


def test_a_submission_cannot_be_signed(manager: Any, signer: Signer) -> None:
    with pytest.raises(InvalidArgument, match="sign"):
        manager.queue(r"private$\orders").submit([Message("x", sign=signer)], "job", 0, 0)


# The question behind it


def test_a_destination_costs_one_more_request_the_first_time(signer: Signer) -> None:
    with served() as api, postroad.connect(f"http://127.0.0.1:{api.server.port}") as client:
        orders = client.create_queue(r"private$\orders")
        asked: list[str] = []
        inner = api.manager.resolve
        api.manager.resolve = lambda *given: asked.append(str(given[0])) or inner(*given)  # type: ignore[method-assign,func-returns-value]
        for _ in range(3):
            orders.send([Message("x", sign=signer), Message("y", sign=signer)])
        assert asked == [r"private$\orders"]


def test_resolving_makes_no_queue(signer: Signer, files: Files) -> None:
    with served() as api:
        question = {"destination": r"beta\private$\orders", "names": [], "certificate_base64": ""}
        answer = api.call("POST", f"{API}/resolve", question)
        assert answer.status == 200
        assert answer.json["destinations"] == [{"name": r"DIRECT=OS:beta\private$\orders", "manager": str(UUID(int=0))}]
        assert (answer.json["signature_profile"], answer.json["sender_id"]) == ("listed", None)
        assert not api.manager.core.queues.outgoing


def test_a_registered_certificate_gives_the_sender(files: Files) -> None:
    signer = Signer.load(files.certificate, files.key)
    with served() as api, postroad.connect(f"http://127.0.0.1:{api.server.port}") as client:
        orders = client.create_queue(r"private$\orders", authenticate=True)
        orders.send(Message("nobody's", sign=signer))
        api.manager.core.protection.certificates[SID] = (files.der,)  # type: ignore[index]
        with postroad.connect(f"http://127.0.0.1:{api.server.port}") as later:
            later.queue(r"private$\orders").send(Message("Ann's", sign=signer))
        assert [each.sender_id for each in orders.messages()] == [None, SID]
        stranger = Signer.load(files.certificate, files.key, sender_id="S-1-5-21-1-2-3-1002")
        with pytest.raises(NotAuthenticated, match="certificate-not-registered"):
            orders.send(Message("a stranger's", sign=stranger))


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_the_client_signs_by_the_profile_of_its_manager(signer: Signer, files: Files, profile: Profile) -> None:
    with served() as api, postroad.connect(f"http://127.0.0.1:{api.server.port}") as client:
        protection = Protection(bytes, profile=profile)
        api.manager.core.protection = api.manager.core.securing.protection = protection
        orders = client.create_queue(r"private$\orders")
        orders.send(Message("x", sign=signer, response_queue=r"private$\orders"))
        assert orders.receive(timeout=5).authentication_level == 3


# Signers


def test_a_key_with_a_password(tmp_path: Path) -> None:
    files = key_files(tmp_path, ADVANCED, "ann", PASSWORD)
    Signer.load(files.certificate, files.key, password=PASSWORD)
    with pytest.raises(CannotSign, match="give its password"):
        Signer.load(files.certificate, files.key)
    with pytest.raises(CannotSign, match="the password is wrong"):
        Signer.load(files.certificate, files.key, password="another")


def test_what_cannot_sign_says_what_to_do(tmp_path: Path) -> None:
    ann, bob, short = key_files(tmp_path), key_files(tmp_path, ADVANCED, "bob"), short_key_files(tmp_path)
    for certificate, key, fault in (
        (tmp_path / "none.pem", ann.key, "none.pem: cannot be read: No such file"),
        (ann.certificate, tmp_path / "none.key", "none.key: cannot be read: No such file"),
        (ann.key, ann.key, "must be an X.509 certificate in PEM or DER, got a private key"),
        (ann.certificate, ann.certificate, "must be an RSA private key in PEM or DER, got a certificate"),
        (pkcs12_file(tmp_path), ann.key, r"must be an X.509 certificate .*, got a PKCS #12 file \(.pfx\): convert it"),
        (ann.certificate, elliptic_key_file(tmp_path), "must be an RSA key, got another kind"),
        (ann.certificate, bob.key, "the key does not belong to the certificate"),
        (short.certificate, short.key, "the key has 512 bits, and at least 1024 are needed"),
    ):
        with pytest.raises(CannotSign, match=fault):
            Signer.load(certificate, key)


@pytest.mark.parametrize("wrong", [{"hash": "sha3"}, {"version": "4.0"}, {"sender_id": "ann"}])
def test_a_wrong_argument_of_a_signer_is_named(tmp_path: Path, wrong: dict[str, str]) -> None:
    files = key_files(tmp_path)
    with pytest.raises(InvalidArgument, match=f"^{next(iter(wrong))}: must be"):
        Signer.load(files.certificate, files.key, **wrong)


def test_files_in_der_do_as_well(tmp_path: Path) -> None:
    files = key_files(tmp_path)
    (tmp_path / "ann.der").write_bytes(files.der)
    assert Signer.load(tmp_path / "ann.der", files.key).certificate == files.der
