"""MNIST, CIFAR-10 and CIFAR-100 at the paper's numbers of parameters, with what has been learned since 2015.

Command     highway train cifar10_modern    (or mnist_conv_32_modern, cifar100_modern); with `--validation 5000`
            for choosing among settings, so that the test images stay unseen
Net         every block gated unit by unit, batch normalization of H and of the plain convolutions, no dropout and no L2
            penalties; the layers of Table 1 for MNIST (151,978 trained parameters), eleven wide layers in place of
            Table 3's 19 for CIFAR (2,250,198 and 2,266,128)
Data        all training images, scaled, mean of each channel subtracted (CIFAR); random crops, mirroring and cutout
            (CIFAR), small rotations and elastic changes (MNIST)
Published   nothing; the paper's own nets reached 99.54% (MNIST), 92.31% (CIFAR-10) and 67.61% (CIFAR-100)
Sources     ours: all numbers are assumed, after common practice for nets with batch normalization; stages and learning
            rate of the CIFAR nets were chosen in short runs on held-out images (docs/log.md). SGD with Nesterov
            momentum, one cycle, decoupled weight decay of kernels, label smoothing
Measured    docs/results/modern (CIFAR) and docs/models.md
"""

from pipelines.core.config import Augment, Config, ModelConfig, Preprocess, Provenance, Recipe, Space
from pipelines.core.optimizers import SGD, TrapezoidSchedule

ASSUMED = (
    "model.preset",
    "data",
    "preprocess.scale",
    "preprocess.mean",
    "augment.pad",
    "augment.mirror",
    "augment.rotate",
    "augment.elastic",
    "augment.cutout",
    "optimizer.name",
    "optimizer.learning_rate",
    "optimizer.momentum",
    "optimizer.nesterov",
    "optimizer.weight_decay",
    "schedule.kind",
    "schedule.warmup",
    "schedule.decay",
    "epochs",
    "batch_size",
    "label_smoothing",
)
ONE_CYCLE = TrapezoidSchedule(warmup=0.25, decay=0.75)
SEARCH = Space(
    learning_rate=(0.02, 1.0),
    weight_decay=(0.0005, 0.05),
    transform_bias=(-4.0, 0.0),
    label_smoothing=(0.0, 0.2),
)


def _recipe(config: Config, published: str, search: Space) -> Recipe:
    return Recipe(
        config=config,
        source="this project",
        published=f"none; the paper's training: {published}",
        search=search,
        provenance=Provenance(assumed=ASSUMED),
    )


def _cifar(data: str, cutout: int) -> Config:
    name = f"{data}_modern"
    return Config(
        recipe=name,
        model=ModelConfig(preset=name),
        data=data,
        # The pixels have a standard deviation of about 64.
        preprocess=Preprocess(scale=1 / 64, mean="channel"),
        augment=Augment(pad=4, mirror=True, cutout=cutout),
        optimizer=SGD(learning_rate=0.4, momentum=0.9, nesterov=True, weight_decay=0.005),
        schedule=ONE_CYCLE,
        epochs=60,
        batch_size=250,
        label_smoothing=0.1,
    )


RECIPES = (
    _recipe(
        Config(
            recipe="mnist_conv_32_modern",
            model=ModelConfig(preset="mnist_conv_32_modern"),
            data="mnist",
            preprocess=Preprocess(scale=1 / 255),
            augment=Augment(pad=2, rotate=10, elastic=1.0),
            optimizer=SGD(learning_rate=0.2, momentum=0.9, nesterov=True, weight_decay=0.005),
            schedule=ONE_CYCLE,
            epochs=40,
            batch_size=250,
            label_smoothing=0.05,
        ),
        "99.54% ± 0.02 of the test images",
        SEARCH.model_copy(update={"rotate": (0.0, 20.0), "elastic": (0.0, 2.0)}),
    ),
    _recipe(
        _cifar("cifar10", cutout=12),
        "92.31% ± 0.12 of the test images",
        SEARCH.model_copy(update={"cutout": (0, 8, 12, 16), "mixup": (0.0, 0.4), "sharpness": (0.0, 0.9)}),
    ),
    _recipe(
        _cifar("cifar100", cutout=8),
        "67.61% ± 0.15 of the test images",
        SEARCH.model_copy(update={"cutout": (0, 8, 12, 16), "cutmix": (0.0, 1.0), "sharpness": (0.0, 0.9)}),
    ),
)
