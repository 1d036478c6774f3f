"""Throughput and latency of the endpoint compared with other servers, with one image per request.

The net is the dense one of 50 layers, trained for one epoch and exported as usual. The servers take turns on this
machine while the others are suspended; `wrk` runs on the same cores.
"""

import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks import data, web_servers
from benchmarks.controller import ROOT, FailedError
from benchmarks.session import PAUSE, Benchmark, Session
from benchmarks.table import Row
from benchmarks.web_servers import Load, Running, WebServer
from serving.manifest import INPUT, PROBABILITIES
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
# Number of images sent in turn, and the largest difference between answers.
IMAGES, TOLERANCE = 16, 1e-4
EXPORT_COST, START_COST = 45.0, 8.0


def run(session: Session) -> list[Row]:
    """Measures all servers; without `wrk`, leaves a note."""
    if not web_servers.wrk_is_installed():
        session.note("serving: skipped, there is no wrk here; Debian has it as the package wrk")
        session.expect(-cost(session))
        return []
    servers, connections, rounds, seconds = _scope(session)
    version = exported(session)
    _write_weights(session, version)
    session.spent(EXPORT_COST, "serving: the net is exported")
    name, images, _ = data.mnist(IMAGES)
    template = Row("serving", data=f"{name}, mnist_dense_50", depth=50, width=50, batch=1)
    loads: dict[str, dict[int, list[Load]]] = {}
    alone: list[float] = []
    with ExitStack() as stack:
        running = _started(session, stack, servers, version, images)
        for turn in range(rounds):
            alone.append(_without_server(version, images))
            for server in list(running.values())[:: -1 if turn % 2 else 1]:
                server.go()
                for count in connections:
                    time.sleep(PAUSE)
                    if found := _load(session, server, count, seconds):
                        loads.setdefault(server.server.name, {}).setdefault(count, []).append(found)
                server.halt()
                session.spent(seconds * len(connections), f"serving: {server.server.name}, round {turn + 1}")
    return _rows(session, template, loads, connections, alone)


def cost(session: Session) -> float:
    """Estimates how many seconds `run` takes."""
    servers, connections, rounds, seconds = _scope(session)
    return EXPORT_COST + len(servers) * (START_COST + rounds * seconds * len(connections))


BENCHMARK = Benchmark("serving", "How many requests per second do endpoints answer?", run, cost)


def exported(session: Session, recipe: str = "mnist_dense_50", name: str = "dense") -> Path:
    """Trains a net for an epoch and exports it, once per session; a dense one of 5 layers if quick.

    Args:
        session: the run.
        recipe: recipe of the net.
        name: name of the model.

    Returns:
        The version.
    """
    run, version = session.folder / "runs" / name, session.folder / "models" / name / "1"
    if not version.exists():
        # Quick runs omit what is slow to convert: many layers, and the graph from image files to digits.
        depth, pictures = (("--model.depth", "5"), ("--pictures", "natural")) if session.quick else ((), ())
        train = ("train", recipe, *depth, "--data", "mnist_5k", "--epochs", "1", "--run", str(run))
        export = ("export", str(run), "--to", str(version.parent), *pictures)
        for words in (train, export):
            subprocess.run([sys.executable, "-m", "pipelines", *words], cwd=ROOT, check=True, capture_output=True)
    return version


def _write_weights(session: Session, version: Path) -> None:
    """Writes the weights next to the version, for PyTorch."""
    from pipelines.core.run import load_model, open_run
    from pipelines.data import preprocess

    run = session.folder / "runs" / version.parent.name
    fitted = preprocess.load(run / "preprocess.npz")
    weights = load_model(open_run(run), "final").get_weights()
    np.savez(version.parent / "weights.npz", np.float32(fitted.settings.scale), *weights)


def _scope(session: Session) -> tuple[Sequence[WebServer], Sequence[int], int, int]:
    """Returns servers, numbers of connections, rounds, and seconds per load."""
    return (QUICK, (1,), 1, 1) if session.quick else (SERVERS, (1, 8, 16, 64), 5, 4)


def _started(
    session: Session, stack: ExitStack, servers: Sequence[WebServer], version: Path, images: np.ndarray
) -> dict[str, Running]:
    """Starts all servers that can be started, compares their answers, and suspends them."""
    running: dict[str, Running] = {}
    expected: dict[str, float] = {}
    for server in servers:
        try:
            one = stack.enter_context(Running(server, version.parents[1], version))
            answer = one.wait(images[0].tobytes())
        except FailedError as error:
            session.note(f"serving: {server.name} is skipped: {error}")
            session.spent(START_COST, f"serving: {server.name} is skipped")
            continue
        expected = expected or answer
        worst = max(abs(answer.get(label, 0.0) - probability) for label, probability in expected.items())
        if worst > TOLERANCE:
            session.disagreements.append(f"serving: {server.name} answers {answer}, others {expected}")
        bodies = [server.encoded(image.tobytes()) for image in images]
        web_servers.write_script(session.folder / f"{one.port}.lua", server.kind, bodies)
        one.halt()
        running[server.name] = one
        session.spent(START_COST, f"serving: {server.name} answers")
    return running


def _load(session: Session, server: Running, connections: int, seconds: float) -> Load | None:
    try:
        found = web_servers.load(server.url, session.folder / f"{server.port}.lua", connections, seconds)
    except FailedError as error:
        session.failed.append(f"serving: {server.server.name} failed: {error}")
        return None
    if found.failed:
        session.failed.append(f"serving: {server.server.name} at {connections}: {found.failed} requests failed")
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
    session: Session,
    template: Row,
    loads: dict[str, dict[int, list[Load]]],
    connections: Sequence[int],
    alone: list[float],
) -> list[Row]:
    servers = {server.name: server for server in SERVERS}
    rows: list[Row] = []
    for count in connections:
        found = {name: by[count] for name, by in loads.items() if count in by}
        for measure, unit in (("throughput", "requests/s"), ("p50", "ms"), ("p95", "ms"), ("p99", "ms")):
            field = "per_second" if measure == "throughput" else measure
            values = {name: [getattr(one, field) for one in by] for name, by in found.items()}
            title = f"{measure}, {count} connection{'s' if count > 1 else ''}"
            rows += session.rows(replace(template, measure=title, unit=unit), values, servers)
    over = [one.p50 - bare for one, bare in zip(loads.get(OURS.name, {}).get(1, []), alone, strict=False)]
    for measure, taken in (("InferenceSession.run alone", alone), ("ours over it, p50 at 1 connection", over)):
        if taken:
            rows.append(session.row(replace(template, measure=measure, unit="ms", contestant="ours", ours=True), taken))
    return rows
