"""The live view of a cluster: figures are collected, kept for some minutes, and shown in a terminal or in a browser.

    collector -> ClusterFigures -> History -> view (a JSON document) -> page, terminal, /metrics

Only the collectors differ between a fake and a real cluster. A figure that a cluster does not report is None and is
shown as "unknown".
"""

from metaclient.watch.collecting import Collector, Controls, collector_for
from metaclient.watch.server import WatchServer
from metaclient.watch.watcher import Watcher

__all__ = ["Collector", "Controls", "WatchServer", "Watcher", "collector_for"]
