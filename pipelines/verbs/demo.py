"""`make demo`: trains, evaluates, exports and predicts once, on 5,000 real digits, without a download; then a trained
net of the package classifies a photograph.

Every step is a verb of `highway` and prints its command.
"""

import sys
import time
from itertools import count
from pathlib import Path

from rich.console import Console
from rich.table import Table

from pipelines import recipes
from pipelines.core.console import say
from pipelines.core.guard import check_backend, guarded
from pipelines.data import figures
from pipelines.export.export import export
from pipelines.export.summary import report as parity
from pipelines.inference.predict import predict, table
from pipelines.training.evaluate import evaluate
from pipelines.training.evaluation import Evaluation
from pipelines.training.train import train
from serving.schemas import Prediction

RECIPE = "demo"
SHOWN = 40
LISTED = 5
# A net of the package, and a photograph in the repository.
TRAINED, PHOTOGRAPH = "cifar10", Path("docs/images/cat.jpg")
NEXT = """[bold]try next[/]
  source .venv/bin/activate
  highway serve models   [dim]# a page to draw digits on[/]
  highway predict {version} {run}/images/*.png
  highway train demo --model.transform-bias -3 --run runs/closed-gates
  highway recipes
  tensorboard --logdir {run}/tensorboard"""


def main() -> None:
    """Trains, evaluates, exports and predicts, classifies a photograph, and prints where everything is."""
    check_backend()
    console = Console()
    run, model = _free_name()
    started = time.perf_counter()
    _title(console, f"highway train {RECIPE} --run {run}")
    train(recipes.get(RECIPE).config, run, console=console)
    _title(console, f"highway evaluate {run}")
    result = evaluate(run)
    assert isinstance(result, Evaluation)  # Digits are classes.
    say(console, f"{result.correct} of {result.count} test images correct: {result.accuracy:.2%}")
    _title(console, f"highway export {run} --to {model}")
    version = export(run, model)
    sys.stdout.write(parity(version))
    files, truth = _test_images(run)
    _title(console, f"highway predict {version} {files[0].parent}/*.png")
    predictions = predict(version, files).predictions
    console.print(table(predictions[:LISTED]))
    _draw(run, files, truth, predictions)
    _title(console, f"highway predict {TRAINED} {PHOTOGRAPH}")
    console.print(table(predict(Path(TRAINED), [PHOTOGRAPH]).predictions))
    console.print()
    console.print(_summary(run, version, result.accuracy, time.perf_counter() - started))
    console.print(NEXT.format(run=run, version=version), highlight=False, soft_wrap=True)


def _free_name() -> tuple[Path, Path]:
    """Returns paths with the first of demo, demo-2, demo-3, ... that is free for both a run and a model."""
    names = (RECIPE if number == 1 else f"{RECIPE}-{number}" for number in count(1))
    pairs = ((Path("runs") / name, Path("models") / name) for name in names)
    return next((run, model) for run, model in pairs if not run.exists() and not model.exists())


def _test_images(run: Path) -> tuple[list[Path], list[str]]:
    """Writes the first test images as PNG files; returns the files and their labels."""
    from pipelines.core.run import open_run
    from pipelines.data import sources

    opened = open_run(run)
    examples = sources.load(opened.config.data, "test")
    assert isinstance(examples, sources.Examples), "500 digits fit into memory"
    truth = [opened.record.data.labels[label] for label in examples.labels[:SHOWN]]
    names = [f"{index:02}-is-{label}" for index, label in enumerate(truth)]
    return figures.save_images(examples.images[:SHOWN], names, run / "images"), truth


def _draw(run: Path, files: list[Path], truth: list[str], predictions: list[Prediction]) -> None:
    import numpy as np

    from serving.image_files import read

    first = [prediction.top[0] for prediction in predictions]
    images = np.stack([read(file)[..., :1] for file in files])
    figures.draw_predictions(
        images,
        truth,
        [guess.label for guess in first],
        [guess.probability for guess in first],
        run / "figures" / "predictions.png",
    )


def _title(console: Console, command: str) -> None:
    console.print(f"\n[bold]$ {command}[/]", highlight=False, soft_wrap=True)


def _summary(run: Path, version: Path, accuracy: float, seconds: float) -> Table:
    from pipelines.core.run import open_run
    from pipelines.training import report

    report.write(open_run(run))
    shown = Table(title=f"{accuracy:.2%} of the test digits correct, {seconds:.0f} s in all", show_header=False)
    shown.title_justify = "left"
    for what, where in (
        ("run directory", run),
        ("report", run / "report.md"),
        ("learning curve", run / "figures" / "learning_curve.png"),
        ("mean gate per layer", run / "figures" / "gates.png"),
        ("confusion matrix", run / "figures" / "confusion.png"),
        ("predicted digits", run / "figures" / "predictions.png"),
        ("exported model", version),
    ):
        shown.add_row(what, str(where))
    return shown


if __name__ == "__main__":
    sys.exit(guarded("make demo", main))
