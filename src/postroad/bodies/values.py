"""Values of .NET as text, as .NET writes them: moments, durations, numbers, GUIDs."""

from __future__ import annotations

import struct
from datetime import datetime, timedelta
from decimal import Decimal
from math import isinf, isnan
from uuid import UUID

_YEAR_ONE = datetime(1, 1, 1)
_MOST_TICKS = 3_155_378_975_999_999_999
_TICKS_A_SECOND = 10_000_000
_KIND_BITS = 62


def moment(ticks: int, suffix: str = "") -> str | None:
    """Ticks of 100 ns since the year 1; None if that is no moment."""
    if not 0 <= ticks <= _MOST_TICKS:
        return None
    seconds, fraction = divmod(ticks, _TICKS_A_SECOND)
    return (_YEAR_ONE + timedelta(seconds=seconds)).isoformat() + _fraction(fraction) + suffix


def tagged_moment(raw: int, local: str = "") -> str | None:
    """[MS-NRBF] 2.1.1.5: ticks, and above them what clock they are of. `local` ends a moment of a local clock."""
    suffix = ("", "Z", local, local)[raw >> _KIND_BITS & 3]
    return moment(raw & (1 << _KIND_BITS) - 1, suffix)


def duration(ticks: int) -> str:
    """As TimeSpan's own text: `-1.02:03:04.5`."""
    sign = "-" if ticks < 0 else ""
    seconds, fraction = divmod(abs(ticks), _TICKS_A_SECOND)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return f"{sign}{f'{days}.' if days else ''}{hour:02}:{minute:02}:{second:02}{_fraction(fraction)}"


def xml_duration(ticks: int) -> str:
    """As XML writes it: `-P1DT2H3M4.5S`."""
    sign = "-" if ticks < 0 else ""
    seconds, fraction = divmod(abs(ticks), _TICKS_A_SECOND)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    parts = [f"{number}{unit}" for number, unit in ((hour, "H"), (minute, "M")) if number]
    if second or fraction:
        parts.append(f"{second}{_fraction(fraction)}S")
    if not days and not parts:
        return "PT0S"
    return f"{sign}P{f'{days}D' if days else ''}{'T' if parts else ''}{''.join(parts)}"


def _fraction(ticks: int) -> str:
    return f".{ticks:07}".rstrip("0") if ticks else ""


def guid(raw: bytes) -> str:
    return str(UUID(bytes_le=raw))


def decimal(raw: bytes) -> str | None:
    """[MS-OAUT] 2.2.26: 96 bits, a scale and a sign; None if that is no number."""
    scale, sign, high, low = struct.unpack("<2xBBIQ", raw)
    if scale > 28 or sign not in (0, 0x80):
        return None
    return scaled(high << 64 | low, scale, negative=bool(sign))


def scaled(units: int, scale: int, *, negative: bool) -> str:
    """A decimal number with all of its places: 12.50 stays 12.50."""
    return ("-" if negative else "") + f"{Decimal((0, tuple(map(int, str(units))), -scale)):f}"


def single(number: float) -> float:
    """The shortest number that has the same 32 bits: 0.1, where Python has 0.10000000149011612."""
    if isnan(number) or isinf(number):
        return number
    for digits in range(6, 10):
        short = float(f"{number:.{digits}g}")
        if abs(short) < 3.5e38 and _as_single(short) == number:
            return short
    return number


def _as_single(number: float) -> float | None:
    try:
        return float(struct.unpack("<f", struct.pack("<f", number))[0])
    except OverflowError:
        return None


def xml_number(number: float, most_digits: int = 17) -> str:
    """A floating number as XML writes it, with an exponent where .NET writes one: beyond `most_digits` places."""
    if isnan(number):
        return "NaN"
    if isinf(number):
        return "INF" if number > 0 else "-INF"
    digits = repr(number).lstrip("-")
    sign = "-" if repr(number)[0] == "-" else ""
    if number == 0:
        return f"{sign}0"
    value = Decimal(digits).normalize()
    exponent = value.adjusted()
    if -5 < exponent < most_digits:
        return sign + f"{value:f}"
    mantissa = "".join(map(str, value.as_tuple().digits))
    point = f".{mantissa[1:]}" if len(mantissa) > 1 else ""
    return f"{sign}{mantissa[0]}{point}E{'+' if exponent >= 0 else '-'}{abs(exponent):02}"
