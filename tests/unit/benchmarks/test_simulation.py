import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.simulation import NOTICED, Cluster, simulate
from pipelines.core.executor import ATTEMPTS, FRESH

clusters = st.builds(
    Cluster,
    nodes=st.integers(1, 5),
    cores=st.integers(1, 4),
    start=st.floats(0, 20),
    given=st.floats(0, 1),
    lifetime=st.one_of(st.none(), st.floats(100, 10_000)),
    fresh=st.integers(0, 20),
)


@given(st.integers(1, 60), st.floats(1, 100), clusters, st.integers(0, 3))
def test_no_task_is_lost_and_no_core_does_two_things_at_a_time(tasks, seconds, cluster, seed):
    result = simulate(tasks, seconds, cluster, seed)
    assert result.ended + result.failed == tasks
    assert result.failed <= result.lost // ATTEMPTS
    assert 0 <= result.busy <= 1 + 1e-9
    assert result.lost == 0 or cluster.lifetime
    assert result == simulate(tasks, seconds, cluster, seed)


@given(st.integers(1, 60), st.integers(1, 5), st.integers(0, 3))
def test_without_costs_the_work_is_divided(tasks, cores, seed):
    alone = simulate(tasks, 10.0, Cluster(1, 1), seed)
    assert alone.busy == pytest.approx(1)
    together = simulate(tasks, 10.0, Cluster(1, cores), seed)
    # A core without a task while another one works on its last: at most 15 s each.
    assert alone.seconds / cores - 1e-6 <= together.seconds <= alone.seconds / cores + 15
    assert together.busy == pytest.approx(alone.seconds / cores / together.seconds)
    assert together == simulate(tasks, 10.0, Cluster(cores, 1), seed)


def test_each_process_starts_after_some_tasks():
    before = simulate(3 * FRESH, 10.0, Cluster(1, 1)).seconds
    assert simulate(3 * FRESH, 10.0, Cluster(1, 1, start=5.0)).seconds == pytest.approx(before + 15)
    assert simulate(3 * FRESH, 10.0, Cluster(1, 1, start=5.0, fresh=0)).seconds == pytest.approx(before + 5)


def test_a_slow_command_limits_any_number_of_cores():
    result = simulate(1000, 1.0, Cluster(1000, 1, given=0.1))
    assert 100 < result.seconds < 102


def test_a_lost_node_costs_the_time_until_it_is_noticed():
    calm = simulate(100, 60.0, Cluster(2, 2))
    rough = simulate(100, 60.0, Cluster(2, 2, lifetime=600.0))
    assert calm.lost == 0
    assert rough.lost > 2
    assert rough.seconds > calm.seconds
    assert rough.failed == 0


def test_a_task_that_is_always_lost_fails():
    result = simulate(1, 1000.0, Cluster(1, 1, lifetime=1.0))
    assert (result.ended, result.failed, result.lost) == (0, 1, ATTEMPTS)
    assert result.seconds > ATTEMPTS * NOTICED
    assert result.busy == 0
