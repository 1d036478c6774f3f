"""Clients that ask without a pause, in processes of their own, and check every answer."""

import multiprocessing
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing.synchronize import Event
from typing import Any

import httpx2 as httpx
import numpy as np

from serving.answers import Answer
from serving.client import Client, ClientError

PROCESSES, THREADS = 2, 8
# Pictures of a request.
SIZES = (1, 1, 1, 4, 16)
TOLERANCE = 1e-4
# Long enough for an endpoint that starts again.
ATTEMPTS = 12


@dataclass
class Tally:
    """What the clients of one process saw."""

    answered: Counter[int] = field(default_factory=Counter)
    """Pictures, by second."""
    versions: Counter[int] = field(default_factory=Counter)
    """Requests, by the version that answered."""
    attempts: Counter[str] = field(default_factory=Counter)
    """Status or error of every single attempt."""
    wrong: list[str] = field(default_factory=list)
    """Answers that are not what the version gives."""
    lost: list[str] = field(default_factory=list)
    """Requests that had no answer in the end."""

    def add(self, other: "Tally") -> None:
        """Takes in what another process saw."""
        for name, value in vars(other).items():
            mine = getattr(self, name)
            mine.update(value) if isinstance(mine, Counter) else mine.extend(value)


@dataclass(frozen=True)
class Question:
    """What clients ask, and what is right.

    Args:
        url: of the endpoint.
        model: its name.
        pictures: files.
        expected: probabilities `[n, classes]` by the remainder of a version's number.
        labels: of the classes.
    """

    url: str
    model: str
    pictures: list[bytes]
    expected: list[np.ndarray]
    labels: tuple[str, ...]

    def check(self, chosen: list[int], answer: Answer) -> str | None:
        """What is wrong with an answer, if anything is."""
        right = self.expected[answer.version % len(self.expected)]
        for place, prediction in zip(chosen, answer.predictions, strict=True):
            found = {guess.label: guess.probability for guess in prediction.top}
            difference = max(abs(found[label] - right[place, index]) for index, label in enumerate(self.labels))
            if difference > TOLERANCE:
                return f"version {answer.version}, picture {place}: {difference:.2g} off"
        return None


class Clients:
    """Starts them, and gives what they saw when they are stopped."""

    def __init__(self, question: Question) -> None:
        context = multiprocessing.get_context("spawn")
        self._stop = context.Event()
        self._results: Any = context.Queue()
        start = time.time()
        self._processes = [
            context.Process(target=_process, args=(question, seed, start, self._stop, self._results))
            for seed in range(PROCESSES)
        ]
        for process in self._processes:
            process.start()

    def stop(self) -> Tally:
        """Lets every request that is on its way end."""
        self._stop.set()
        whole = Tally()
        for _ in self._processes:
            whole.add(self._results.get())
        for process in self._processes:
            process.join()
        return whole


class _Counting(httpx.HTTPTransport):
    """Counts every attempt, those that the client repeats too."""

    def __init__(self, seen: Counter[str]) -> None:
        super().__init__()
        self._seen = seen

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        try:
            answer = super().handle_request(request)
        except httpx.TransportError as error:
            self._seen[type(error).__name__] += 1
            raise
        self._seen[str(answer.status_code)] += 1
        return answer


def _process(question: Question, seed: int, start: float, stop: Event, results: Any) -> None:
    tallies = [Tally() for _ in range(THREADS)]
    threads = [
        threading.Thread(target=_ask, args=(question, random.Random(100 * seed + number), start, stop, tally))
        for number, tally in enumerate(tallies)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    whole = Tally()
    for tally in tallies:
        whole.add(tally)
    results.put(whole)


def _ask(question: Question, chance: random.Random, start: float, stop: Event, tally: Tally) -> None:
    with Client(question.url, attempts=ATTEMPTS, transport=_Counting(tally.attempts)) as client:
        while not stop.is_set():
            chosen = chance.choices(range(len(question.pictures)), k=chance.choice(SIZES))
            pictures = [question.pictures[place] for place in chosen]
            try:
                answer = client.predict(question.model, pictures, top=len(question.labels))
            except ClientError as error:
                tally.lost.append(str(error))
                continue
            tally.answered[int(time.time() - start)] += len(chosen)
            tally.versions[answer.version] += 1
            if said := question.check(chosen, answer):
                tally.wrong.append(said)
