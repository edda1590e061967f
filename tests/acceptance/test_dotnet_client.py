"""The client for .NET beside the product: its API, programs in the style of .NET Framework's documentation, and the
same messages in Python. `make test-dotnet` has its own tests."""

from __future__ import annotations

import json
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

import postroad
from postroad.runtime.version import RELEASE
from scripts.dotnet_kit import ASSEMBLIES, BUILD, LIBRARIES, PACKAGES, SOURCES, Kit, build, find, installed, serving

TESTS = SOURCES / "tests"
MONO = Path("/usr/lib/mono/4.5")
needs_mono = pytest.mark.skipif(
    shutil.which("mcs") is None or not (MONO / "System.Messaging.dll").exists(),
    reason="mono, its compiler and its System.Messaging are not installed; on Debian: "
    "apt-get install mono-mcs libmono-system-messaging4.0-cil",
)
pytestmark = pytest.mark.skipif(
    installed() is None and not LIBRARIES.exists(), reason="no SDK of .NET; `make dotnet` fetches one"
)
EXAMPLES = Path(__file__).parents[2] / "examples" / "dotnet"
PATIENCE_S = 300  # a compiler on a busy machine

PRINTED = {
    "SendObject": ["Label: Order 3", "Order ID: 3", "Sent: 2004-05-06T07:08:09", "No message arrived in queue."],
    "Forward": [
        "Rolled back: the work failed",
        "Forwarded: First message",
        "Forwarded: Second message",
        "forwarded: First message",
        "forwarded: Second message",
    ],
    "Consumer": ["Message 1", "Message 10", "Received 10 messages"],
    "RequestReply": ["The reply is 40", "It answers the request: True"],
    "CursorWalk": ["high", "normal", "low", "Left: 2"],
    "JournalReader": [
        "for the journal: Journaled",
        "Acknowledgment ReachQueue True",
        "Acknowledgment Receive True",
    ],
}
# Left out on purpose: the dialogs of Visual Studio, and the installer, whose base .NET no longer has. differences.txt
# has the rest, and docs/how-to/move-a-dotnet-application.md the reasons.
LEFT_OUT = ("System.Messaging.Design.", "System.Messaging.MessageQueueInstaller")
MOST_LEFT_OUT = 0.02


@pytest.fixture(scope="module")
def kit() -> Kit:
    build()
    return find()


@pytest.fixture(scope="module")
def programs(kit: Kit, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The commands that run the programs on each runtime."""
    folder = tmp_path_factory.mktemp("programs")
    library = shutil.copy(BUILD / "Postroad.Messaging.dll", folder)
    sources = [*sorted((TESTS / "programs").glob("*.cs")), TESTS / "tools" / "Choose.cs"]
    options = ("-target:exe", "-main:Choose")
    kit.compile_program(folder / "core.dll", sources, [Path(library)], options[1:])
    commands = {"core": [str(kit.dotnet), str(folder / "core.dll")]}
    if shutil.which("mcs"):
        facade = shutil.copy(kit.facade, folder)
        references = [f"-r:{library}", f"-r:{facade}", "-r:System"]
        subprocess.run(
            ["mcs", "-nologo", *options, f"-out:{folder / 'mono.exe'}", *references, *map(str, sources)],
            check=True,
            timeout=PATIENCE_S,
        )
        commands["mono"] = ["mono", str(folder / "mono.exe")]
    return commands


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("alpha")) as url:
        yield url


def run(kit: Kit, api: str, *command: str) -> list[str]:
    done = subprocess.run(
        command,
        env={**kit.environment(), "POSTROAD_API": api},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("runtime", ["core", pytest.param("mono", marks=needs_mono)])
@pytest.mark.parametrize("program", PRINTED)
def test_programs_of_the_documentation_run_unchanged(
    kit: Kit, api: str, programs: dict[str, list[str]], runtime: str, program: str
) -> None:
    assert run(kit, api, *programs[runtime], program) == PRINTED[program]


@pytest.fixture(scope="module")
def members(kit: Kit, tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The members of our assemblies and of mono's, as mono sees them."""
    folder = tmp_path_factory.mktemp("members")
    shutil.copy(kit.facade, folder)
    tool = folder / "members.exe"
    subprocess.run(
        ["mcs", "-nologo", f"-out:{tool}", str(TESTS / "tools" / "Members.cs")], check=True, timeout=PATIENCE_S
    )
    found = {}
    for name, assembly in {
        **{each: shutil.copy(BUILD / f"{each}.dll", folder) for each in ASSEMBLIES},
        "mono": str(MONO / "System.Messaging.dll"),
    }.items():
        listed = subprocess.run(
            ["mono", str(tool), assembly], capture_output=True, text=True, timeout=PATIENCE_S, check=True
        )
        found[name] = set(listed.stdout.splitlines())
    return found


@needs_mono
def test_the_public_api_is_that_of_system_messaging(members: dict[str, set[str]]) -> None:
    wanted = {each for each in members["mono"] | _lines("documented.txt") if not each.startswith(LEFT_OUT)}
    missing = wanted - members["Postroad.Messaging"]
    assert missing == _lines("differences.txt")
    assert len(missing) <= MOST_LEFT_OUT * len(wanted)


def _lines(name: str) -> set[str]:
    """What .NET Framework 4.8 documents beyond mono, and what we do not have of both."""
    return set((TESTS / name).read_text(encoding="utf-8").splitlines())


@needs_mono
def test_both_assemblies_have_the_same_members(members: dict[str, set[str]]) -> None:
    renamed = {each.replace("System.Messaging.", "MSMQ.Messaging.") for each in members["Postroad.Messaging"]}
    assert renamed == members["MSMQ.Messaging"]


@pytest.mark.parametrize("assembly", ASSEMBLIES)
def test_a_package_is_what_nuget_reads(kit: Kit, assembly: str) -> None:
    name = PACKAGES[assembly]
    with zipfile.ZipFile(BUILD / f"{name}.{RELEASE}.nupkg") as package:
        assert package.testzip() is None
        names = package.namelist()
        specification = ElementTree.fromstring(package.read(f"{name}.nuspec"))
        types = ElementTree.fromstring(package.read("[Content_Types].xml"))
        relations = ElementTree.fromstring(package.read("_rels/.rels"))
        assert package.read(f"lib/netstandard2.0/{assembly}.dll") == (BUILD / f"{assembly}.dll").read_bytes()
    metadata = {each.tag.rpartition("}")[2]: each.text for each in specification[0]}
    assert (metadata["id"], metadata["version"]) == (name, RELEASE)
    assert metadata["license"] in names
    assert metadata["readme"] in names
    assert {"id", "version", "authors", "description"} <= metadata.keys()
    declared = {each.get("Extension") for each in types} | {str(each.get("PartName"))[1:] for each in types}
    assert all(
        each in declared or each.rpartition(".")[2] in declared for each in names if each != "[Content_Types].xml"
    )
    assert [str(each.get("Target"))[1:] for each in relations] == [f"{name}.nuspec"]


def test_messages_mean_the_same_in_dotnet_and_python(kit: Kit, api: str, tmp_path: Path) -> None:
    shutil.copy(BUILD / "Postroad.Messaging.dll", tmp_path)
    program = tmp_path / "interchange.dll"
    kit.compile_program(program, [TESTS / "tools" / "Interchange.cs"], [tmp_path / "Postroad.Messaging.dll"])
    with postroad.connect(api) as manager:
        to_dotnet = manager.create_queue(r"private$\to_dotnet")
        answers = manager.create_queue(r"private$\answers")
        to_dotnet.send(
            postroad.Message(
                '<?xml version="1.0"?>\r\n<string>Grüße</string>',
                label="from Python",
                priority=6,
                app_tag=77,
                correlation_id="{0f0e0d0c-0b0a-0908-0706-050403020100}\\9",
                response_queue=r"private$\answers",
                admin_queue=r"private$\answers",
                ack=("reach-queue", "receive"),
                extension=b"\x01\x02",
                recoverable=True,
            )
        )
        to_dotnet.send(postroad.Message("Grüße", body_type=8, label="BSTR"))
        sent_id = str(to_dotnet.peek().id)
        seen = json.loads("\n".join(run(kit, api, str(kit.dotnet), str(program))))
        assert seen["id"] == sent_id.replace("{", "").replace("}", "")
        assert seen["text"] == ["Grüße", "Grüße"]
        assert seen["label"] == "from Python"
        assert seen["priority"] == 6
        assert seen["tag"] == 77
        assert seen["correlation"] == "0f0e0d0c-0b0a-0908-0706-050403020100\\9"
        assert seen["extension"] == "AQI="
        assert abs(seen["sent"] - seen["now"]) < 600
        assert [each.class_name for each in answers.messages()] == ["ack-reach-queue", "ack-receive"]
        assert {str(each.correlation_id) for each in answers.messages()} == {sent_id}

        read = {each.label: each for each in manager.queue(r"private$\from_dotnet").messages()}
        decoded = {label: each.decoded() for label, each in read.items()}
        assert decoded["xml"]["body_kind"] == "xml"
        assert "<Customer>Ada &amp; Grace</Customer>" in str(decoded["xml"]["body_text"])
        assert (decoded["binary"]["body_kind"], decoded["binary"]["system"]) == ("nrbf", "system.messaging")
        assert json.loads(str(decoded["binary"]["body_text"]))["Customer"] == "Ada & Grace"
        assert read["binary"].body_type == 768
        texts = {label[8:]: each["body_text"] for label, each in decoded.items() if label.startswith("activex ")}
        assert texts["text"] == "Grüße"
        assert texts["number"] == "-5"
        assert texts["money"] == "129.9500"
        full = read["xml"]
        assert (full.priority, full.app_tag, full.extension, full.delivery) == (7, 5, b"\x03", "recoverable")
        assert str(full.id) == seen["sent_id"]
        assert str(full.correlation_id) == sent_id
        assert str(full.response_queue) == str(read["binary"].response_queue or full.response_queue)
        (dead,) = [each for each in manager.queue(";deadletter").messages() if each.label == "late"]
        assert dead.class_name == "nack-receive-timeout"


def test_the_examples_run(kit: Kit, api: str, tmp_path: Path) -> None:
    shutil.copy(BUILD / "Postroad.Messaging.dll", tmp_path)
    for name in ("Worker", "RequestReply"):
        program = tmp_path / f"{name}.dll"
        kit.compile_program(program, [EXAMPLES / name / "Program.cs"], [tmp_path / "Postroad.Messaging.dll"])
        printed = run(kit, api, str(kit.dotnet), str(program), "--demo")
        assert printed[-1] == {"Worker": "10 orders done", "RequestReply": "20 doubled is 40"}[name]
