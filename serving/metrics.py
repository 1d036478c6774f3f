"""What Prometheus is told. A process has one endpoint, so these are in the process's own registry."""

from collections.abc import Callable
from functools import cache

from prometheus_client import Counter, Gauge, Histogram, generate_latest

from serving.backends import Served
from serving.catalog import Catalog

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_REQUESTS = Counter("highway_requests_total", "Requests, by route and status.", ["route", "status"])
_LATENCY = Histogram(
    "highway_request_seconds", "From the head of a request to the end of its answer.", ["route"], buckets=_SECONDS
)
IN_FLIGHT = Gauge("highway_requests_in_flight", "Requests that have no whole answer yet.")
BODIES = Gauge("highway_bodies_bytes", "Bytes of the bodies of these requests.")
CONNECTIONS = Gauge("highway_connections", "Connections that are open.")
_CUT = Counter(
    "highway_connections_cut_total", "Connections that were closed, by what their clients exceeded.", ["why"]
)
_BATCHES = Histogram(
    "highway_batch_pictures", "Pictures that were predicted together.", ["model"],
    buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256),
)  # fmt: skip
_COMPUTED = Histogram("highway_batch_seconds", "To predict such a batch.", ["model"], buckets=_SECONDS)
_WAITING = Gauge("highway_waiting_pictures", "Pictures that wait to be predicted.", ["model"])
_VERSIONS = Gauge(
    "highway_version_served", "1 for a version that answers, 0 for one that was refused.", ["model", "version"]
)
_REFUSED = Gauge(
    "highway_version_refused", "1 for a version that is not served as it lies on disk, with the reason.",
    ["model", "version", "reason"],
)  # fmt: skip
_WRONG = Gauge(
    "highway_folder_wrong", "1 for a model's folder, or without a model the repository, of which only what is loaded "
    "is served on, with the reason.", ["model", "reason"],
)  # fmt: skip
_LOADING = Gauge("highway_loading", "1 while the models are loaded for the first time.")

# Found once for each route: the library looks labels up under a lock.
requests = cache(_REQUESTS.labels)
latency = cache(_LATENCY.labels)
cut = cache(_CUT.labels)


def batches(model: str) -> Callable[[int, float], None]:
    """What is to be called with the pictures of each batch of a model, and the seconds that it took."""
    pictures, seconds = _BATCHES.labels(model), _COMPUTED.labels(model)

    def note(count: int, taken: float) -> None:
        pictures.observe(count)
        seconds.observe(taken)

    return note


def scrape(catalog: Catalog[Served]) -> bytes:
    """All metrics in Prometheus's text format.

    Args:
        catalog: whose versions are told; versions that went are forgotten.
    """
    _WAITING.clear()
    for gauge in (_VERSIONS, _REFUSED, _WRONG):
        gauge.clear()
    _LOADING.set(catalog.loading)
    if catalog.wrong:
        _WRONG.labels("", catalog.wrong).set(1)
    for name, entry in catalog.entries().items():
        served = entry.served
        _WAITING.labels(name).set(sum(one.waiting for one in served.values()))
        if entry.wrong:
            _WRONG.labels(name, entry.wrong).set(1)
        for version, refusal in entry.failed.items():
            _VERSIONS.labels(name, version).set(0)
            _REFUSED.labels(name, version, refusal.why).set(1)
        for version in served:
            _VERSIONS.labels(name, version).set(1)
    return generate_latest()
