"""Who puts messages into queues: the interfaces, for everybody who sends, moves or imports, and one function for what
the manager writes by itself. This test fails at any other place."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[3] / "src" / "postroad"
# What puts a record into a queue without a check.
LOW = frozenset(
    {"add", "add_all", "arrive", "arrive_all", "enter", "insert", "move", "put", "put_all", "relocate", "_keep", "_put"}
)
HOLDER = re.compile(r"(^|\.)_?(delivery|tick|express)$")
DELIVERY = "queues/delivery.py"

# Each carries out what somebody wants, and first checks whether they may.
DOORS = {
    ("queues/local.py", "send"): "an application sends",
    ("queues/local.py", "insert"): "an administrator imports",
    ("queues/local.py", "move"): "a user moves messages from queue to queue",
    ("queues/local.py", "relocate"): "a remote reader moves a message between a queue and its subqueues",
    ("queues/reading.py", "give_back"): "a message whose reader left while it was removed, to its own queue",
    ("queues/transactions.py", "_enqueue"): "a transaction's sends, which were checked when they were made",
    ("queues/transactions.py", "_move"): "a transaction's moves, likewise",
    ("queues/transactions.py", "_return"): "a message that is given back too often, to the subqueue of its own queue",
    ("binary/receiver.py", "_take_together"): "messages of a session that the queue has not refused",
    ("binary/receiver.py", "_deliver"): "a message of a session that the queue has not refused",
    ("binary/receiver.py", "_forward"): "a message on its way, if [relay] lets it pass",
    ("binary/sequences.py", "move"): "a message of our own, from its outgoing queue to the manager's own queue",
    ("soap/receiver.py", "_take_formed"): "a message by HTTP that the queue has not refused",
    ("soap/receiver.py", "_deliver"): "a message by HTTP that the queue has not refused",
    ("soap/receiver.py", "_forward"): "a message on its way, if [relay] lets it pass",
    ("soap/multicast.py", "_take"): "a message by multicast that the queue has not refused",
    ("carriers/arrivals.py", "arrive_all"): "several messages of a session, for `_take_together`",
}
ROOMS = frozenset({"queues", "transfer", "binary", "soap", "manager"})  # that know whom the manager writes for
# Below the interfaces.
WITHIN = frozenset(
    {"add", "add_all", "arrive", "enter", "move", "put_all", "relocate", "_keep", "_put", "_return_express"}
)
# Who acts for the manager, or for an application with every right. All others name the one for whom they act.
OWNERS = {
    ("queues/permissions.py", ""),
    ("queues/delivery.py", "cause_of"),
    ("queues/delivery.py", "copy"),  # journals, which are a part of their queue
    ("queues/local.py", "_named_queues"),
    ("manager/publishing.py", "put"),  # change notifications, which the manager causes itself
}


def uses() -> Iterator[tuple[str, str, ast.expr]]:
    """Names and attributes that the package reads, each with its file and function."""
    for path in sorted(SOURCE.rglob("*.py")):
        file = path.relative_to(SOURCE).as_posix()
        yield from _uses(file, "", ast.parse(path.read_text()))


def _uses(file: str, function: str, node: ast.AST) -> Iterator[tuple[str, str, ast.expr]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Attribute | ast.Name):
            yield file, function, child
        within = child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else function
        yield from _uses(file, within, child)


def writes(file: str, expression: ast.expr) -> bool:
    if isinstance(expression, ast.Name):
        return expression.id == "arrive_all" and isinstance(expression.ctx, ast.Load)
    assert isinstance(expression, ast.Attribute)
    holder = ast.unparse(expression.value)
    return expression.attr in LOW and (HOLDER.search(holder) is not None or (file == DELIVERY and holder == "self"))


def test_only_doors_and_one_function_put_messages_into_queues() -> None:
    found = {(file, function) for file, function, expression in uses() if writes(file, expression)}
    within = {(DELIVERY, function) for function in WITHIN}
    assert found - within == DOORS.keys() | {(DELIVERY, "write")}


def test_whoever_has_the_manager_write_is_named() -> None:
    found = {
        (file, function)
        for file, function, expression in uses()
        if isinstance(expression, ast.Name) and expression.id == "OWN" and file.partition("/")[0] in ROOMS
    }
    assert found == OWNERS
