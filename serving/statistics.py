"""Counts and times of the requests for one model version."""

import threading
import time
from dataclasses import dataclass, field


@dataclass
class Durations:
    """Number of events and the sum of their durations."""

    count: int = 0
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        """Adds one event."""
        self.count += 1
        self.seconds += seconds


@dataclass
class Statistics:
    """Counts and times since the version was loaded, in this process.

    Example:
        statistics = Statistics()
        statistics.succeed(images=3, seconds=0.002)
        assert statistics.succeeded.count == 1
    """

    succeeded: Durations = field(default_factory=Durations)
    """Requests with an answer."""
    failed: Durations = field(default_factory=Durations)
    """Requests with an error of the image, of the model, or of a limit."""
    waited: Durations = field(default_factory=Durations)
    """Time in the queue, by request; 0 if it was computed at once."""
    converted: Durations = field(default_factory=Durations)
    """Decoding and conversion of image files, by request."""
    images: int = 0
    """Images with an answer."""
    last: float = 0.0
    """Time of the last request, in seconds since 1970; 0 before the first one."""
    batches: dict[int, Durations] = field(default_factory=dict)
    """Computed batches, by their number of images."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def succeed(self, images: int, seconds: float) -> None:
        """Records an answered request."""
        self.succeeded.add(seconds)
        self.images += images
        self.last = time.time()

    def fail(self, seconds: float) -> None:
        """Records a failed request."""
        self.failed.add(seconds)
        self.last = time.time()

    def compute(self, images: int, seconds: float) -> None:
        """Records a computed batch; called in any thread."""
        with self._lock:
            if images not in self.batches:
                # Replaced as a whole, because another thread may iterate over it.
                self.batches = {**self.batches, images: Durations()}
            self.batches[images].add(seconds)
