"""Two plain pages for browsers: the start page at `/`, and every call at `/docs`. No scripts."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from starlette.responses import HTMLResponse, Response

from postroad.api.calls import Operation
from postroad.api.paths import API
from postroad.values.info import ListenerInfo
from postroad.version import __version__

_HEADERS = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'", "X-Frame-Options": "DENY"}
_PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>
<style>
:root {{ color-scheme: light dark }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }}
code {{ font-family: ui-monospace, monospace; overflow-wrap: anywhere }}
td, th {{ text-align: left; vertical-align: top; padding: .25rem 1rem .25rem 0 }}
</style></head>
<body>
<h1>{title}</h1>
{content}
</body>
</html>
"""
_LINKS = (
    ("/docs", "every call of the HTTP API"),
    (f"{API}/openapi.json", "the same for programs, as OpenAPI"),
    (f"{API}/status", "the manager, its queues and what needs attention"),
    ("/metrics", "metrics for Prometheus"),
    ("/healthz", "whether the process answers"),
    ("/readyz", "whether the store takes writes and every background task runs"),
)


def _page(title: str, content: str) -> Response:
    return HTMLResponse(_PAGE.format(title=escape(title), content=content), headers=_HEADERS)


def front_page(name: str | None, console: ListenerInfo | None = None) -> Response:
    """Leaves out the name and version if strangers can see the page but not call the API."""
    links = "\n".join(f'<li><a href="{path}"><code>{path}</code></a>: {what}</li>' for path, what in _LINKS)
    if console is not None:
        url = escape(f"http{'s' if console.encryption == 'tls' else ''}://{console.address}/")
        links = f'<li><a href="{url}"><code>{url}</code></a>: the web console</li>\n{links}'
    if name is None:
        return _page("A Postroad queue manager", f"<ul>\n{links}\n</ul>")
    return _page(f"{name}, a Postroad queue manager", f"<p>Version {__version__}.</p>\n<ul>\n{links}\n</ul>")


def reference_page(operations: Iterable[Operation]) -> Response:
    rows = "\n".join(
        f"<tr><td><code>{each.method}</code></td><td><code>{escape(API + each.path)}</code></td>"
        f"<td>{escape(each.summary)}</td><td>{_parameters(each)}</td></tr>"
        for each in operations
    )
    head = "<tr><th>method</th><th>path</th><th>does</th><th>query</th></tr>"
    return _page("Postroad HTTP API", f'<p><a href="/">back</a></p>\n<table>\n{head}\n{rows}\n</table>')


def _parameters(operation: Operation) -> str:
    return ", ".join(f"<code>{escape(each.name)}</code>" for each in operation.parameters)
