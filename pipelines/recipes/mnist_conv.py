"""MNIST, convolutional highway nets of 10 layers: Srivastava, Greff, Schmidhuber 2015, Table 1.

Command     highway train mnist_conv_32    (or mnist_conv_16)
Net         one plain and eight highway convolutions, width 32 (151,690 parameters) or 16
Data        MNIST, all 60,000 training images, pixels times 1/256, no augmentation; the paper has no
            validation split (`--validation 5000` makes one)
Published   width 32: 99.55% best, 99.54 ± 0.02; width 16: 99.43% best, 99.4 ± 0.03 (test accuracy)
Waypoints   the authors' log, width 32, test: 95.88% after 600 steps (1 epoch), 98.75 after 6,000, 99.31 after
            60,000, 99.54 at the end
Sources     width 32 is recorded in the authors' Caffe files; width 16 has the same settings, tagged as assumed
Measured    width 32, one epoch (600 steps), test: 95.87, 95.64, 95.53% (seeds 0 to 2, mixed_bfloat16, 33 to 59 s),
            95.89% (seed 0, float32, 78 s); two cores (Xeon, amx_bf16), Keras 3.15.1, TensorFlow 2.21. Longer
            runs of both widths: docs/results/mnist, mnist-width-16 and mnist-width-32
"""

from pipelines.core.config import Config, ModelConfig, Preprocess, Provenance, Recipe, Space
from pipelines.core.optimizers import SGD, StepSchedule
from pipelines.recipes.provenance import SOLVER

_SETTINGS = ("validation", "preprocess.scale", *SOLVER)
# Search space of all convolutional nets, around the recorded numbers; the paper reports no search.
SEARCH = Space(
    learning_rate=(0.001, 0.3),
    momentum=(0.5, 0.99),
    decay=(0.05, 0.5),
    transform_bias=(-5.0, 0.0),
    dropout=(0.0, 0.5),
)


def _config(name: str) -> Config:
    return Config(
        recipe=name,
        model=ModelConfig(preset=name),
        data="mnist",
        validation=0,
        preprocess=Preprocess(scale=1 / 256),
        optimizer=SGD(learning_rate=0.01, momentum=0.9, nesterov=True, bias_multiplier=2.0),
        schedule=StepSchedule(boundaries=(60_000, 120_000), factor=0.1),
        epochs=300,
        batch_size=100,
    )


RECIPES = (
    Recipe(
        config=_config("mnist_conv_32"),
        source="Srivastava et al. 2015, Table 1",
        published="99.55% best (99.54% ± 0.02) test accuracy, MNIST",
        search=SEARCH,
        provenance=Provenance(recorded=("model.preset", "data", *_SETTINGS)),
    ),
    Recipe(
        config=_config("mnist_conv_16"),
        source="Srivastava et al. 2015, Table 1",
        published="99.43% best (99.4% ± 0.03) test accuracy, MNIST",
        search=SEARCH,
        provenance=Provenance(recorded=("model.preset", "data"), assumed=_SETTINGS),
    ),
)
