"""The bodies in tests/data/bodies are what .NET writes, byte for byte: its programs are compiled and run again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.dotnet_kit import LIBRARIES
from tests.dotnet_samples.__main__ import build, missing

SAMPLES = Path(__file__).parents[1] / "data" / "bodies" / "samples.jsonl"

pytestmark = pytest.mark.skipif(
    not LIBRARIES.exists() or missing() is not None,
    reason=missing() or "`make dotnet-samples` fetches the SDK of .NET",
)


def test_dotnet_writes_the_same_bodies_again(tmp_path: Path) -> None:
    build(tmp_path / "samples.jsonl")
    made, kept = (_by_name(path) for path in (tmp_path / "samples.jsonl", SAMPLES))
    assert made.keys() == kept.keys()
    assert [name for name in made if made[name] != kept[name]] == []


def _by_name(path: Path) -> dict[str, object]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return {sample["name"]: sample for sample in map(json.loads, lines)}
