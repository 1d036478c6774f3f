"""Configurations for property tests."""

import math

from hypothesis import strategies as st

from pipelines.core.config import Augment, Config, ModelConfig, Preprocess, StageConfig, Subset
from pipelines.core.optimizers import (
    SGD,
    Adam,
    AdamW,
    ConstantSchedule,
    CosineSchedule,
    ExponentialSchedule,
    Lion,
    Muon,
    StepSchedule,
    TrapezoidSchedule,
)

counts = st.integers(1, 10**9)
positive = st.floats(0, exclude_min=True, allow_nan=False, allow_infinity=False)
rates = st.floats(0, 1, exclude_max=True)
extents = st.just(0.0) | positive
factors = st.floats(math.ulp(0.0), 1)
names = st.from_regex(r"[a-z][a-z0-9_]{0,9}", fullmatch=True).filter(lambda name: name != "none")


def maybe(strategy):
    return st.none() | strategy


stages = st.builds(
    StageConfig,
    filters=counts,
    entry=maybe(counts),
    padding=st.sampled_from(["same", "valid"]),
    blocks=st.lists(counts, max_size=3).map(tuple),
    pool=maybe(st.just("average") | st.tuples(counts, counts)),
    dropout=rates,
)
models = st.builds(
    ModelConfig,
    preset=st.sampled_from(("mnist_conv_16", "cifar10_19_plain")) | names.map("module:{}".format),
    depth=maybe(counts),
    width=maybe(counts),
    activation=maybe(names),
    transform_bias=maybe(st.just("auto") | st.floats(allow_nan=False, allow_infinity=False)),
    match=maybe(st.sampled_from(["width", "parameters"])),
    initializer=maybe(st.sampled_from(["glorot_uniform", "fan_in_uniform"])),
    batch_normalization=maybe(st.booleans()),
    whitened=st.booleans(),
    stages=maybe(st.lists(stages, min_size=1, max_size=2).map(tuple)),
    hidden=maybe(counts),
)
preprocesses = st.builds(
    Preprocess,
    scale=positive,
    offset=st.floats(allow_nan=False, allow_infinity=False),
    contrast=maybe(positive),
    mean=st.sampled_from(["none", "channel", "pixel"]),
)
shared = {
    "learning_rate": positive,
    "clip_norm": maybe(positive),
    "ema": maybe(st.floats(0, 1, exclude_min=True, exclude_max=True)),
}
optimizers = st.one_of(
    st.builds(SGD, **shared, momentum=rates, nesterov=st.booleans(), bias_multiplier=positive, weight_decay=extents),
    st.builds(Adam, **shared, epsilon=positive),
    st.builds(AdamW, **shared, epsilon=positive, weight_decay=extents),
    st.builds(Lion, **shared, beta_1=factors, beta_2=factors, weight_decay=extents),
    st.builds(Muon, **shared, momentum=rates, weight_decay=extents),
)
steps = st.sets(counts, min_size=1, max_size=4).map(lambda boundaries: tuple(sorted(boundaries)))
schedules = st.one_of(
    st.builds(ConstantSchedule),
    st.builds(StepSchedule, boundaries=steps, factor=factors),
    st.builds(ExponentialSchedule, factor=factors, decay_steps=counts),
    st.builds(CosineSchedule, warmup=rates),
    st.builds(CosineSchedule, warmup_steps=st.integers(0, 10**9)),
    st.builds(TrapezoidSchedule, warmup=st.floats(0, 0.5), decay=st.floats(0, 0.5)),
)
augments = st.builds(
    Augment,
    rand_augment=st.integers(0, 9),
    magnitude=factors,
    sharpness=rates,
    pad=st.integers(0, 100),
    mirror=st.booleans(),
    rotate=st.floats(0, 180),
    zoom=extents,
    elastic=extents,
    cutout=st.integers(0, 100),
    mixup=extents,
)
sizes = {"train": maybe(counts), "test": maybe(counts)}
chosen = st.fixed_dictionaries({"validation": st.integers(0, 10**9), "subset": st.builds(Subset, **sizes)})
# A draw by a seed leaves nothing to hold out.
drawn = st.fixed_dictionaries({"subset": st.builds(Subset, **sizes, seed=st.integers(0, 2**31))})
configs = st.builds(
    lambda part, **fields: Config(**part, **fields),
    part=chosen | drawn,
    recipe=st.just("demo"),
    model=models,
    data=names,
    target=maybe(names),
    task=st.sampled_from(["auto", "classification", "regression"]),
    label_separator=maybe(st.text(min_size=1, max_size=3)),
    preprocess=preprocesses,
    augment=augments,
    small_side=st.integers(0, 10**9),
    small_share=rates,
    optimizer=optimizers,
    schedule=schedules,
    epochs=counts,
    batch_size=counts,
    label_smoothing=rates,
    seed=st.integers(0, 2**31),
    precision=st.sampled_from(["auto", "float32", "mixed_bfloat16", "mixed_float16"]),
    steps_per_execution=counts,
)
