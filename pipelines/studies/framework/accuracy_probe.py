"""Accuracy and loss on the test images during training, to compare with a source's log.

Training records them and never uses them.
"""

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.core.run import Run
from pipelines.training.probe import Probe

if TYPE_CHECKING:
    import keras

ACCURACY, LOSS = "test_accuracy", "test_loss"


def on_test(run: Run, data_dir: Path | None, steps: Collection[int]) -> Probe:
    """Builds a probe that evaluates a net on the test images of its run at given steps.

    Args:
        run: run of a classifier.
        data_dir: folder of prepared data; None for the TFDS default.
        steps: steps after which the net is evaluated.

    Returns:
        A probe with the columns "test_accuracy", a share, and "test_loss", in nats.

    Raises:
        UserError: the data has no test images.

    Example:
        Study(..., probe=lambda run, data_dir: on_test(run, data_dir, (600, 6_000, 60_000)))
    """
    # Imported here, because studies are listed without a framework.
    from pipelines.data import batches, preprocess, sources
    from pipelines.training import evaluation

    config, record = run.config, run.record.data
    examples = sources.load(config.data, "test", data_dir, config.validation, config.subset)
    fitted = preprocess.load(run.path / "preprocess.npz")
    images = batches.evaluation(examples, fitted, batch_size=config.batch_size, classes=len(record.labels))

    def measure(net: "keras.Model") -> dict[str, float]:
        logits = net.predict(images, verbose=0)
        found = evaluation.measure(logits, examples.labels, record.labels, "final", record.name)
        return {ACCURACY: found.accuracy, LOSS: found.loss}

    return Probe(steps, measure)
