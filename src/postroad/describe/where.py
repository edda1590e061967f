"""Filters for messages, such as `label == "x" and priority > 3`. Python's parser reads them, and a small table runs
them.

Nothing is evaluated as Python. This module lists the language; everything else is refused with its position.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from enum import Enum
from functools import cached_property
from typing import Any

from postroad.bodies import Decoded, read_headers
from postroad.bodies.xml_text import TYPE
from postroad.describe.received import ReceivedMessage
from postroad.errors import IllegalExpression

MAX_LENGTH = 4000
MAX_DEPTH = 40  # nested parentheses and operators, far below the limit of Python's stack

Predicate = Callable[[ReceivedMessage], bool]
Steps = tuple[str | int, ...]  # names and places that lead to a value in a body


class Subject:
    """A message that a filter looks at. Its body and its headers are read once, and only if the filter needs them."""

    def __init__(self, message: ReceivedMessage) -> None:
        self._message = message
        self._cased: dict[tuple[Callable[..., object], str], object] = {}

    def cased(self, function: Callable[..., object], text: str) -> object:
        """The result of `lower` or `upper`. A filter may ask very often for that of one large text."""
        key = function, text
        if key not in self._cased:
            self._cased[key] = function(text)
        return self._cased[key]

    @cached_property
    def fields(self) -> Mapping[str, object]:
        return self._message.describe()

    @cached_property
    def message_type(self) -> str | None:
        return self._message.message_type

    @cached_property
    def headers(self) -> Mapping[str, str]:
        message = self._message
        return read_headers(message.extension, message.app_tag).names or self._read.headers

    def value(self, steps: Steps) -> object:
        """The value in the body at the end of these steps. None if there is none."""
        found = self._read.value
        if isinstance(found, dict) and steps[0] not in found and found.get(TYPE) == steps[0]:
            steps = steps[1:]  # the root of XML
        for step in steps:
            found = _part_of(found, step)
        return found.get("#text", found) if isinstance(found, dict) else found

    @cached_property
    def _read(self) -> Decoded:
        return self._message.read()


def _part_of(value: object, step: str | int) -> object:
    match value:
        case list() if isinstance(step, int):
            return value[step] if step < len(value) else None
        case list():  # what each of them has
            parts = [_part_of(each, step) for each in value]
            return [each for each in parts if each is not None] or None
        case dict() if isinstance(step, str):
            return value.get(step)
    return value if step == 0 else None  # XML has no list of a single element


class Kind(Enum):
    """The type of a part of an expression. Every field has one, but may be absent from a message."""

    TEXT = "text"
    NUMBER = "a number"
    TRUTH = "true or false"
    ABSENT = "null"
    LIST = "a list"
    VALUE = "a value of a message"  # a header or a part of a body, whose type only the message says


_TEXTS = (
    "id class_name label body body_base64 delivery correlation_id sent_at arrived_at source_manager destination_queue "
    "admin_queue response_queue dead_letter_queue extension_base64 sender_id hash cipher"
)
_NUMBERS = "lookup_id class body_type priority app_tag hops aborts transaction_id authentication_level"
_TRUTHS = "authenticated encrypted first_in_transaction last_in_transaction"
FIELDS: Mapping[str, Kind] = {
    **dict.fromkeys(_TEXTS.split(), Kind.TEXT),
    **dict.fromkeys(_NUMBERS.split(), Kind.NUMBER),
    **dict.fromkeys(_TRUTHS.split(), Kind.TRUTH),
}
HEADERS, BODY, MESSAGE_TYPE = "headers", "body", "message_type"
_NAMES = (*FIELDS, HEADERS, MESSAGE_TYPE)
_CONSTANTS: Mapping[str, object] = {"true": True, "false": False, "null": None}

_ORDERS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
# The methods of text: the number of their arguments and the type of their result.
_METHODS: Mapping[str, tuple[Callable[..., object], int, Kind]] = {
    "startswith": (str.startswith, 1, Kind.TRUTH),
    "endswith": (str.endswith, 1, Kind.TRUTH),
    "lower": (str.lower, 0, Kind.TEXT),
    "upper": (str.upper, 0, Kind.TEXT),
}
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DIGITS = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_NUMBER = re.compile(r"\s*[+-]?[0-9]{1,400}(?:\.[0-9]{0,400})?(?:[eE][+-]?[0-9]{1,3})?\s*")
_LONGEST_NUMBER = 1000  # characters: a filter may compare each of a stranger's texts a thousand times
_CLASS, _CLASS_STAND_IN = "class", "klass"  # a field of ours that is a keyword of Python
_MARK = "_"  # before a name that follows a dot, because it may be a keyword of Python: body.from

_Value = Callable[[Subject], object]
_Part = tuple[_Value, Kind]


def parse_where(text: str) -> Predicate:
    """Compiles a filter for messages: for the fields of their JSON form, for their headers, for the type of the message
    and for values in their bodies. Raises IllegalExpression if the text cannot be parsed.

    A missing value equals only null, contains nothing, and is neither less nor greater than any value.
    """
    return _Parser(text).predicate()


class _Parser:
    """Compiles one expression from text to a function."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._positions = [0]  # for each character of the text for Python, its position in the original

    def predicate(self) -> Predicate:
        value = self._truth(self._tree().body, 0)
        return lambda message: bool(value(Subject(message)))

    def _fault(self, place: int | ast.AST, fault: str) -> IllegalExpression:
        if isinstance(place, ast.AST):
            place = self._positions[min(getattr(place, "col_offset", 0), len(self._positions) - 1)]
        return IllegalExpression(self._text, place, fault)

    # From text to a tree

    def _tree(self) -> ast.Expression:
        if not self._text.strip():
            raise self._fault(0, "the expression must not be empty")
        if len(self._text) > MAX_LENGTH:
            raise IllegalExpression(
                f"{self._text[:40]}...", MAX_LENGTH, f"an expression must have at most {MAX_LENGTH} characters"
            )
        source, self._positions = self._as_python()
        try:
            tree = ast.parse(source, mode="eval")
        except SyntaxError as fault:
            if not fault.offset:
                raise self._fault(len(self._text), "the expression is incomplete") from None
            place = self._positions[min(fault.offset, len(self._positions)) - 1]
            hint = "; write == for equal" if self._text[place : place + 1] == "=" else ""
            raise self._fault(place, fault.msg + hint) from None
        except (ValueError, MemoryError, RecursionError):
            raise self._fault(0, "the expression is nested too deeply") from None
        return tree

    def _as_python(self) -> tuple[str, list[int]]:
        r"""The text for Python's parser, and the original position of each of its characters.

        Between quotes, every character means itself, even a backslash, because names such as `private$\orders` have
        many.
        """
        text = self._text
        source: list[str] = []
        positions: list[int] = []

        def put(piece: str, at: int, length: int) -> None:
            source.append(piece)
            positions.extend(at + min(offset, length - 1) for offset in range(len(piece)))

        position = len(text) - len(text.lstrip())
        while position < len(text):
            if text[position] in "'\"":
                if position and (text[position - 1].isalnum() or text[position - 1] == "_"):
                    raise self._fault(position, "a text in quotes must not have a letter before it")
                end = text.find(text[position], position + 1)
                if end < 0:
                    raise self._fault(position, "the closing quote is missing")
                end += 1
                put(ascii(text[position + 1 : end - 1]), position, end - position)
            elif (word := _WORD.match(text, position)) is not None:
                end = word.end()
                if source and source[-1] == ".":
                    put(_MARK + word[0], position, end - position)
                else:
                    put(_CLASS_STAND_IN if word[0] == _CLASS else word[0], position, end - position)
            elif (digits := _DIGITS.match(text, position)) is not None:
                end = digits.end()
                put(digits[0], position, end - position)
            elif not " " <= text[position] <= "~" or text[position] == "#":
                raise self._fault(position, f"{text[position]!r} must be in quotes")
            else:
                end = position + 1
                put(text[position], position, 1)
            position = end
        return "".join(source), [*positions, len(text)]

    # From the tree to a function

    def _part(self, node: ast.expr, depth: int) -> _Part:
        if depth > MAX_DEPTH:
            raise self._fault(node, f"the expression must have at most {MAX_DEPTH} nested levels")
        match node:
            case ast.Constant(value=str() | bool() | int() | float() | None as constant):
                return (lambda message: constant), _kind_of(constant)
            case ast.Name(id=name):
                return self._field(node, _CLASS if name == _CLASS_STAND_IN else name)
            case ast.BoolOp(op=op, values=operands):
                combine = all if isinstance(op, ast.And) else any
                values = [self._truth(operand, depth + 1) for operand in operands]
                return (lambda message: combine(value(message) for value in values)), Kind.TRUTH
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                inner = self._truth(operand, depth + 1)
                return (lambda message: not inner(message)), Kind.TRUTH
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                return (lambda message: -number), Kind.NUMBER
            case ast.Compare(left=left, ops=operators, comparators=others):
                return self._comparison([left, *others], operators, depth)
            case ast.Attribute() | ast.Subscript():
                return self._path(node)
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                return self._list(elements, depth)
            case ast.Call(func=ast.Attribute(value=owner, attr=method), args=arguments, keywords=[]):
                return self._method(node, owner, method.removeprefix(_MARK), arguments, depth)
            case ast.Call(func=ast.Name(id="len"), args=[argument], keywords=[]):
                measured = self._expect(argument, Kind.TEXT, depth)
                return (lambda message: _length(measured(message))), Kind.NUMBER
            case ast.Call():
                raise self._fault(node, f"a function must be len(text) or text.{'(), text.'.join(_METHODS)}()")
            case ast.BinOp(op=ast.Sub()) if any(isinstance(each, ast.Attribute) for each in ast.walk(node)):
                raise self._fault(node, 'a name with - must be in brackets and quotes, as in headers["rbs2-msg-type"]')
            case _:
                raise self._fault(node, "an expression must consist of fields, texts, numbers, ==, <, in, and, or, not")

    def _field(self, node: ast.expr, name: str) -> _Part:
        if name in _CONSTANTS:
            constant = _CONSTANTS[name]
            return (lambda message: constant), _kind_of(constant)
        if name == MESSAGE_TYPE:
            return (lambda message: message.message_type), Kind.TEXT
        if name == HEADERS:
            raise self._fault(node, 'headers must have the name of one, as in headers["NServiceBus.FailedQ"]')
        if name not in FIELDS:
            close = get_close_matches(name.lower(), _NAMES, n=1)
            hint = f"; did you mean {close[0]}?" if close else f"; the fields are {', '.join(_NAMES)}"
            raise self._fault(node, f"there is no field {name}{hint}")
        return (lambda message: message.fields.get(name)), FIELDS[name]

    def _path(self, node: ast.expr) -> _Part:
        """`headers["NAME"]`, `headers.NAME`, in which the name may have dots, or a path such as `body.lines[0].sku`."""
        steps: list[str | int] = []
        owner = node
        while isinstance(owner, ast.Attribute | ast.Subscript):
            match owner:
                case ast.Attribute(attr=name):
                    steps.append(name.removeprefix(_MARK))
                case ast.Subscript(slice=ast.Constant(value=str() | int() as step)) if not isinstance(step, bool):
                    steps.append(step)
                case _:
                    raise self._fault(owner, "brackets must hold a name in quotes or a whole number")
            owner = owner.value
        steps.reverse()
        if not isinstance(owner, ast.Name) or owner.id not in (HEADERS, BODY):
            self._part(owner, 0)  # a name that is not known says so
            raise self._fault(node, "only headers and body have parts, as in headers.NAME and body.order.id")
        if owner.id == BODY:
            path = tuple(steps)
            return (lambda message: message.value(path)), Kind.VALUE
        header = ".".join(map(str, steps))
        if any(isinstance(each, ast.Subscript) for each in ast.walk(node)) and (
            len(steps) > 1 or not isinstance(steps[0], str)
        ):
            raise self._fault(node, 'the name of a header must be one text, as in headers["NServiceBus.FailedQ"]')
        return (lambda message: message.headers.get(header)), Kind.VALUE

    def _truth(self, node: ast.expr, depth: int) -> _Value:
        value, kind = self._part(node, depth)
        if kind is Kind.VALUE:
            return lambda message: _as_truth(value(message))
        if kind is not Kind.TRUTH:
            raise self._fault(
                node, f'this must be true or false, got {kind.value}; compare it with something, as in label == "x"'
            )
        return value

    def _expect(self, node: ast.expr, wanted: Kind, depth: int) -> _Value:
        value, kind = self._part(node, depth + 1)
        if kind not in (wanted, Kind.VALUE):
            raise self._fault(node, f"this must be {wanted.value}, got {kind.value}")
        return value

    def _list(self, elements: list[ast.expr], depth: int) -> _Part:
        parts = [self._part(element, depth + 1) for element in elements]
        for element, (_, kind) in zip(elements, parts, strict=True):
            if kind is Kind.LIST:
                raise self._fault(element, "a list must hold texts and numbers, not lists")
        values = [value for value, _ in parts]
        return (lambda message: [value(message) for value in values]), Kind.LIST

    def _method(self, node: ast.expr, owner: ast.expr, method: str, arguments: list[ast.expr], depth: int) -> _Part:
        if method not in _METHODS:
            raise self._fault(
                node, f"a function of text must be one of {', '.join(f'{name}()' for name in _METHODS)}, got {method}()"
            )
        function, count, kind = _METHODS[method]
        if len(arguments) != count:
            raise self._fault(node, f"{method}() must have {count or 'no'} text{'' if count == 1 else 's'}")
        values = [self._expect(each, Kind.TEXT, depth) for each in (owner, *arguments)]

        def call(message: Subject) -> object:
            texts = [text for value in values if isinstance(text := value(message), str)]
            if len(texts) < len(values):
                return None
            return function(*texts) if count else message.cased(function, str(texts[0]))

        return call, kind

    def _comparison(self, nodes: list[ast.expr], comparisons: list[ast.cmpop], depth: int) -> _Part:
        """One comparison, or a chain such as `2 < priority < 6`."""
        parts = [self._part(node, depth + 1) for node in nodes]
        tests = [
            self._test(nodes[index + 1], comparison, parts[index], parts[index + 1])
            for index, comparison in enumerate(comparisons)
        ]
        return (lambda message: all(test(message) for test in tests)), Kind.TRUTH

    def _test(self, node: ast.expr, comparison: ast.cmpop, left: _Part, right: _Part) -> _Value:
        (left_value, left_kind), (right_value, right_kind) = left, right
        kinds = {left_kind, right_kind}
        match comparison:
            case ast.In() | ast.NotIn():
                if right_kind not in (Kind.LIST, Kind.VALUE) and not kinds <= {Kind.TEXT, Kind.VALUE}:
                    raise self._fault(node, f"the right side of in must be a text or a list, got {right_kind.value}")
                wanted = isinstance(comparison, ast.In)
                return lambda message: _holds(right_value(message), left_value(message)) is wanted
            case ast.Is() | ast.IsNot() if Kind.ABSENT not in kinds:
                raise self._fault(node, "is and is not must be followed by null; compare other values with == and !=")
            case ast.Eq() | ast.NotEq() | ast.Is() | ast.IsNot():
                if Kind.LIST in kinds or (not kinds & {Kind.ABSENT, Kind.VALUE} and len(kinds) > 1):
                    raise self._fault(node, f"{left_kind.value} cannot be compared with {right_kind.value}")
                equal = isinstance(comparison, ast.Eq | ast.Is)
                return lambda message: _equal(left_value(message), right_value(message)) is equal
        if kinds - {Kind.VALUE} not in ({Kind.TEXT}, {Kind.NUMBER}, set()):
            raise self._fault(node, f"{left_kind.value} cannot be compared with {right_kind.value}")
        order = _ORDERS[type(comparison)]

        def test(message: Subject) -> bool:
            one, other = left_value(message), right_value(message)
            if not isinstance(one, str) or not isinstance(other, str):
                one, other = _as_number(one), _as_number(other)
            return one is not None and other is not None and order(one, other)

        return test


# Values of a message. XML and headers have only text, so text that is a number or a truth counts as one beside one.


def _equal(one: object, other: object) -> bool:
    if one is None or other is None or type(one) is type(other):
        return one == other
    if isinstance(one, bool) or isinstance(other, bool):
        return _as_truth(one) is not None and _as_truth(one) == _as_truth(other)
    if isinstance(one, int | float) or isinstance(other, int | float):
        return _as_number(one) is not None and _as_number(one) == _as_number(other)
    return one == other


def _as_truth(value: object) -> bool | None:
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.strip().lower())
    return value if isinstance(value, bool) else None


def _as_number(value: object) -> int | float | None:
    if isinstance(value, str) and len(value) <= _LONGEST_NUMBER and _NUMBER.fullmatch(value):
        return float(value) if set(value) & set(".eE") else int(value)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _length(value: object) -> int | None:
    return len(value) if isinstance(value, str | list) else None


def _holds(container: object, item: object) -> bool:
    if isinstance(container, str):
        return isinstance(item, str) and item in container
    return isinstance(container, list) and any(_equal(each, item) for each in container)


def _kind_of(constant: object) -> Kind:
    match constant:
        case None:
            return Kind.ABSENT
        case bool():
            return Kind.TRUTH
        case str():
            return Kind.TEXT
    return Kind.NUMBER
