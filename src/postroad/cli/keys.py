"""`postroad keys`: the keys that other managers encrypt messages with, shown and rotated."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import typer

from postroad.cli.context import Context
from postroad.cli.output import print_line, print_table

if TYPE_CHECKING:
    from postroad.values.info import KeysInfo

app = typer.Typer(help="Show and replace the keys that others encrypt messages to this manager with.")


@app.command("show")
def show(context: Context) -> None:
    """Show the public keys of the manager, which `public_keys` in `enterprise.toml` publishes."""
    with context.connect() as manager:
        keys = manager.keys()
    context.print_info(keys, lambda: _print(keys))


@app.command("rotate")
def rotate(context: Context) -> None:
    """Make new keys. The previous three still decrypt messages that are on their way.

    Other managers use the old keys until the directory has the new ones, so publish them.
    """
    with context.connect() as manager:
        name = manager.info().name
        keys = manager.rotate_keys()

    def print_for_people() -> None:
        print_line(f"New keys are in use. Set public_keys of [[manager]] {name} in enterprise.toml to:")
        print_line("")
        _print(keys)

    context.print_info(keys, print_for_people)


def _print(keys: KeysInfo) -> None:
    """The keys to publish stand alone in the first line, ready to be copied."""
    print_line(keys.public_keys or "this manager has no keys")
    if not keys.keys:
        return
    made = "-" if keys.made_at_s is None else f"{datetime.fromtimestamp(keys.made_at_s, UTC):%Y-%m-%d %H:%M:%S}Z"
    print_line("")
    print_table(
        ("provider", "bits", "made", "previous keys", "fingerprint"),
        [(each.provider, each.bits, made, each.previous, each.fingerprint) for each in keys.keys],
        numbers=("bits", "previous keys"),
    )
