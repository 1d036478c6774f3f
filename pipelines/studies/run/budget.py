"""Reduces a study to a share of its work: fewer seeds, epochs and examples."""

from collections.abc import Mapping
from dataclasses import dataclass

from pipelines.core.config import Config
from pipelines.core.optimizers import scaled
from pipelines.studies.framework.study import Arm, Counts

FEWEST_TESTED = 100
"""Minimum number of test examples: an accuracy on fewer means nothing."""


@dataclass(frozen=True)
class Scope:
    """The part of a study that is run.

    Args:
        share: share of the study's work.
        seeds: runs of each arm.
        arms: configurations by name.
        label: label for every table and figure; empty if the study is run in full.
    """

    share: float
    seeds: int
    arms: Mapping[str, Config]
    label: str


def reduced(
    arms: Mapping[str, Arm],
    seeds: int,
    share: float,
    *,
    label: str = "",
    defined: int = 1,
    each: str = "seeds",
    tested: bool = True,
) -> Scope:
    """Reduces a study to a share of its work.

    Seeds, epochs and examples are reduced by equal factors; each factor makes up for the rounding of the one before. A
    run has at least one epoch of one batch.

    Args:
        arms: arms of the full study.
        seeds: runs of each arm, in full.
        share: share of the work, greater than 0 and at most 1.
        label: label of the unreduced study.
        defined: number of runs of each arm that the study defines; the label states if fewer are run.
        each: word for an arm's runs in the label.
        tested: whether runs are evaluated on test examples; if so, the label gives their number.

    Example:
        reduced(study.arms, seeds=3, share=0.01).seeds  # 1
    """
    whole = {name: arm.config for name, arm in arms.items()}
    defined = max(defined, seeds)
    if share == 1:
        fewer = f"{seeds} of {defined} {each}" if seeds < defined else ""
        return Scope(share, seeds, whole, "; ".join(filter(None, (label, fewer))))
    runs = max(1, round(seeds * share ** (1 / 3)))
    left = min(1.0, share * seeds / runs)
    short = {name: shortened(arm.config, left, arm.counts) for name, arm in arms.items()}
    train = [(short[name].subset.train or arm.counts.train, arm.counts.train) for name, arm in arms.items()]
    test = [(short[name].subset.test or arm.counts.test, arm.counts.test) for name, arm in arms.items()]
    parts = [
        _pairs("epochs", [(short[name].epochs, whole[name].epochs) for name in arms]),
        _pairs("training examples", train),
        *([_pairs("test examples", test)] if tested and any(taken < there for taken, there in test) else []),
        f"{runs} of {defined} {each}",
    ]
    reduction = f"budget {share:g}: {', '.join(parts)}"
    return Scope(share, runs, short, f"{label}; {reduction}" if label else f"short schedule, {reduction}")


def shortened(config: Config, share: float, counts: Counts) -> Config:
    """Shortens a run: fewer epochs of fewer examples, with a learning-rate schedule scaled to match.

    Args:
        config: configuration of the full run.
        share: share of its steps to run.
        counts: sizes of its data set.

    Returns:
        A configuration of at least one step.
    """
    part = share**0.5 if counts.drawn else share
    epochs = max(1, round(config.epochs * part))
    left = min(1.0, share * config.epochs / epochs) if counts.drawn else 1.0
    train = min(counts.train, max(config.batch_size, round(counts.train * left)))
    test = min(counts.test, max(FEWEST_TESTED, round(counts.test * left)))
    ratio = epochs * (train // config.batch_size) / max(1, config.epochs * (counts.train // config.batch_size))
    fields = config.model_dump()
    fields["epochs"] = epochs
    if train < counts.train:
        fields["subset"] |= {"train": train, "test": test or None}
        fields["validation"] = max(1, round(config.validation * left)) if config.validation else 0
    schedule = scaled(config.schedule, ratio)
    if schedule.kind == "cosine":
        least = min(schedule.warmup_steps, max(0, epochs * (train // config.batch_size) - 1))
        schedule = schedule.model_copy(update={"warmup_steps": least})
    fields["schedule"] = schedule.model_dump()
    return Config.model_validate(fields)


def _pairs(what: str, pairs: list[tuple[int, int]]) -> str:
    """Formats a reduction; arms that share it are named once."""
    unlike = dict.fromkeys(pairs)
    if len(unlike) > 1 and all(some == whole for some, whole in unlike):
        return f"all {what}"
    return " / ".join(f"{some:,} of {whole:,}" for some, whole in unlike) + f" {what}"
