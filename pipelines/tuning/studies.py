"""Searches over several nets at once, as data.

depth_study  Srivastava, Greff, Schmidhuber 2015, section 3.1 and Figure 1: can nets of 10, 20, 50 and 100 layers be
             trained, plain and highway? For each of the eight the paper drew 100 settings at random.
             Recorded: data, depths, 50 units a highway layer and 71 a plain one, SGD with momentum, exponential decay,
             what was searched, the bounds of the gate bias (-10 to -1), 100 runs each.
             Assumed: the other bounds, batch size, epochs. The paper compares training loss; here the settings are
             compared by validation accuracy, on 5 000 training images that are held out.
"""

from pipelines.core.config import Config, Frozen, ModelConfig, Optimizer, Schedule, Space
from pipelines.recipes import dense
from pipelines.tuning.plan import Candidate

DEPTHS = (10, 20, 50, 100)


class Study(Frozen):
    """A search over the same space for each of several nets."""

    config: Config
    """What all trials share."""
    nets: tuple[Candidate, ...]
    """What is compared."""
    space: Space
    """What differs."""
    trials: int
    """Of each net."""


STUDIES = {
    "depth_study": Study(
        config=Config(
            recipe="depth_study",
            model=ModelConfig(preset="mnist_dense_50"),
            data="mnist",
            validation=5000,
            optimizer=Optimizer(name="sgd", momentum=0.9, nesterov=False),
            # 550 steps are one epoch.
            schedule=Schedule(kind="exponential", factor=0.95, decay_steps=550),
            epochs=40,
            batch_size=100,
        ),
        nets=tuple(
            Candidate(name=f"{kind}-{depth}", model=ModelConfig(preset=preset, depth=depth))
            for kind, preset in (("highway", "mnist_dense_50"), ("plain", "mnist_dense_50_plain"))
            for depth in DEPTHS
        ),
        space=dense.SEARCH,
        trials=100,
    )
}
