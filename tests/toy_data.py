"""A data set that a small net learns in seconds: the class is the bright quarter of the image."""

import numpy as np

from pipelines.core import run
from pipelines.core.config import Config, ModelConfig, StageConfig
from pipelines.core.frozen import flat
from pipelines.core.optimizers import SGD
from pipelines.data import roots
from pipelines.data.sources import ALL, DataInfo, Examples

CONVOLUTIONS = ModelConfig(
    preset="mnist_conv_16",
    stages=(StageConfig(filters=4, blocks=(3,), pool=(2, 2), dropout=0.3),),
    batch_normalization=True,
)
"""A small convolutional net with dropout and batch normalization."""
COUNTS = {"train": 200, "validation": 40, "test": 60}


class ToyData:
    """Replaces `pipelines.data.sources`; `asked` lists the loaded splits."""

    def __init__(self, side=8, validation=True):
        self.side = side
        self.counts = COUNTS if validation else {**COUNTS, "validation": 0}
        self.asked = []

    def describe(self, data, data_dir=None, validation=0, part=ALL):
        counts = self.counts | part.model_dump(exclude_none=True)
        return DataInfo("toy", "1.0.0", (self.side, self.side, 1), ("nw", "ne", "sw", "se"), counts)

    def load(self, data, split, data_dir=None, validation=0, part=ALL):
        self.asked.append(split)
        generator = np.random.default_rng({"train": 0, "validation": 1, "test": 2}[split])
        count, half = self.counts[split], self.side // 2
        labels = generator.integers(0, 4, count)
        images = generator.integers(0, 100, (count, self.side, self.side, 1))
        for image, label in zip(images, labels, strict=True):
            row, column = divmod(int(label), 2)
            image[row * half : (row + 1) * half, column * half : (column + 1) * half] += 100
        taken = getattr(part, split, None)
        return Examples(images.astype(np.uint8)[:taken], labels[:taken])

    def install(self, monkeypatch):
        """Replaces the real data."""
        monkeypatch.setattr("pipelines.data.roots.KNOWN", (*roots.KNOWN, "toy"))
        monkeypatch.setattr("pipelines.data.sources.describe", self.describe)
        monkeypatch.setattr("pipelines.data.sources.load", self.load)
        return self


def changed_fields(config):
    """Returns the fields of a configuration that differ from the defaults of their groups."""
    groups = {"optimizer": type(config.optimizer)(), "schedule": type(config.schedule).model_construct()}
    same = Config(recipe=config.recipe, model=ModelConfig(preset="none"), data="none")
    default = flat(same.model_copy(update=groups))
    changed = {field for field, value in flat(config).items() if value != default[field]}
    return changed | {
        f"{group}.{tag}"
        for group, tag in (("optimizer", "name"), ("schedule", "kind"))
        if type(getattr(config, group)) is not type(getattr(same, group))
    }


def toy_config(**changes):
    """A dense highway net of three layers that learns the toy data in a few epochs."""
    fields = {
        "recipe": "toy",
        "model": ModelConfig(preset="mnist_dense_50", depth=4, width=12),
        "data": "toy",
        "optimizer": SGD(learning_rate=0.1),
        "epochs": 2,
        "batch_size": 20,
        "precision": "float32",
    }
    return Config(**{**fields, **changes})


# That of a run before its first step.
RECORD = run.Record(
    created="2030-01-01T00:00:00+00:00",
    command="highway train toy",
    versions={},
    backend="tensorflow",
    code=None,
    machine=run.Machine(cpu="one", cpu_features=(), cores=1, accelerators=()),
    precision=run.Precision(policy="float32", reason="asked for"),
    data=run.DataRecord(name="toy", version="1.0.0", shape=(8, 8, 1), labels=("a", "b"), counts=COUNTS),
    parameters=1,
    steps_per_epoch=10,
)
