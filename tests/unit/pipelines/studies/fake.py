"""Results of a study as its runs would leave them, without any run."""

import math

from pipelines.core import run
from pipelines.studies.framework.results import Result, Results
from pipelines.training import evaluation

RECORD = run.Record(
    state="finished",
    created="2030-01-01T00:00:00+00:00",
    command="highway reproduce toy",
    versions={"keras": "3.15.1"},
    backend="tensorflow",
    code=run.Code(commit="c" * 40, dirty=False),
    machine=run.Machine(cpu="Some CPU", cpu_features=("avx2",), cores=2, accelerators=()),
    precision=run.Precision(policy="float32", reason="asked for"),
    data=run.DataRecord(
        name="mnist",
        version="3.0.1",
        shape=(28, 28, 1),
        labels=tuple("0123456789"),
        counts={"train": 6000, "validation": 0, "test": 1000},
    ),
    parameters=100,
    steps_per_epoch=46,
    step=552,
    seconds=30.0,
)


def evaluated(accuracy, count=1000):
    """Returns an evaluation with this accuracy."""
    correct = round(accuracy * count)
    rows = tuple((0,) * 10 for _ in range(10))
    return evaluation.Evaluation(
        weights="final",
        data="mnist 3.0.1",
        count=count,
        correct=correct,
        accuracy=correct / count,
        interval=evaluation.interval(correct, count),
        loss=0.3,
        classes=(),
        confusion=rows,
    )


def result(arm, config, seed, accuracy, path, *, losses=(1.0, 0.5), gates=None, draws=None):
    """Returns a run at its end, diverged if accuracy is None; gates has rows of means: initial, and by epoch."""
    names = [f"highway_{number:02}" for number in range(1, len(gates[0]) + 1)] if gates else []
    rows = [
        {"epoch": float(epoch), "loss": loss, "accuracy": accuracy or 0.1}
        | {f"gate/{name}": value for name, value in zip(names, gates[epoch] if gates else (), strict=True)}
        for epoch, loss in enumerate(losses, 1)
    ]
    record = RECORD.model_copy(
        update={
            "gates": dict(zip(names, gates[0] if gates else (), strict=True)),
            "metrics": {"loss": losses[-1], "accuracy": accuracy or 0.1},
            "state": "finished" if accuracy is not None else "diverged",
        }
    )
    made = run.Run(path / "runs" / f"{arm}-seed-{seed}", config.seeded(seed, draws), record)
    return Result(arm, seed, made, tuple(rows), None if accuracy is None else evaluated(accuracy))


def depth_results(study, path, accuracy, loss, seeds=2):
    """Returns results of the depth contrast; accuracy and loss are functions of kind and blocks."""
    made = []
    for name, arm in study.arms.items():
        kind, blocks = name.split("-")
        gated = kind == "highway"
        shape = [[0.12 + 0.01 * epoch * math.sin(block) for block in range(int(blocks))] for epoch in range(3)]
        made += [
            result(
                name,
                arm.config,
                seed,
                accuracy(kind, int(blocks)),
                path,
                losses=(2.3, loss(kind, int(blocks))),
                gates=shape if gated else None,
                draws=study.draws,
            )
            for seed in range(seeds)
        ]
    return Results(made)
