"""farshore_build_info."""

from __future__ import annotations

import platform
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector


class BuildCollector(Collector):
    def __init__(self, version: str) -> None:
        self._version = version

    def collect(self) -> Iterator[GaugeMetricFamily]:
        info = GaugeMetricFamily("farshore_build_info", "Always 1.", labels=["version", "python"])
        info.add_metric([self._version, platform.python_version()], 1)
        yield info
