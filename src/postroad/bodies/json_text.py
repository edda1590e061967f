"""JSON: its value, and its text indented. Numbers are shown as they were written."""

from __future__ import annotations

import json
import re
from typing import Any

from postroad.bodies.bounds import DEEPEST, LIMIT, check_depth, check_values
from postroad.errors import RemoteProtocolError

_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\],:]|[^\s{}\[\],:"]++')
_LONGEST_NUMBER = 400  # digits; longer ones take time that grows with their square


def json_value(text: str) -> Any:
    """RemoteProtocolError if it is not JSON, or too much of it."""
    check_values(sum(map(text.count, "[{,")))
    if text.count("[") + text.count("{") > DEEPEST:
        depth = 0
        for token in _TOKEN.finditer(text):
            if token[0] in ("[", "{"):
                check_depth(depth := depth + 1)
            elif token[0] in ("]", "}"):
                depth -= 1
    try:
        value = json.loads(text, parse_constant=_refuse_constant, parse_int=_whole)
        if "\\ud" in text.lower():  # half a pair, which nobody can write
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as fault:
        raise RemoteProtocolError(f"the body must be JSON: {fault}") from None
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no value")


def _whole(digits: str) -> int | float:
    return int(digits) if len(digits) <= _LONGEST_NUMBER else float(digits)


def _readable(token: str) -> str:
    """A text with its characters in place of their numbers; half a pair stays as it is."""
    try:
        readable = json.dumps(json.loads(token), ensure_ascii=False)
        readable.encode()
    except ValueError:
        return token
    return readable


def indented_json(text: str, limit: int = LIMIT) -> tuple[str, bool]:
    """The text of a value that json_value has read, indented; and whether it was cut at the limit."""
    out: list[str] = []
    size = depth = 0
    before = ""
    for match in _TOKEN.finditer(text):
        token = match[0]
        if "\\u" in token:
            token = _readable(token)
        if token in ("]", "}"):
            depth -= 1
            piece = token if before in ("[", "{") else "\n" + "  " * depth + token
        elif token == ":":
            piece = ": "
        elif token == ",":
            piece = ",\n" + "  " * depth
        else:
            piece = "\n" + "  " * depth + token if before in ("[", "{") else token
            depth += token in ("[", "{")
        out.append(piece)
        size += len(piece)
        before = token
        if size > limit:
            return "".join(out)[:limit], True
    return "".join(out), False
