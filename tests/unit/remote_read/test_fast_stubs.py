"""Stubs that are written and read in one step agree with the definitions: the same octets, values and refusals."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.errors import LocalProtocolError, RemoteProtocolError
from postroad.remote_read import qm2qm, structures
from postroad.remote_read.structures import RemoteReadDesc, RemoteReadDesc2
from postroad.rpc.interface import FastParameters, Parameters
from postroad.rpc.ndr import Format, Handle, Reader

FAST: list[Parameters[Any]] = [
    qm2qm.START_RECEIVE2.request,
    qm2qm.START_RECEIVE2.reply,
    qm2qm.START_RECEIVE_BY_LOOKUP_ID.request,
    qm2qm.START_RECEIVE_BY_LOOKUP_ID.reply,
    qm2qm.END_RECEIVE.request,
    qm2qm.END_RECEIVE.reply,
]
dwords = st.integers(0, 0xFFFFFFFF)
ulonglongs = st.integers(0, 0xFFFFFFFFFFFFFFFF)
handles = st.builds(
    Handle, st.sampled_from([0, 1, 0xFFFFFFFF]), st.binary(min_size=16, max_size=16) | st.just(bytes(16))
)


@st.composite
def descs(draw: st.DrawFn) -> RemoteReadDesc:
    buffer = draw(st.none() | st.binary(max_size=40))
    a, b, c, d, e, f, g, h = (draw(dwords) for _ in range(8))
    size = 0 if buffer is None else len(buffer)
    return RemoteReadDesc(a, b, c, d, size, e, f, g, h, draw(st.integers(0, 0x7FFF)), buffer)


descs2 = st.builds(RemoteReadDesc2, st.none() | descs(), ulonglongs)
VALUES: dict[type, st.SearchStrategy[Any]] = {
    structures.StartReceive2In: st.builds(structures.StartReceive2In, descs2),
    structures.StartReceive2Out: st.builds(structures.StartReceive2Out, handles, descs2, dwords),
    structures.StartReceiveByLookupIdIn: st.builds(structures.StartReceiveByLookupIdIn, ulonglongs, descs2),
    structures.EndReceiveIn: st.builds(structures.EndReceiveIn, handles, st.integers(1, 2)),
    structures.EndReceiveOut: st.builds(structures.EndReceiveOut, handles, dwords),
}
cases = st.sampled_from(FAST).flatmap(lambda fast: st.tuples(st.just(fast), VALUES[fast.kind]))


def outcome(parameters: Parameters[Any], octets: bytes, layout: Format, order: str) -> tuple[Any, int] | None:
    """The value, and how far the reader got. None for a stub that is refused."""
    reader = Reader(octets, layout, order)
    try:
        return parameters.decode_from(reader), reader.offset
    except RemoteProtocolError:
        return None


def test_they_are_in_use() -> None:
    assert all(isinstance(parameters, FastParameters) for parameters in FAST)


@given(cases, st.sampled_from(list(Format)))
def test_the_same_octets(case: tuple[Parameters[Any], Any], layout: Format) -> None:
    fast, value = case
    assert fast.encode(value, layout) == Parameters(fast.kind).encode(value, layout)


@given(cases, st.sampled_from(list(Format)), st.data())
def test_the_same_values_and_the_same_refusals(
    case: tuple[Parameters[Any], Any], layout: Format, data: st.DataObject
) -> None:
    fast, value = case
    slow = Parameters(fast.kind)
    octets = bytearray(slow.encode(value, layout))
    octets += data.draw(st.binary(max_size=9))  # a verification trailer may follow
    for _ in range(data.draw(st.integers(0, 3))):
        octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(octets[: data.draw(st.integers(0, len(octets)))]) if data.draw(st.booleans()) else bytes(octets)
    order = "<" if layout is Format.NDR64 else data.draw(st.sampled_from("<>"))
    assert outcome(fast, cut, layout, order) == outcome(slow, cut, layout, order)


@pytest.mark.parametrize("layout", list(Format))
def test_what_no_stub_can_hold_is_refused_as_ever(layout: Format) -> None:
    desc = RemoteReadDesc(1, 0, 0, 0, 0x420001, 1, 1, buffer=bytes(0x420001))
    handle = Handle(0, UUID(int=1).bytes_le)
    with pytest.raises(LocalProtocolError, match="must be between"):
        qm2qm.START_RECEIVE2.reply.encode(structures.StartReceive2Out(handle, RemoteReadDesc2(desc), 0), layout)
    wide = RemoteReadDesc(1 << 32, 0, 0, 0, 0, 1, 1)
    with pytest.raises(LocalProtocolError, match="4294967296"):
        qm2qm.START_RECEIVE2.request.encode(structures.StartReceive2In(RemoteReadDesc2(wide)), layout)
    with pytest.raises(LocalProtocolError, match="must be between"):
        qm2qm.END_RECEIVE.request.encode(structures.EndReceiveIn(handle, 3), layout)
