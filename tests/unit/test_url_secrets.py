"""A password in a url appears nowhere: not in errors and their causes, reprs, stats, logs, telemetry or output."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Iterator

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import metaclient
from metaclient.cli import main
from metaclient.cli.session import CommandSession
from metaclient.config.refusals import refusal
from metaclient.config.url_secrets import masked_url
from metaclient.errors import CallTimeout, ConfigError, ServerStopped
from metaclient.runtime import SimRuntime
from metaclient.testing import ScriptedBackend
from metaclient_fake.factory import close_named_clusters
from spark_connector.clients import check_reachable
from spark_connector.settings.options import Options
from tests.command_runner import command_runner

SECRET = "hunter2"
SCHEMES = ("thrift1", "thrift2", "thrift2+http", "thrift2+tls", "hbase", "hbase+rpc", "fake", "scripted", "nosuch")
#: What follows ``scheme:``. Many are no urls: where parsing fails, the error shows the whole text.
FORMS = (
    "//me:hunter2@host:9090",
    "//me:hunter2@host:9090/path?connections=2",
    "//hunter2@host",
    "//:hunter2@host",
    "//me:hunter2@host1,me:hunter2@host2:9090",
    "//host1,me:hunter2@host2",
    "//me:hunter2@",
    "//me:hunter2",
    "//:hunter2",
    "//host1,me:hunter2",
    "//me:hunter2@[::1",
    "//[me:hunter2",
    "//me:hunter2@host:port",
    "//me:hunter2@host:99999",
    "//me:1/hunter2@host",
    "//me:1?hunter2@host",
    "//me:1#hunter2@host",
    "//me:x@hunter2@host",
    "//me:hunter2@h\u2100st",
    "//me:hunter2\u2100",
    "//me:hunter2 @host\n",
    "/me:hunter2@host",
    "me:hunter2@host",
    "//host?password=hunter2",
    "//host?user=me&passwd=hunter2",
    "//host?access_token=hunter2",
    "//host?p%61ssword=hunter2",
    "//host?transport=framed&transport=compact&secret=hunter2",
)
WITHOUT_SCHEME = ("me:hunter2@host", "//me:hunter2@host", "hunter2@host", "host?password=hunter2")


def _urls(scheme: str) -> list[str]:
    return [f"{scheme}:{form}" for form in FORMS] if scheme else list(WITHOUT_SCHEME)


of_every_scheme = pytest.mark.parametrize("scheme", [*SCHEMES, ""])


@pytest.fixture(autouse=True)
def _no_named_clusters() -> Iterator[None]:
    yield
    close_named_clusters()


def _whole_text(error: BaseException) -> str:
    """Everything that a log shows of an error: the text, its causes, their causes, and the arguments."""
    shown = "".join(traceback.format_exception(type(error), error, None))
    chain: BaseException | None = error
    while chain is not None:
        shown += repr(chain) + str(chain) + "".join(getattr(chain, "__notes__", ()))
        chain = chain.__cause__ or chain.__context__
    return shown


@of_every_scheme
def test_password_of_a_url_is_in_no_error_repr_or_log(scheme: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    refused = 0
    for url in _urls(scheme):
        try:
            with metaclient.connect(url) as connection:  # what has no @ is the name of a fake cluster
                shown = repr(connection)
        except ConfigError as error:
            shown, refused = _whole_text(error), refused + 1
        assert_hidden(shown, url)
        assert_hidden(masked_url(url), url)
    assert refused >= len(_urls(scheme)) - (5 if scheme in ("fake", "scripted") else 0)
    assert_hidden(caplog.text, scheme)


@of_every_scheme
def test_password_of_a_url_is_in_no_output_of_a_command(scheme: str) -> None:
    for url in _urls(scheme):
        ran = command_runner().invoke(main, ["tables", "--json", "-vv", "--url", url])
        assert_hidden(ran.stdout + ran.stderr + repr(ran.exception), url)
        assert ran.exit_code == 0 or json.loads(ran.stdout)["error"] == "ConfigError", url


@of_every_scheme
@pytest.mark.filterwarnings("ignore:hbase.api.password")  # no property of HBase, so that it has no effect
def test_password_is_in_no_repr_or_error_of_spark_options(scheme: str) -> None:
    for url in _urls(scheme):
        options = Options.parse({"url": url, "hbase.table": "t", "hbase.api.password": SECRET})
        assert_hidden(repr(options), url)
        assert options.url == url.strip()
        with pytest.raises(ConfigError, match="the path names a table") as caught:
            Options.parse({"path": url if "://" in url else f"x://{url}"})
        assert_hidden(_whole_text(caught.value), url)
        if scheme == "fake":
            with pytest.raises(ConfigError, match="in the memory of one process") as caught:
                check_reachable(options.connection_url)
            assert_hidden(_whole_text(caught.value), url)


def assert_hidden(shown: str, url: str) -> None:
    if SECRET in shown:
        raise AssertionError(f"{url!r} is shown: {shown}")


@pytest.mark.parametrize("properties", [{"hbase.zookeeper.quorum": "me:hunter2@zk1"}, {"hbase.masters": "hunter2@m"}])
def test_password_in_a_property_with_addresses_is_in_no_error(properties: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as caught:
        metaclient.connect(config=properties)
    assert SECRET not in _whole_text(caught.value)


@pytest.mark.parametrize("host", ["me:hunter2@host", "hunter2@host", "thrift1://me:hunter2@host"])
def test_password_in_the_host_of_happybase_is_in_no_error(host: str) -> None:
    for make in (
        lambda: metaclient.Connection(host),
        lambda: metaclient.Connection(host=host, url="fake:"),
    ):
        with pytest.raises(ConfigError) as caught:
            make()
        assert SECRET not in _whole_text(caught.value)


@pytest.mark.parametrize("value", ["x://me:hunter2@host"])
def test_password_in_a_refused_property_is_not_shown(value: str) -> None:
    assert SECRET not in str(refusal("hbase.rpc.timeout", value, "config", "no number", "a number"))
    assert SECRET not in str(refusal("hbase.api_key", SECRET, "config", "no number", "a number"))


def test_second_use_of_a_named_fake_does_not_show_its_options() -> None:
    with metaclient.connect("fake:x?servers=3"), pytest.raises(ConfigError) as caught:
        metaclient.connect("fake:x?password=hunter2")
    assert SECRET not in _whole_text(caught.value)


def test_session_of_a_command_does_not_show_its_url() -> None:
    assert SECRET not in repr(CommandSession("thrift2://me:hunter2@host"))


# -- a backend of somebody else, which takes a password from its url

URL = "theirs://me:hunter2@host:1?token=hunter2"


class NeverOpen(ScriptedBackend):
    def open(self, deadline: float) -> None:
        raise CallTimeout("no answer")


@pytest.fixture
def runtime() -> Iterator[SimRuntime]:
    with SimRuntime(seed=1) as made:
        yield made


def test_timeout_of_a_backend_that_takes_a_password_does_not_show_it(runtime: SimRuntime) -> None:
    def body() -> None:
        with pytest.raises(CallTimeout, match=r"theirs://\*\*\*@host:1") as caught:
            metaclient.Connection(url=URL, runtime=runtime, _backend=NeverOpen(runtime))
        assert SECRET not in _whole_text(caught.value)

    runtime.run(body)


def test_connection_to_a_backend_that_takes_a_password_shows_it_nowhere(
    runtime: SimRuntime, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    spans, metrics_seen = InMemorySpanExporter(), InMemoryMetricReader()
    tracers, meters = TracerProvider(), MeterProvider([metrics_seen])
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: tracers)
    monkeypatch.setattr(trace, "get_tracer", lambda name: tracers.get_tracer(name))
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: meters)
    monkeypatch.setattr(metrics, "get_meter", lambda name: meters.get_meter(name))
    events: list[object] = []
    shown: list[str] = []

    def body() -> None:
        backend = ScriptedBackend(runtime, meta_replicas=3)
        backend.add_table("t", splits=[b"m"], families=[b"f"])
        with metaclient.Connection(url=URL, runtime=runtime, _backend=backend) as connection:
            connection.on_event(events.append)
            backend.on("get", times=1).raises(lambda: ServerStopped("stopping"))
            table = connection.table("t")
            table.put(b"r", {b"f:a": b"1"})
            table.row(b"r")
            assert connection.url == URL  # another process is given it
            shown.extend(map(repr, (connection, table, connection.stats(), connection.config)))
        shown.append(repr(connection))

    runtime.run(body)
    shown += [caplog.text, repr(events), repr(metrics_seen.get_metrics_data())]
    shown += [one.to_json() for one in spans.get_finished_spans()]
    assert spans.get_finished_spans()
    assert events
    assert "theirs://***@host:1" in shown[0]
    assert [one for one in shown if SECRET in one] == []
