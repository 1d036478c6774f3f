"""Facts about a request, for metrics, log and trace."""

import logging
import time
from dataclasses import dataclass, field

from serving.engine.backends import ServedVersion
from serving.requests import metrics
from serving.tracing import Trace

# Maximum number of characters of a reason in the log; some quote the request.
REASON = 500
log = logging.getLogger("highway.access")


@dataclass(slots=True)
class RequestRecord:
    """Facts about one request, which routes and error handlers add to."""

    trace: Trace
    start: float = field(default_factory=time.perf_counter)
    """Time of its head, by `perf_counter`."""
    served: ServedVersion | None = None
    """The requested version, once it has been found."""
    model: str = ""
    """Name of the requested model, if the repository has it and no version was found."""
    key: str | None = None
    """Name of the client's key."""
    kind: str = ""
    """Kind of the error, one of a few; empty for an answer."""
    reason: str = ""
    """Message of the error."""

    def refuse(self, kind: str, reason: str) -> None:
        """Adds an error."""
        self.kind, self.reason = kind, reason

    def about(self) -> tuple[str, str]:
        """Returns model and version as labels; the version is empty if none was found."""
        if self.served is None:
            return self.model, ""
        return self.served.manifest.name, str(self.served.manifest.version)

    def publish(self, method: str, path: str, route: str, status: int, client: str) -> None:
        """Adds the request to the metrics and to the log.

        Args:
            method: its method.
            path: its path.
            route: pattern of the path, or "unknown".
            status: status of the answer.
            client: address of the client, if it has one.
        """
        seconds = time.perf_counter() - self.start
        model, version = self.about()
        metrics.requests(route, model, version, status).inc()
        metrics.latency(route, model, version).observe(seconds)
        if self.kind:
            metrics.errors(model, version, self.kind).inc()
        if log.isEnabledFor(logging.INFO):
            line = {
                "client": client,
                "method": method,
                "path": path,
                "status": status,
                "ms": round(1000 * seconds, 3),
                "traceparent": self.trace.traceparent,
                "model": model,
                "version": self.served and self.served.manifest.version,
                "key": self.key,
                "kind": self.kind,
                "reason": self.reason[:REASON],
            }
            log.info("request", extra={name: value for name, value in line.items() if value})
