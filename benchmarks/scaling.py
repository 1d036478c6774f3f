"""Tables of docs/scaling.md: the measurements of the benchmark `cluster`, and projections to more cores."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.hosts import ONE, SUMMED, TWO
from benchmarks.simulation import DAY, HOUR, Cluster, simulate
from benchmarks.table import Record, markdown, number
from pipelines.core.executor import FRESH
from pipelines.inference.net_inputs import BATCH
from pipelines.inference.part_tasks import MOST

# Measures with a target: their names in the table, and the target of the ratio or of the seconds.
TARGETS = {
    ("training of mnist_conv_32", TWO.name): ("`mnist_conv_32` on two one-core hosts / on one", 1.8),
    ("bulk prediction, with everything running", "tasks on a cluster"): (
        "bulk prediction by two one-core tasks / by two threads of one process",
        1.5,
    ),
    ("from a node's death to the next new step of mnist_conv_32", "two nodes, then one"): (
        "from a node's death to the next new step",
        60.0,
    ),
    ("start of Ray's head", "Ray"): ("start of Ray", 10.0),
}
# Hosts and gigabits per second of networks for which speeds are computed.
NETWORKS = ((2, 1), (10, 1), (10, 10))
# A net with batch normalization, whose layers exchange statistics, and the ending of the names of all such nets.
NORMALIZED, NORMALIZED_ENDING = "mnist_conv_32_modern", "_modern"
# Cores of a node in the simulations; numbers of nodes, minutes of a trial, and hours until a node is lost.
CORES, NODES, MINUTES, LIFETIME = 8, (1, 4, 16, 64), 10, 2
IMAGES, TRIALS = 1_000_000_000, 1000


def targets(rows: Sequence[Record]) -> list[str]:
    """Lists the targets and the measured values."""
    lines = []
    for key, (name, target) in TARGETS.items():
        if not (row := _by_name(rows).get(key)):
            continue
        if row["unit"] == "s":
            lines.append([name, f"within {target:g} s", f"{number(row['median'])} s {_range(row['low'], row['high'])}"])
        else:
            reached = f"{float(row['ratio']):.2f} [{float(row['ratio_low']):.2f} to {float(row['ratio_high']):.2f}]"
            lines.append([name, f"at least {target:g}", reached])
    return markdown(["", "target", "measured"], lines)


def measured(rows: Sequence[Record]) -> list[str]:
    """Lists all measurements."""
    lines = [
        [row["measure"], row["contestant"], f"{number(row['median'])} {row['unit']}", _range(row["low"], row["high"])]
        for row in rows
    ]
    return markdown(["measured", "with", "median", "lowest and highest"], lines)


def training(rows: Sequence[Record]) -> list[str]:
    """Tabulates exchange and computation of a step, and the speed of several hosts relative to one."""
    from highway_keras.models.presets import FAMILIES, PRESETS  # with Keras

    named, lines = _by_name(rows), []
    for recipe in FAMILIES:
        megabytes = 4e-6 * PRESETS[recipe].parameters
        cells = [f"`{recipe}`", f"{PRESETS[recipe].parameters:,}", number(megabytes)]
        one, two = (named.get((f"training of {recipe}", way.name)) for way in (ONE, TWO))
        if one:
            seconds = int(one["batch"]) / float(one["median"])
            like = NORMALIZED if recipe.endswith(NORMALIZED_ENDING) else recipe
            exchange = max(_sum(rows, megabytes), _waiting(rows, like))
            cells.append(f"{number(1e3 * seconds)} ms")
            cells.append(f"{float(two['ratio']):.2f}" if two else f"*{seconds / (seconds / 2 + exchange):.2f}*")
            for hosts, gigabits in NETWORKS:
                sent = 2 * (hosts - 1) / hosts * megabytes * 8e-3 / gigabits
                cells.append(f"*{seconds / (seconds / hosts + exchange + sent):.2f}*")
        lines.append(cells + [""] * (5 + len(NETWORKS) - len(cells)))
    networks = [f"{hosts} hosts, {gigabits} Gbit/s" for hosts, gigabits in NETWORKS]
    return markdown(["", "parameters", "MB per step", "step on one core", "2 hosts, loopback", *networks], lines)


def images(rows: Sequence[Record]) -> list[str]:
    """Computes the cores for a billion images a day."""
    start, _, given = _costs(rows)
    lines = []
    for measure, row in ((key[0], row) for key, row in _by_name(rows).items()):
        if not (found := re.fullmatch(r"bulk prediction by the packaged net (\w+)", measure)):
            continue
        speed = float(row["median"]) / _cores(row)
        tasks = math.ceil(IMAGES / (MOST * BATCH))
        cluster = Cluster(math.ceil(IMAGES / (speed * DAY * CORES)), CORES, start, given, fresh=0)
        while (result := simulate(tasks, IMAGES / tasks / speed, cluster)).seconds > DAY:
            cluster = replace(cluster, nodes=cluster.nodes + 1)
        cells = [
            f"{cluster.nodes * CORES}",
            f"{result.seconds / HOUR:.1f}",
            f"{result.busy:.1%}",
            number(tasks / result.seconds),
        ]
        lines.append([f"`{found[1]}`", number(speed), *cells])
    return markdown(["net", "images/s on a core", "cores", "hours", "of their time predicting", "tasks/s"], lines)


def trials(rows: Sequence[Record]) -> list[str]:
    """Computes the hours of a thousand trials on several numbers of cores."""
    _, start, given = _costs(rows)
    lines = []
    for nodes in NODES:
        calm, rough = (
            simulate(TRIALS, 60.0 * MINUTES, Cluster(nodes, CORES, start, given, lifetime))
            for lifetime in (None, LIFETIME * HOUR)
        )
        cells = [f"{calm.seconds / HOUR:.2f}", f"{calm.busy:.1%}", f"{rough.seconds / HOUR:.2f}", f"{rough.lost}"]
        lines.append([f"{nodes * CORES}", *cells])
    lost = f"hours if a node is lost after {LIFETIME} hours on average"
    return markdown(["cores", "hours", "of their time training", lost, "trials begun again"], lines)


def _waiting(rows: Sequence[Record], recipe: str) -> float:
    """Returns the seconds of a step of two processes beyond half a step of one; 0 if they were not measured.

    They exchange statistics and gradients then, or wait for the slower of the two.
    """
    one, two = (_by_name(rows).get((f"training of {recipe}", way.name)) for way in (ONE, TWO))
    return int(two["batch"]) / float(two["median"]) - int(one["batch"]) / float(one["median"]) / 2 if one and two else 0


def _by_name(rows: Sequence[Record]) -> dict[tuple[str, str], Record]:
    return {(row["measure"], row["contestant"]): row for row in rows}


def _range(low: str, high: str) -> str:
    return f"[{number(low)} to {number(high)}]"


def _cores(row: Record) -> int:
    found = re.search(r"(\d+) cores", row["machine"])
    assert found
    return int(found[1])


def _sum(rows: Sequence[Record], megabytes: float) -> float:
    """Returns the seconds of a sum over two processes; of less than was measured, those of the smallest that was."""
    small, large = (
        float(_by_name(rows)[f"sum of {size:g} MB over two processes", TWO.name]["median"]) / 1e3 for size in SUMMED
    )
    each = (large - small) / (SUMMED[1] - SUMMED[0])
    return small + each * max(0.0, megabytes - SUMMED[0])


def _costs(rows: Sequence[Record]) -> tuple[float, float, float]:
    """Returns the seconds of a process's start, without and with the import of Keras, and those to assign a task."""
    ray = {row["measure"]: float(row["median"]) for row in rows if row["contestant"] == "Ray"}
    # All the time of these tasks goes into processes, each of which ends after some of them.
    cores = _cores(_by_name(rows)["tasks that do nothing", "Ray"])
    start = cores * FRESH / ray["tasks that do nothing"]
    imports = (
        ray["from the start of a command until the first task has imported Keras"]
        - ray["from the start of a command until the first task ends"]
    )
    return start, start + imports, ray["time of the command per task"] / 1e3
