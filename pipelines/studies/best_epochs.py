"""Test accuracies of the last epoch and of the best one: a source that prints one of them may not say which.

The best epoch is chosen by the very images that then measure it, which flatters a net. It stands here to tell whether
that explains a source's numbers, and is no result of ours.
"""

from pathlib import Path

from pipelines.run import Run
from pipelines.studies.results import Results
from pipelines.studies.tested import ACCURACY, on_test
from pipelines.training.watch import Watch


def watched(run: Run, data_dir: Path | None) -> Watch:
    """Accuracy and loss on the test images after each epoch."""
    steps = run.record.steps_per_epoch
    return on_test(run, data_dir, range(steps, (run.config.epochs + 1) * steps, steps))


def means(results: Results, arm: str) -> tuple[float | None, float | None]:
    """The test accuracy of the last epoch and of the best, each the mean of the runs of an arm that did not diverge.

    Args:
        results: of a study with `watched`.
        arm: its name.

    Returns:
        Two shares, or None twice where no run is left.
    """
    rows = results.watched(arm)
    if not rows:
        return None, None
    scores = rows[ACCURACY]
    return float(scores[:, -1].mean()), float(scores.max(axis=1).mean())
