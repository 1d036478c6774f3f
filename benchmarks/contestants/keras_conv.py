"""The 19-layer CIFAR net built from Keras's own convolutions, on the backend in KERAS_BACKEND."""

import keras

from benchmarks.contestants.conv_fit import fitting
from benchmarks.conv_problem import MOMENTUM, PAPER, ConvProblem
from benchmarks.worker import Train, serve


def start(task: str) -> Train:
    """Builds the net; see `benchmarks.worker`."""
    problem = ConvProblem.from_json(task)
    keras.config.set_dtype_policy(problem.precision)
    model = _net()
    weights = problem.initial()
    for layer in model.layers:
        if layer.weights:
            name, _, part = layer.name.partition("-")
            layer.set_weights([weights[f"{name}/{part}kernel"], weights[f"{name}/{part}bias"]])
    model.compile(
        optimizer=keras.optimizers.SGD(PAPER.learning_rate, momentum=MOMENTUM, nesterov=True),
        loss=keras.losses.CategoricalCrossentropy(from_logits=True),
        metrics=[keras.metrics.CategoricalCrossentropy(name="crossentropy", from_logits=True)],
        # The faster choice: on a CPU, XLA slows convolutions down.
        jit_compile="auto" if keras.backend.backend() != "tensorflow" or "gpu" in problem.options else False,
    )
    return fitting(model, problem)


def _net() -> keras.Model:
    def convolution(filters: int, side: int, activation: str, name: str) -> keras.layers.Layer:
        decay = keras.regularizers.L2(PAPER.l2)
        return keras.layers.Conv2D(
            filters, side, padding="same", activation=activation, kernel_regularizer=decay, name=name
        )

    x = inputs = keras.Input((32, 32, 3))
    number = 0
    for index, stage in enumerate(PAPER.stages, start=1):
        assert stage.entry  # All stages of the paper's net have one.
        x = convolution(stage.filters, stage.entry, "relu", f"entry_{index}")(x)
        for _ in range(stage.blocks):
            number += 1
            h = convolution(stage.filters, 3, "relu", f"highway_{number:02}")(x)
            t = convolution(stage.filters, 3, "sigmoid", f"highway_{number:02}-transform_")(x)
            x = t * h + (1 - t) * x
        x = keras.layers.MaxPooling2D(2)(x) if stage.pool else x
    x = keras.layers.GlobalAveragePooling2D()(x)
    classifier = keras.layers.Dense(
        10, kernel_regularizer=keras.regularizers.L2(PAPER.classifier_l2), dtype="float32", name="logits"
    )
    return keras.Model(inputs, classifier(x))


if __name__ == "__main__":
    serve(start, "keras")
