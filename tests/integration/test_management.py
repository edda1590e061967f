"""Management by MS-MQMR between real servers: impacket, our own client and the command ask; messages move and stop."""

from __future__ import annotations

import asyncio
import json
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from impacket.dcerpc.v5 import rpcrt, transport
from impacket.dcerpc.v5.rpcrt import DCERPCException
from impacket.uuid import uuidtup_to_bin

import postroad as client
from postroad.errors import AccessDenied, InterfaceNotOffered, NoMessage, PostroadError, QueueNotFound
from postroad.names import QueueFormat, parse_format_name
from postroad.remote_read.qmcomm import queue_format_structure
from postroad.remote_read.qmmgmt import (
    ACTION,
    GET_INFO,
    MACHINE,
    QMMGMT,
    ActionIn,
    GetInfoIn,
    GetInfoOut,
    MgmtObject,
    MgmtObjectType,
    PropVariant,
    QueueProperty,
    VarType,
    get_info_of,
    python_value,
)
from postroad.remote_read.structures import Result
from postroad.rpc.client import connect
from postroad.rpc.gss import initiator
from postroad.rpc.ndr import Format
from tests.commands import PATIENCE_S, ServerProcess, postroad

ALPHA, BETA, DEAD = "127.0.75.11", "127.0.75.12", "127.0.75.99"
PORT, WORD = 18077, "correct horse"
ACCESS_DENIED, NOT_FOUND, INVALID, ILLEGAL_PROPID = 0xC00E0025, 0xC00E0003, 0xC00E0006, 0xC00E0039
NO_OUTGOING = 0xC00E0020
CONFIGURATION = """
[manager]
name = "{name}"
data = "data/{name}"
[listen]
host = "{host}"
binary = 18075
ping = false
http = 18076
rpc = 18077
epm = 18078
api = 0
console = false
[binary]
retry_connect_s = 1
resend_s = [60, 60, 60]
[rpc]
authenticate = {authenticate}
[peers]
"{alpha}" = {{ binary = 18075, rpc = 18077 }}
"{beta}" = {{ binary = 18075, rpc = 18077 }}
"{dead}" = {{ binary = 18075 }}
[[user]]
name = "boss"
password = "correct horse"
administrator = true
[[user]]
name = "reader"
password = "correct horse"
"""
QUEUE = r"private$\orders"
LEDGER = r"private$\ledger"
TO_BETA = rf"DIRECT=TCP:{BETA}\{QUEUE}"
LEDGER_OF_BETA = rf"DIRECT=TCP:{BETA}\{LEDGER}"
NOWHERE = rf"DIRECT=TCP:{DEAD}\private$\x"
LEDGER_BY_HTTP = rf"DIRECT=HTTP://{BETA}:18076/msmq/private$/ledger"
REST = rf"DIRECT=HTTP://{BETA}:18076/msmq/{QUEUE}".replace("\\", "/")


def start(folder: Path, stack: ExitStack, name: str, host: str, authenticate: str = "true") -> ServerProcess:
    file = folder / f"{name}.toml"
    text = CONFIGURATION.format(name=name, host=host, authenticate=authenticate, alpha=ALPHA, beta=BETA, dead=DEAD)
    file.write_text(text, encoding="utf-8")
    server = ServerProcess(file)
    stack.callback(server.close)
    return server


@pytest.fixture(scope="module")
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture(scope="module")
def alpha(tmp_path_factory: pytest.TempPathFactory, stack: ExitStack) -> ServerProcess:
    server = start(tmp_path_factory.mktemp("alpha"), stack, "alpha", ALPHA)
    with client.connect(server.api) as manager:
        manager.create_queue(QUEUE, journal=True)
        manager.create_queue(LEDGER, transactional=True)
        manager.create_queue(r"private$\two words")
    return server


@pytest.fixture(scope="module")
def beta(tmp_path_factory: pytest.TempPathFactory, stack: ExitStack) -> ServerProcess:
    server = start(tmp_path_factory.mktemp("beta"), stack, "beta", BETA, authenticate="false")
    with client.connect(server.api) as manager:
        manager.create_queue(QUEUE)
        manager.create_queue(LEDGER, transactional=True)
    return server


def named(name: str) -> MgmtObject:
    found = queue_format_structure(QueueFormat.from_format_name(parse_format_name(name)))
    return MgmtObject(MgmtObjectType.MGMT_QUEUE, found)


def local(path: str, host: str = ALPHA) -> MgmtObject:
    return named(rf"DIRECT=TCP:{host}\{path}")


def calls(
    host: str, *requests: Any, user: str | None = "boss", layouts: tuple[Format, ...] = (Format.NDR,)
) -> list[Any]:
    """The answers to requests, made one after another on one connection."""

    async def run() -> list[Any]:
        security = None if user is None else initiator(user, WORD, host=host)
        connection = await connect(host, PORT, QMMGMT, security=security, layouts=layouts)
        try:
            return [
                await connection.call(GET_INFO if isinstance(each, GetInfoIn) else ACTION, each, PATIENCE_S)
                for each in requests
            ]
        finally:
            await connection.close()

    return asyncio.run(run())


def ask(mgmt_object: MgmtObject, *properties: int, host: str = ALPHA, user: str | None = "boss") -> list[Any]:
    """The values of properties; [the HRESULT] after a failure, which sets none of them."""
    (answer,) = calls(host, get_info_of(mgmt_object, properties), user=user)
    assert isinstance(answer, GetInfoOut)
    if answer.result:
        assert answer.result >= 0x80000000
        assert all(each.vt == VarType.NULL for each in answer.values)
        return [answer.result]
    return [python_value(each) for each in answer.values]


def types(mgmt_object: MgmtObject, *properties: int) -> list[int]:
    (answer,) = calls(ALPHA, get_info_of(mgmt_object, properties))
    assert answer.result == 0
    return [each.vt for each in answer.values]


def act(mgmt_object: MgmtObject, word: str, host: str = ALPHA, user: str | None = "boss") -> int:
    (answer,) = calls(host, ActionIn(mgmt_object, word), user=user)
    assert isinstance(answer, Result)
    assert answer.result == 0 or answer.result >= 0x80000000
    return answer.result


def until(look: Callable[[], Any], wanted: Callable[[Any], bool]) -> Any:
    """What `look` gives once it is as wanted."""
    while not wanted(found := look()):
        time.sleep(0.05)
    return found


# The queue manager


@pytest.mark.spec("MR-2.2.3.1-01", "MR-3.1.4.1-10", "MR-3.1.4.1-05")
def test_all_properties_of_the_machine_in_any_order(alpha: ServerProcess) -> None:
    assert types(MACHINE, 1, 2, 3, 4, 5, 6) == [0x101F, 0x101F, 1, 31, 31, 20]
    assert types(MACHINE, *([6, 4, 6] * 42 + [1, 2])) == [20, 31, 20] * 42 + [0x101F] * 2
    assert types(local(QUEUE), 1) == [31]


@pytest.mark.spec("MR-3.1.4.1-12", "MR-3.1.4.1-13", "MR-3.1.4.1-15", "MR-3.1.4.1-16")
def test_what_the_machine_says(alpha: ServerProcess) -> None:
    with client.connect(alpha.api) as manager:
        manager.send(QUEUE, "eight")
        private, server, kind, size = ask(MACHINE, 2, 3, 5, 6)
        assert set(private) == {rf"alpha\{each}" for each in (QUEUE, LEDGER, r"private$\two words")}
        assert server is None
        assert kind.startswith("Postroad")
        assert size == manager.info().bytes
        assert size > 0
        manager.queue(QUEUE).purge()


@pytest.mark.spec("MR-3.1.4.1-11")
def test_active_queues_hold_messages_or_are_open(alpha: ServerProcess) -> None:
    with client.connect(alpha.api) as manager:
        name = manager.queue(QUEUE).info().format_name
        assert name not in ask(MACHINE, 1)[0]
        manager.send(QUEUE, "x")
        assert name in ask(MACHINE, 1)[0]
        manager.queue(QUEUE).purge()
        with manager.queue(QUEUE).open():
            assert name in ask(MACHINE, 1)[0]
        manager.send(NOWHERE, "x")
        active = ask(MACHINE, 1)[0]
        assert NOWHERE in active
        assert [str(parse_format_name(each)) for each in active] == active


# Who may ask


@pytest.mark.spec("MR-3-01", "MR-3-02", "MR-5.1-01", "MR-1.3-01")
def test_only_administrators_learn_or_change_anything(alpha: ServerProcess) -> None:
    with client.connect(alpha.api) as manager:
        manager.send(NOWHERE, "x")
        requests = [
            get_info_of(MACHINE, [4]),
            get_info_of(local(QUEUE), [7]),
            get_info_of(local(r"private$\missing"), [7]),
            ActionIn(named(NOWHERE), "PAUSE"),
            ActionIn(MACHINE, "DISCONNECT"),
            ActionIn(MACHINE, "nonsense"),
        ]
        for user in ("reader", None):
            answers = calls(ALPHA, *requests, user=user)
            assert [each.result for each in answers] == [ACCESS_DENIED] * 6
            assert [value.vt for answer in answers[:3] for value in answer.values] == [1, 1, 1]
        assert not manager.queue(NOWHERE).info().paused
    assert ask(MACHINE, 4) == ["CONNECTED"]
    assert ask(local(QUEUE), 7) == [0]


def test_everybody_on_this_computer_may_ask_where_nobody_logs_in(beta: ServerProcess) -> None:
    assert ask(MACHINE, 4, host=BETA, user=None) == ["CONNECTED"]
    with client.remote(BETA, port=PORT) as manager:
        assert manager.info()["CONNECTED"] == "CONNECTED"


# Queues here


@pytest.mark.spec("MR-2.2.3.2-01", "MR-3.1.4.1-34", "MR-3.1.4.1-35", "MQ-2.3.12.24-01")
def test_all_properties_of_a_queue_here(alpha: ServerProcess) -> None:
    found = types(local(QUEUE), *range(1, 28))
    assert found == [31] * 6 + [19] * 4 + [31, 1] + [1] * 11 + [0x100C, 1, 19, 0x101F]


@pytest.mark.spec("MR-3.1.4.1-18", "MR-3.1.4.1-19", "MR-3.1.4.1-20", "MR-3.1.4.1-21", "MR-3.1.4.1-22", "MR-3.1.4.1-23")
@pytest.mark.spec("MR-3.1.4.1-24", "MR-3.1.4.1-25", "MR-3.1.4.1-26", "MR-3.1.4.1-27", "MR-3.1.4.1-28")
def test_a_queue_says_what_queue_show_says(alpha: ServerProcess) -> None:
    with client.connect(alpha.api) as manager:
        queue = manager.queue(QUEUE)
        queue.send(["a", "b", "c"])
        queue.receive(0)
        with queue.receiving(0):  # one is locked
            info, journal = queue.info(), manager.queue(f"{QUEUE};journal").info()
            found = ask(local(QUEUE), *range(1, 12))
        kinds = ["PRIVATE", "LOCAL", "NO", "NO", 2, info.bytes, 1, journal.bytes, "LOCAL CONNECTION"]
        assert found == [rf"alpha\{QUEUE}", info.format_name, *kinds]
        assert info.messages == 2
        assert ask(local(LEDGER), 5, 9, 10) == ["YES", 0, 0]
        for path in (";deadletter", ";journal"):
            shown = manager.queue(path).info().format_name
            assert ask(named(shown), 2, 3, 4) == [shown, "MACHINE", "LOCAL"]
        assert ask(local("private$\\two words"), 1) == ["alpha\\private$\\two words"]
        queue.purge()
        manager.queue(f"{QUEUE};journal").purge()


@pytest.mark.spec("MR-3.1.4.1-37", "MR-3.1.4.1-38")
def test_subqueues(alpha: ServerProcess) -> None:
    with client.connect(alpha.api) as manager:
        queue = manager.create_queue(r"private$\once", transactional=True, abort_limit=1)
        assert ask(local(queue.name), 26, 27) == [0, []]
        queue.send("a", transactional=True)
        for _ in range(2):
            with suppress(NoMessage):
                tx = manager.begin()
                queue.receive(0, tx=tx)
            tx.abort()
        assert ask(local(queue.name), 26, 27) == [1, ["poison"]]
        assert ask(local(f"{queue.name};poison"), 3, 5, 7) == ["PRIVATE", "YES", 1]


@pytest.mark.spec("MR-3.1.4.1-39")
def test_looking_disturbs_no_exclusive_reader(alpha: ServerProcess) -> None:
    with client.connect(alpha.api) as manager, manager.queue(QUEUE).open(exclusive=True) as opened:
        manager.send(QUEUE, "a")
        assert ask(local(QUEUE), 7) == [1]
        assert opened.receive(PATIENCE_S).text == "a"


# What is wrong


@pytest.mark.spec("MR-3.1.4.1-06", "MR-3.1.4.1-08", "MR-3.1.4.1-09", "MR-3-03", "MR-3.1.4-03")
@pytest.mark.parametrize("wrong", [0, 7, 28, 101, 0xFFFFFFFF])
def test_one_bad_property_fails_the_call(alpha: ServerProcess, wrong: int) -> None:
    assert ask(MACHINE, 4, wrong, 5) == [ILLEGAL_PROPID]
    if wrong != 7:
        assert ask(local(QUEUE), 1, wrong) == [ILLEGAL_PROPID]


@pytest.mark.spec("MR-3.1.4.1-17", "MR-3.1.4-03")
@pytest.mark.parametrize("name", [r"DIRECT=OS:alpha\private$\missing", "PUBLIC=a1b2c3d4-0003-4000-8000-00000000a1fa"])
def test_an_unknown_queue(alpha: ServerProcess, name: str) -> None:
    assert ask(named(name), 7) == [NOT_FOUND]


@pytest.mark.spec("MR-3.1.4.1-07", "MR-3.1.4.2-03", "MR-2.2.1.2-03", "MR-2.2.1.2-05")
def test_sessions_are_no_objects_and_reserved_numbers_count_for_nothing(alpha: ServerProcess) -> None:
    for reserved in (0, 1, 0xFFFFFFFF):
        session = MgmtObject(MgmtObjectType.MGMT_SESSION, reserved)
        assert ask(session, 1) == [INVALID]
        assert act(session, "PAUSE") == INVALID
        assert ask(MgmtObject(MgmtObjectType.MGMT_MACHINE, reserved), 4) == ["CONNECTED"]
    nameless = MgmtObject(MgmtObjectType.MGMT_QUEUE, None)
    assert ask(nameless, 1) == [INVALID]
    assert act(nameless, "PAUSE") == INVALID


@pytest.mark.spec("MR-3.1.4.1-04")
def test_values_before_the_call(alpha: ServerProcess) -> None:
    empty = PropVariant(VarType.EMPTY)
    (answer,) = calls(ALPHA, GetInfoIn(MACHINE, 2, (4, 4), (empty, PropVariant(VarType.NULL))))
    assert [each.value for each in answer.values] == ["CONNECTED"] * 2
    (answer,) = calls(ALPHA, GetInfoIn(MACHINE, 1, (4,), (PropVariant(VarType.UI4, value=3),)))
    assert answer.result == 0xC00E0019


@pytest.mark.spec("MR-3.1.4.2-04", "MR-3.1.4.2-12", "MR-3.1.4.2-10", "MR-3.1.4.2-13", "MR-3.1.4.2-14")
def test_actions_that_fail_change_nothing(alpha: ServerProcess) -> None:
    for word in ("", "PAUSE ", "ｐause", "STOP", "x" * 5000):
        assert act(MACHINE, word) == act(named(NOWHERE), word) == INVALID
    for word in ("PAUSE", "RESUME", "EOD_RESEND"):
        assert act(MACHINE, word) == INVALID
        assert act(local(QUEUE), word) == NO_OUTGOING
        assert act(named(rf"DIRECT=TCP:{DEAD}\private$\never"), word) == NOT_FOUND
    for word in ("CONNECT", "DISCONNECT", "TIDY"):
        assert act(local(QUEUE), word) == INVALID
    assert ask(MACHINE, 4) == ["CONNECTED"]
    with client.connect(alpha.api) as manager:
        manager.send(QUEUE, "still works")
        assert manager.queue(QUEUE).receive(0).text == "still works"


# Outgoing queues


@pytest.mark.spec("MR-3.1.4.1-36", "MR-3.1.4.1-29", "MR-3.1.4.1-31", "MR-3.1.4.1-32", "MR-3.1.4.1-33")
@pytest.mark.spec("MQ-2.3.12.12-01", "MQ-2.3.12.25-01", "MQ-2.3.12.11-01", "MR-3.1.4.1-28", "MR-3.1.4.1-21")
def test_an_outgoing_queue_to_a_dead_host(alpha: ServerProcess) -> None:
    nowhere = rf"DIRECT=TCP:{DEAD}\private$\dead"
    with client.connect(alpha.api) as manager:
        manager.send(nowhere, "x")
    path, name, kind, location, transactional, foreign = ask(named(nowhere), 1, 2, 3, 4, 5, 6)
    assert (path, name, kind, location) == (rf"{DEAD}\private$\dead", nowhere, "PRIVATE", "REMOTE")
    assert (transactional, foreign) == ("UNKNOWN", "UNKNOWN")
    statuses, times, errors, addresses = until(lambda: ask(named(nowhere), 25)[0], lambda found: any(found[2]))
    assert len(statuses) == len(times) == len(errors) == len(addresses) > 0
    assert set(statuses) <= {0, 1, 2, *range(0x80000000, 0x8000000E)}
    assert 0x80000004 in statuses  # no connection
    assert all(each > 1_500_000_000 for each in times)
    assert DEAD in addresses
    assert types(named(nowhere), 14, 21, 15, 19, 20, 22, 23) == [3, 3, 19, 19, 19, 19, 19]
    assert types(named(nowhere), 13, 16, 17, 18, 24) == [1] * 5
    states = {ask(named(nowhere), 11)[0] for _ in range(5)}
    assert states <= {"INACTIVE", "WAITING", "DISCONNECTED", "DISCONNECTING"}
    for state, hops in (ask(named(nowhere), 11, 12) for _ in range(20)):
        assert hops == ([f"IP={DEAD}"] if state == "WAITING" else None)


@pytest.mark.spec("MR-3.1.4.1-29", "MQ-2.3.12.12-01", "MQ-2.3.12.25-01")
def test_an_outgoing_queue_that_is_connected(alpha: ServerProcess, beta: ServerProcess) -> None:
    with client.connect(alpha.api) as manager:
        for name in (TO_BETA, REST):
            manager.send(name, "x")
            until(partial(ask, named(name), 11), lambda found: found == ["CONNECTED"])
            assert ask(named(name), 12, 4, 3)[:2] == [[f"IP={BETA}"], "REMOTE"]
            assert 2 in ask(named(name), 25)[0][0]
    until(lambda: ask(local(QUEUE, BETA), 7, host=BETA, user=None), lambda found: found == [2])
    with client.connect(beta.api) as other:
        other.queue(QUEUE).purge()


@pytest.mark.spec("MR-3.1.4.2-01", "MR-3.1.4.2-08", "MR-3.1.4.2-09", "MR-3.1.4.1-28", "MQ-2.3.12.11-01")
def test_a_queue_is_paused_and_resumed(alpha: ServerProcess, beta: ServerProcess) -> None:
    with client.connect(alpha.api) as manager, client.connect(beta.api) as other:
        manager.send(TO_BETA, "first")
        assert other.queue(QUEUE).receive(PATIENCE_S).text == "first"
        for word in ("PAUSE", "pause", "PaUsE"):
            assert act(named(TO_BETA), word) == 0
            assert (manager.queue(TO_BETA).info().paused, ask(named(TO_BETA), 11)) == (True, ["ONHOLD"])
            assert act(named(TO_BETA), "resume") == 0
        assert act(named(TO_BETA), "PAUSE") == 0
        manager.send(TO_BETA, "second")
        assert ask(named(TO_BETA), 7) == [1]
        assert other.queue(QUEUE).info().messages == 0
        assert act(named(TO_BETA), "RESUME") == 0
        assert other.queue(QUEUE).receive(PATIENCE_S).text == "second"
        assert not manager.queue(TO_BETA).info().paused
        manager.backend.pause_queue(TO_BETA)
        assert act(named(TO_BETA), "RESUME") == 0
        assert not manager.queue(TO_BETA).info().paused


@pytest.mark.spec("MR-3.1.4.1-30", "MR-3.1.4.1-31", "MR-3.1.4.1-32", "MR-3.1.4.1-33", "MR-3.1.4.1-35")
@pytest.mark.spec("MQ-2.3.12.13-01", "MQ-2.3.12.24-01")
@pytest.mark.parametrize(("name", "interval"), [(LEDGER_OF_BETA, 60), (LEDGER_BY_HTTP, 30)])
def test_a_stream_at_both_ends(alpha: ServerProcess, beta: ServerProcess, name: str, interval: int) -> None:
    with client.connect(alpha.api) as manager, client.connect(beta.api) as other:
        for number in range(3):
            manager.send(name, client.Message(str(number), dead_letter=True), transactional=True)
        acked = until(lambda: ask(named(name), 13, 14, 15, 18, 20), lambda found: found[4] == 0 and found[0])
        last, when, times, following, _ = acked
        assert (last["number"], last["previous"]) == (3, 2)
        assert following["number"] == following["previous"] + 1
        assert when > 1_500_000_000
        assert times >= 1
        assert ask(named(name), 16, 17, 19, 22, 23) == [None, None, 3, interval, 0]
        rows = zip(*ask(local(LEDGER, BETA), 24, host=BETA, user=None)[0], strict=True)
        sources = {each[0].lower(): each[1:] for each in rows}
        sender, sequence, number, accessed, rejects = sources[name.lower()]
        assert (sender, sequence, number, rejects) == (manager.info().id, last["sequence_id"], 3, 0)
        assert accessed > 1_500_000_000
        assert len(other.queue(LEDGER).receive_many(10, PATIENCE_S)) == 3
        until(lambda: ask(named(name), 19), lambda found: found == [0])


@pytest.mark.spec("MR-3.1.4.2-11")
@pytest.mark.parametrize(
    "to_gamma", [r"DIRECT=TCP:127.0.75.13\private$\ledger", "DIRECT=HTTP://127.0.75.13:18076/msmq/private$/ledger"]
)
def test_a_pending_sequence_is_sent_again(alpha: ServerProcess, to_gamma: str) -> None:
    assert act(named(LEDGER_OF_BETA), "EOD_RESEND") == 0
    with client.connect(alpha.api) as manager:
        manager.send(to_gamma, ["x", "y"], transactional=True)
    following, waiting = ask(named(to_gamma), 18, 7)
    assert (following["number"], following["previous"], waiting) == (3, 2, 2)
    assert act(named(to_gamma), "eod_resend") == 0
    assert ask(named(to_gamma), 18, 7) == [following, 2]


# The queue manager leaves the network and comes back


@pytest.mark.spec("MR-3.1.4.2-05", "MR-3.1.4.2-06", "MR-3.1.4.1-14")
def test_disconnected_nothing_leaves_or_enters_and_local_work_goes_on(
    alpha: ServerProcess, beta: ServerProcess
) -> None:
    back, http = rf"DIRECT=TCP:{ALPHA}\{QUEUE}", rf"DIRECT=HTTP://{ALPHA}:18076/msmq/private$/orders"
    with client.connect(alpha.api) as manager, client.connect(beta.api) as other:
        manager.send(TO_BETA, "before")
        other.send(back, "before")
        assert other.queue(QUEUE).receive(PATIENCE_S).text == "before"
        assert manager.queue(QUEUE).receive(PATIENCE_S).text == "before"
        until(lambda: ask(named(TO_BETA), 7), lambda found: found == [0])  # acknowledged
        assert act(MACHINE, "disconnect") == 0
        assert act(MACHINE, "DISCONNECT") == 0
        assert ask(MACHINE, 4) == ["DISCONNECTED"]
        manager.send(TO_BETA, "out")
        manager.send(REST, "out by http")
        other.send(back, "in")
        other.send(http, "in by http")
        manager.send(QUEUE, "local")
        assert manager.queue(QUEUE).receive(PATIENCE_S).text == "local"
        for name in (back, http):  # tried in vain
            until(other.queue(name).info, lambda info: any(each["error"] for each in info.history))
        assert ask(named(TO_BETA), 7) == ask(named(REST), 7) == [1]
        assert manager.queue(QUEUE).info().messages == other.queue(QUEUE).info().messages == 0
        assert act(MACHINE, "CONNECT") == 0
        assert act(MACHINE, "connect") == 0
        assert ask(MACHINE, 4) == ["CONNECTED"]
        assert {other.queue(QUEUE).receive(PATIENCE_S).text for _ in range(2)} == {"out", "out by http"}
        assert {manager.queue(QUEUE).receive(PATIENCE_S).text for _ in range(2)} == {"in", "in by http"}


@pytest.mark.spec("MR-3.1.4.2-07")
def test_tidy_deletes_no_message(alpha: ServerProcess) -> None:
    with client.connect(alpha.api) as manager:
        manager.queue(QUEUE).send(["a", "b"])
        manager.send(NOWHERE, "c")
        before = [(each.path, each.messages) for each in manager.queues()]
        assert act(MACHINE, "TIDY") == 0
        assert [(each.path, each.messages) for each in manager.queues()] == before
        assert [each.text for each in manager.queue(QUEUE).receive_many(5, 0)] == ["a", "b"]


def test_each_action_is_written_down(alpha: ServerProcess) -> None:
    act(MACHINE, "TIDY")
    act(MACHINE, "TIDY", user="reader")
    act(named(r"DIRECT=OS:nobody\private$\q"), "PAUSE\nforged")
    lines = [each for each in alpha.get("/audit?limit=500")["events"] if each["what"] == "manage"]
    assert lines[0]["action"] == "PAUSE\nforged"
    assert "no such action" in lines[0]["outcome"]
    by_reader, by_boss = lines[1], next(each for each in lines if each["outcome"] == "done")
    assert (by_reader["who"], by_reader["action"]) == ("reader", "TIDY")
    assert "administrators" in by_reader["outcome"]
    assert (by_boss["who"], by_boss["action"]) == ("boss", "TIDY")


# Other clients


class Raw:
    """impacket's DCE/RPC with stubs that are made and read here by hand."""

    def __init__(self, host: str, port: int = PORT, *, user: str = "boss", level: int = 6, ndr64: bool = False) -> None:
        self.rpc = transport.DCERPCTransportFactory(f"ncacn_ip_tcp:{host}[{port}]")
        self.rpc.set_credentials(user, WORD)
        self.dce = self.rpc.get_dce_rpc()
        self.dce.set_auth_type(rpcrt.RPC_C_AUTHN_WINNT)
        self.dce.set_auth_level(level)
        self.dce.connect()
        uuid = uuidtup_to_bin((str(QMMGMT.uuid), "1.0"))
        ndr = (
            ("71710533-beba-4937-8319-b5dbef9ccc36", "1.0")
            if ndr64
            else ("8a885d04-1ceb-11c9-9fe8-08002b104860", "2.0")
        )
        try:
            self.dce.bind(uuid, transfer_syntax=ndr)
        except DCERPCException:
            self.dce.disconnect()
            raise

    def call(self, opnum: int, stub: bytes) -> bytes:
        self.dce.call(opnum, stub)
        return bytes(self.dce.recv())

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self.dce.disconnect()

    def machine(self, *properties: int) -> bytes:
        count = len(properties)
        stub = struct.pack("<HHI", 1, 1, 0) + struct.pack(f"<II{count}I", count, count, *properties)
        stub += struct.pack("<I", count)
        for _ in properties:
            stub += bytes(-len(stub) % 8) + struct.pack("<HBBIH", 1, 0, 0, 0, 1)
        return self.call(0, stub)

    def act(self, word: str) -> int:
        units = len(word) + 1
        stub = struct.pack("<HHIIII", 1, 1, 0, units, 0, units) + (word + "\0").encode("utf-16-le")
        answer = self.call(1, stub)
        assert len(answer) == 4
        return int(struct.unpack("<I", answer)[0])


@pytest.mark.spec("MR-3.1.4.1-05", "MR-3.1.4.2-13", "MR-1.9-01")
@pytest.mark.parametrize("level", [5, 6])
def test_impacket_asks_and_acts(alpha: ServerProcess, level: int) -> None:
    with Raw(ALPHA, level=level) as raw:
        answer = raw.machine(4, 6)
        assert raw.act("TIDY") == 0
        assert raw.act("nonsense") == INVALID
    count, _, vt, *_, tag, _, pointer = struct.unpack_from("<IIHBBIHHI", answer)
    assert (count, vt, tag) == (2, 31, 31)
    assert pointer
    vt, tag = struct.unpack_from("<H", answer, 24)[0], struct.unpack_from("<H", answer, 32)[0]
    assert (vt, tag) == (20, 20)
    (size,) = struct.unpack_from("<q", answer, 40)
    assert size == ask(MACHINE, 6)[0]
    maximum, offset, actual = struct.unpack_from("<3I", answer, 48)
    assert answer[60 : 60 + 2 * actual].decode("utf-16-le") == "CONNECTED\0"
    assert (maximum, offset, actual) == (10, 0, 10)
    assert answer[-4:] == bytes(4)


@pytest.mark.spec("MR-3.1.4-04")
@pytest.mark.parametrize("opnum", [2, 3, 100])
def test_there_are_two_methods(alpha: ServerProcess, opnum: int) -> None:
    with Raw(ALPHA) as raw, pytest.raises(DCERPCException, match="nca_s_op_rng_error"):
        raw.call(opnum, b"")


@pytest.mark.spec("MR-3.1.4-01", "MR-3.1.4.1-01")
def test_broken_stubs_are_faults_and_the_connection_goes_on(alpha: ServerProcess) -> None:
    stubs = (
        b"",
        b"\4\0\4\0" + bytes(28),
        struct.pack("<HHIII", 1, 1, 0, 129, 129) + bytes(4000),
        struct.pack("<HHIII", 1, 1, 0, 0xFFFFFFFF, 0xFFFFFFFF),
    )
    with Raw(ALPHA) as raw:
        for stub in stubs:
            with pytest.raises(DCERPCException, match=r"(?i)bad_stub_data|0x000006f7"):
                raw.call(0, stub)
        assert raw.act("TIDY") == 0


@pytest.mark.spec("MR-2.2-01", "MR-1.9-02")
def test_the_interface_has_only_ndr_and_version_1(alpha: ServerProcess) -> None:
    with pytest.raises(DCERPCException, match="proposed_transfer_syntaxes_not_supported"):
        Raw(ALPHA, ndr64=True)
    with pytest.raises(InterfaceNotOffered):
        calls(ALPHA, get_info_of(MACHINE, [4]), layouts=(Format.NDR64,))
    (answer,) = calls(ALPHA, get_info_of(MACHINE, [4]), layouts=(Format.NDR64, Format.NDR))
    assert answer.result == 0
    rpc = transport.DCERPCTransportFactory(f"ncacn_ip_tcp:{ALPHA}[{PORT}]").get_dce_rpc()
    rpc.connect()
    with pytest.raises(DCERPCException, match="abstract_syntax_not_supported"):
        rpc.bind(uuidtup_to_bin((str(QMMGMT.uuid), "2.0")))
    rpc.disconnect()


@pytest.mark.spec("MR-2.1-01", "MR-2.1-02")
def test_the_endpoint_mapper_knows_the_interface(alpha: ServerProcess) -> None:
    with client.remote(ALPHA, endpoint_mapper=18078, user="boss", password=WORD) as manager:
        assert manager.info()["CONNECTED"] == "CONNECTED"


@pytest.mark.spec("MR-3.2.4-01")
def test_our_client_hands_on_what_the_server_says(alpha: ServerProcess) -> None:
    with client.remote(ALPHA, port=PORT, user="boss", password=WORD) as manager:
        info = manager.info(QUEUE)
        assert list(info) == [each.name for each in QueueProperty]
        assert list(info.values()) == ask(local(QUEUE), *QueueProperty)
        with pytest.raises(QueueNotFound):
            manager.info(r"private$\missing")
        with pytest.raises(PostroadError) as refused:
            manager.act("PAUSE", QUEUE)
        assert refused.value.status == NO_OUTGOING
        with pytest.raises(PostroadError) as refused:
            manager.act("nonsense")
        assert refused.value.status == INVALID
        manager.act("TIDY")
    with client.remote(ALPHA, port=PORT, user="reader", password=WORD) as manager, pytest.raises(AccessDenied):
        manager.info()


@pytest.mark.spec("MR-3.2.4-02", "MR-3.2.4-01")
def test_the_command(alpha: ServerProcess) -> None:
    host = f"{ALPHA}:{PORT}"
    login = ("--user", "boss", "--password", WORD)
    with client.connect(alpha.api) as manager:
        manager.send(QUEUE, "x")
        shown = postroad("remote", "info", host, QUEUE, "--json", *login)
        assert shown.code == 0
        info = json.loads(shown.text)
        assert (info["message_count"], info["messages"], info["state"]) == (1, 1, "LOCAL CONNECTION")
        manager.queue(QUEUE).purge()
    machine = postroad("remote", "info", host, "--json", *login)
    assert (machine.code, json.loads(machine.text)["connected"]) == (0, "CONNECTED")
    people = postroad("remote", "info", host, *login)
    assert people.code == 0
    assert any(line.split() == ["connected", "CONNECTED"] for line in people.lines)
    queue = postroad("remote", "info", host, NOWHERE, *login)
    assert queue.code == 0
    assert "connection_history" in queue.text
    missing = postroad("remote", "info", host, r"private$\missing", *login)
    assert (missing.code, missing.output) == (1, b"")
    refused = postroad("remote", "info", host, "--user", "reader", "--password", WORD)
    assert refused.code == 1
