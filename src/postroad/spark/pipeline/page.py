"""One self-contained HTML page: sections, tables and charts. All text is escaped here.

The page must not load anything. Its policy forbids that, even if the label of a message contains markup.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from postroad.spark.pipeline.charts import scripts

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline' 'unsafe-eval'; img-src data:"


class Page:
    """Collects the parts of a page and the charts in them."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.parts: list[str] = []
        self.charts: list[dict[str, Any]] = []

    def add(self, *parts: str) -> None:
        self.parts += parts

    def section(self, title: str, text: str, *content: str) -> None:
        paragraph = f"<p>{escape(text)}</p>" if text else ""
        cards = "".join(f'<div class="card">{each}</div>' for each in content if each)
        self.add(f"<section><h2>{escape(title)}</h2>{paragraph}{cards}</section>")

    def chart(self, spec: dict[str, Any] | None, label: str) -> str:
        """The element for a chart, with its legend. Empty without a chart."""
        if spec is None:
            return ""
        self.charts.append(spec)
        place = f'<div class="chart" data-chart="{len(self.charts) - 1}" role="img" aria-label="{escape(label)}"></div>'
        entries = "".join(
            f'<li style="--colour: {escape(colour)}">{escape(name)}</li>'
            for name, colour in spec["usermeta"]["legend"].items()
        )
        return f'{place}<ul class="legend">{entries}</ul>' if entries else place

    def html(self) -> str:
        style, script = (
            files("postroad.spark.pipeline").joinpath(f"report.{each}").read_text() for each in ("css", "js")
        )
        head = (
            f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{escape(self.title)}</title><style>{style}</style>"
        )
        body = f"<main>{''.join(self.parts)}</main>"
        if self.charts:
            body += f'<script type="application/json" id="charts">{_inert(json.dumps(self.charts))}</script>'
            body += f"<script>{_inert_script(scripts())}</script><script>{script}</script>"
        return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{body}</body></html>\n'


def table(
    names: Sequence[str],
    rows: Iterable[Sequence[object]],
    numbers: set[int] | frozenset[int] = frozenset(),
    queue: int | None = None,
) -> str:
    """A table. `numbers` are the columns to align right; `queue` is the column that the choice of a queue filters
    by."""

    def cells(values: Sequence[object], tag: str) -> str:
        kinds = [' class="number"' if place in numbers else "" for place in range(len(values))]
        return "".join(
            f"<{tag}{kind}>{escape(_cell(value) if tag == 'td' else str(value))}</{tag}>"
            for kind, value in zip(kinds, values, strict=True)
        )

    def start(row: Sequence[object]) -> str:
        return "<tr>" if queue is None else f'<tr data-queue="{escape(str(row[queue]))}">'

    body = "".join(f"{start(row)}{cells(row, 'td')}</tr>" for row in rows)
    return f"<div class=scroll><table><thead><tr>{cells(names, 'th')}</tr></thead><tbody>{body}</tbody></table></div>"


def heading(text: str) -> str:
    return f"<h3>{escape(text)}</h3>"


def faint(text: str) -> str:
    return f'<p class="faint">{escape(text)}</p>'


def details(title: str, content: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{content}</details>" if content else ""


def _cell(value: object) -> str:
    if value is None or value == "":
        return "-"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _inert(text: str) -> str:
    """JSON without any character that a browser could take for markup."""
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _inert_script(text: str) -> str:
    """A script that cannot end its own element early."""
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--")
