"""Simulates independent tasks on a cluster of any size, with a simulated clock.

The command gives out tasks at its own pace, each to the core that is free first. A process may be replaced after some
tasks. A node that is lost loses the tasks on its cores, which start again from the beginning once that is noticed, and
another node is there at once. Tasks that lose their process too often fail, as in `pipelines.core.executor`.
"""

import heapq
import random
from collections import deque
from dataclasses import dataclass
from itertools import count

from pipelines.core.executor import ATTEMPTS, FRESH

HOUR, DAY = 3600.0, 86_400.0
NOTICED = 15.0
"""Seconds after which Ray, by its own settings, notices that a machine is gone: five checks, three seconds apart."""


@dataclass(frozen=True)
class Cluster:
    """A cluster.

    Args:
        nodes: number of nodes.
        cores: number of tasks that each runs at the same time.
        start: seconds until a new process takes a task.
        given: seconds that the command needs to give out a task.
        lifetime: mean seconds until a node is lost; None for never.
        fresh: tasks after which a process ends; 0 for never.
    """

    nodes: int
    cores: int
    start: float = 0.0
    given: float = 0.0
    lifetime: float | None = None
    fresh: int = FRESH


@dataclass(frozen=True)
class Result:
    """The end of all tasks.

    Args:
        seconds: time until the last one ended.
        busy: share of the time of all cores that was spent on tasks that ended.
        ended: number of tasks that ended.
        lost: number of attempts that were lost with their node.
        failed: number of tasks that lost `ATTEMPTS` processes.
    """

    seconds: float
    busy: float
    ended: int
    lost: int
    failed: int


def simulate(tasks: int, seconds: float, cluster: Cluster, seed: int = 0) -> Result:
    """Runs tasks on a cluster.

    Args:
        tasks: number of tasks, at least one.
        seconds: mean duration of a task; each lasts between half and one and a half times as long.
        cluster: the cluster.
        seed: decides durations and losses.

    Example:
        simulate(100, 60.0, Cluster(nodes=10, cores=1)).busy
    """
    chance = random.Random(seed)
    durations = [seconds * chance.uniform(0.5, 1.5) for _ in range(tasks)]
    lost_at = [_life(chance, cluster, 0.0) for _ in range(cluster.nodes)]
    number = count()
    # When a core is free, its node, and how many tasks its process has taken; the number breaks ties.
    free = [(0.0, next(number), node, 0) for node in range(cluster.nodes) for _ in range(cluster.cores)]
    # Tasks with the number of their attempt: those that wait, and, by time, those whose loss is noticed then.
    waiting = deque((task, 1) for task in range(tasks))
    unnoticed: list[tuple[float, int, int]] = []
    given = last = work = 0.0
    ended = lost = failed = 0
    while waiting or unnoticed:
        at, _, node, taken = heapq.heappop(free)
        if not waiting:
            at = max(at, unnoticed[0][0])
        while unnoticed and unnoticed[0][0] <= at:
            _, task, attempt = heapq.heappop(unnoticed)
            waiting.append((task, attempt))
        while lost_at[node] <= at:
            taken, lost_at[node] = 0, _life(chance, cluster, lost_at[node])
        task, attempt = waiting.popleft()
        given = max(at, given) + cluster.given
        starts = not (taken % cluster.fresh if cluster.fresh else taken)
        finish = given + starts * cluster.start + durations[task]
        if finish <= lost_at[node]:
            ended, work, last = ended + 1, work + durations[task], max(last, finish)
            heapq.heappush(free, (finish, next(number), node, taken + 1))
            continue
        lost += 1
        noticed = lost_at[node] + NOTICED
        heapq.heappush(free, (max(at, lost_at[node]), next(number), node, 0))
        if attempt < ATTEMPTS:
            heapq.heappush(unnoticed, (noticed, task, attempt + 1))
        else:
            failed, last = failed + 1, max(last, noticed)
    return Result(last, work / (last * cluster.nodes * cluster.cores), ended, lost, failed)


def _life(chance: random.Random, cluster: Cluster, since: float) -> float:
    return since + chance.expovariate(1 / cluster.lifetime) if cluster.lifetime else float("inf")
