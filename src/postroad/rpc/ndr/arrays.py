"""NDR arrays and strings: fixed, conformant, varying and both, [C706] 14.3.3 and 14.3.4, [MS-RPCE] 2.2.5.3.2.

An array of octets is `bytes`, any other a tuple. A string is `str` without its terminator.
"""

from __future__ import annotations

from typing import Any

from postroad.errors import LocalProtocolError, RemoteProtocolError
from postroad.rpc.ndr.base import Integer, NdrType, char, wchar
from postroad.rpc.ndr.octets import Expression, Format, Reader, Scope, Writer


class Array(NdrType):
    """`count` elements; or as many as `size_is` says, of which `length_is` says how many are sent.

    The maximum count of a conformant array comes before the array, or before the structure that the array ends.
    """

    __slots__ = (
        *("conformant", "correlated", "count", "deferring", "element"),
        *("length_is", "octets", "size_is", "varying"),
    )

    def __init__(
        self,
        element: NdrType,
        count: int | None = None,
        size_is: Expression | None = None,
        length_is: Expression | None = None,
    ) -> None:
        if element.conformant:
            raise LocalProtocolError("the elements of an array must not be conformant")
        self.element = element
        self.count = count
        self.size_is = size_is
        self.length_is = length_is
        self.conformant = count is None
        self.varying = length_is is not None
        self.deferring = element.deferring
        self.correlated = element.correlated or any(not isinstance(each, int | None) for each in (size_is, length_is))
        self.octets = isinstance(element, Integer) and element.is_octet

    def alignment(self, layout: Format) -> int:
        own = layout.value if self.varying else 1
        return max(own, self.element.alignment(layout))

    def least(self, layout: Format) -> int:
        if self.varying:
            return 2 * layout.value
        return (self.count or 0) * self.element.least(layout)

    # Writing

    def encode_max_count(self, writer: Writer, value: Any, scope: Scope) -> None:
        if not self.conformant:
            return
        size = len(value) if self.size_is is None else scope.evaluate(self.size_is)
        if size is None:
            size = len(value)
        if size < len(value) or (size > len(value) and not self.varying):
            raise LocalProtocolError(f"an array must have {size} elements, from size_is, got {len(value)}")
        writer.counts(size)

    def encode(self, writer: Writer, value: Any, scope: Scope) -> None:
        length = len(value)
        if self.varying:
            expected = None if self.length_is is None else scope.evaluate(self.length_is)
            if expected is not None and expected != length:
                raise LocalProtocolError(f"an array must have {expected} elements, from length_is, got {length}")
            writer.counts(0, length)
        if self.count is not None and length != self.count:
            raise LocalProtocolError(f"an array must have {self.count} elements, got {length}")
        if self.octets:
            writer.data += value
            return
        if length:
            writer.align(self.element.alignment(writer.layout))
        for each in value:
            self.element.encode(writer, each, scope)

    def encode_deferred(self, writer: Writer, value: Any, scope: Scope) -> None:
        if self.deferring:
            for each in value:
                self.element.encode_deferred(writer, each, scope)

    # Reading

    def decode_max_count(self, reader: Reader) -> int:
        return reader.counts(1)[0] if self.conformant else self.count or 0

    def decode(self, reader: Reader, scope: Scope, max_count: int | None = None) -> Any:
        """Returns the elements. Pass `max_count` if it came before the structure."""
        offset = length = 0
        if max_count is None and self.conformant and self.varying:
            max_count, offset, length = reader.counts(3)
        else:
            if max_count is None:
                max_count = self.decode_max_count(reader)
            if self.varying:
                offset, length = reader.counts(2)
            else:
                length = max_count
        if self.conformant and self.size_is is not None:
            scope.expect(self.size_is, max_count, "the maximum count", reader.offset)
        if self.varying:
            # [MS-RPCE] 3.1.1.5.3.2.1.7: without first_is, the offset is 0.
            if offset:
                raise RemoteProtocolError(f"the offset of a varying array must be 0, got {offset}", reader.offset)
            if length > max_count:
                raise RemoteProtocolError(
                    f"an array must have at most {max_count} elements, got {length}", reader.offset
                )
            if self.length_is is not None:
                scope.expect(self.length_is, length, "the actual count", reader.offset)
        if self.octets:
            return reader.take(length)
        if length:
            reader.align(self.element.alignment(reader.layout))
        reader.require(length, self.element.least(reader.layout))
        decode = self.element.decode
        return tuple([decode(reader, scope) for _ in range(length)])

    def finish(self, reader: Reader, state: Any, scope: Scope) -> Any:
        if not self.deferring:
            return state
        finish = self.element.finish
        return tuple([finish(reader, each, scope) for each in state])


class String(NdrType):
    """`[string]`: conformant and varying; or varying, in an array of `count` characters. It ends with a zero."""

    __slots__ = ("character", "conformant", "count")

    def __init__(self, character: Integer, count: int | None = None) -> None:
        self.character = character
        self.count = count
        self.conformant = count is None

    def alignment(self, layout: Format) -> int:
        return layout.value

    def least(self, layout: Format) -> int:
        return 2 * layout.value

    def _encoding(self, order: str) -> str:
        if self.character is char:
            return "latin-1"
        return "utf-16-le" if order == "<" else "utf-16-be"

    def _octets(self, value: str) -> bytes:
        """The octets with the terminator. A Windows string may contain half a surrogate pair, which must survive."""
        if "\0" in value:
            raise LocalProtocolError(f"a string must not contain a zero, got {value!r}")
        try:
            return (value + "\0").encode(self._encoding("<"), "surrogatepass" if self.character is wchar else "strict")
        except UnicodeEncodeError:
            raise LocalProtocolError(f"this string must have only Latin characters, got {value!r}") from None

    def encode_max_count(self, writer: Writer, value: Any, scope: Scope) -> None:
        if self.conformant:
            writer.counts(len(self._octets(value)) // self.character.size)

    def encode(self, writer: Writer, value: Any, scope: Scope) -> None:
        octets = self._octets(value)
        length = len(octets) // self.character.size
        if self.count is not None and length > self.count:
            raise LocalProtocolError(f"a string must have at most {self.count - 1} characters, got {value!r}")
        writer.counts(0, length)
        writer.data += octets

    def decode_max_count(self, reader: Reader) -> int:
        return reader.counts(1)[0] if self.conformant else self.count or 0

    def decode(self, reader: Reader, scope: Scope, max_count: int | None = None) -> str:
        if max_count is None:
            max_count = self.decode_max_count(reader)
        offset, length = reader.counts(2)
        start = reader.offset
        if offset or length > max_count:
            raise RemoteProtocolError(f"{length} characters from {offset} of a string of {max_count}", start)
        data = reader.take(length * self.character.size)
        try:
            text = data.decode(self._encoding(reader.order), "surrogatepass" if self.character is wchar else "strict")
        except UnicodeDecodeError:
            raise RemoteProtocolError("a string must be UTF-16", start) from None
        if not text.endswith("\0"):
            raise RemoteProtocolError("a string must end with its terminator", start)
        return text.partition("\0")[0]


def fixed(element: NdrType, count: int) -> Array:
    """`element name[count]`"""
    return Array(element, count)


def array(element: NdrType, *, size_is: Expression, length_is: Expression | None = None) -> Array:
    """`[size_is(...)] element name[]`, and varying with `length_is(...)`."""
    return Array(element, None, size_is, length_is)


wstring = String(wchar)
string = String(char)


def varying_string(character: Integer, count: int) -> String:
    """`[string] character name[count]`"""
    return String(character, count)
