"""Signed messages through the HTTP API: the fields of a message, what is refused, and who counts as authenticated."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

import pytest

from postroad.message import Composer, Message
from postroad.names import parse_format_name
from postroad.security.signatures import signature_of
from postroad.wire.view import MessageView
from tests.security_vectors import ADVANCED, certificate_of
from tests.served import API, ORDERS, Served, served

CERTIFICATE = certificate_of(ADVANCED)


@pytest.fixture
def api() -> Iterator[Served]:
    with served() as running:
        running.create()
        yield running


def signature(api: Served, body: str, version: str = "2.0", hash: str = "sha512") -> str:
    """A signature made from what `resolve` returns, as a program in any language makes it."""
    answer = api.call("POST", f"{API}/resolve", {"destination": "private$/orders"}).json
    composer = Composer(UUID(answer["manager"]), parse_format_name(answer["destinations"][0]["name"]))
    packet = composer.compose(Message(body), 1, 0)
    return b64encode(signature_of(MessageView(packet), ADVANCED, version, hash)).decode()


def signed(api: Served, body: str, **changed: object) -> dict[str, Any]:
    return {
        "body": body,
        "signature_base64": signature(api, "ten boxes"),
        "certificate_base64": b64encode(CERTIFICATE).decode(),
        **changed,
    }


@pytest.mark.spec("QB-3.1.7.1.4-01", "QB-3.1.7.1.4-03")
def test_a_signature_of_the_callers_own_key_is_verified(api: Served) -> None:
    assert api.call("POST", f"{ORDERS}/messages", signed(api, "ten boxes")).status == 201
    (found,) = api.call("GET", f"{ORDERS}/messages").json["messages"]
    assert {name: found[name] for name in ("authentication_level", "hash", "cipher", "authenticated", "sender_id")} == {
        "authentication_level": 3,
        "hash": "sha512",
        "cipher": None,
        "authenticated": True,
        "sender_id": None,
    }


def test_the_fields_of_a_signature_go_in_the_url_of_a_raw_body(api: Served) -> None:
    fields = signed(api, "")
    del fields["body"]
    answer = api.call("POST", f"{ORDERS}/messages?{urlencode(fields)}", body=b"ten boxes")
    assert answer.status == 201
    (found,) = api.call("GET", f"{ORDERS}/messages").json["messages"]
    assert found["authentication_level"] == 3


@pytest.mark.parametrize("authenticate", [False, True])
def test_a_wrong_signature_is_refused_by_every_queue(api: Served, authenticate: bool) -> None:
    api.call("PATCH", ORDERS, {"authenticate": authenticate})
    for fields in (
        signed(api, "ten more boxes"),
        signed(api, "ten boxes", label="changed"),
        signed(api, "ten boxes", signature_version="3.0"),
        signed(api, "ten boxes", hash="sha256"),
        signed(api, "ten boxes", hash="sha1"),
        signed(api, "ten boxes", certificate_base64=b64encode(b"no certificate").decode()),
        signed(api, "ten boxes", sender_id="S-1-5-21-1-2-3-1001"),
    ):
        answer = api.call("POST", f"{ORDERS}/messages", fields)
        assert answer.status in (400, 401)
        assert answer.json["detail"]
    assert api.bodies() == []
    assert api.call("POST", f"{ORDERS}/messages", signed(api, "ten boxes")).status == 201


def test_a_queue_that_authenticates_marks_what_an_administrator_sends(api: Served) -> None:
    api.call("PATCH", ORDERS, {"authenticate": True})
    assert api.call("POST", f"{ORDERS}/messages", {"body": "unsigned"}).status == 201
    (found,) = api.call("GET", f"{ORDERS}/messages").json["messages"]
    assert (found["authentication_level"], found["authenticated"], found["hash"]) == (1, True, None)


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"signature_base64": "AA=="}, "certificate_base64: is missing; a signed message needs it"),
        ({"certificate_base64": "AA=="}, "signature_base64: is missing; a signed message needs it"),
        ({"sender_id": "S-1-5-18"}, "signature_base64: is missing; a signed message needs it"),
        ({"hash": "sha3"}, "hash: must be one of sha512, sha256, sha1, md5, md4, md2"),
        ({"signature_version": "4.0"}, "signature_version: must be one of 1.0, 2.0, 3.0"),
        ({"encrypt": "des"}, "encrypt: must be one of aes256, aes192, aes128, rc4, rc2"),
        ({"sender_id": "ann"}, "sender_id: "),
    ],
)
def test_a_wrong_field_is_named(api: Served, fields: dict[str, str], fault: str) -> None:
    for place, value in (("", {"body": "x", **fields}), ("messages[0].", {"messages": [fields]})):
        answer = api.call("POST", f"{ORDERS}/messages", value)
        assert answer.status == 400
        assert answer.json["detail"].startswith(f"{place}{fault}")
    assert api.bodies() == []


def test_what_cannot_be_encrypted_is_a_conflict_and_not_sent(api: Served) -> None:
    other = f"{API}/queues/DIRECT%3DOS%3Abeta%5Cprivate%24%5Corders"
    answer = api.call("POST", f"{other}/messages", {"body": "x", "encrypt": ""})
    assert answer.status == 409
    assert "send to the queue's public or private format name" in answer.json["detail"]
    assert api.call("GET", f"{other}/messages").json.get("messages", []) == []


def test_the_description_has_the_fields(api: Served) -> None:
    schemas = api.call("GET", f"{API}/openapi.json").json["components"]["schemas"]
    sent = {"signature_base64", "certificate_base64", "hash", "signature_version", "sender_id", "encrypt"}
    assert sent <= schemas["NewMessage"]["properties"].keys()
    assert {"authentication_level", "hash", "cipher"} <= set(schemas["Message"]["required"])
    assert set(schemas["Resolution"]["properties"]) == {
        "manager",
        "signature_profile",
        "destinations",
        "names",
        "sender_id",
    }


@pytest.mark.parametrize(
    ("question", "status"),
    [
        ({}, 400),
        ({"destination": "private$/nothing"}, 404),
        ({"destination": "private$/orders", "names": ["private$/nothing"]}, 404),
        ({"destination": ";deadletter"}, 400),
        ({"destination": "private$/orders", "names": ["private$/orders"] * 17}, 400),
    ],
)
def test_a_question_that_has_no_answer(api: Served, question: dict[str, object], status: int) -> None:
    assert api.call("POST", f"{API}/resolve", question).status == status


def test_names_are_resolved_in_their_order(api: Served) -> None:
    names = [r"beta\private$\x", "private$/orders", "PUBLIC=00000000-0000-0000-0000-000000000005"]
    answer = api.call("POST", f"{API}/resolve", {"destination": "private$/orders", "names": names}).json
    direct, private, public = answer["names"]
    assert direct == r"DIRECT=OS:beta\private$\x"
    assert private.startswith(f"PRIVATE={answer['manager']}")
    assert public == names[2]
    assert answer["destinations"][0]["name"] == r"DIRECT=OS:alpha\private$\orders"
