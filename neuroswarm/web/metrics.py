"""A node's numbers as Prometheus metrics, read when they are scraped.

Refuses to know which numbers there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Measured:
    """One number: a counter if its name ends in `_total`, else a gauge.

    Numbers of one name that differ in their labels form one metric.
    """

    name: str
    value: float
    help: str
    labels: tuple[tuple[str, str], ...] = ()


class NumbersCollector(Collector):
    """Gives whatever `read` returns at the time of the scrape."""

    def __init__(self, read: Callable[[], Iterable[Measured]]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        """The metrics of now."""
        families: dict[str, Metric] = {}
        for number in self._read():
            if number.name not in families:
                families[number.name] = _new_family(number)
            families[number.name].add_sample(number.name, dict(number.labels), number.value)
        return families.values()


def make_registry(read: Callable[[], Iterable[Measured]]) -> CollectorRegistry:
    """A registry of this node alone, so that several nodes can live in one process."""
    registry = CollectorRegistry()
    registry.register(NumbersCollector(read))
    return registry


def render(registry: CollectorRegistry) -> bytes:
    """The registry in Prometheus' text format."""
    return generate_latest(registry)


def measure_mapping(prefix: str, values: Mapping[str, object]) -> Iterable[Measured]:
    """The numbers of a nested mapping; names are the keys joined by `_`, behind `prefix`."""
    for key, value in values.items():
        name = f"{prefix}_{key}"
        if isinstance(value, Mapping):
            yield from measure_mapping(name, value)
        elif isinstance(value, bool | int | float):
            yield Measured(name, float(value), key.replace("_", " "))


def _new_family(number: Measured) -> Metric:
    if number.name.endswith("_total"):
        return CounterMetricFamily(number.name, number.help)
    return GaugeMetricFamily(number.name, number.help)
