"""Access lists by the HTTP API: shown, replaced, edited, kept over a restart, and who may do that."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from postroad.security.descriptors import Sid
from postroad.security.users import User
from postroad.store import open_store
from tests.served import API, ORDERS, Served, basic, served

ANN = User("ann", Sid.parse("S-1-5-21-1-2-3-1001"))
BOB = User("bob", Sid.parse("S-1-5-21-1-2-3-1002"))
DEFAULT = "O:BAD:(A;;0x20024;;;WD)(A;;0x4;;;AN)(A;;0xf003f;;;BA)"
ACL = f"{ORDERS}/acl"


@pytest.fixture
def api() -> Iterator[Served]:
    with served(users=[ANN, BOB]) as running:
        running.create()
        yield running


def edit(api: Served, word: str, who: str, *rights: str) -> str:
    answer = api.call("POST", ACL, {word: {"who": who, "rights": list(rights)}})
    assert answer.status == 200, answer.json
    return str(answer.json["sddl"])


@pytest.mark.spec("DM-3.1.7.1.33-01")
def test_a_new_queue_has_the_default_list(api: Served) -> None:
    assert api.call("GET", ACL).json == {"sddl": DEFAULT}


@pytest.mark.spec("DM-3.1.7.1.3.1-02")
def test_a_list_replaces_the_one_before(api: Served) -> None:
    given = f"O:{ANN.sid}D:(D;;0x4;;;AN)(A;;0x2;;;WD)"
    assert api.call("PATCH", ACL, {"sddl": given}).json == {"sddl": given}
    assert api.call("GET", ACL).json == {"sddl": given}
    assert api.call("PATCH", ACL, {"sddl": "D:(A;;GA;;;WD)"}).json["sddl"] == f"O:{ANN.sid}D:(A;;0xf003f;;;WD)"
    assert api.call("PATCH", ACL, {"sddl": "O:BA"}).json["sddl"] == "O:BA"  # no list: everybody may do everything
    assert api.call("GET", f"{ORDERS}/messages", headers=basic("bob")).status == 200
    assert api.call("PATCH", ACL, {"sddl": None}).json == {"sddl": DEFAULT}
    assert api.call("GET", f"{ORDERS}/messages", headers=basic("bob")).status == 403


def test_rights_are_granted_denied_and_revoked(api: Served) -> None:
    assert edit(api, "grant", "ann", "receive") == f"{DEFAULT}(A;;0x3;;;{ANN.sid})"
    assert edit(api, "deny", str(BOB.sid), "write", "peek") == (
        DEFAULT.replace("D:", f"D:(D;;0x6;;;{BOB.sid})") + f"(A;;0x3;;;{ANN.sid})"
    )
    assert api.call("GET", f"{ORDERS}/messages", headers=basic("ann")).status == 200
    assert api.call("POST", f"{ORDERS}/messages", {"body": "x"}, headers=basic("bob")).status == 403
    edit(api, "revoke", "bob", "full")
    assert edit(api, "revoke", "ann", "full") == DEFAULT
    assert edit(api, "revoke", "Everyone", "write") == DEFAULT.replace("0x20024", "0x20020")
    assert "AN" not in edit(api, "revoke", "anonymous", "write")


@pytest.mark.parametrize(
    ("method", "body", "fault"),
    [
        ("PATCH", {}, "sddl: is missing"),
        ("PATCH", {"sddl": 5}, "sddl: must be text, or null, got the number 5"),
        ("PATCH", {"sddl": "D:(A;;0x4;;;QQ)"}, "character 13: must be a SID"),
        ("PATCH", {"sddl": "D:(A;;0x4;;;S-1-5-99999999999)"}, "character 13: a SID must be"),
        ("PATCH", {"sddl": "x" * 70_000}, "sddl: must have at most 65535 characters"),
        ("PATCH", {"grant": {}}, "grant: there is no such property"),
        ("POST", {}, "body: must have one of grant, deny, revoke, got none"),
        ("POST", {"grant": []}, "grant: must be an object with who and rights"),
        ("POST", {"grant": {"who": "ann"}}, "rights: is missing"),
        ("POST", {"grant": {"who": "", "rights": ["peek"]}}, "who: must not be empty"),
        ("POST", {"grant": {"who": "ann", "rights": []}}, "rights: must have at least 1 item"),
        ("POST", {"grant": {"who": "ann", "rights": ["fly"]}}, "right must be one of write, peek"),
        ("POST", {"grant": {"who": "nobody", "rights": ["peek"]}}, "who must be everyone, anonymous, the name of"),
    ],
)
def test_what_is_wrong_is_named(api: Served, method: str, body: object, fault: str) -> None:
    refused = api.call(method, ACL, body)
    assert refused.status == 400
    assert fault in refused.json["detail"]
    assert api.call("GET", ACL).json == {"sddl": DEFAULT}


def test_the_list_is_no_property_that_set_properties_can_change(api: Served) -> None:
    assert api.call("PATCH", ORDERS, {"acl": "O:BA"}).status == 400
    assert api.call("POST", f"{API}/queues", {"path": "private$/new", "acl": "O:BA"}).status == 400


def test_only_administrators_give_a_queue_away(api: Served) -> None:
    api.call("PATCH", ACL, {"sddl": f"O:BAD:(A;;0xf003f;;;{ANN.sid})(A;;0x60000;;;{BOB.sid})"})
    mine = f"D:(A;;0xf003f;;;{ANN.sid})"
    for who, owner, status in (
        ("bob", f"O:{BOB.sid}", 403),  # without take-ownership
        ("ann", f"O:{BOB.sid}", 403),
        ("ann", "O:AN", 403),
        ("ann", f"O:{ANN.sid}", 200),
        ("ann", "", 200),
    ):
        assert api.call("PATCH", ACL, {"sddl": f"{owner}{mine}"}, headers=basic(who)).status == status
    assert api.call("GET", ACL).json["sddl"] == f"O:{ANN.sid}{mine}"
    assert api.call("PATCH", ACL, {"sddl": None}, headers=basic("ann")).status == 403  # it would be BA's again


def test_an_owner_can_always_repair_the_list(api: Served) -> None:
    api.call("PATCH", ACL, {"sddl": f"O:{ANN.sid}D:"})
    assert api.call("GET", f"{ORDERS}/messages", headers=basic("ann")).status == 403
    grant = {"grant": {"who": "ann", "rights": ["full"]}}
    assert api.call("POST", ACL, grant, headers=basic("bob")).status == 403
    assert api.call("POST", ACL, grant, headers=basic("ann")).status == 200
    assert api.call("GET", f"{ORDERS}/messages", headers=basic("ann")).status == 200


def test_changes_survive_a_restart_and_are_audited(tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    with served(open_store(tmp_path / "data"), users=[ANN], audit=audit) as api:
        api.create()
        changed = edit(api, "grant", "ann", "peek")
        assert api.call("PATCH", ACL, {"sddl": "D:("}, headers=basic("ann")).status == 403
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    made, granted, refused = lines
    assert made["what"] == "create queue"
    assert (granted["what"], granted["grant"], granted["rights"]) == ("change access", "ann", "peek")
    assert (granted["queue"], granted["outcome"], granted["who"]) == (r"private$\orders", "done", "local")
    assert (refused["what"], refused["who"]) == ("change access", "ann")
    assert refused["outcome"].startswith("no right to change the access list of")
    with served(open_store(tmp_path / "data"), users=[ANN]) as api:
        assert api.call("GET", ACL).json == {"sddl": changed}
        assert api.call("GET", f"{ORDERS}/messages", headers=basic("ann")).status == 200


def test_a_stored_list_that_cannot_be_read_leaves_the_queue_to_administrators(api: Served) -> None:
    """Another version may have written it. An administrator replaces it like any other."""
    queue = api.manager.core.queues.get(r"private$\orders")
    queue.properties = replace(queue.properties, acl="D:(QA;;0xf003f;;;WD)")
    for method, path in (("POST", f"{ORDERS}/messages"), ("GET", f"{ORDERS}/messages"), ("GET", ACL)):
        assert api.call(method, path, {"body": "x"}, headers=basic("ann")).status == 403
    listed = api.call("GET", f"{API}/queues", headers=basic("ann")).json["queues"]
    assert r"private$\orders" not in [each["path"] for each in listed]
    assert api.call("POST", f"{ORDERS}/messages", {"body": "x"}).status == 201
    assert api.call("GET", ACL).json == {"sddl": "O:BAD:"}
    assert edit(api, "grant", "ann", "write") == f"O:BAD:(A;;0x4;;;{ANN.sid})"
    assert api.call("POST", f"{ORDERS}/messages", {"body": "x"}, headers=basic("ann")).status == 201
