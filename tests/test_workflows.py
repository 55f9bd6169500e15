"""The workflows, templates and hooks of the project: they load, and what they run exists."""

from __future__ import annotations

import json
import re
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.release import problems

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]


def workflow(name: str) -> dict[Any, Any]:
    loaded = yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):(?!=)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def commands(document: dict[Any, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each command of a workflow with its job; a matrix's ``${{ matrix.target }}`` is filled in."""
    for job in document["jobs"].values():
        matrix = job.get("strategy", {}).get("matrix", {})
        for step in job["steps"]:
            if "run" in step:
                for target in matrix.get("target", [""]):
                    yield step["run"].replace("${{ matrix.target }}", target), job


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_commands_of_workflows_exist(file: Path) -> None:
    document = workflow(file.stem)
    made = [command for command, _ in commands(document)]
    assert made
    for command in made:
        for name in re.findall(r"\bmake ([a-z-]+)", command):
            assert name in targets(), f"{file.name}: make {name}"
        for path in re.findall(r"\b(?:tests/\w+\.py|\.ci/\w+)", command):
            assert (ROOT / path).exists(), f"{file.name}: {path}"
        for module in re.findall(r"-m (tests\.\w+)", command):
            assert (ROOT / f"{module.replace('.', '/')}.py").exists(), f"{file.name}: {module}"


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_every_job_has_a_timeout_and_few_rights(file: Path) -> None:
    document = workflow(file.stem)
    assert document["permissions"] == {"contents": "read"}
    for name, job in document["jobs"].items():
        assert job["timeout-minutes"] <= 180, name
        writes = [right for right, level in job.get("permissions", {}).items() if level == "write"]
        assert not writes or file.stem == "release", name


def test_tests_run_on_every_python_that_the_package_promises() -> None:
    jobs = workflow("test")["jobs"]
    assert jobs["test"]["strategy"]["matrix"]["python"] == PYTHONS
    assert jobs["wheel"]["strategy"]["matrix"]["python"] == PYTHONS
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    promised = [one.rpartition(" ")[2] for one in project["classifiers"] if re.search(r":: 3\.\d+$", one)]
    assert promised == PYTHONS


def test_live_tests_run_every_night() -> None:
    document = workflow("nightly")
    assert document[True]["schedule"]  # yaml reads the key `on` as true
    assert {"live", "secure", "spark"} <= set(document["jobs"]["real"]["strategy"]["matrix"]["target"])


def test_release_needs_a_tag_and_no_token() -> None:
    document = workflow("release")
    assert document[True] == {"push": {"tags": ["v*"]}}
    publish = document["jobs"]["publish"]
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["environment"]["name"] == "pypi"
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    assert "secrets." not in text
    assert any("make release-check" in command for command, _ in commands(document))


@pytest.mark.parametrize("name", ["bug", "feature", "config"])
def test_issue_templates_load(name: str) -> None:
    loaded = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / f"{name}.yml").read_text(encoding="utf-8"))
    assert loaded.get("body") or loaded.get("contact_links")


def test_hooks_before_a_commit_run_tools_that_make_setup_installs() -> None:
    loaded = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    hooks = [hook for repository in loaded["repos"] for hook in repository["hooks"]]
    assert [hook["entry"].split()[0] for hook in hooks] == [".venv/bin/ruff", ".venv/bin/ruff", ".venv/bin/mypy"]


# --- make release-check ---------------------------------------------------------------------------------------------

METADATA = """Metadata-Version: 2.4
Name: hbase-metaclient
License-Expression: Apache-2.0
Project-URL: Issues, https://example.org

[a](https://example.org/a) `[b](code.md)`
"""


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A checkout and the files of a release that are in order."""
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.3"\n')
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## [1.2.3]\n")
    dist = tmp_path / "dist"
    dist.mkdir()
    _write_wheel(dist, METADATA)
    import tarfile

    with tarfile.open(dist / "hbase_metaclient-1.2.3.tar.gz", "w:gz") as archive:
        for name in ("LICENSE", "README.md", "SECURITY.md", "pyproject.toml"):
            archive.add(tmp_path / "pyproject.toml", f"hbase_metaclient-1.2.3/{name}")
    components = [{"name": name} for name in ("click", "rich", "thriftpy2")]
    sbom = {"metadata": {"component": {"name": "hbase-metaclient", "version": "1.2.3"}}, "components": components}
    (dist / "sbom.cdx.json").write_text(json.dumps(sbom))
    return tmp_path


def _write_wheel(dist: Path, metadata: str) -> None:
    with zipfile.ZipFile(dist / "hbase_metaclient-1.2.3-py3-none-any.whl", "w") as wheel:
        wheel.writestr("metaclient/py.typed", "")
        wheel.writestr("hbase_metaclient-1.2.3.dist-info/METADATA", metadata)


def test_release_in_order_has_no_problems(release: Path) -> None:
    assert list(problems(release / "dist", root=release, tag="v1.2.3")) == []


def test_release_check_finds_each_problem(release: Path) -> None:
    dist = release / "dist"
    assert "the tag must be v1.2.3" in next(problems(dist, root=release, tag="v1.2.4"))
    (release / "CHANGELOG.md").write_text("## [Unreleased]\n")
    assert "no section [1.2.3]" in next(problems(dist, root=release, tag="v1.2.3"))
    _write_wheel(dist, METADATA.replace("[a](https://example.org/a)", "[a](docs/a.md)"))
    assert "the link docs/a.md leads nowhere" in next(problems(dist, root=release))
    _write_wheel(dist, METADATA)
    (dist / "sbom.cdx.json").unlink()
    assert list(problems(dist, root=release)) == ["there is no sbom.cdx.json"]
