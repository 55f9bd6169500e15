"""The formats of the command line: tables that programs can cut, JSON lines, tab-separated values, streams."""

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest
from click.testing import Result

from metaclient.cli import main
from metaclient.cli.output import PAGE_ITEMS_PIPE, Output, print_stream, print_table, print_tsv
from metaclient.connection import connect
from tests.command_runner import command_runner

URL = "fake:cli-output-tests"
LONG = "x" * 300


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with connect(URL) as connection:
        connection.create_table("t", {"cf": {}}, splits=[b"m"])
        connection.table("t").put(b"a", {b"cf:x": b"1", b"cf:y": b"tab\there"})
        connection.table("t").put(b"b", {b"cf:x": LONG.encode()})
        connection.table("t").put(b"[bold]c", {b"cf:x": b"[red]text[/red]"})
        yield


def run(*arguments: str) -> Result:
    # COLUMNS would bound the width of tables, and parallel runs of pytest set it.
    result = command_runner().invoke(main, [*arguments, "--url", URL], env={"COLUMNS": None})
    assert result.exit_code == 0, result.output + result.stderr
    return result


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield each command of the package with its path; entry points of other packages have their own options."""
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from leaves(inner, (*path, name))
    else:
        yield path, command


#: Commands that connect to no cluster, or to one that they start, and so have no options of a client.
CLUSTERLESS = {"demo", "hbase", "fake"}


def test_every_command_of_a_cluster_has_a_timeout_a_url_and_an_output() -> None:
    for path, command in leaves(main):
        options = {option for parameter in command.params for option in parameter.opts}
        if path == ("completion",):
            continue
        assert {"--output", "--json"} <= options, path
        is_connected = path[0] not in CLUSTERLESS
        assert ("--timeout" in options) is is_connected, path
        assert ("--url" in options) is (is_connected and path != ("replication", "verify")), path


def test_help_documents_the_environment_and_completion() -> None:
    shown = command_runner().invoke(main, ["--help"]).stdout
    assert "METACLIENT_URL" in shown
    assert "metaclient completion bash" in shown
    assert "METACLIENT_URL" in command_runner().invoke(main, ["scan", "--help"]).stdout


def test_table_in_a_pipe_does_not_fold_a_long_value() -> None:
    (line,) = [line for line in run("scan", "t").stdout.splitlines() if line.startswith("b ")]
    assert LONG in line


def test_table_on_a_terminal_folds_at_its_width() -> None:
    master, slave = pty.openpty()
    os.set_blocking(master, False)
    environment = {**os.environ, "COLUMNS": "60", "TERM": "xterm"}
    code = f"from metaclient.cli.output import print_table; print_table('', ('a',), [({LONG!r},)])"
    subprocess.run([sys.executable, "-c", code], stdout=slave, env=environment, check=True, timeout=60)
    written = re.sub(r"\x1b\[[0-9;]*m", "", os.read(master, 65_536).decode())
    os.close(master)
    os.close(slave)
    assert max(len(line) for line in written.splitlines()) <= 60
    assert written.count("x") == len(LONG)


def test_table_shows_brackets_of_data_as_they_are() -> None:
    shown = run("scan", "t").stdout
    assert "[bold]c" in shown
    assert "[red]text[/red]" in shown


def test_lines_of_a_table_have_no_trailing_spaces(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("title", ("a", "b"), [("1", "2"), ("long", "")])
    assert all(line == line.rstrip() for line in capsys.readouterr().out.splitlines())


def test_jsonl_has_one_document_per_row() -> None:
    rows = [json.loads(line) for line in run("scan", "t", "-o", "jsonl").stdout.splitlines()]
    assert [row["row"] for row in rows] == ["[bold]c", "a", "b"]
    assert [json.loads(line) for line in run("tables", "-o", "jsonl").stdout.splitlines()] == [{"tables": "t"}]


def test_tsv_has_a_header_and_escapes_tabs() -> None:
    lines = [line.split("\t") for line in run("scan", "t", "-o", "tsv").stdout.splitlines()]
    assert lines[0] == ["row", "column", "timestamp", "value"]
    assert {len(line) for line in lines} == {4}
    assert [*lines[3][:2], lines[3][3]] == ["a", "cf:y", r"tab\x09here"]


@pytest.mark.parametrize("output", ["tsv", "jsonl", "json"])
@pytest.mark.parametrize(
    "arguments",
    [
        ("tables",),
        ("get", "t", "a"),
        ("describe", "t"),
        ("regions", "t"),
        ("locate", "t", "a"),
        ("meta",),
        ("doctor",),
        ("count", "t"),
        ("put", "t", "z", "cf:a=1"),
        ("delete", "t", "z"),
        ("namespaces", "list"),
        ("replication", "list"),
        ("replication", "status"),
        ("changes", "list"),
        ("changes", "doctor"),
    ],
    ids=" ".join,
)
def test_formats_for_programs_hold_nothing_else(arguments: tuple[str, ...], output: str) -> None:
    printed = run(*arguments, "--output", output).stdout
    if output == "json":
        json.loads(printed)
    elif output == "jsonl":
        assert all(isinstance(json.loads(line), dict) for line in printed.splitlines())
    else:
        widths = {line.count("\t") for line in printed.splitlines()}
        assert len(widths) == 1, printed


def test_json_contradicts_another_output() -> None:
    result = command_runner().invoke(main, ["tables", "--url", URL, "--json", "--output", "tsv"])
    assert result.exit_code == 2
    assert "--json contradicts --output tsv" in result.stderr


def test_error_is_one_line_of_jsonl() -> None:
    result = command_runner().invoke(main, ["get", "nope", "a", "--url", URL, "-o", "jsonl"])
    assert result.exit_code == 1
    (line,) = result.stdout.splitlines()
    assert json.loads(line)["error"] == "TableNotFound"


def test_prompt_needs_yes_in_a_format_for_programs() -> None:
    result = command_runner().invoke(main, ["truncate", "t", "--url", URL, "-o", "tsv"])
    assert result.exit_code == 2
    assert "--output tsv needs --yes" in result.stderr


def test_timeout_ends_an_operation_on_a_cluster_that_does_not_answer() -> None:
    result = command_runner().invoke(main, ["get", "t", "a", "--url", URL, "--timeout", "0"])
    assert result.exit_code == 2
    result = command_runner().invoke(main, ["tables", "--url", "thrift2://127.0.0.1:1", "--timeout", "0.2"])
    assert result.exit_code == 1
    assert "127.0.0.1:1" in result.stderr


def test_timeout_reaches_the_configuration_of_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {}

    def connected(url: str | None, **options: object) -> object:
        seen.update(options)
        return connect(url, **options)

    monkeypatch.setattr("metaclient.cli.session.connect", connected)
    run("doctor", "--timeout", "7")
    assert (seen["operation_timeout_s"], seen["scanner_timeout_s"]) == (7.0, 7.0)


def test_scan_prints_the_first_page_before_it_reads_the_last_row(capsys: pytest.CaptureFixture[str]) -> None:
    shown_at: list[int] = []

    def items() -> Iterator[int]:
        for number in range(PAGE_ITEMS_PIPE * 2 + 1):
            if number == PAGE_ITEMS_PIPE * 2:
                shown_at.append(len(capsys.readouterr().out.splitlines()))
            yield number

    print_stream(
        Output.TABLE, ("n",), items(), title="t", document=lambda item: {"n": item}, lines=lambda item: [(item,)]
    )
    header_lines = 3
    assert shown_at == [PAGE_ITEMS_PIPE * 2 + header_lines]


@pytest.mark.parametrize("output", [Output.TSV, Output.JSONL])
def test_lines_are_printed_one_by_one(output: Output, capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[str] = []

    def items() -> Iterator[int]:
        yield 1
        seen.append(capsys.readouterr().out)
        yield 2

    print_stream(output, ("n",), items(), title="", document=lambda item: {"n": item}, lines=lambda item: [(item,)])
    assert "1" in seen[0]


def test_scan_without_a_limit_reads_all_rows_and_one_with_a_limit_says_where_it_stopped() -> None:
    assert len(run("scan", "t", "--limit", "0", "-o", "jsonl").stdout.splitlines()) == 3
    stopped = run("scan", "t", "--limit", "1", "-o", "jsonl")
    assert len(stopped.stdout.splitlines()) == 1
    assert "there are more rows: the scan stopped at its limit of 1; --start a continues from here" in stopped.stderr


def test_tsv_of_values_that_are_no_text(capsys: pytest.CaptureFixture[str]) -> None:
    print_tsv([(None, True, ["a"], 1.5, "a\nb")])
    assert capsys.readouterr().out == '\ttrue\t["a"]\t1.5\ta\\nb\n'


def test_completion_script_is_understood_by_bash() -> None:
    script = command_runner().invoke(main, ["completion", "bash"]).stdout
    done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "_METACLIENT_COMPLETE=bash_complete" in script
