"""`highway train`: trains the net of a recipe, or resumes an interrupted run."""

import os
import sys
from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from pipelines import recipes
from pipelines.core import environment
from pipelines.core.config import Config
from pipelines.core.console import counted, next_command, say, shown_loss
from pipelines.core.errors import UserError
from pipelines.core.files import check_figure, check_writable
from pipelines.core.frozen import Count, Frozen, NonNegative, read
from pipelines.core.hosts import ADDRESSES, COUNT, INDEX, Hosts, of_environment
from pipelines.core.parsing import every_option, parse, parse_over
from pipelines.core.run import Record, open_run, refuse_existing
from pipelines.core.sync import synced
from pipelines.core.url import Location, Url
from pipelines.data.roots import refuse_missing, refuse_unknown
from pipelines.training import trackers
from pipelines.training.metrics_file import plain_loss_in
from pipelines.training.processes.host import HostTask, train_together
from pipelines.training.train import TrainOptions, find_rate, resume, train

TRAIN = "highway train"
_RESUME_ALONE = (
    "a resumed run keeps its configuration. To train a finished run longer, start another one from it: highway train "
    "RUN/config.json --from RUN --epochs N --run NEW"
)
_HELP = """usage: highway train RECIPE [--field VALUE ...] [--run DIR] [--data-dir DIR] [--checkpoint-steps N]
       highway train --resume RUN [--data-dir DIR] [--checkpoint-steps N]

Trains the net of a recipe and writes everything to a run directory; any field of the recipe can be overridden:
  highway train mnist_conv_32 --epochs 2 --data mnist_5k --optimizer.learning-rate 0.02

  highway train RECIPE --help   every field, with the recipe's value
  highway train best.json       a recipe file of `highway tune`
  highway recipes               the recipes and their sources
  --run DIR                     run directory, or a URL such as s3://bucket/runs/demo (default: runs/RECIPE)
  --from RUN                    start from the weights of a trained net: a run directory or a .keras file, or its URL
  --find-rate FIGURE            suggest a learning rate instead of training
  --resume RUN                  resume an interrupted run; of a finished one, print the result
  --checkpoint-steps N          save the state every N steps (default: as often as costs less than 0.2% of the time)
  --track mlflow|wandb          report to an experiment tracker
  --devices N                   divide each batch among N devices of this machine, such as GPUs
  --cluster ADDRESS --hosts N   train on N nodes of a Ray cluster (JAX); --min-hosts M if fewer suffice
  --data-dir DIR                folder of prepared TFDS data sets (default: TFDS_DATA_DIR, then ~/tensorflow_datasets)

Ctrl-C, SIGTERM and SIGHUP finish the step and save, with status 130, 143 and 129; a second one ends at once.

recipes:
  {recipes}
"""


class Execution(Frozen):
    """Options of a new run and of a resumed one: data, devices, checkpoints and tracking."""

    data_dir: Path | None = None
    """Folder of prepared TFDS data sets; default: TFDS_DATA_DIR, then ~/tensorflow_datasets."""
    checkpoint_steps: Count | Literal["auto"] = "auto"
    """Steps between two checkpoints; "auto" keeps their cost below 0.2% of the time."""
    track: trackers.TrackerName | None = None
    """Experiment tracker to report to; its address, project and key come from its own environment variables. A resumed
    run continues there if it was tracked before."""
    gpus: NonNegative | Literal["auto"] | None = "auto"
    """Number of the NVIDIA GPU to use; "auto" uses the first one, if there is one, and none uses the CPU."""
    devices: Count | None = None
    """Divide each batch among the first devices of this machine, such as GPUs; default: one, or for deep stacks on JAX
    as many parts of the CPU as save time, and for a resumed run as many as before."""
    cluster: str | None = None
    """Train on the nodes of a Ray cluster: HOST:PORT of its head, or "auto" for the cluster of this machine."""
    hosts: Count | None = None
    """Number of nodes of the cluster, with a process on each; default: 1."""
    min_hosts: Count | None = None
    """Number of nodes that suffice if others are missing; default: all."""


class NewRun(Execution, Config):
    """The configuration of a run, and its folder."""

    run: Location | None = None
    """Run directory, or its URL; default: runs/RECIPE."""
    find_rate: Path | None = None
    """Figure to write (.png, .pdf or .svg). Instead of training, raises the learning rate step by step, and suggests
    one."""


class ResumedRun(Execution):
    """Resumes an interrupted run with the configuration it was started with."""

    resume: Location
    """The run directory, or its URL."""


class TrainArguments(Execution):
    """The arguments of `highway train`."""

    config: Config | None = None
    """The recipe with its overrides; None for a resumed run, which has a configuration already."""
    run: Location | None = None
    """The new run directory; None for the default."""
    resume: Location | None = None
    """The run directory to resume."""
    find_rate: Path | None = None
    """Figure of a sweep of the learning rate, in place of training; None trains."""


def main(arguments: list[str]) -> None:
    """Runs the verb.

    Args:
        arguments: the words after `highway train`.

    Raises:
        UserError: see `train` and `resume`.
    """
    given = parse_train(arguments)
    console = Console()
    trackers.check(given.track)
    hosts = of_environment()
    _refuse_together(given, hosts)
    environment.choose_gpu(given.gpus)
    if given.config:
        refuse_unknown(given.config.data)
        refuse_missing(given.config.data)
    if given.config and given.find_rate:
        check_figure(given.find_rate, "--find-rate")
        check_writable(given.find_rate.parent)
        rate = find_rate(given.config, given.find_rate, data_dir=given.data_dir, console=console)
        own = given.config.optimizer.learning_rate
        losses = f"losses: {given.find_rate}"
        say(console, f"suggested: --optimizer.learning-rate {rate:g} (the recipe's is {own:g}); {losses}")
        return
    place, again = folder(given), _again(given)
    if given.resume and (ended := _ended(place)):
        # A job that starts or resumes a run, and is started once more, has succeeded.
        say(console, f"{place} is finished; for more epochs, start a new run with --epochs")
        say(console, _summary(ended, place, given.data_dir))
        return
    if given.cluster or (isinstance(place, Url) and (hosts is None or hosts.leads)):
        _check(place, again, new=given.config is not None)
    if hosts or given.cluster:
        task = HostTask(
            folder=Path(str(place)),
            url=str(place) if isinstance(place, Url) else None,
            data_dir=given.data_dir,
            config=given.config,
            interval=given.checkpoint_steps,
            track=given.track,
            devices=given.devices,
            again=again,
        )
        if given.cluster:
            from pipelines.training.processes.cluster_hosts import train_on_cluster

            train_on_cluster(task, given.cluster, hosts=given.hosts or 1, least=given.min_hosts, console=console)
        elif hosts:
            train_together(task, hosts, console)
        if hosts is None or hosts.leads:
            say(console, _summary(read(place / "run.json", Record), place, given.data_dir))
        return
    options: TrainOptions = {
        "data_dir": given.data_dir,
        "interval": given.checkpoint_steps,
        "console": console,
        "track": given.track,
        "devices": given.devices,
        "again": again,
    }
    with synced(place, owned=True) as path:
        run = resume(path, **options) if given.config is None else train(given.config, path, **options)
    say(console, _summary(run.record, place, given.data_dir))


def _ended(place: Location) -> Record | None:
    """Returns the record of a run that was trained to its end and has its report, or None."""
    try:
        record = read(place / "run.json", Record)
    except (FileNotFoundError, NotADirectoryError):
        return None
    ended = record.state == "finished" and record.pruned is None and (place / "report.md").exists()
    return record if ended else None


def _check(place: Location, again: tuple[str, ...], *, new: bool) -> None:
    """Refuses a run before a cluster is asked for nodes, or before anything is computed that is uploaded later."""
    if new:
        refuse_existing(place, again)
    elif isinstance(place, Path):
        open_run(place)
    elif not (place / "run.json").exists():
        raise UserError(f"there is no run directory {place}. Check the URL, or create one with `highway train`.")
    if isinstance(place, Path):
        # The output of a run that is resumed is next to it until its end.
        check_writable(place if new else place.parent)
    else:
        place.check_writable()


def _refuse_together(given: TrainArguments, hosts: Hosts | None) -> None:
    """Refuses options that exclude each other."""
    if given.cluster and (hosts or given.find_rate):
        raise UserError(
            f"--cluster starts all processes itself. Leave out --find-rate, and unset {ADDRESSES}, {COUNT} and {INDEX}."
        )
    if given.cluster and (backend := os.environ.get("KERAS_BACKEND")) != "jax":
        raise UserError(f"--cluster trains on JAX only. Set KERAS_BACKEND=jax. Received: {backend}.")
    if (given.hosts or given.min_hosts) and not given.cluster:
        raise UserError("--hosts and --min-hosts are for --cluster ADDRESS. Name a cluster, or leave them out.")
    if given.min_hosts and given.min_hosts > (given.hosts or 1):
        raise UserError(f"--min-hosts {given.min_hosts} is more than --hosts {given.hosts or 1}. Choose fewer.")
    if given.cluster and given.gpus != "auto":
        raise UserError(
            "--gpus chooses a GPU of this machine, and --cluster trains on several. Leave it out; CUDA_VISIBLE_DEVICES "
            "chooses those of a node if it is set where Ray is started."
        )
    if given.find_rate and (hosts or given.devices):
        raise UserError(
            f"--find-rate uses one device of one process. Leave out --devices, and unset {ADDRESSES}, {COUNT} and "
            f"{INDEX}."
        )
    if given.find_rate and (given.run or given.track or given.checkpoint_steps != "auto"):
        raise UserError("--find-rate writes one figure and no run. Leave out --run, --track and --checkpoint-steps.")
    if given.devices and given.devices > 1 and isinstance(given.gpus, int):
        raise UserError(
            f"--gpus {given.gpus} chooses one GPU, and --devices takes the first {given.devices}. Leave out --gpus; "
            "CUDA_VISIBLE_DEVICES chooses several."
        )


def parse_train(arguments: list[str]) -> TrainArguments:
    """Parses `RECIPE [--any.field VALUE ...]` or `--resume RUN`.

    Args:
        arguments: the words after `highway train`.

    Returns:
        The checked arguments.

    Raises:
        UserError: the recipe is missing or unknown, a field is unknown, a value is out of range, or a resumed run is
            overridden.
        SystemExit: after `--help`, with status 0.

    Example:
        parse_train(["mnist_conv_32", "--epochs", "2", "--optimizer.learning-rate", "0.02"]).config
    """
    if any(word.partition("=")[0] == "--resume" for word in arguments):
        _refuse_fields(arguments)
        resumed = parse(ResumedRun, arguments, TRAIN)
        return TrainArguments(resume=resumed.resume, **_execution(resumed))
    if not arguments or arguments[0].startswith("-"):
        if {"-h", "--help"} & set(arguments):
            sys.stdout.write(_HELP.format(recipes="\n  ".join(recipes.names())))
            raise SystemExit(0)
        raise UserError(
            f"which recipe? The command is {TRAIN} RECIPE [--field VALUE ...]. Choices: {', '.join(recipes.names())}."
        )
    recipe = recipes.named_recipe(arguments[0])
    default = NewRun(**dict(recipe.config))
    about = f"Trains the net of the recipe {recipe.name} ({recipe.source})."
    chosen = parse_over(NewRun, default, arguments[1:], f"{TRAIN} {arguments[0]}", about)
    config = Config(**{field: getattr(chosen, field) for field in Config.model_fields})
    recipes.check_preset(config)
    if config.freeze and not config.start_from:
        raise UserError(
            f"--freeze {config.freeze} keeps layers as they were trained, and these would be random. Name a net to "
            "start from (--from), or leave --freeze out."
        )
    if config.start_from and Path(config.start_from).exists():
        # The run may be resumed from another working directory.
        config = config.model_copy(update={"start_from": str(Path(config.start_from).absolute())})
    return TrainArguments(config=config, run=chosen.run, find_rate=chosen.find_rate, **_execution(chosen))


def _again(given: Execution) -> tuple[str, ...]:
    """Returns the options that the command that resumes the run needs too."""
    words: list[str] = []
    for name, field in Execution.model_fields.items():
        value = getattr(given, name)
        if value != field.default:
            words += [f"--{name.replace('_', '-')}", "none" if value is None else str(value)]
    return tuple(words)


def _execution(given: Execution) -> dict[str, Any]:
    return {name: getattr(given, name) for name in Execution.model_fields}


def _refuse_fields(arguments: list[str]) -> None:
    """Refuses a recipe or its fields next to --resume."""
    fields = {*every_option(NewRun)} - {*every_option(ResumedRun)}
    for previous, word in zip(["", *arguments], arguments, strict=False):
        is_value = previous.startswith("-") and "=" not in previous
        if word.partition("=")[0].replace("_", "-") in fields or not (word.startswith("-") or is_value):
            raise UserError(f"'{word}' cannot be given with --resume: {_RESUME_ALONE}")


def folder(given: TrainArguments) -> Location:
    """Returns the run directory: the one to resume, the one given, or runs/RECIPE."""
    if given.resume is not None:
        return given.resume
    return given.run or Path("runs") / (given.config.recipe if given.config else "")


def _summary(record: Record, run: Location, data_dir: Path | None) -> str:
    metrics = record.metrics

    def loss(name: str) -> str:
        return shown_loss(metrics[name], regression="mae" in metrics)

    parts = [f"loss {loss('loss')}"]
    if "accuracy" in metrics:
        parts.append(f"accuracy {metrics['accuracy']:.2%}")
    elif "f1" in metrics:
        parts.append(f"labels right {metrics['label_accuracy']:.2%}, macro F1 {metrics['f1']:.3f}")
    else:
        # Targets of a table are standardized in training.
        unit = " standard deviations" if record.data.columns else ""
        parts.append(f"mean absolute error {metrics['mae']:.4g}{unit}")
    plain = plain_loss_in(metrics)
    if f"best_val_{plain}" in metrics:
        best = f"best {loss(f'best_val_{plain}')} after epoch {metrics['best_epoch']:.0f}"
        parts.append(f"validation {plain.replace('_', '-')} {loss(f'val_{plain}')} ({best})")
    elif "val_accuracy" in metrics:
        best = f"best {metrics['best_val_accuracy']:.2%} after epoch {metrics['best_epoch']:.0f}"
        parts.append(f"validation {metrics['val_accuracy']:.2%} ({best})")
    return (
        f"trained {counted(record.step, 'step')} in {record.seconds:.0f} s: {', '.join(parts)}\n"
        f"run directory {run}, report {run / 'report.md'}\n"
        f"next: {'; '.join(next_command(verb, run, data_dir=data_dir) for verb in ('evaluate', 'export'))}"
    )
