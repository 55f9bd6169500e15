"""The names of metrics: in the code, in docs/watch.md and in the Grafana dashboard."""

import json
import re
from pathlib import Path

from metaclient.watch.prometheus import METRICS
from metaclient.watch.server import asset

ROOT = Path(__file__).resolve().parents[3]
_NAME = re.compile(r"\bmetaclient_\w+")


def test_dashboard_uses_only_metrics_that_exist() -> None:
    dashboard = json.loads(asset("grafana.json"))
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    used = {name for expression in expressions for name in _NAME.findall(expression)}
    assert used <= set(METRICS), used - set(METRICS)
    assert len(used) > len(METRICS) / 2
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_documentation_has_all_metrics() -> None:
    text = (ROOT / "docs" / "watch.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(metaclient_\w+)` \| \w+ \| (.+) \|$", text, re.MULTILINE))
    assert rows == {name: text for name, (_, text) in METRICS.items()}


def test_counters_end_with_total_and_only_they() -> None:
    assert {name for name, (kind, _) in METRICS.items() if kind == "counter"} == {
        name for name in METRICS if name.endswith("_total")
    }
