"""Bodies that .NET wrote, decoded: `tests/data/bodies/README.md` says what each line of the file promises."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from postroad.bodies import decode, message_type, outline

FILE = Path(__file__).parents[2] / "data" / "bodies" / "samples.jsonl"
NETMSMQ = Path(__file__).parents[4] / "shared/samples/wcf"  # beside the project, where somebody has put them


def samples() -> list[dict[str, Any]]:
    return [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()] if FILE.exists() else []


def canonical(text: str) -> str:
    """XML as it means: how it is indented, and how a tag or a character is written, says nothing."""
    without_references = re.sub(r"&#(?:x[0-9a-fA-F]|x1[0-9a-fA-F]|[0-9]|[12][0-9]|3[01]);", "", text)
    return ElementTree.canonicalize(f"<all>{without_references}</all>", strip_text=True)


@pytest.mark.skipif(not FILE.exists(), reason="tests/data/bodies/samples.jsonl is not there: make dotnet-samples")
@pytest.mark.parametrize("sample", samples(), ids=lambda sample: sample["name"])
def test_a_body_says_what_dotnet_reads_back(sample: dict[str, Any]) -> None:
    body, extension = b64decode(sample["body_base64"]), b64decode(sample["extension_base64"] or "")
    found = decode(body, sample["body_type"], extension, app_tag=sample["app_tag"])
    assert found.kind in sample["kind"].split("|"), found.fault
    if found.kind == "bytes":  # honest: what is not read is not shown
        assert found.text is None
        return
    assert found.system == sample["system"] or (found.kind == "wcf" and sample["system"] is None)
    for text in sample["contains"]:
        assert text in (found.text or "")
    if sample["headers"] is not None:
        assert found.headers == sample["headers"]
    if sample["text"] is not None:
        assert found.text == sample["text"]
    if sample["xml"] is not None:
        assert canonical(found.text or "") == canonical(sample["xml"])
    assert not found.text_cut
    assert outline(body, sample["body_type"], extension, app_tag=sample["app_tag"]).headers == found.headers
    if found.kind != "text":  # of which a start may look like something
        assert message_type(body, sample["body_type"], extension) == found.message_type


@pytest.mark.skipif(not NETMSMQ.exists(), reason="the bodies of netMsmq are not beside the project")
@pytest.mark.parametrize(("name", "content"), [("msmqTestMessage", "TestMessage"), ("msmqEmptyTestMessage", "")])
def test_bodies_of_netmsmq(name: str, content: str) -> None:
    found = decode((NETMSMQ / f"{name}.bin").read_bytes())
    assert (found.kind, found.system) == ("wcf", "wcf")
    assert found.message_type == "http://tempuri.org/ITestContract/Create"
    assert f"<name>{content}</name>" in (found.text or "")
    assert found.value["Body"] == {"Create": {"name": content}}
