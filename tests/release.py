"""``make release-check``: what must agree before a version is published. Prints what does not, and exits with 1."""

from __future__ import annotations

import json
import re
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Files that a source distribution is useless without.
NEEDED = ("LICENSE", "README.md", "SECURITY.md", "pyproject.toml")


def problems(dist: Path, *, root: Path = ROOT, tag: str = "") -> Iterator[str]:
    """Yield what is wrong with the files of a release; ``tag`` is the tag of Git that the release has."""
    version = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    if tag and tag != f"v{version}":
        yield f"the tag is {tag}, and pyproject.toml has version {version}: the tag must be v{version}"
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    if tag and not re.search(rf"^## \[{re.escape(version)}\]", changelog, re.MULTILINE):
        yield f"CHANGELOG.md has no section [{version}]: rename [Unreleased]"
    wheels = list(dist.glob(f"hbase_metaclient-{version}-py3-none-any.whl"))
    if not wheels:
        yield f"{dist} has no wheel of version {version}"
    for wheel in wheels:
        yield from _wheel_problems(wheel)
    sources = list(dist.glob(f"hbase_metaclient-{version}.tar.gz"))
    if not sources:
        yield f"{dist} has no source distribution of version {version}"
    for source in sources:
        with tarfile.open(source) as archive:
            names = {name.partition("/")[2] for name in archive.getnames()}
        yield from (f"{source.name} has no {name}" for name in NEEDED if name not in names)
    yield from _sbom_problems(dist / "sbom.cdx.json", version)


def _wheel_problems(wheel: Path) -> Iterator[str]:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = next(archive.read(name).decode() for name in names if name.endswith(".dist-info/METADATA"))
    if not any(name.endswith("metaclient/py.typed") for name in names):
        yield f"{wheel.name} has no py.typed: type checkers would ignore the types"
    if "License-Expression: Apache-2.0" not in metadata:
        yield f"{wheel.name} names no license"
    if "Project-URL: Issues" not in metadata:
        yield f"{wheel.name} has no [project.urls]"
    body = metadata.partition("\n\n")[2]
    relative = re.findall(
        r"\]\((?!https?://|#|mailto:)([^)\s]+)\)", re.sub(r"```.*?```|`[^`]*`", "", body, flags=re.DOTALL)
    )
    yield from (f"README: the link {link} leads nowhere on PyPI" for link in relative)


def _sbom_problems(file: Path, version: str) -> Iterator[str]:
    if not file.exists():
        yield f"there is no {file.name}"
        return
    document = json.loads(file.read_text(encoding="utf-8"))
    component = document.get("metadata", {}).get("component", {})
    if (component.get("name"), component.get("version")) != ("hbase-metaclient", version):
        yield f"{file.name} is of {component.get('name')} {component.get('version')}"
    names = {one["name"].lower() for one in document.get("components", ())}
    yield from (f"{file.name} does not list {name}" for name in ("click", "rich", "thriftpy2") if name not in names)


def main(arguments: list[str]) -> int:
    dist, tag = Path(arguments[0]), arguments[1] if len(arguments) > 1 else ""
    found = list(problems(dist, tag=tag))
    for problem in found:
        print(f"release-check: {problem}", file=sys.stderr)
    if not found:
        print(f"release-check: {dist} is complete")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
