"""Figures as a registry of prometheus_client, with what the library knows of the process itself.

What holds: SERIES_MAX series of a figure are exported at most; those left out are counted in
`rangelog_metrics_series_left_out`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from itertools import islice
from typing import Any

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from rangelog_server_common.metrics.figures import Figure, FigureGroup, Value, gauge
from rangelog_server_common.metrics.tally import DurationTally

SERIES_MAX = 500

_FAMILIES: dict[str, Any] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}


class FigureCollector(Collector):
    """The figures of one source."""

    def __init__(self, part: FigureGroup[Any]) -> None:
        self._part = part
        self.left_out_count = 0
        """Series that the last scrape left out."""

    def describe(self) -> Iterable[Metric]:
        """Return every family without series. Part of Collector: it makes a name that is there twice an error."""
        return [_family(figure) for figure in self._part.figures]

    def collect(self) -> Iterator[Metric]:
        """Read all figures. Part of Collector."""
        self.left_out_count = 0
        source = self._part.look()
        for figure in self._part.figures:
            found = figure.read(source)
            if found is None:
                continue
            family = _family(figure)
            series: Mapping[Any, Value] = found if isinstance(found, Mapping) else {(): found}
            for labels, value in islice(series.items(), SERIES_MAX):
                _add(family, (labels,) if isinstance(labels, str) else labels, value)
            self.left_out_count += max(0, len(series) - SERIES_MAX)
            yield family


def make_registry(role: str, name: str, parts: Sequence[FigureGroup[Any]]) -> CollectorRegistry:
    """Return the registry of one process.

    `role`: pd, range-server or broker. `name`: the process's name in the cluster. Raises ValueError for a name that two
    figures have.
    """
    registry = CollectorRegistry()
    collectors = [FigureCollector(part) for part in parts]
    for each in (*collectors, FigureCollector(FigureGroup(_nothing, own_figures(role, name, collectors)))):
        registry.register(each)
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


def own_figures(role: str, name: str, collectors: Sequence[FigureCollector]) -> list[Figure[None]]:
    """Return what a process says of itself and of its own metrics."""
    return [
        gauge(
            "rangelog_build_info",
            "The program of this process; always 1.",
            lambda _: {(role, name, version("rangelog")): 1.0},
            *("role", "name", "version"),
        ),
        gauge(
            "rangelog_metrics_series_left_out",
            "Series of this process beyond the limit of a figure, which are not exported.",
            lambda _: float(sum(each.left_out_count for each in collectors)),
        ),
    ]


def _nothing() -> None:
    """There is no source: these figures are the same for every process."""


def _family(figure: Figure[Any]) -> Metric:
    family: Metric = _FAMILIES[figure.kind](figure.name, figure.meaning, labels=figure.labels)
    return family


def _add(family: Any, labels: Sequence[str], value: Value) -> None:
    if isinstance(value, DurationTally):
        family.add_metric(labels, value.cumulative(), value.total_s)
    else:
        family.add_metric(labels, value)
