"""Programs and commands that log in as a user, and the access lists that they see and change."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import postroad
from postroad import aio
from postroad.errors import AccessDenied, InvalidArgument, PostroadError
from postroad.security.descriptors import Sid
from postroad.security.rights import QUEUE_RIGHT_WORDS
from postroad.security.users import User
from tests.commands import POSTROAD, Outcome
from tests.commands import postroad as command
from tests.faces import FACES, opened
from tests.served import PASSWORD, Served, served

ANN = User("ann", Sid.parse("S-1-5-21-1-2-3-1001"))
BOB = User("bob", Sid.parse("S-1-5-21-1-2-3-1002"))
TOKEN = "the-token-of-this-api"
QUEUE = r"private$\orders"
NO_RIGHT = rf"no right to receive from {QUEUE}: an administrator grants it with `postroad queue acl grant`"
DEFAULT = "O:BAD:(A;;0x20024;;;WD)(A;;0x4;;;AN)(A;;0xf003f;;;BA)"
LOGIN = {"POSTROAD_USER": "ann", "POSTROAD_PASSWORD": PASSWORD}


@pytest.fixture
def api() -> Iterator[Served]:
    with served(token=TOKEN, users=[ANN, BOB]) as running:
        with postroad.connect(running.server.url, token=TOKEN) as manager:
            manager.create_queue(QUEUE)
        yield running


def test_a_program_logs_in(api: Served) -> None:
    with postroad.connect(api.server.url, user="ann", password=PASSWORD) as manager:
        queue = manager.queue(QUEUE)
        queue.send(b"x")
        with pytest.raises(AccessDenied, match="no right to receive from"):
            queue.receive(0)
        with postroad.connect(api.server.url, token=TOKEN) as administrator:
            administrator.queue(QUEUE).grant("ann", "receive")
        assert queue.receive(0).body == b"x"
    with (
        postroad.connect(api.server.url, user="ann", password="wrong") as manager,
        pytest.raises(AccessDenied, match="the user or the password is wrong"),
    ):
        manager.queues()


def test_an_asynchronous_program_logs_in(api: Served) -> None:
    async def run() -> None:
        async with aio.connect(api.server.url, user="ann", password=PASSWORD) as manager:
            await manager.queue(QUEUE).send(b"x")
            with pytest.raises(AccessDenied):
                await manager.queue(QUEUE).purge()

    asyncio.run(run())


def test_what_a_user_locks_can_be_settled_and_transactions_commit(api: Served) -> None:
    with postroad.connect(api.server.url, token=TOKEN) as administrator:
        administrator.queue(QUEUE).grant("ann", "receive")
        exact = administrator.create_queue(r"private$\exact", transactional=True)
        exact.grant("ann", "receive")
    with postroad.connect(api.server.url, user="ann", password=PASSWORD) as manager:
        queue = manager.queue(QUEUE)
        queue.send([b"one"])
        exact = manager.queue(exact.name)
        with queue.receiving(0) as message:
            assert message.body == b"one"
        with manager.transaction() as transaction:
            exact.send(b"two", transaction)
        with manager.transaction() as transaction:
            assert exact.receive(0, transaction).body == b"two"
        with queue.cursor() as cursor, pytest.raises(PostroadError):
            cursor.peek(0)


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"user": "ann"}, "password: is missing"),
        ({"user": "", "password": "x"}, "user: must be the name of a user"),
        ({"user": "a:b", "password": "x"}, "user: must be the name of a user"),
        ({"user": "ann", "password": "x", "token": "y"}, "user: must not be set together with token"),
    ],
)
def test_a_login_that_cannot_be_is_refused_at_once(options: dict[str, Any], fault: str) -> None:
    with pytest.raises(InvalidArgument, match=fault):
        postroad.connect("http://127.0.0.1:1", **options)


@pytest.mark.parametrize("face", FACES)
def test_access_lists_in_python(face: str) -> None:
    with opened(face) as manager:
        manager.create_queue(QUEUE)
        queue = manager.queue(QUEUE)
        assert queue.acl() == DEFAULT
        assert queue.grant(str(ANN.sid), "peek", "write") == f"{DEFAULT}(A;;0x6;;;{ANN.sid})"
        assert queue.revoke(str(ANN.sid), "full") == DEFAULT
        assert queue.deny("anonymous", "write").startswith("O:BAD:(D;;0x4;;;AN)")
        assert queue.set_acl("D:") == "O:BAD:"
        assert queue.set_acl(None) == DEFAULT
        with pytest.raises(PostroadError, match="character 4: must be A or D"):
            queue.set_acl("D:(X;;;;;WD)")


# Commands


def run(api: Served, *arguments: str, **variables: str) -> Outcome:
    return command(*arguments, api=api.server.url, variables=variables)


def test_a_command_logs_in_and_says_what_is_missing(api: Served) -> None:
    assert run(api, "send", QUEUE, "--body", "x", **LOGIN).code == 0
    refused = run(api, "receive", QUEUE, "--timeout", "0", **LOGIN)
    assert (refused.code, refused.last_error) == (1, f"postroad: {NO_RIGHT}")
    system = run(api, "peek", ";deadletter", "--timeout", "0", **LOGIN)  # no command grants this right
    assert system.last_error.endswith(r"the messages of system$;deadletter: only administrators have it")
    assert run(api, "queue", "acl", "grant", QUEUE, "ann", "receive", POSTROAD_TOKEN=TOKEN).code == 0
    assert run(api, "receive", QUEUE, "--timeout", "0", "--user", "ann", POSTROAD_PASSWORD=PASSWORD).code == 0
    assert run(api, "queue", "list", POSTROAD_USER="ann", POSTROAD_PASSWORD="wrong").code == 1
    missing = run(api, "queue", "list", "--user", "ann")
    assert (missing.code, missing.last_error) == (
        2,
        "postroad: --user: the password of ann is missing; set POSTROAD_PASSWORD",
    )


def test_an_option_wins_over_the_environment(api: Served) -> None:
    assert run(api, "status", "--token", TOKEN, **LOGIN).code == 0
    assert run(api, "status", "--user", "ann", POSTROAD_TOKEN=TOKEN, POSTROAD_PASSWORD=PASSWORD).code == 1
    assert run(api, "--user", "ann", "queue", "list", POSTROAD_TOKEN=TOKEN, POSTROAD_PASSWORD=PASSWORD).code == 0
    both = run(api, "status", POSTROAD_TOKEN=TOKEN, **LOGIN)
    assert (both.code, "must not be set together" in both.last_error) == (2, True)


def test_a_person_types_the_password(api: Served) -> None:
    ours, theirs = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("POSTROAD_")}
    environment["POSTROAD_API"] = api.server.url
    process = subprocess.Popen(
        [*POSTROAD, "queue", "list", "--user", "ann"],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
        env=environment,
        start_new_session=True,
    )
    os.close(theirs)
    with closing(os.fdopen(ours, "r+b", buffering=0)) as terminal:
        prompt = b""
        while b"password of ann: " not in prompt:
            prompt += terminal.read(64)
        terminal.write(PASSWORD.encode() + b"\n")
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert QUEUE.encode() in output


def test_the_commands_of_access_lists(api: Served) -> None:
    admin = {"POSTROAD_TOKEN": TOKEN}
    shown = run(api, "queue", "acl", "show", QUEUE, "--json", **admin)
    assert (shown.objects[0]["sddl"], shown.objects[0]["owner"]) == (DEFAULT, "administrators (S-1-5-32-544)")
    assert run(api, "queue", "acl", "show", QUEUE, "--sddl", **admin).lines == [DEFAULT]
    granted = run(api, "queue", "acl", "grant", QUEUE, "everyone", "peek", "purge", **admin)
    assert granted.lines[:3] == [
        "owner: administrators (S-1-5-32-544)",
        "kind   who                            rights",
        "allow  everyone (S-1-1-0)             write, receive, get-properties, get-permissions",
    ]
    denied = run(api, "queue", "acl", "deny", QUEUE, "ann", "write", "--json", **admin)
    assert denied.objects[0]["sddl"].startswith(f"O:BAD:(D;;0x4;;;{ANN.sid})")
    assert denied.objects[0]["entries"][0] == {"kind": "deny", "who": f"ann ({ANN.sid})", "rights": ["write"]}
    run(api, "queue", "acl", "revoke", QUEUE, "ann", "full", **admin)
    only = run(api, "queue", "acl", "set", QUEUE, "--sddl", "D:(A;;0x2;;;WD)", "--json", **admin).objects[0]
    assert only["sddl"] == "O:BAD:(A;;0x2;;;WD)"
    assert only["entries"] == [{"kind": "allow", "who": "everyone (S-1-1-0)", "rights": ["peek"]}]
    assert run(api, "queue", "acl", "set", QUEUE, "--default", "--json", **admin).objects[0]["sddl"] == DEFAULT
    run(api, "queue", "acl", "grant", QUEUE, "ann", "get-permissions", **admin)
    own = run(api, "queue", "acl", "show", QUEUE, **LOGIN)
    assert any(str(ANN.sid) in line for line in own.lines)  # who may not list the users sees their SIDs
    run(api, "queue", "acl", "set", QUEUE, "--default", **admin)


def test_the_commands_of_the_documentation(api: Served) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "who-may-use-a-queue.md").read_text(encoding="utf-8")
    commands = re.findall(r"^postroad (queue acl .*)$", page, re.MULTILINE)
    assert len(commands) == 9
    found = [run(api, *shlex.split(each), "--json", POSTROAD_TOKEN=TOKEN).objects[0]["sddl"] for each in commands[:4]]
    assert found[-1] == f"O:BAD:(D;;0x4;;;AN)(A;;0x20020;;;WD)(A;;0x4;;;AN)(A;;0xf003f;;;BA)(A;;0x3;;;{ANN.sid})"
    run(api, "queue", "acl", "set", QUEUE, "--default", POSTROAD_TOKEN=TOKEN)
    found = [run(api, *shlex.split(each), "--json", POSTROAD_TOKEN=TOKEN).objects[0]["sddl"] for each in commands[4:]]
    assert found[-1] == f"O:BAD:(A;;0x20020;;;WD)(A;;0xf003f;;;BA)(A;;0x4;;;{ANN.sid})(A;;0x3;;;{BOB.sid})"
    words = re.findall(r"`([a-z-]+)`", page[page.index("| right |") : page.index("A queue of the configuration")])
    assert set(words) == set(QUEUE_RIGHT_WORDS)


@pytest.mark.parametrize(
    ("arguments", "code", "fault"),
    [
        (("set", QUEUE), 2, "use one of --sddl and --default"),
        (("set", QUEUE, "--sddl", "D:(A;;fly;;;WD)"), 2, "character 7"),
        (("grant", QUEUE, "ann"), 2, "RIGHT"),
        (("grant", QUEUE, "ann", "fly"), 2, "right must be one of write, peek"),
        (("grant", QUEUE, "nobody", "peek"), 2, "who must be everyone, anonymous"),
        (("show", r"private$\nowhere"), 1, "there is no queue"),
    ],
)
def test_a_command_that_cannot_be_done_says_why(api: Served, arguments: tuple[str, ...], code: int, fault: str) -> None:
    refused = run(api, "queue", "acl", *arguments, POSTROAD_TOKEN=TOKEN)
    assert refused.code == code
    assert fault in refused.errors
