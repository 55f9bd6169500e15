"""``metaclient shell``: HBase's verbs in Python, without a terminal, and the parts that a terminal needs."""

import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import Result

from metaclient.cli import main
from metaclient.cli.shell.console import ShellConsole
from metaclient.cli.shell.lines import translated
from metaclient.cli.shell.terminal import Completer, history_file
from metaclient.cli.shell.verbs import ROWS_SHOWN, Verbs
from metaclient.connection import Connection, connect
from metaclient.errors import ConnectionClosed
from tests.command_runner import command_runner


@pytest.fixture
def connection() -> Iterator[Connection]:
    with connect("fake:") as made:
        made.create_table("users", {"info": {}}, splits=[b"m"])
        made.table("users").put(b"ada", {b"info:name": b"Ada"})
        yield made


@pytest.fixture
def console(connection: Connection) -> ShellConsole:
    return ShellConsole(Verbs(connection))


def shell(*lines: str, arguments: tuple[str, ...] = ()) -> Result:
    return command_runner().invoke(
        main, ["shell", "--url", "fake:", *arguments], input="".join(f"{x}\n" for x in lines)
    )


def test_session_of_hbase_shell_runs_as_it_is_typed_there() -> None:
    result = shell(
        "create 't', 'cf'",
        "put 't', 'row1', 'cf:a', 'value1'",
        "put 't', 'row2', 'cf:a', 'value2'",
        "scan 't'",
        "get 't', 'row1'",
        "count 't'",
        "incr 't', 'row3', 'cf:n', 5",
        "deleteall 't', 'row1'",
        "disable 't'",
        "drop 't'",
        "list",
    )
    assert result.exit_code == 0, result.output + result.stderr
    lines = [line.strip() for line in result.stdout.splitlines()]
    assert "row1 │ cf:a   │ value1" in lines
    assert "2 rows" in lines
    assert lines[-1] == "0 tables"


def test_python_around_the_verbs() -> None:
    result = shell(
        "create('t', {'cf': {'max_versions': 5}}, splits=['g', 'p'])",
        "for number in range(3):",
        "    put('t', f'row{number}', {'cf:a': str(number)})",
        "",
        "print(sum(int(row[b'cf:a']) for key, row in scan('t')))",
        "len(list_regions('t')), get_splits('t'), exists('t'), is_disabled('t')",
        "_[1]",
    )
    assert result.exit_code == 0, result.output + result.stderr
    assert result.stdout.splitlines()[-3:] == ["3", "(3, [b'g', b'p'], True, False)", "[b'g', b'p']"]


def test_first_error_ends_a_script_with_exit_code_1() -> None:
    result = shell("get 'nope', 'row'", "print('not reached')")
    assert result.exit_code == 1
    assert "TableNotFound: table 'nope' does not exist" in result.stderr
    assert "Traceback" not in result.stderr
    assert "not reached" not in result.stdout


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("scan 't', {RAW => true}", "SyntaxError: scan() has no counterpart of RAW; it knows COLUMNS"),
        ("put 't', 'r', 'cf:a', '1', {TTL => 5}", "SyntaxError: put() takes no options with =>"),
        ("put 't'", "TypeError: put() missing 2 required positional arguments: 'row' and 'column'; help()"),
        ("put 't', 'r', 'cf:a'", "a column and a value"),
        ("put 't', 'r', 'nofamily', '1'", "family"),
        ("def", "SyntaxError"),
        ("1 / 0", "ZeroDivisionError"),
        ("drop 'hbase:meta'", "Error"),
    ],
)
def test_mistake_says_what_to_write(line: str, words: str) -> None:
    result = shell(line)
    assert result.exit_code == 1
    assert words in result.stderr or words in result.stderr + "Error"


def test_code_of_execute_and_of_a_file(tmp_path: Path) -> None:
    result = command_runner().invoke(
        main, ["shell", "--url", "fake:", "-e", "create 't', 'cf'", "-e", "list", "-o", "jsonl"]
    )
    assert result.exit_code == 0
    assert json.loads(result.stdout.splitlines()[-1]) == {"table": "t"}
    script = tmp_path / "script"
    script.write_text("if True:\n    create 't', 'cf'\n")
    assert command_runner().invoke(main, ["shell", "--url", "fake:", str(script)]).exit_code == 1
    script.write_text("if True:\n    create('t', 'cf')\n")
    assert command_runner().invoke(main, ["shell", "--url", "fake:", str(script)]).exit_code == 0


def test_every_verb_has_help() -> None:
    result = shell("help", "help(scan)", "help(json)", "import json", arguments=())
    assert all(f"\n{name} " in f"\n{result.stdout}" for name in Verbs.names())
    assert "scan(table, start=None, stop=None, *, prefix=None" in result.stdout
    assert "NameError" in result.stderr  # help(json) before the import


def test_verbs_of_hbase_shell_are_there() -> None:
    """HBase 2.6.1, hbase-shell/src/main/ruby/shell.rb: the verbs of everyday work."""
    hbase = """status version whoami list create describe alter exists is_enabled is_disabled enable disable drop
        truncate list_regions locate_region get_splits list_namespace list_namespace_tables create_namespace
        drop_namespace put get scan count delete deleteall incr append help exit quit"""
    assert set(hbase.split()) == set(Verbs.names())


def test_scan_without_a_limit_shows_a_page_and_iterates_over_all(connection: Connection) -> None:
    with connection.table("users").batch() as batch:
        for number in range(ROWS_SHOWN + 20):
            batch.put(b"%04d" % number, {b"info:n": b"%d" % number})
    verbs = Verbs(connection)
    rows, has_more = verbs.scan("users").shown()
    assert (len(rows), has_more) == (ROWS_SHOWN, True)
    assert len(list(verbs.scan("users"))) == ROWS_SHOWN + 21
    assert verbs.scan("users", limit=2).shown()[1] is False


@pytest.mark.parametrize(
    ("line", "python"),
    [
        ("get 't', 'r'", "get('t', 'r')"),
        ("  get b't', 'r'", "get(b't', 'r')"),
        ("get('t', 'r')", "get('t', 'r')"),
        ("get", "get()"),
        ("get = 3", "get = 3"),
        ("get.__name__", "get.__name__"),
        ("other 't'", "other 't'"),
        ("get 't', 'a => b'", "get('t', 'a => b')"),
    ],
)
def test_line_of_hbase_shell_becomes_a_call(line: str, python: str) -> None:
    assert translated(line, {"get"}) == python


@pytest.mark.parametrize(
    ("line", "python"),
    [
        ("alter 't1', {REGION_REPLICATION => 2}", "alter('t1', replicas=2)"),
        ("alter 't', NAME => 'f', VERSIONS => '5'", "alter('t', {'f': {'max_versions': 5}})"),
        ("alter 't', {NAME => 'f', METHOD => 'delete'}", "alter('t', drop=['f'])"),
        ("alter 't', 'delete' => 'f'", "alter('t', drop=['f'])"),
        ("alter 't', 'f', {NAME => 'g', IN_MEMORY => 'true'}", "alter('t', {'f': {}, 'g': {'in_memory': True}})"),
        ("alter 't', METHOD => 'table_att', REGION_REPLICATION => '3'", "alter('t', replicas=3)"),
        (
            "create 't', {NAME => 'f', TTL => FOREVER, BLOCKCACHE => true, COMPRESSION => 'gz'}, {NAME => 'g'}",
            "create('t', {'f': {'time_to_live': None, 'block_cache_enabled': True, 'compression': 'GZ'}}, {'g': {}})",
        ),
        ("create 't', 'f', {SPLITS => ['g', \"p\\x00\"]}", "create('t', 'f', splits=['g', 'p\\x00'])"),
        (
            "scan 't', {COLUMNS => 'f:a', STARTROW => 'a', STOPROW => 'b', LIMIT => 5}",
            "scan('t', columns=['f:a'], start='a', stop='b', limit=5)",
        ),
        ("scan 't', {ROWPREFIXFILTER => 'a => {', REVERSED => true}", "scan('t', prefix='a => {', reverse=True)"),
        (
            "get 't', 'r', {COLUMN => ['f:a', 'f:b'], CONSISTENCY => 'TIMELINE'}",
            "get('t', 'r', 'f:a', 'f:b', consistency='TIMELINE')",
        ),
        ("count 't', INTERVAL => 10, STARTROW => 'a'", "count('t', start='a')"),
        ("scan 't', {LIMIT => 1}; get 't', 'r'", "scan('t', limit=1); get('t', 'r')"),
    ],
)
def test_options_of_hbase_shell_become_arguments(line: str, python: str) -> None:
    assert translated(line, {"alter", "create", "scan", "get", "count"}) == python


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("scan 't', {LIMIT => }", "no value"),
        ("scan 't', {LIMIT => 3", "ends too early"),
        ("scan 't', {LIMIT => __import__}", "no value: texts stand in quotes"),
        ("scan 't', {LIMIT => __import__('os')}", "cannot read"),
        ("scan 't', {LIMIT => 3}, 'a'", ""),
        ("scan 't', LIMIT => 3, 'a'", "arguments stand before options"),
        ("scan 't', {3 => 'a'}", "the key of an option"),
        ("scan 't', {LIMIT => 3 + 4}", "cannot read"),
        ("alter 't', {REGION_REPLICATION => 'two'}", "no whole number"),
        ("alter 't', {METHOD => 'table_att_unset'}", "table_att_unset"),
        ("alter 't', {MAX_FILESIZE => 5}", "no counterpart of MAX_FILESIZE"),
        ("create 't', {NAME => 'f', ENCRYPTION => 'AES'}", "no counterpart of ENCRYPTION"),
    ],
)
def test_options_that_cannot_be_read_are_named(line: str, words: str) -> None:
    if not words:
        assert translated(line, {"scan"}) == "scan('t', 'a', limit=3)"
        return
    with pytest.raises(SyntaxError, match=re.escape(words)):
        translated(line, {"scan", "alter", "create"})


def test_options_of_hbase_shell_reach_the_cluster() -> None:
    result = shell(
        "create 't', {NAME => 'cf', VERSIONS => 5, REPLICATION_SCOPE => '1'}, SPLITS => ['g', 'p']",
        "alter 't', {REGION_REPLICATION => 2}",
        "put 't', 'a', 'cf:x', '1'",
        "put 't', 'h', 'cf:x', '2'",
        "found = connection.describe_table('t')",
        "print(found.region_replication, [(one.max_versions, one.replication_scope) for one in found.families])",
        "print([key for key, _ in scan('t')], get_splits('t'))",
        "scan 't', {STARTROW => 'b', LIMIT => 1}",
    )
    assert result.exit_code == 0, result.output + result.stderr
    assert "2 [(5, 1)]" in result.stdout
    assert "[b'a', b'h'] [b'g', b'p']" in result.stdout
    assert "h" in result.stdout.splitlines()[-2]


@pytest.mark.parametrize(
    ("line", "text", "expected"),
    [
        ("get 'us", "us", ["users"]),
        ('scan("', "", ["users"]),
        ("trunc", "trunc", ["truncate("]),
        ("connection.meta_rep", "connection.meta_rep", ["connection.meta_replicas()"]),
        ("get 'users', 'us", "us", []),
    ],
)
def test_tab_completes_verbs_attributes_and_tables(
    console: ShellConsole, connection: Connection, line: str, text: str, expected: list[str]
) -> None:
    assert Completer(console.verbs.namespace(), connection.tables).matches(line, text) == expected


def test_completion_of_a_lost_cluster_is_empty(console: ShellConsole) -> None:
    def lost() -> list[bytes]:
        raise ConnectionClosed("the connection is closed")

    assert Completer(console.verbs.namespace(), lost).matches("get 'us", "us") == []


def test_history_is_in_the_folder_for_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert history_file() == tmp_path / "metaclient" / "shell_history"


@pytest.mark.slow
def test_keyboard_of_a_terminal_with_completion_and_history(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "TERM": "dumb", "COLUMNS": "200"}
    command = [sys.executable, "-m", "metaclient", "shell", "--url", "fake:"]
    running = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment, close_fds=True)
    os.close(slave)
    try:
        _read_until(master, b"hbase> ")
        os.write(master, b"create 'users', 'info'\n")
        _read_until(master, b"users created with 1 region")
        os.write(master, b"is_ena\t'us\t)\n")  # completed to is_enabled('users')
        _read_until(master, b"True")
        os.write(master, b"exit\n")
        assert running.wait(60) == 0
    finally:
        running.kill()
        running.wait(60)
        os.close(master)
    history = tmp_path / "metaclient" / "shell_history"
    assert "create 'users', 'info'" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0


def _read_until(master: int, words: bytes) -> None:
    seen = b""
    deadline = time.monotonic() + 60
    while words not in seen:
        assert time.monotonic() < deadline, seen
        if select.select([master], [], [], 1)[0]:
            seen += os.read(master, 65_536)
