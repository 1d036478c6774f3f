"""Dense highway nets of 10 to 100 hidden layers: Srivastava, Greff, Schmidhuber 2015, sections 3.1 and 4.

Command     highway train mnist_dense_10, mnist_dense_50, mnist_dense_100 or cifar100_dense_50
Net         one plain and 9, 49 or 99 highway layers of 50 tanh units. Those on MNIST, with gate bias -2, -2 or -4, are
            the nets that Figure 1 compares by depth. Figures 2, 3 and 4 show the 50-layer net, and another one on
            CIFAR-100 with gate bias -4
Data        MNIST, all 60,000 training images, or CIFAR-100, all 50,000
Published   curves only: highway nets of 100 layers optimize as well as those of 10, 20 and 50 (Figure 1)
Sources     the paper states SGD with momentum and an exponentially decaying learning rate, but not their values, which
            were found by random search, so all training numbers are assumed. Learning rate and gate bias at 10 and 100
            layers had the highest validation accuracy of the grid in docs/log.md (one seed, 5 epochs). For 50
            layers, a constant rate of 0.15 reaches 94.3% on test images after 2 epochs, and 0.05 reaches 37.3%
            (`--optimizer.learning-rate R --schedule.kind constant --epochs 2`, seed 0, two cores of an AMD EPYC)
Measured    10 layers 97.70% of the test images (97.62 ± 0.07, n = 3, seeds 0 to 2), 100 layers 97.56%
            (97.52 ± 0.06, n = 3); 20 epochs, 21 to 24 s and 91 to 140 s, Keras 3.15.1, JAX 0.10.2, float32, two busy
            cores of an Intel Xeon with avx512_bf16 and amx_bf16. 50 layers: docs/results/gates
"""

from pipelines.core.config import Config, ModelConfig, Provenance, Recipe, Space
from pipelines.core.optimizers import SGD, ExponentialSchedule

# Steps per epoch; the learning rate decays once per epoch.
STEPS = {"mnist": 600, "cifar100": 500}
# The paper's random search (section 3.1), of which only the bounds of the gate bias are printed.
SEARCH = Space(
    learning_rate=(0.001, 1.0),
    momentum=(0.0, 0.99),
    decay=(0.8, 1.0),
    activation=("relu", "tanh"),
    transform_bias=(-10.0, -1.0),
)


ASSUMED = (
    "validation",
    "preprocess.scale",
    "optimizer.learning_rate",
    "optimizer.momentum",
    "optimizer.nesterov",
    "schedule.factor",
    "schedule.decay_steps",
    "epochs",
    "batch_size",
)
# Section 3.1 states these for its nets; section 4 does not.
TRAINING = ("optimizer.name", "schedule.kind")


def _recipe(name: str, learning_rate: float, epochs: int, figures: str) -> Recipe:
    data = name.partition("_")[0]
    known, unknown = (("model.preset", "data", *TRAINING), ASSUMED) if data == "mnist" else (
        ("model.preset", "data"), (*ASSUMED, *TRAINING)
    )  # fmt: skip
    return Recipe(
        config=Config(
            recipe=name,
            model=ModelConfig(preset=name),
            data=data,
            optimizer=SGD(learning_rate=learning_rate, momentum=0.9, nesterov=False),
            schedule=ExponentialSchedule(factor=0.95, decay_steps=STEPS[data]),
            epochs=epochs,
            batch_size=100,
        ),
        source=f"Srivastava et al. 2015, {figures}",
        published="curves only",
        search=SEARCH,
        provenance=Provenance(recorded=known, assumed=unknown),
    )


RECIPES = (
    _recipe("mnist_dense_10", learning_rate=0.1, epochs=20, figures="Figure 1"),
    _recipe("mnist_dense_50", learning_rate=0.15, epochs=50, figures="Figures 1 to 4"),
    _recipe("mnist_dense_100", learning_rate=0.2, epochs=20, figures="Figure 1"),
    _recipe("cifar100_dense_50", learning_rate=0.05, epochs=50, figures="Figures 2 to 4"),
)
