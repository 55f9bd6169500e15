"""Code, tests and docs point only to pages that a reader of this repository has.

A comment may name an HBase class with its version, a JIRA number, an RFC, or a page of ``docs/``. Design papers, notes
and specifications that are kept elsewhere are not cited: the comment states the fact itself.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("metaclient", "adapters", "spark_connector", "benchmarks", "tests", "docs")
SUFFIXES = frozenset({".py", ".md", ".toml", ".txt", ".java", ".json", ".html"})

#: Pages and papers that are not here, and pages that are here, cited by a section number that they do not have.
POINTER = re.compile(
    r"\bspec/[\w-]+\.md|\b(?:api|client|native|server|style|wire)\.md\b|[\w-]+\.md,? (?:section )?\d"
    r"|\bseeds?[ /]00\d|\b[Ss]pec \d|\b[Ss]cenarios? \d+\b|\bshared/"
)

#: Folders that still have such pointers. A folder is removed from here as soon as it is clean, and none is added.
NOT_CLEAN_YET: frozenset[str] = frozenset()


def pointers(root: Path) -> Mapping[str, list[str]]:
    """Return the pointers to pages that are not in the repository as ``line: text``, by the path of their file."""
    found = {path.relative_to(root).as_posix(): list(_pointers_of(path)) for path in _files(root)}
    return {path: lines for path, lines in found.items() if lines}


def _files(root: Path) -> Iterator[Path]:
    yield from root.glob("*.md")
    for folder in FOLDERS:
        yield from (path for path in (root / folder).rglob("*") if path.suffix in SUFFIXES and path != Path(__file__))


def _pointers_of(path: Path) -> Iterator[str]:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if match := POINTER.search(line):
            yield f"{number}: {match[0]}"


def _is_in(path: str, folder: str) -> bool:
    return path.startswith(folder + "/")


# --- the rule -------------------------------------------------------------------------------------------------------


def test_no_pointer_leads_out_of_the_repository() -> None:
    found = [
        f"{path}:{line}"
        for path, lines in pointers(ROOT).items()
        if not any(_is_in(path, folder) for folder in NOT_CLEAN_YET)
        for line in lines
    ]
    assert not found, "state the fact, or name HBase's class and version:\n" + "\n".join(found)


def test_folder_that_is_clean_leaves_the_list_of_exceptions() -> None:
    found = pointers(ROOT)
    clean = {folder for folder in NOT_CLEAN_YET if not any(_is_in(path, folder) for path in found)}
    assert not clean, f"remove from NOT_CLEAN_YET: {sorted(clean)}"


# --- the checker, on planted files ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "# spec/native.md 0.2: torn rows",
        "# see api.md",
        "# the design (seed 000, 7.2)",
        "# server.md 9, row 44",
        "# All rows of spark.md 3's table",
        "# HBase's constant is 3 s (spec 0.2)",
        "# Scenario 82, region_locations_merge.",
        "# shared/style.md",
        "# spec/server.md, section 9",
    ],
)
def test_checker_reports_planted_pointer(tmp_path: Path, text: str) -> None:
    file = tmp_path / "metaclient" / "keys.py"
    file.parent.mkdir()
    file.write_text(f'"""Keys."""\n{text}\n', encoding="utf-8")
    assert [line.partition(":")[0] for line in pointers(tmp_path)["metaclient/keys.py"]] == ["2"]


@pytest.mark.parametrize(
    "text", ["docs/replication.md", "[spark](docs/spark.md)", "TestMetaCache (HBASE-27650)", "seed 17", "spec.py"]
)
def test_checker_accepts_what_a_reader_has(tmp_path: Path, text: str) -> None:
    (tmp_path / "README.md").write_text(text, encoding="utf-8")
    assert pointers(tmp_path) == {}
