"""Prometheus metrics of this process, or of all worker processes together.

Workers share counters, histograms and gauges through files in `PROMETHEUS_MULTIPROC_DIR`, which must be set before this
module is imported (`serving.endpoint.workers`).
"""

import os
from collections.abc import Callable, Iterator
from functools import cache

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector

from serving.engine.backends import ServedVersion
from serving.engine.catalog import Catalog

# Versions no longer served whose series are kept, so that their last values are still scraped.
RETIRED = 16
SHARED = "PROMETHEUS_MULTIPROC_DIR" in os.environ
_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_ABOUT = ["route", "model", "version"]
_REQUESTS = Counter("highway_requests_total", "Requests, by route, model, version and status.", [*_ABOUT, "status"])
_LATENCY = Histogram(
    "highway_request_seconds", "From the head of a request to the end of its answer.", _ABOUT, buckets=_SECONDS
)
_ERRORS = Counter(
    "highway_errors_total", "Requests answered with an error, by model, version and kind.", ["model", "version", "kind"]
)
IN_FLIGHT = Gauge("highway_requests_in_flight", "Requests without a complete answer.", multiprocess_mode="livesum")
BODIES = Gauge("highway_bodies_bytes", "Bytes of the bodies of these requests.", multiprocess_mode="livesum")
CONNECTIONS = Gauge("highway_connections", "Open connections.", multiprocess_mode="livesum")
_CUT = Counter("highway_connections_cut_total", "Connections closed by a limit, or for what is not HTTP.", ["why"])
_BATCHES = Histogram(
    "highway_batch_pictures", "Images per batch.", ["model"], buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256)
)
_COMPUTED = Histogram("highway_batch_seconds", "Time to predict a batch.", ["model"], buckets=_SECONDS)
_WAITING = Gauge(
    "highway_waiting_pictures", "Images that wait for a prediction.", ["model"], multiprocess_mode="livesum"
)
# Name and help of the gauges that are read from the catalog.
_SERVED = "highway_version_served", "1 for a version in service, 0 for a refused one."
_REFUSED = "highway_version_refused", "1 for a version that is not served as it is on disk, with the reason."
_PROBLEM = (
    "highway_folder_wrong",
    "1 for a model's folder, or without a model the repository, of which only loaded versions stay in service, with "
    "the reason.",
)
_LOADING = "highway_loading", "1 while the models are being loaded for the first time."

# Resolved once per route: the library looks labels up under a lock.
requests = cache(_REQUESTS.labels)
latency = cache(_LATENCY.labels)
errors = cache(_ERRORS.labels)
cut = cache(_CUT.labels)
# Gauges whose values are computed when they are read: cheaper than updating them with each request.
_tracked: dict[Gauge, Callable[[], float]] = {}
_models: set[str] = set()
# Versions that are no longer served, the oldest first.
_retired: dict[tuple[str, int], None] = {}


def track(gauge: Gauge, function: Callable[[], float]) -> None:
    """Registers the function that computes a gauge when it is read."""
    _tracked[gauge] = function


def batches(model: str) -> Callable[[int, float], None]:
    """Returns a function that records the images and seconds of each batch of a model."""
    images, seconds = _BATCHES.labels(model), _COMPUTED.labels(model)

    def record(count: int, taken: float) -> None:
        images.observe(count)
        seconds.observe(taken)

    return record


def retire(before: set[tuple[str, int]], now: set[tuple[str, int]]) -> None:
    """Removes the series of versions retired long ago: a model that is trained every hour has thousands in a year.

    Workers cannot remove theirs, which are in files.

    Args:
        before: names and numbers of the versions that were served.
        now: those that are served.
    """
    for one in now:
        _retired.pop(one, None)
    _retired.update(dict.fromkeys(before - now))
    if SHARED:
        return
    while len(_retired) > RETIRED:
        model, version = next(iter(_retired))
        del _retired[model, version]
        for metric, resolved in ((_REQUESTS, requests), (_LATENCY, latency), (_ERRORS, errors)):
            metric.remove_by_labels({"model": model, "version": str(version)})
            resolved.cache_clear()


def publish(catalog: Catalog[ServedVersion]) -> None:
    """Updates the gauges of this process that are computed when they are read."""
    for gauge, function in _tracked.items():
        gauge.set(function())
    waiting = {name: sum(one.waiting for one in model.served.values()) for name, model in catalog.models().items()}
    # With several processes, labels cannot be removed.
    _models.update(waiting)
    for name in list(_models):
        _WAITING.labels(name).set(waiting.get(name, 0))


def scrape(catalog: Catalog[ServedVersion]) -> bytes:
    """Returns all metrics in Prometheus's text format.

    Args:
        catalog: catalog of this process; workers watch the same repository.
    """
    publish(catalog)
    registry = REGISTRY
    if SHARED:
        registry = CollectorRegistry()
        MultiProcessCollector(registry)
    versions = CollectorRegistry()
    versions.register(_CatalogCollector(catalog))
    return generate_latest(registry) + generate_latest(versions)


class _CatalogCollector:
    def __init__(self, catalog: Catalog[ServedVersion]) -> None:
        self._catalog = catalog

    def collect(self) -> Iterator[GaugeMetricFamily]:
        catalog = self._catalog
        served = GaugeMetricFamily(*_SERVED, labels=["model", "version"])
        refused = GaugeMetricFamily(*_REFUSED, labels=["model", "version", "reason"])
        problem = GaugeMetricFamily(*_PROBLEM, labels=["model", "reason"])
        if catalog.problem:
            problem.add_metric(["", catalog.problem], 1)
        for name, model in catalog.models().items():
            if model.problem:
                problem.add_metric([name, model.problem], 1)
            for version, refusal in model.failed.items():
                refused.add_metric([name, str(version), refusal.reason], 1)
            for version in model.served.keys() | model.failed.keys():
                served.add_metric([name, str(version)], version in model.served)
        yield from (served, refused, problem, GaugeMetricFamily(*_LOADING, value=catalog.loading))
