"""Finds the endpoint for a path, in a table of templates searched from the top."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

E = TypeVar("E")
_PARAMETER = re.compile(r"{([a-z_]+)(:int)?}")


@dataclass(frozen=True, slots=True)
class Route(Generic[E]):
    """`template` may have parameters: `{name}` is one segment, `{name:int}` one of digits."""

    template: str
    endpoints: Mapping[str, E]  # by method


@dataclass(frozen=True, slots=True)
class Found(Generic[E]):
    """`endpoint` is None if the path does not take the method. `methods` are those that it takes."""

    endpoint: E | None
    parameters: Mapping[str, str]
    methods: tuple[str, ...]


class Routes(Generic[E]):
    """A table of routes. The endpoint of GET also serves HEAD."""

    def __init__(self, routes: list[Route[E]]) -> None:
        self.routes = routes
        self._patterns = [(re.compile(_pattern(each.template)), each.endpoints) for each in routes]

    def find(self, method: str, path: str) -> Found[E] | None:
        """None if no template fits the path."""
        refused: Found[E] | None = None
        for pattern, endpoints in self._patterns:
            match = pattern.fullmatch(path)
            if match is None:
                continue
            endpoint = endpoints.get("GET" if method == "HEAD" else method)
            if endpoint is not None:
                return Found(endpoint, match.groupdict(), ())
            if refused is None:
                refused = Found(None, match.groupdict(), ())
            methods = {*refused.methods, *_with_head(endpoints)}
            refused = Found(None, refused.parameters, tuple(sorted(methods)))
        return refused


def _pattern(template: str) -> str:
    last, parts = 0, []
    for match in _PARAMETER.finditer(template):
        parts += [re.escape(template[last : match.start()]), f"(?P<{match[1]}>{'[0-9]+' if match[2] else '[^/]+'})"]
        last = match.end()
    return "".join([*parts, re.escape(template[last:])])


def _with_head(methods: Mapping[str, object]) -> Iterator[str]:
    for each in methods:
        yield each
        if each == "GET":
            yield "HEAD"
