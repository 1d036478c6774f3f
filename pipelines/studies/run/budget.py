"""A share of the work of a study: fewer seeds, fewer epochs, fewer examples."""

from collections.abc import Mapping
from dataclasses import dataclass

from pipelines.core.config import Config
from pipelines.studies.framework.study import Arm, Counts

FEWEST_TESTED = 100
"""Test examples that are kept: the accuracy on fewer would say nothing."""


@dataclass(frozen=True)
class Work:
    """What is run of a study.

    Args:
        share: of the work of the study.
        seeds: runs of each arm.
        arms: what each trains, by name.
        label: what stands on every table and figure; empty if the study is run in full.
    """

    share: float
    seeds: int
    arms: Mapping[str, Config]
    label: str


def scheduled(
    arms: Mapping[str, Arm],
    seeds: int,
    share: float,
    *,
    label: str = "",
    defined: int = 1,
    each: str = "seeds",
    tested: bool = True,
) -> Work:
    """What a share of the work of a study leaves of it.

    What is saved is saved in equal factors on seeds, epochs and examples; what rounding takes from one is given to the
    next, so that a run always has an epoch of a batch.

    Args:
        arms: in full.
        seeds: runs of each arm, in full.
        share: of the work, greater than 0 and at most 1.
        label: what is said of the work in full.
        defined: runs of each arm that the study defines; the label says so where there are fewer.
        each: what the runs of an arm are called in the label.
        tested: whether runs are measured on test examples, so that the label says on how many.

    Returns:
        What is left.

    Example:
        scheduled(study.arms, seeds=3, share=0.01).seeds  # 1
    """
    whole = {name: arm.config for name, arm in arms.items()}
    defined = max(defined, seeds)
    if share == 1:
        fewer = f"{seeds} of {defined} {each}" if seeds < defined else ""
        return Work(share, seeds, whole, "; ".join(filter(None, (label, fewer))))
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
    told = f"budget {share:g}: {', '.join(parts)}"
    return Work(share, runs, short, f"{label}; {told}" if label else f"short schedule, {told}")


def shortened(config: Config, share: float, counts: Counts) -> Config:
    """A run of a share of its work: fewer epochs of fewer examples, with a schedule that falls as early in the run.

    Args:
        config: in full.
        share: of its steps.
        counts: of its data.

    Returns:
        The configuration, of at least one step.
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
    fields["schedule"] |= _schedule(config, ratio, epochs * (train // config.batch_size))
    return Config.model_validate(fields)


def _schedule(config: Config, ratio: float, steps: int) -> dict[str, object]:
    """What changes of the schedule, which counts in steps."""
    kept = config.schedule
    if kept.kind == "step":
        # Some may fall together: the rate then falls once.
        return {"boundaries": tuple(sorted({max(1, round(boundary * ratio)) for boundary in kept.boundaries}))}
    if kept.kind == "exponential":
        return {"decay_steps": max(1, round(kept.decay_steps * ratio))}
    if kept.kind == "constant":
        return {}
    return {"warmup_steps": min(round(kept.warmup_steps * ratio), max(0, steps - 1))}


def _pairs(what: str, pairs: list[tuple[int, int]]) -> str:
    """What is left of what, once for all arms that are alike."""
    unlike = dict.fromkeys(pairs)
    if len(unlike) > 1 and all(some == whole for some, whole in unlike):
        return f"all {what}"
    return " / ".join(f"{some:,} of {whole:,}" for some, whole in unlike) + f" {what}"
