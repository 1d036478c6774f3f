"""How the weights of the published nets start, for the kernels of H and of the transform gate alike.

Every call makes a new initializer: one instance shared by two weights would give both the same values.
The dense nets of the paper use "normalised initialisation", which is Keras's "glorot_uniform".
"""

import keras


def caffe_xavier() -> keras.initializers.Initializer:
    """The "xavier" filler of the authors' Caffe code: a Gaussian that is not cut off, with std sqrt(2 / fan_in).

    Caffe's name misleads: this is He's rule, not Glorot's, and Keras's "he_normal" differs by cutting off at 2 std.

    Returns:
        An unseeded initializer; `keras.utils.set_random_seed` makes it repeatable.

    Example:
        keras.layers.Conv2D(32, 3, kernel_initializer=caffe_xavier())

    Reference:
        He et al. 2015, arXiv 1502.01852, section 2.2.
    """
    return keras.initializers.VarianceScaling(scale=2.0, mode="fan_in", distribution="untruncated_normal")


def gaussian(std: float | None) -> keras.initializers.Initializer:
    """A Gaussian of a fixed standard deviation, as the authors set it for single layers.

    Their first CIFAR convolution has std 1.0, their classifier 0.1 on MNIST and 0.05 on CIFAR-10.

    Args:
        std: the standard deviation; None stands for `caffe_xavier`, which depends on the fan-in.

    Returns:
        An unseeded initializer.

    Example:
        keras.layers.Dense(10, kernel_initializer=gaussian(0.1))
    """
    return caffe_xavier() if std is None else keras.initializers.RandomNormal(mean=0.0, stddev=std)


def fan_in_uniform() -> keras.initializers.Initializer:
    """Evenly between plus and minus one over the square root of the fan-in: narrower than Keras's "lecun_uniform".

    It is what PyTorch gives linear layers, and many a net that was written by hand. A tanh net that starts so loses
    its signal and its gradient with depth sooner than one that starts by "glorot_uniform".

    Returns:
        An unseeded initializer; `keras.utils.set_random_seed` makes it repeatable.

    Example:
        keras.layers.Dense(50, kernel_initializer=fan_in_uniform())
    """
    return keras.initializers.VarianceScaling(scale=1 / 3, mode="fan_in", distribution="uniform")
