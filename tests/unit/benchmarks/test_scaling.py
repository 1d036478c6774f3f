import pytest

from benchmarks import cluster, hosts, scaling
from benchmarks.session import Session

MACHINE = "CPU, 2 cores, avx2"


def record(measure, contestant, median, **more):
    return {"measure": measure, "contestant": contestant, "median": str(median), "machine": MACHINE, **more}


ROWS = [
    record("sum of 0.6 MB over two processes", hosts.TWO.name, 4),
    record("sum of 9 MB over two processes", hosts.TWO.name, 12.4),
    record("training of mnist_conv_32", hosts.ONE.name, 100, batch="100"),
    record("training of mnist_conv_32", hosts.TWO.name, 190, batch="100", ratio="1.9"),
    record("training of cifar10_19", hosts.ONE.name, 10, batch="100"),
    record("training of mnist_conv_32_modern", hosts.ONE.name, 100, batch="200"),
    record("training of mnist_conv_32_modern", hosts.TWO.name, 125, batch="200", ratio="1.25"),
    record("training of cifar10_modern", hosts.ONE.name, 10, batch="100"),
    record("bulk prediction by the packaged net mnist", "threads of one process", 200),
    record("tasks that do nothing", "Ray", 16),
    record("from the start of a command until the first task ends", "Ray", 4),
    record("from the start of a command until the first task has imported Keras", "Ray", 10),
    record("time of the command per task", "Ray", 5),
]


def test_hosts_pay_if_they_compute_longer_than_they_exchange():
    lines = {line.split("|")[1].strip(): line for line in scaling.training(ROWS)[2:]}
    # 1 s on one core, and 1 / 1.9 s on two, of which 3.4 + 0.607 ms would be enough for the sum.
    assert lines["`mnist_conv_32`"].startswith("| `mnist_conv_32` | 151,690 | 0.607 | 1,000 ms | 1.90 |")
    exchange = 1000 / 1.9 - 500
    # 10 hosts at 1 Gbit/s send 2 * 9/10 of 0.607 MB.
    assert f"| *{1000 / (100 + exchange + 1.8 * 0.60676 * 8):.2f}* |" in lines["`mnist_conv_32`"]
    # 10 s on one core, of which only the sum of 9.03 MB is known.
    assert f"| 10,000 ms | *{10_000 / (5000 + 3.4 + 9.0274):.2f}* |" in lines["`cifar10_19`"]
    # With batch normalization, two hosts wait as long in each step as those of the net that was measured: 1.6 - 1 s.
    assert f"| 10,000 ms | *{10_000 / (5000 + 600):.2f}* |" in lines["`cifar10_modern`"]
    assert len({line.count("|") for line in lines.values()}) == 1


def test_a_billion_images_a_day():
    (line,) = scaling.images(ROWS)[2:]
    _, net, speed, cores, hours, share, _, _ = (cell.strip() for cell in line.split("|"))
    assert (net, speed) == ("`mnist`", "100")
    # 116 cores without any costs.
    assert (cores, float(hours) <= 24) == ("120", True)
    assert float(share.rstrip("%")) > 90


def test_trials_on_more_cores_are_sooner_done():
    hours = [float(line.split("|")[2]) for line in scaling.trials(ROWS)[2:]]
    assert hours == sorted(hours, reverse=True)
    # A thousand times ten minutes on eight cores.
    assert hours[0] == pytest.approx(1000 / 6 / 8, rel=0.03)


def test_the_costs_of_a_process_and_of_a_task():
    assert scaling._costs(ROWS) == pytest.approx((2.0, 8.0, 0.005))


def test_the_speed_leaves_the_first_epoch_out():
    assert hosts.speed([{"seconds": 9.0}, {"seconds": 10.0}, {"seconds": 11.0}], 500) == 500


def test_the_step_of_a_loss_is_read_from_the_output():
    assert cluster.lost_after("a node or its process was lost after step 1,200; the run starts again") == 1200


def test_the_quick_run_leaves_the_cluster_out(tmp_path):
    session = Session(tmp_path, tmp_path, quick=True, command="", machine=MACHINE)
    assert list(cluster.run(session)) == []
    assert cluster.cost(session) == 0
    assert session.skipped
