"""The templates, and how they write numbers, times, sizes and names. Templates escape all values."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from postroad.runtime.version import __version__

MIDDLE = "…"
# Characters that change the order of others or take no place, so that a name looks like another one. The two joiners
# are a part of words in some scripts, and of pictures; after Latin letters they only deceive.
_UNSEEN = re.compile(
    "[\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\U000e0000-\U000e007f]"
    "|(?<![\u0250-\U0010ffff])[\u200c\u200d]"
)
_TEXT = re.compile(r"(<textarea.*?</textarea>|<[^>]*>)|[^<]+", re.DOTALL)
_BREAK = re.compile(r"[./\\]")
_ASSEMBLY = re.compile(r"(?<=[^\s\[,])(?:, [^\[\],]{0,200})++(?=\]|$)")


def templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("postroad.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "count": count,
        "size": size,
        "age": age,
        "when": when,
        "rate": rate,
        "short": short,
        "plural": plural,
        "dotted": dotted,
        "type_name": type_name,
    }
    environment.globals["version"] = __version__
    return environment


def visible(page: str) -> str:
    r"""The page with characters that nobody would see written as \u202e and so on. Attributes and fields keep them."""
    if _UNSEEN.search(page) is None:
        return page
    return _TEXT.sub(lambda found: found[0] if found[1] else _UNSEEN.sub(_escape, found[0]), page)


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


def count(number: float) -> str:
    """12,345"""
    return f"{number:,.0f}"


def plural(number: int, noun: str) -> str:
    """1 message, 12,345 messages"""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def size(number: float) -> str:
    """12.3 kB"""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" or number >= 100 else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def age(seconds: float | None) -> str:
    """12 s, 3 min, 5 h, 2 d; empty for None."""
    if seconds is None:
        return ""
    seconds = max(0.0, seconds)
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    for limit, divisor, unit in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / divisor:.0f} {unit}"
    return f"{seconds / 86400:.0f} d"


def rate(number: float) -> str:
    """Messages a second: 0, 0.4, 12, 3,400."""
    return f"{number:.1f}" if 0 < number < 10 else f"{number:,.0f}"


def when(seconds: float | str | None) -> str:
    """2026-11-16 14:05:33, in UTC, from seconds since 1970 or RFC 3339."""
    if seconds is None or seconds == "":
        return ""
    if isinstance(seconds, str):
        return seconds[:19].replace("T", " ")
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def short(text: str | None, most: int = 60) -> str:
    """Cuts a long text in the middle, because the end of a name tells as much as its beginning."""
    text = text or ""
    if len(text) <= most:
        return text
    head = (most - 1) * 2 // 3
    return f"{text[:head]}{MIDDLE}{text[len(text) - (most - 1 - head) :]}"


def type_name(name: str) -> str:
    """The name of a generic type of .NET without the assemblies of its arguments."""
    return _ASSEMBLY.sub("", name) if "[" in name else name


def dotted(name: str) -> Markup:
    """A long name that may be broken behind its dots and slashes."""
    return Markup(_BREAK.sub(r"\g<0><wbr>", str(escape(name))))
