"""Documents say what is true: every fenced ``python`` example in README and docs runs, and every link leads somewhere.

The examples of one document run in order, in one namespace, as a reader would type them. An example that starts with
``>>>`` is a session, and its output is compared. One that needs what a test does not have says why in its fence, which
readers of the rendered page do not see::

    ```python skip: needs a real HBase

An example with ``title="FILE"`` is a file that later commands of the page use; tests/test_newcomer.py runs those pages.
"""

import dataclasses
import doctest
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from metaclient.cli import main

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
REPOSITORY = "https://github.com/hbase-metaclient/hbase-metaclient"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

_FENCE = re.compile(r"^```python[ \t]*(?P<note>[^\n]*)\n(?P<code>.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]\n]*\]\((?P<target>[^)\s]+)[^)\n]*\)")
_CODE = re.compile(r"^```.*?^```[ \t]*$|`[^`\n]*`", re.MULTILINE | re.DOTALL)


@dataclasses.dataclass(frozen=True, slots=True)
class Example:
    """One fenced example and where its first line stands."""

    code: str
    line: int
    skip: str | None


def examples(text: str) -> Iterator[Example]:
    """The fenced python examples of a document; a note in the fence other than ``skip: REASON`` is a mistake."""
    for match in _FENCE.finditer(text):
        note = match["note"].strip()
        if note.startswith("title="):
            yield Example(match["code"], text.count("\n", 0, match.start("code")), "a file of tests/test_newcomer.py")
            continue
        skip = note.removeprefix("skip:").strip() if note.startswith("skip:") else None
        if note and not skip:
            raise ValueError(f"```python {note}: after the word python comes nothing, or 'skip: REASON'")
        yield Example(match["code"], text.count("\n", 0, match.start("code")), skip)


def run(text: str, filename: str) -> int:
    """Run a document's examples in one namespace; how many ran."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    wanted = [example for example in examples(text) if example.skip is None]
    for example in wanted:
        if example.code.lstrip().startswith(">>>"):
            _run_session(example, filename, namespace)
        else:
            exec(compile("\n" * example.line + example.code, filename, "exec"), namespace)
    return len(wanted)


def _run_session(example: Example, filename: str, namespace: dict[str, object]) -> None:
    test = doctest.DocTestParser().get_doctest(example.code, {}, filename, filename, example.line)
    test.globs = namespace  # the parser copies what it is given; the next example needs what this one leaves
    runner = doctest.DebugRunner(optionflags=doctest.ELLIPSIS)
    try:
        runner.run(test, clear_globs=False)
    except doctest.DocTestFailure as failure:
        line = example.line + failure.example.lineno + 1
        pytest.fail(f"{filename}:{line}: expected {failure.example.want!r}, got {failure.got!r}", pytrace=False)
    except doctest.UnexpectedException as failure:
        raise failure.exc_info[1] from None


def broken_links(document: Path) -> list[str]:
    """Relative links of a document to files that do not exist."""
    prose = _CODE.sub("", document.read_text(encoding="utf-8"))
    targets = [match["target"].partition("#")[0] for match in _LINK.finditer(prose)]
    return [
        t
        for t in targets
        if t and "://" not in t and not t.startswith("mailto:") and not (document.parent / t).exists()
    ]


def broken_repository_links(document: Path) -> list[str]:
    """Absolute links of a document to files of this repository that do not exist; they are for readers on PyPI."""
    found = re.findall(rf"{re.escape(REPOSITORY)}/(?:blob|raw)/main/([^)#\s]+)", document.read_text(encoding="utf-8"))
    return [target for target in found if not (ROOT / target).exists()]


# --- the rule -------------------------------------------------------------------------------------------------------


def test_readme_has_an_example_that_runs() -> None:
    assert [example for example in examples(README.read_text(encoding="utf-8")) if example.skip is None]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_examples_run_as_typed(document: Path) -> None:
    run(document.read_text(encoding="utf-8"), str(document))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(document: Path) -> None:
    assert broken_links(document) == []
    assert broken_repository_links(document) == []


def test_readme_links_work_on_pypi_too() -> None:
    """PyPI shows the README without the repository: a relative link leads nowhere there."""
    prose = _CODE.sub("", README.read_text(encoding="utf-8"))
    targets = [match["target"] for match in _LINK.finditer(prose)]
    assert [target for target in targets if "://" not in target and not target.startswith("#")] == []


def demo_figures() -> str:
    """Return the part of the demo's output that README shows."""
    result = CliRunner(env={"COLUMNS": "80"}).invoke(main, ["demo"])
    assert result.exit_code == 0, result.output
    printed = [line.rstrip() for line in result.stdout.splitlines()]
    first = next(at for at, line in enumerate(printed) if line.startswith("metaclient demo"))
    last = next(at for at, line in enumerate(printed) if line.startswith("The primary served"))
    return "\n".join(printed[first:last]).rstrip("\n") + "\n"


def with_figures(readme: str, figures: str) -> str:
    """Return README with these figures; they are in its one fence of the language text."""
    made, count = re.subn(
        r"^```text\n.*?^```$", lambda _: f"```text\n{figures}```", readme, flags=re.MULTILINE | re.DOTALL
    )
    assert count == 1, "README has one fence of the language text, for the demo's figures"
    return made


@pytest.mark.slow
def test_readme_shows_what_the_demo_prints() -> None:
    """The demo is on virtual time and from one seed, so that its figures are the same on every machine.

    The test writes the figures of today into README, so that the next commit has them, and fails if they were others.
    """
    before = README.read_text(encoding="utf-8")
    after = with_figures(before, demo_figures())
    if before != after and not os.environ.get("CI"):
        README.write_text(after, encoding="utf-8")
    assert before == after, "the demo's figures in README were stale; the test has written the new ones: commit README"


def test_figures_are_replaced_and_nothing_else() -> None:
    assert with_figures("a\n```text\nold\n```\nb\n", "new\n") == "a\n```text\nnew\n```\nb\n"


# --- the checker ----------------------------------------------------------------------------------------------------


def test_checker_runs_examples_in_one_namespace() -> None:
    assert (
        run(
            "```python\nx = 1\n```\ntext\n```python\n>>> x + 1\n2\n>>> y = 5\n```\n```python\nassert y == 5\n```\n",
            "a.md",
        )
        == 3
    )


def test_checker_fails_where_an_example_fails() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        run("one\n\n```python\nx = 0\n1 / x\n```\n", "a.md")
    assert caught.traceback[-1].lineno == 4  # counted from 0: the document's fifth line


def test_checker_fails_where_a_session_prints_something_else() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"a\.md:4: expected '3\\n', got '2\\n'"):
        run("one\n```python\n>>> x = 1\n>>> x + 1\n3\n```\n", "a.md")


def test_checker_fails_where_a_session_raises() -> None:
    with pytest.raises(NameError):
        run("```python\n>>> nowhere\n```\n", "a.md")


def test_checker_leaves_out_other_languages_and_reasons() -> None:
    assert run("```sh\nexit 1\n```\n```\n1/0\n```\n```python skip: needs a gateway\n1 / 0\n```\n", "a.md") == 0


def test_checker_wants_a_reason_for_a_skip() -> None:
    with pytest.raises(ValueError, match="skip: REASON"):
        run("```python skip:\n1 / 0\n```\n", "a.md")


def test_checker_finds_a_broken_link(tmp_path: Path) -> None:
    (tmp_path / "here.md").write_text("")
    document = tmp_path / "a.md"
    document.write_text(
        "[a](here.md) [b](gone.md) [c](gone/too.md#part) [d](#part) [e](https://example.org/x) `[f](code.md)`\n"
    )
    assert broken_links(document) == ["gone.md", "gone/too.md"]
