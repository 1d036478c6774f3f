"""Throughput and latency of the endpoint compared with other servers, with one image per request.

The net is the dense one of 50 layers, trained for one epoch and exported as usual. A request holds either the pixels of
a digit or a photograph in a JPEG file, which the others decode with Pillow and resize with the filter that the exported
graph has. The servers take turns on this machine while the others are suspended; `wrk` runs on the same cores.
"""

import io
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks import data, drawings, web_servers
from benchmarks.controller import ROOT, FailedError
from benchmarks.session import PAUSE, Benchmark, Session
from benchmarks.table import Row
from benchmarks.web_servers import Load, Running, WebServer
from pipelines.verbs import cli
from serving.inputs import INPUT
from serving.manifest import PROBABILITIES
from serving.session import open_session

OURS = WebServer("ours", ours=True)
BARE = WebServer("FastAPI, ONNX Runtime", "bare_onnx")
SERVERS = (
    OURS,
    BARE,
    WebServer("FastAPI, PyTorch", "bare_torch", "servers"),
    WebServer("FastAPI, TensorFlow", "saved_model"),
    WebServer("LitServe", "lit", "servers", body="base64"),
    WebServer("LitServe, batching", "lit", "servers", ("batch",), body="base64"),
    WebServer("BentoML", "bento", "servers", body="list"),
    WebServer("BentoML, batching", "bento", "servers", ("batch",), body="list"),
)
QUICK = (OURS, BARE)
# Digits and photographs that are sent in turn.
IMAGES, PHOTOGRAPHS = 16, 4
EXPORT_COST, START_COST = 45.0, 8.0


@dataclass(frozen=True)
class Workload:
    """The requests of a load.

    Args:
        prefix: start of the names of its measures.
        bodies: bodies of the requests, sent in turn.
        tolerance: largest difference between the probabilities of any two servers; their filters for photographs
            differ.
        rounds: turns of each server.
        seconds: duration of a turn.
    """

    prefix: str
    bodies: Sequence[bytes]
    tolerance: float
    rounds: int
    seconds: int


def run(session: Session) -> Iterator[Row]:
    """Measures all servers under both workloads; without `wrk`, leaves a note."""
    if not web_servers.wrk_is_installed():
        session.note("serving: skipped, there is no wrk here; Debian has it as the package wrk")
        session.expect(-cost(session))
        return
    # Natural images: other servers can resize a photograph, but do not find a digit in it.
    version = exported(session, name="natural", conversion="natural")
    _write_weights(session, version)
    session.spent(EXPORT_COST, "serving: the net is exported")
    source, images, _ = data.mnist(IMAGES, quick=session.quick)
    template = Row("serving", data=f"{source}, mnist_dense_50", depth=50, width=50, batch=1)
    workloads = _workloads(session, images)
    with ExitStack() as stack:
        running = _started(session, stack, version, workloads)
        for workload in workloads:
            yield from _measured(session, workload, running, template)
        alone = [_without_server(version, images) for _ in range(workloads[0].rounds)]
    yield session.row(
        replace(template, measure="InferenceSession.run alone", unit="ms", contestant="ours", ours=True), alone
    )


def _measured(session: Session, workload: Workload, running: Mapping[str, Running], template: Row) -> Iterator[Row]:
    """Measures one workload; the servers take turns."""
    _, connections = _scope(session)
    loads: dict[str, dict[int, list[Load]]] = {}
    for turn in range(workload.rounds):
        for server in list(running.values())[:: -1 if turn % 2 else 1]:
            server.go()
            for count in connections:
                time.sleep(PAUSE)
                if found := _load(session, server, workload, count):
                    loads.setdefault(server.server.name, {}).setdefault(count, []).append(found)
            server.halt()
            seconds = workload.seconds * len(connections)
            session.spent(seconds, f"serving: {workload.prefix}{server.server.name}, round {turn + 1}")
    yield from _rows(session, template, workload, loads)


def cost(session: Session) -> float:
    """Estimates how many seconds `run` takes."""
    servers, connections = _scope(session)
    measuring = sum(rounds * seconds for rounds, seconds in _turns(session)) * len(connections)
    return EXPORT_COST + len(servers) * (START_COST + measuring)


BENCHMARK = Benchmark("serving", "How many requests per second do endpoints answer?", run, cost)


def exported(session: Session, recipe: str = "mnist_dense_50", name: str = "dense", conversion: str = "") -> Path:
    """Trains a net for an epoch and exports it, once per session; if quick, one dense net of 5 layers for all.

    Args:
        session: the run.
        recipe: recipe of the net.
        name: name of the model.
        conversion: kind of the images that it takes, "digit" or "natural"; by default that of its data.

    Returns:
        The version.
    """
    depth: tuple[str, ...] = ()
    if session.quick:
        # Without the parts that are slow to convert: many layers, and the graph from image files to digits.
        name, depth, conversion = "dense", ("--model.depth", "5"), "natural"
    run, version = session.folder / "runs" / name, session.folder / "models" / name / "1"
    if not version.exists():
        kind = ("--pictures", conversion) if conversion else ()
        train = ("train", recipe, *depth, "--data", "mnist_5k", "--epochs", "1", "--run", str(run))
        export = ("export", str(run), "--to", str(version.parent), *kind)
        for words in (train, export):
            _highway(session, words)
    return version


def _highway(session: Session, words: Sequence[str]) -> None:
    """Runs `highway` in a process of its own; if quick, in this one, which has imported TensorFlow already."""
    if not session.quick or os.environ.get("KERAS_BACKEND", "tensorflow") != "tensorflow":
        subprocess.run([sys.executable, "-m", "pipelines", *words], cwd=ROOT, check=True, capture_output=True)
        return
    output = io.StringIO()
    with redirect_stdout(output), redirect_stderr(output):
        status = cli.main([*words])
    if status:
        raise RuntimeError(f"highway {words[0]} ended with status {status}: {output.getvalue()}")


def _write_weights(session: Session, version: Path) -> None:
    """Writes the weights next to the version, for PyTorch."""
    from pipelines.core.run import load_model, open_run
    from pipelines.data import preprocess

    run = session.folder / "runs" / version.parent.name
    fitted = preprocess.load(run / "preprocess.npz")
    weights = load_model(open_run(run), "final").get_weights()
    np.savez(version.parent / "weights.npz", np.float32(fitted.settings.scale), *weights)


def _scope(session: Session) -> tuple[Sequence[WebServer], Sequence[int]]:
    """Returns servers and numbers of connections."""
    return (QUICK, (1,)) if session.quick else (SERVERS, (1, 8, 16, 64))


def _turns(session: Session) -> tuple[tuple[int, int], tuple[int, int]]:
    """Returns the rounds of each workload, and the seconds of a turn."""
    return ((1, 1), (1, 1)) if session.quick else ((5, 4), (3, 4))


def _workloads(session: Session, images: np.ndarray) -> list[Workload]:
    digits, photographs = _turns(session)
    random = np.random.default_rng(0)
    files = [drawings.photograph(image[..., 0].astype(np.float32), random) for image in images[:PHOTOGRAPHS]]
    return [
        Workload("", [image.tobytes() for image in images], 1e-4, *digits),
        Workload("photographs, ", files, 0.01, *photographs),
    ]


def _started(session: Session, stack: ExitStack, version: Path, workloads: Sequence[Workload]) -> dict[str, Running]:
    """Starts all servers that can be started, compares their answers, and suspends them."""
    running: dict[str, Running] = {}
    expected: dict[str, list[dict[str, float]]] = {}
    for server in _scope(session)[0]:
        try:
            one = stack.enter_context(Running(server, version.parents[1], version))
            one.wait(workloads[0].bodies[0])
        except FailedError as error:
            session.note(f"serving: {server.name} is skipped: {error}")
            session.spent(START_COST, f"serving: {server.name} is skipped")
            continue
        for workload in workloads:
            answers = [one.ask(body) for body in workload.bodies]
            for answer, other in zip(answers, expected.setdefault(workload.prefix, answers), strict=True):
                worst = max(abs(answer.get(label, 0.0) - probability) for label, probability in other.items())
                if worst > workload.tolerance:
                    session.disagreements.append(
                        f"serving: {workload.prefix}{server.name} answers {answer}, others {other}"
                    )
            web_servers.write_script(
                _script(session, one, workload), server.kind, [*map(server.encoded, workload.bodies)]
            )
        one.halt()
        running[server.name] = one
        session.spent(START_COST, f"serving: {server.name} answers")
    return running


def _script(session: Session, server: Running, workload: Workload) -> Path:
    return session.folder / f"{workload.prefix[:-2]}{server.port}.lua"


def _load(session: Session, server: Running, workload: Workload, connections: int) -> Load | None:
    name = f"serving: {workload.prefix}{server.server.name}"
    try:
        found = web_servers.load(server.url, _script(session, server, workload), connections, workload.seconds)
    except FailedError as error:
        session.failed.append(f"{name} failed: {error}")
        return None
    if found.failed:
        session.failed.append(f"{name} at {connections}: {found.failed} requests failed")
    return found


def _without_server(version: Path, images: np.ndarray, count: int = 1000) -> float:
    """Measures ONNX Runtime alone: median milliseconds per image."""
    session, taken = open_session(version / "model.onnx"), []
    for number in range(count):
        image = images[number % len(images)][None]
        start = time.perf_counter()
        session.run([PROBABILITIES], {INPUT: image})
        taken.append(time.perf_counter() - start)
    return 1000 * float(np.median(taken))


def _rows(
    session: Session, template: Row, workload: Workload, loads: Mapping[str, Mapping[int, list[Load]]]
) -> list[Row]:
    servers = {server.name: server for server in SERVERS}
    rows: list[Row] = []
    for count in _scope(session)[1]:
        found = {name: by[count] for name, by in loads.items() if count in by}
        for measure, unit in (("throughput", "requests/s"), ("p50", "ms"), ("p95", "ms"), ("p99", "ms")):
            field = "per_second" if measure == "throughput" else measure
            values = {name: [getattr(one, field) for one in by] for name, by in found.items()}
            title = f"{workload.prefix}{measure}, {count} connection{'s' if count > 1 else ''}"
            rows += session.rows(replace(template, measure=title, unit=unit), values, servers)
    return rows
