"""Initializers of the published nets, for the kernels of H and the transform gate.

Every call returns a new initializer, because one instance shared by two weights gives both the same values. The dense
nets of the paper use "normalized initialization", which is Keras's "glorot_uniform".
"""

import keras


def caffe_xavier() -> keras.initializers.Initializer:
    """Returns the "xavier" filler of the authors' Caffe code: an untruncated Gaussian with std sqrt(2 / fan_in).

    Despite Caffe's name this is He's rule, not Glorot's. Keras's "he_normal" truncates it at 2 std.

    Returns:
        An unseeded initializer; `keras.utils.set_random_seed` makes it repeatable.

    Example:
        keras.layers.Conv2D(32, 3, kernel_initializer=caffe_xavier())

    Reference:
        He et al. 2015, arXiv 1502.01852, section 2.2.
    """
    return keras.initializers.VarianceScaling(scale=2.0, mode="fan_in", distribution="untruncated_normal")


def gaussian(std: float | None) -> keras.initializers.Initializer:
    """Returns a Gaussian with a fixed standard deviation, which the authors set for some layers.

    Their first CIFAR convolution has std 1.0, their classifier 0.1 on MNIST and 0.05 on CIFAR-10.

    Args:
        std: standard deviation; None selects `caffe_xavier`, which depends on the fan-in.

    Returns:
        An unseeded initializer.

    Example:
        keras.layers.Dense(10, kernel_initializer=gaussian(0.1))
    """
    return caffe_xavier() if std is None else keras.initializers.RandomNormal(mean=0.0, stddev=std)


def fan_in_uniform() -> keras.initializers.Initializer:
    """Returns a uniform distribution between ±1 / sqrt(fan_in), narrower than Keras's "lecun_uniform".

    It is PyTorch's default for linear layers. With it, signal and gradient of a tanh net decay faster over depth than
    with "glorot_uniform".

    Returns:
        An unseeded initializer; `keras.utils.set_random_seed` makes it repeatable.

    Example:
        keras.layers.Dense(50, kernel_initializer=fan_in_uniform())
    """
    return keras.initializers.VarianceScaling(scale=1 / 3, mode="fan_in", distribution="uniform")
