"""The PowerShell scripts of packaging/windows: that they parse, what they call, and that they fit the checker.

No PowerShell runs here. A grammar of the language (tree-sitter) parses the scripts; what they do on Windows is for
somebody with Windows to see.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

pytest.importorskip("tree_sitter_powershell", reason="needs tree-sitter-powershell: make test installs it")

import tree_sitter_powershell
from tree_sitter import Language, Node, Parser

from postroad.cli.kit import STEPS, VERSION
from postroad.config import ConfiguredQueue
from postroad.server.definitions import read_definitions

FOLDER = Path(__file__).parents[2] / "packaging" / "windows"
INVENTORY = Path(__file__).parents[1] / "data" / "windows" / "inventory.toml"
SCRIPTS = sorted(FOLDER.glob("*.ps1"))
PARSER = Parser(Language(tree_sitter_powershell.language()))
# Commands of Windows PowerShell 5.1, and the programs of Windows that the scripts start.
KNOWN = frozenset(
    {
        *("Add-Type", "ConvertFrom-Json", "ConvertTo-Json", "ForEach-Object", "Get-CimInstance", "Get-Command"),
        *("Get-ItemProperty", "Get-Service", "Join-Path", "New-Object", "Out-Null", "Out-String"),
        *("Read-Host", "Set-StrictMode", "Start-Sleep", "Test-Path", "Where-Object", "Write-Host", "Write-Output"),
        *("Write-Warning", "netsh.exe", "pktmon.exe"),
    }
)
# What is newer than 5.1 or belongs to .NET Core, and what would act on more than the kit's own queues.
FORBIDDEN = (
    *("ForEach-Object -Parallel", "-SkipCertificateCheck", "Remove-MsmqQueue", "Clear-MsmqQueue", "Remove-MsmqMessage"),
    *("Remove-Item", "Set-MsmqQueue", "Set-ItemProperty", "Invoke-Expression", "Stop-Service", "Restart-Service"),
    *("Format-", "Clear-"),
)


def nodes(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from nodes(child)


def tree(script: Path) -> Node:
    return PARSER.parse(script.read_bytes()).root_node


def text_of(node: Node | None) -> str:
    assert node is not None
    assert node.text is not None
    return node.text.decode()


def functions(script: Path) -> set[str]:
    return {text_of(node) for node in nodes(tree(script)) if node.type == "function_name"}


def test_the_grammar_sees_faults() -> None:
    for fault in (b"function F { if ($a) { 1 ", b"$a = @{ b = 1", b"Get-Item 'x", b"foreach ($a on $b) { }"):
        assert PARSER.parse(fault).root_node.has_error, fault


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_script_parses(script: Path) -> None:
    faults = [
        f"{script.name}:{node.start_point.row + 1}: {text_of(node)[:80]!r}"
        for node in nodes(tree(script))
        if node.type == "ERROR" or node.is_missing
    ]
    assert faults == []


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_windows_powershell_reads_the_script(script: Path) -> None:
    """Without a mark at its start, 5.1 takes a file for the code page of the computer; it knows none of the operators
    that PowerShell 7 added."""
    text = script.read_text(encoding="ascii")
    code = re.sub(r"(?s)<#.*?#>|@'\n.*?\n'@|'[^'\n]*'|#[^\n]*", "", text)
    assert not re.search(r"\?\?|\?\.|&&|\|\||\$\w+ \? ", code)
    assert [word for word in FORBIDDEN if word in code] == []
    assert not re.search(r"2>&1", code), "with $ErrorActionPreference = 'Stop', 5.1 ends a script at such a line"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_script_calls_what_exists(script: Path) -> None:
    defined = functions(script) | functions(FOLDER / "common.ps1")
    called = {text_of(node) for node in nodes(tree(script)) if node.type == "command_name"}
    named = {name for name in called if re.fullmatch(r"[A-Za-z][\w.-]*", name)}
    assert named
    assert named - defined - KNOWN == set()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_every_function_is_used(script: Path) -> None:
    text = "".join(each.read_text() for each in SCRIPTS)
    assert [name for name in functions(script) if text.count(name) < 2] == []


def test_only_queues_of_the_run_are_deleted_and_purged() -> None:
    text = (FOLDER / "test.ps1").read_text()
    assert len(re.findall(r"::Delete\(", text)) == text.count("[System.Messaging.MessageQueue]::Delete($path)") == 1
    assert (
        len(re.findall(r"\.Purge\(\)", text)) == text.count("(Open-QueueByName (Get-PostroadName 'back')).Purge()") == 1
    )
    assert text.count("'DELETE'") == 1
    cleaning = text[text.index("finally {") :]
    assert cleaning.count('if ($path -notlike "*\\$Prefix-*") { continue }') == 2
    assert cleaning.index("continue") < cleaning.index("::Delete(")
    for name in ("Get-OwnLocalPath", "Get-PostroadName", "Get-WindowsName"):
        body = text[text.index(f"function {name}") :].partition("\n}")[0]
        assert "$Prefix-$Name" in body
    inventory = (FOLDER / "inventory.ps1").read_text()
    assert not re.search(r"::Delete\(|\.Purge\(|::Create\(|\.Send\(|\.Receive|SetPermissions", inventory)


def test_the_script_has_the_steps_and_facts_of_the_checker() -> None:
    text = (FOLDER / "test.ps1").read_text()
    assert re.search(r"^\$Version = (\d+)", text, re.MULTILINE).group(1) == str(VERSION)  # type: ignore[union-attr]
    blocks = re.split(r"Invoke-Step ", text.partition("# From Windows to Postroad")[2])[1:]
    common = set(re.findall(r"Add-Fact '(\w+)'", text[text.index("function Add-MessageFacts") :].partition("\n}")[0]))
    found: dict[str, set[str]] = {}
    for block in blocks:
        facts = set(re.findall(r"Add-Fact '(\w+)'", block)) | (common if "Add-MessageFacts" in block else set())
        name = re.match(r"""['"]([\w$-]+)['"]""", block)
        assert name is not None
        kinds = ("express", "recoverable") if "$kind" in name[1] else ("",)
        found |= {name[1].replace("$kind", kind): facts for kind in kinds}
    assert found == {name: set(step.facts) for name, step in STEPS.items()}


def test_the_inventory_writes_settings_that_definitions_have() -> None:
    text = (FOLDER / "inventory.ps1").read_text()
    written = re.findall(r"^    (?:if .*?)?\$row\['(\w+)'\] =", text, re.MULTILINE)
    settings = {each.name for each in fields(ConfiguredQueue)}
    assert set(written) == settings - {"abort_limit"}  # MSMQ has no such property
    order = list(dict.fromkeys(written))
    keys: list[str] = []
    for line in [*INVENTORY.read_text(encoding="utf-8").splitlines(), "[[queue]]"]:
        if line == "[[queue]]":
            assert keys == [key for key in order if key in keys]
            keys = []
        elif " = " in line and not line.startswith("#"):
            keys.append(line.partition(" = ")[0])


def test_definitions_of_the_inventory_are_read() -> None:
    queues = read_definitions(INVENTORY).queues
    assert [str(each.path.tail)[1:] for each in queues] == [
        r"private$\orders",
        r"private$\Zoe's queue",
        "private$\\Größe €",
        "invoices",
    ]
    assert queues[1].label == 'tab and "quotes"'


def test_the_reference_lists_the_steps_and_facts() -> None:
    page = (FOLDER.parents[1] / "docs" / "reference" / "windows-kit.md").read_text()
    rows = re.findall(r"^\| `([\w-]+)` \| ([^|`]+) \| (`[^|]+`) \|$", page, re.MULTILINE)
    listed = {
        name: (what, tuple(re.findall(r"`(\w+)`", facts))) for name, what, facts in rows if "-" in name or name in STEPS
    }
    assert listed == {name: (step.what, step.facts) for name, step in STEPS.items()}
