"""The benchmarks' structure: the promised document, goals, exit codes, the registry. No timings here."""

import functools
import importlib
import json
import os
import pkgutil
import sys
from pathlib import Path
from xml.etree import ElementTree

import click
import pytest
from click.testing import Result

import metaclient_bench.scenarios
from metaclient.config import Config
from metaclient.config.security import Protection, SecuritySettings
from metaclient.errors import ConfigError
from metaclient_bench.cli import bench, group_of
from metaclient_bench.figure import Bars, Figure, Goal, Lines, Outcome
from metaclient_bench.keyspace import random_rows, splits
from metaclient_bench.places import Place, _clients, place
from metaclient_bench.scenario import Scenario
from metaclient_bench.scenarios import SCENARIOS
from metaclient_bench.scenarios.cold_start import LOOKUPS, java_calls
from metaclient_local_hbase import LocalHBase
from metaclient_local_hbase.programs import java_command
from metaclient_local_hbase.settings import write_client_configuration
from tests.command_runner import command_runner

CHARTS = (
    Lines("a line", "x", "y", {"ours": ([0.0, 1.0], [1.0, 2.0])}, goal=1.5, marks={"now": 0.5}),
    Bars("bars", "y", {"ours": 1.0, "java": 20.0}, goal=2.0, is_log_y=True),
)


def scenario(name: str, value: float, goal: str) -> Scenario:
    figure = Figure.of(name.upper(), f"what {name} is", value, goal, java=7)
    return Scenario(name, (name.upper(),), f"shows {name}", lambda quick: Outcome((figure,), {"quick": quick}, CHARTS))


def broken(quick: bool) -> Outcome:
    raise RuntimeError("no such luck")


GOOD = scenario("good", 0.005, "<= 0.01")
BAD = scenario("bad", 0.5, "<= 0.01")
BROKEN = Scenario("broken", ("X",), "shows nothing", broken)


def invoke(scenarios: tuple[Scenario, ...], *args: str) -> Result:
    return command_runner().invoke(group_of(scenarios), list(args))


# -- goals and figures


@pytest.mark.parametrize(
    ("text", "value", "is_met"),
    [
        ("<= 0.01", 0.01, True),
        ("<= 0.01", 0.0101, False),
        (">= 0.63", 0.63, True),
        (">= 0.63", 0.62, False),
        ("< 3", 3, False),
        ("> 3", 3.5, True),
        ("== 0", 0, True),
        ("<=15", 15, True),
    ],
)
def test_goal_says_whether_a_value_meets_it(text: str, value: float, is_met: bool) -> None:
    assert Goal.parse(text).is_met(value) is is_met


@pytest.mark.parametrize("text", ["", "0.01", "<=", "=< 3", "<= three", "<= 3 %", "<= nan"])
def test_goal_that_nobody_could_meet_or_miss_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a goal is one of"):
        Goal.parse(text)


def test_value_that_is_not_a_number_meets_no_goal() -> None:
    assert not any(Goal.parse(f"{sign} 1").is_met(float("nan")) for sign in ("<=", ">=", "==", "<", ">"))


def test_figure_has_the_promised_shape() -> None:
    """The keys of the JSON report: "id", "what", "value", "goal", "met", "beside"."""
    assert Figure.of("P1", "a share", 0.0051234567, "<= 0.01", java=0.33).as_json() == {
        "id": "P1",
        "what": "a share",
        "value": 0.00512346,
        "goal": "<= 0.01",
        "met": True,
        "beside": {"java": 0.33},
    }


# -- the document and the exit code


def test_run_prints_one_document_and_nothing_else() -> None:
    result = invoke((GOOD, BAD), "run", "good", "--json")
    document = json.loads(result.stdout)
    assert list(document) == ["scenario", "backend", "figures", "samples"]
    assert document["scenario"] == "good"
    assert document["figures"][0]["met"] is True
    assert document["samples"] == {"quick": False}
    assert result.exit_code == 0


def test_missed_goal_is_said_and_fails_the_run() -> None:
    result = invoke((GOOD, BAD), "run", "bad", "--json", "--quick")
    document = json.loads(result.stdout)
    assert [figure["met"] for figure in document["figures"]] == [False]
    assert document["samples"] == {"quick": True}
    assert result.exit_code == 1


def test_run_all_has_the_same_shape_for_all_together() -> None:
    result = invoke((GOOD, BAD), "run", "all", "--json")
    document = json.loads(result.stdout)
    assert list(document) == ["scenario", "backend", "figures", "samples"]
    assert [figure["id"] for figure in document["figures"]] == ["GOOD", "BAD"]
    assert set(document["samples"]) == {"good", "bad"}
    assert result.exit_code == 1


def test_scenario_that_breaks_fails_the_run_and_not_the_others() -> None:
    result = invoke((BROKEN, GOOD), "run", "all", "--json")
    document = json.loads(result.stdout)
    assert document["error"] == {"broken": "RuntimeError: no such luck"}
    assert [figure["id"] for figure in document["figures"]] == ["GOOD"]
    assert result.exit_code == 1


def test_scenario_is_found_by_the_id_of_a_figure() -> None:
    assert json.loads(invoke((GOOD, BAD), "run", "bad", "--json").stdout)["scenario"] == "bad"
    assert json.loads(invoke((BROKEN, GOOD), "run", "Good", "--json").stdout)["scenario"] == "good"


@pytest.mark.parametrize("args", [("run",), ("run", "nope"), ("run", "good", "--fast"), ("walk",)])
def test_wrong_use_is_exit_code_2_and_names_what_there_is(args: tuple[str, ...]) -> None:
    result = invoke((GOOD, BAD), *args)
    assert result.exit_code == 2
    assert result.stdout == ""
    if "nope" in args:
        assert "good, bad, all" in result.stderr


def test_people_see_a_table() -> None:
    result = invoke((GOOD, BAD), "run", "bad")
    assert "shows bad" in result.stdout
    assert "<= 0.01" in result.stdout
    assert result.exit_code == 1


def test_list_names_every_scenario() -> None:
    assert json.loads(invoke((GOOD, BAD), "list", "--json").stdout) == {
        "scenarios": [
            {"scenario": "good", "ids": ["GOOD"], "shows": "shows good"},
            {"scenario": "bad", "ids": ["BAD"], "shows": "shows bad"},
        ]
    }
    assert "shows bad" in invoke((GOOD, BAD), "list").stdout


# -- other backends


def elsewhere(quick: bool, backend: str) -> Outcome:
    return Outcome((Figure.of("E", backend, 1, ">= 1"),), {"backend": backend})


MOVABLE = Scenario("movable", ("E",), "shows e", broken, backend="fake", run_on=elsewhere)


def test_backend_is_handed_to_the_scenario_and_named_in_the_document() -> None:
    document = json.loads(invoke((GOOD, MOVABLE), "run", "movable", "--backend", "thrift2://h:1", "--json").stdout)
    assert (document["backend"], document["samples"]) == ("thrift2://h:1", {"backend": "thrift2://h:1"})


@pytest.mark.parametrize("name", ["good", "all"])
def test_backend_for_a_scenario_that_has_only_its_own_is_refused(name: str) -> None:
    result = invoke((GOOD, MOVABLE), "run", name, "--backend", "local-hbase")
    assert result.exit_code == 2
    assert "movable" in result.stderr


def test_scenario_that_cannot_run_here_is_left_out_of_all_with_the_reason() -> None:
    absent = Scenario("absent", ("Z",), "shows z", broken, missing=lambda: "install java")
    result = invoke((GOOD, absent), "run", "all", "--json")
    assert result.exit_code == 0
    assert "absent is skipped: install java" in " ".join(result.stderr.split())
    assert [figure["id"] for figure in json.loads(result.stdout)["figures"]] == ["GOOD"]


@pytest.mark.parametrize("name", ["meta-load", "meta-failover", "timeline-tail", "peers"])
def test_promised_scenarios_take_a_backend(name: str) -> None:
    scenario = next(one for one in SCENARIOS if one.name == name)
    assert scenario.on("thrift2://h:1").backend == "thrift2://h:1"


def test_client_of_a_secure_place_logs_in_by_kerberos_with_privacy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KRB5_CONFIG", raising=False)
    hbase = LocalHBase(secure=True, folder=tmp_path)
    write_client_configuration(hbase._layout)
    [connect] = _clients(hbase).values()
    assert isinstance(connect, functools.partial)
    given = dict(connect.keywords)
    settings = SecuritySettings.of(Config.of(given.pop("config"), **given))
    assert (settings.is_kerberos, settings.principal) == (True, "alice@TEST.LOCAL")
    assert settings.protections == (Protection.PRIVACY,)
    assert os.environ["KRB5_CONFIG"] == str(hbase.krb5_conf)
    read = ElementTree.parse(hbase.java_login.folder / "hbase-site.xml").getroot()  # type: ignore[operator]
    properties = {one.findtext("name"): one.findtext("value") for one in read.iter("property")}
    assert properties["hbase.client.keytab.principal"] == "alice@TEST.LOCAL"
    command = java_command(tmp_path / "A.java", login=hbase.java_login)
    assert f"-Djava.security.krb5.conf={hbase.krb5_conf}" in command
    assert command[command.index("-cp") + 1].startswith(f"{tmp_path}/conf/java:")


@pytest.mark.parametrize("backend", ["nope", "local-hbase:1.0", "secure-hbase:1.0", "fake:x"])
def test_place_that_is_none_is_an_error_that_names_those_that_are(backend: str) -> None:
    with pytest.raises(ConfigError, match=r"fake|2\.6\.1"), place(backend):
        pass


def test_cluster_of_others_is_not_broken() -> None:
    with pytest.raises(ConfigError, match="local-hbase"):
        Place("thrift2://h:1", {}).breakable()


# -- the report


def test_report_holds_every_figure_in_one_page(tmp_path: Path) -> None:
    result = invoke((GOOD, BAD, BROKEN), "run", "all", "--output", str(tmp_path))

    folder = tmp_path
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "1 of 2 figures met" in page
    assert all(text in page for text in ("what good is", "what bad is", "no such luck"))
    assert "src=" not in page.replace('src="data:', "")  # self-contained
    assert json.loads((folder / "good.json").read_text(encoding="utf-8"))["scenario"] == "good"
    assert result.exit_code == 1


def test_pictures_are_drawn_beside_the_page(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")

    invoke((GOOD,), "run", "good", "--output", str(tmp_path))
    folder = tmp_path
    names = ["good.png", "good-2.png"]
    assert all((folder / name).read_bytes().startswith(b"\x89PNG") for name in names)
    assert (folder / "report.html").read_text(encoding="utf-8").count('src="data:image/png') == 2


def test_first_picture_can_be_written_to_a_file_of_its_own(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result = invoke((GOOD,), "run", "good", "--picture", str(tmp_path / "docs" / "good.png"))
    assert (tmp_path / "docs" / "good.png").read_bytes().startswith(b"\x89PNG")
    assert result.exit_code == 0


def test_picture_of_all_scenarios_is_refused(tmp_path: Path) -> None:
    assert invoke((GOOD, BAD), "run", "all", "--picture", str(tmp_path / "all.png")).exit_code == 2


def test_without_matplotlib_the_page_is_written_and_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = invoke((GOOD,), "run", "good", "--output", str(tmp_path))
    assert "pip install 'hbase-metaclient[plots]'" in " ".join(result.stdout.split())
    assert "report.html" in result.stdout.replace("\n", "")
    assert result.exit_code == 0


# -- the registry


def test_every_module_of_scenarios_is_registered() -> None:
    found = [module.name for module in pkgutil.iter_modules(metaclient_bench.scenarios.__path__)]
    modules = [importlib.import_module(f"metaclient_bench.scenarios.{name}") for name in found]
    assert {module.SCENARIO.name for module in modules} == {one.name for one in SCENARIOS}
    assert len(SCENARIOS) == len(modules)


def test_names_and_ids_are_unique_and_typeable() -> None:
    names = [one.name for one in SCENARIOS]
    ids = [id for one in SCENARIOS for id in one.ids]
    assert len(set(names)) == len(names)
    assert len(set(ids)) == len(ids)
    assert all(name.replace("-", "").isalpha() and name.islower() for name in names)
    assert "all" not in names


def test_core_figures_are_there() -> None:
    assert {f"C{number}" for number in range(1, 10)} <= {id for one in SCENARIOS for id in one.ids}


def test_bench_is_a_group_that_the_command_line_can_adopt() -> None:
    assert isinstance(bench, click.Group)
    assert bench.name == "bench"
    assert sorted(bench.commands) == ["list", "run"]


# -- what the scenarios count with


def test_splits_make_regions_of_the_same_size() -> None:
    assert len(splits(1000)) == 999
    assert splits(2) == [b"500000"]
    assert random_rows(3, seed=1) == random_rows(3, seed=1)


def test_model_of_the_java_client_needs_as_many_calls_as_java() -> None:
    """213 calls for 5000 random rows of 1000 regions, prefetch 10; here the mean of 10 draws within 10 %."""
    made = [java_calls(seed) for seed in range(10)]
    assert all(len(calls) == LOOKUPS and calls == sorted(calls) for calls in made)
    assert 213 * 0.9 <= sum(calls[-1] for calls in made) / len(made) <= 213 * 1.1
