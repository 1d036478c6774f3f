"""The endpoint beside other servers: answers a second and how long they take, for one picture a request.

The net is the dense one of 50 layers, trained for a moment and exported as users do it. All servers run on this
machine in turn, the others stopped meanwhile, and `wrk` on the same cores.
"""

import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks import data, table, wrk
from benchmarks.controller import ROOT, FailedError
from benchmarks.session import PAUSE, Session
from benchmarks.table import Row
from benchmarks.web_servers import Running, WebServer
from benchmarks.wrk import Load
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
CONNECTIONS, QUICK_CONNECTIONS = (1, 8, 16, 64), (1, 16)
# Pictures that are sent in turn, and how far answers may be apart.
PICTURES, TOLERANCE = 16, 1e-4
EXPORT_COST, START_COST = 45.0, 8.0


def run(session: Session) -> list[Row]:
    """Measures all servers.

    Args:
        session: of this run.

    Returns:
        The rows; none where there is no `wrk`.
    """
    if not wrk.is_here():
        session.note("serving: skipped, there is no wrk here; Debian has it as the package wrk")
        session.expect(-cost(session))
        return []
    rounds, seconds = (1, 1) if session.quick else (7, 4)
    version = _exported(session)
    session.spent(EXPORT_COST, "serving: the net is exported")
    name, images, _ = data.mnist(PICTURES)
    template = Row("serving", data=f"{name}, mnist_dense_50", depth=50, width=50, batch=1)
    loads: dict[str, dict[int, list[Load]]] = {}
    bare_runs: list[float] = []
    with ExitStack() as stack:
        running = _started(session, stack, version, images)
        for turn in range(rounds):
            bare_runs.append(_bare_run(version, images))
            for server in list(running.values())[:: -1 if turn % 2 else 1]:
                server.go()
                for connections in _connections(session):
                    time.sleep(PAUSE)
                    found = _load(session, server, connections, seconds)
                    if found:
                        loads.setdefault(server.server.name, {}).setdefault(connections, []).append(found)
                server.halt()
                session.spent(seconds * len(_connections(session)), f"serving: {server.server.name}, round {turn + 1}")
    return _rows(session, template, loads, bare_runs)


def cost(session: Session) -> float:
    """About the seconds that `run` takes."""
    servers = _servers(session)
    rounds, seconds = (1, 1) if session.quick else (7, 4)
    return EXPORT_COST + len(servers) * (START_COST + rounds * seconds * len(_connections(session)))


def _servers(session: Session) -> tuple[WebServer, ...]:
    return QUICK if session.quick else SERVERS


def _connections(session: Session) -> tuple[int, ...]:
    return QUICK_CONNECTIONS if session.quick else CONNECTIONS


def _exported(session: Session) -> Path:
    """A version of the net, and its weights beside it for PyTorch."""
    run, models = session.folder / "run", session.folder / "models"
    train = ("train", "mnist_dense_50", "--data", "mnist_5k", "--epochs", "1", "--run", str(run))
    for words in (train, ("export", str(run), "--to", str(models / "dense"))):
        subprocess.run([sys.executable, "-m", "pipelines", *words], cwd=ROOT, check=True, capture_output=True)
    from pipelines.core.run import load_model, open_run
    from pipelines.data import preprocess

    fitted = preprocess.load(run / "preprocess.npz")
    weights = load_model(open_run(run), "final").get_weights()
    np.savez(models / "dense" / "weights.npz", np.float32(fitted.settings.scale), *weights)
    return models / "dense" / "1"


def _started(session: Session, stack: ExitStack, version: Path, images: np.ndarray) -> dict[str, Running]:
    """All that can be started, answering the same, and halted."""
    running: dict[str, Running] = {}
    expected: dict[str, float] = {}
    for server in _servers(session):
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
        wrk.write_script(session.folder / f"{one.port}.lua", server.kind, [server.encoded(x.tobytes()) for x in images])
        one.halt()
        running[server.name] = one
        session.spent(START_COST, f"serving: {server.name} answers")
    return running


def _load(session: Session, server: Running, connections: int, seconds: float) -> Load | None:
    try:
        found = wrk.load(server.url, session.folder / f"{server.port}.lua", connections, seconds)
    except FailedError as error:
        session.failed.append(f"serving: {server.server.name} failed: {error}")
        return None
    if found.failed:
        session.failed.append(f"serving: {server.server.name} at {connections}: {found.failed} requests failed")
    return found


def _bare_run(version: Path, images: np.ndarray, count: int = 1000) -> float:
    """Median milliseconds of a picture in ONNX Runtime with nothing around it."""
    session, taken = open_session(version / "model.onnx"), []
    for number in range(count):
        image = images[number % len(images)][None]
        start = time.perf_counter()
        session.run([PROBABILITIES], {INPUT: image})
        taken.append(time.perf_counter() - start)
    return 1000 * float(np.median(taken))


def _rows(
    session: Session, template: Row, loads: dict[str, dict[int, list[Load]]], bare_runs: list[float]
) -> list[Row]:
    ours = {server.name: server for server in SERVERS}
    rows: list[Row] = []
    for connections in _connections(session):
        found = {name: by[connections] for name, by in loads.items() if connections in by}
        for measure, unit in (("throughput", "requests/s"), ("p50", "ms"), ("p95", "ms"), ("p99", "ms")):
            field = "per_second" if measure == "throughput" else measure
            values = {name: [getattr(one, field) for one in by] for name, by in found.items()}
            said = f"{measure}, {connections} connection{'s' if connections > 1 else ''}"
            rows += session.rows(replace(template, measure=said, unit=unit), values, ours)
    alone = loads.get(OURS.name, {}).get(1, [])
    over = [one.p50 - bare for one, bare in zip(alone, bare_runs, strict=False)]
    for measure, taken in (("InferenceSession.run alone", bare_runs), ("ours over it, p50 at 1 connection", over)):
        if taken:
            median, low, high = table.spread(taken)
            row = replace(template, measure=measure, unit="ms", median=median, low=low, high=high, rounds=len(taken))
            rows.append(replace(row, contestant=OURS.name, ours=True, machine=session.machine, command=session.command))
    return rows
