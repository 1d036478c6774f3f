"""CIFAR-10 and CIFAR-100, highway nets of 19 layers: Srivastava, Greff, Schmidhuber 2015, Table 3.

Command     highway train cifar10_19       (or cifar100_19)
Net         19 layers in three stages of 32, 80 and 128 filters (2,256,838 parameters for 10 classes)
Data        all 50,000 training images, global contrast normalization, mean subtracted, 8 pixels of padding on each
            side, random 32x32 crop, mirror; test images unpadded
Published   CIFAR-10: 92.40% best, 92.31 ± 0.12; CIFAR-100: 67.76% best, 67.61 ± 0.15 (test accuracy)
Waypoints   the authors' log, CIFAR-10, test: 68.97% after 5,000 steps, 85.92 after 50,000, 86.94 after 100,000, 90.38
            after 100,500, 92.14 at the end (92.44 at most); CIFAR-100 ends at 68.09
Sources     the authors' Caffe files. They record neither the scale of the contrast normalization (0.67 fits their loss
            before training best) nor whether the mean is per pixel or per channel
Measured    not in full; the first ten of 400 epochs of cifar10_19 in docs/results/cifar10, one cycle of ten epochs of
            cifar100_19 in docs/results/cifar100
"""

from pipelines.core.config import Augment, Config, ModelConfig, Preprocess, Provenance, Recipe
from pipelines.core.optimizers import SGD, StepSchedule
from pipelines.recipes import mnist_conv
from pipelines.recipes.provenance import SOLVER

RECORDED = ("augment.pad", "augment.mirror", *SOLVER)
ASSUMED = ("validation", "preprocess.scale", "preprocess.contrast", "preprocess.mean")
SEARCH = mnist_conv.SEARCH


def config(name: str, data: str) -> Config:
    """Returns the recorded training of the 19-layer nets for any preset; it also trains the nets of Table 2."""
    return Config(
        recipe=name,
        model=ModelConfig(preset=name),
        data=data,
        # The contrast normalization undoes any scale before it.
        preprocess=Preprocess(scale=1 / 255, contrast=0.67, mean="pixel"),
        augment=Augment(pad=8, mirror=True),
        optimizer=SGD(learning_rate=0.025, momentum=0.9, nesterov=True, bias_multiplier=2.0),
        schedule=StepSchedule(boundaries=(100_000, 150_000, 175_000), factor=0.1),
        epochs=400,
        batch_size=100,
    )


RECIPES = (
    Recipe(
        config=config("cifar10_19", "cifar10"),
        source="Srivastava et al. 2015, Table 3",
        published="92.40% best (92.31% ± 0.12) test accuracy, CIFAR-10",
        search=SEARCH,
        provenance=Provenance(recorded=("model.preset", "data", *RECORDED), assumed=ASSUMED),
    ),
    Recipe(
        config=config("cifar100_19", "cifar100"),
        source="Srivastava et al. 2015, Table 3",
        published="67.76% best (67.61% ± 0.15) test accuracy, CIFAR-100",
        search=SEARCH,
        provenance=Provenance(recorded=("model.preset", "data", *RECORDED), assumed=ASSUMED),
    ),
)
