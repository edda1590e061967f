"""Makes a release: `python -m scripts.release 0.2.0`. With `--dry-run`, it shows the steps and changes nothing.

The tree must be clean, `.ci/run` must succeed, and the tree must be the same afterwards. Then it changes the version
and the changelog, commits them, builds the wheel and the source archive into `dist`, and tags the commit `v0.2.0`. It
publishes nothing: push the commit and the tag to do that.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSION_FILE = Path("src/postroad/runtime/version.py")
CHANGELOG = Path("CHANGELOG.md")
CHART = Path("packaging/helm/postroad/Chart.yaml")
UNRELEASED = "## [Unreleased]\n"
VERSION = re.compile(r"\d+\.\d+\.\d+")
VERSION_LINE = re.compile(r'^RELEASE = "(.+)"$', re.MULTILINE)
CHART_LINE = re.compile(r"^(version|appVersion): .+$", re.MULTILINE)


class Refused(Exception):
    """Why no release can be made."""


def with_version(text: str, version: str) -> str:
    """The text of VERSION_FILE with this version."""
    return VERSION_LINE.sub(f'RELEASE = "{version}"', text)


def with_chart(text: str, version: str) -> str:
    """The text of Chart.yaml with this version, for the chart and for what it installs."""
    return CHART_LINE.sub(rf'\1: "{version}"', text)


def with_release(text: str, version: str, date: str) -> str:
    """The changelog with the unreleased entries under the version, and an empty section for the next ones."""
    before, found, after = text.partition(UNRELEASED)
    notes = after.partition("\n## [")[0].strip()
    if not found or not notes:
        raise Refused(f"{CHANGELOG} must have entries under '{UNRELEASED.strip()}', found none")
    return f"{before}{UNRELEASED}\n## [{version}] - {date}\n{after}"


def check(root: Path, version: str) -> None:
    """Raises Refused unless a release of this version can be made here."""
    if not VERSION.fullmatch(version):
        raise Refused(f"VERSION must be three numbers such as 0.2.0, got {version!r}")
    if _git(root, "status", "--porcelain"):
        raise Refused("the working tree must be clean; commit or remove what `git status` shows")
    if _git(root, "tag", "--list", f"v{version}"):
        raise Refused(f"the tag v{version} exists already")
    found = VERSION_LINE.search((root / VERSION_FILE).read_text(encoding="utf-8"))
    if found is None:
        raise Refused(f'{VERSION_FILE} must have a line RELEASE = "..."')
    if _numbers(version) < _numbers(found[1]):
        raise Refused(f"the version must not go back: it is {found[1]}, got {version}")


def release(root: Path, version: str, *, dry_run: bool, green: list[str], date: str) -> None:
    """Makes the release. `green` is the command that must succeed first."""
    check(root, version)
    texts = _changed(root, version, date)
    steps = [
        f"run {' '.join(green)}",
        f"set the version to {version} in {VERSION_FILE} and {CHART}",
        f"move the unreleased changes in {CHANGELOG} to [{version}] - {date}",
        f"build {' and '.join(built(version))} into dist, commit 'Release {version}', tag v{version}",
    ]
    if dry_run:
        print("\n".join(f"would {each}" for each in steps))
        return
    tested = _git(root, "rev-parse", "HEAD")
    subprocess.run(green, cwd=root, check=True)
    check(root, version)
    if _git(root, "rev-parse", "HEAD") != tested:  # the tests take long, and somebody may have committed meanwhile
        raise Refused(f"the commit must be the one that was tested, {tested[:7]}")
    for file, text in texts.items():
        (root / file).write_text(text, encoding="utf-8")
    # Before the commit and the tag, so that a failed build leaves three changed files and nothing else.
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", "dist"]
    subprocess.run(build, cwd=root, check=True, env={**os.environ, "POSTROAD_RELEASE": version})
    _git(root, "commit", "--quiet", "-m", f"Release {version}", "--", *map(str, texts))
    _git(root, "tag", "--annotate", "-m", f"Postroad {version}", f"v{version}")
    print(f"v{version} is tagged, and dist has {' and '.join(built(version))}. To publish the commit and the tag:")
    print(f"git push origin HEAD v{version}")


def built(version: str) -> tuple[str, str]:
    """The files of a release."""
    return f"postroad-{version}-py3-none-any.whl", f"postroad-{version}.tar.gz"


def _changed(root: Path, version: str, date: str) -> dict[Path, str]:
    """The files that a release changes, with their new text."""

    def read(file: Path) -> str:
        return (root / file).read_text(encoding="utf-8")

    return {
        VERSION_FILE: with_version(read(VERSION_FILE), version),
        CHANGELOG: with_release(read(CHANGELOG), version, date),
        CHART: with_chart(read(CHART), version),
    }


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(each) for each in re.findall(r"\d+", version))


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refused(f"git {arguments[0]}: {done.stderr.strip()}")
    return done.stdout.strip()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make release")
    parser.add_argument("version", metavar="VERSION")
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args(arguments)
    today = datetime.now(UTC).date().isoformat()
    try:
        release(ROOT, options.version, dry_run=options.dry_run, green=[".ci/run"], date=today)
    except Refused as refused:
        print(f"error: {refused}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as failed:
        print(f"error: {' '.join(map(str, failed.cmd))} failed; nothing is committed or tagged", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
