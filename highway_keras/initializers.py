"""Initializers of the published nets, for the kernels of H and the transform gate, and whitening of the first kernel.

Every call returns a new initializer, because one instance shared by two weights gives both the same values. The dense
nets of the paper use "normalized initialization", which is Keras's "glorot_uniform".
"""

import keras
import numpy as np

# Maximum number of patches that a covariance is estimated from; more of them change it little.
PATCHES = 2**20
# Patches that are in memory at the same time.
CHUNK = 2**14


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


def patch_whitening(images: np.ndarray, kernel: np.ndarray, epsilon: float = 5e-4) -> np.ndarray:
    """Returns a kernel with which the first convolution of a net whitens its images.

    A filter is an eigenvector of the covariance of image patches, divided by the root of its eigenvalue, so that its
    outputs have variance 1. It is followed by its negative, because a ReLU would drop half of what it responds to.
    Filters come in the order of their eigenvalues, the largest first.

    Args:
        images: images as the net receives them, float [n, height, width, channels]. Of more than a million patches, a
            million are drawn at random, always the same ones.
        kernel: initial kernel of the convolution, float [height, width, channels, filters]. With more filters than
            eigenvectors and their negatives, its last ones stay as they are.
        epsilon: added to each eigenvalue, as a share of their mean, so that the faintest patterns, mostly noise, are
            not amplified without limit.

    Returns:
        The kernel, float32, of the same shape.

    Raises:
        ValueError: if the shapes do not fit, or all patches are equal.

    Example:
        convolution = model.get_layer("entry_1")
        kernel = patch_whitening(images[:1000], convolution.kernel.numpy())
        convolution.kernel.assign(kernel)

    Reference:
        Jordan 2024, "94% on CIFAR-10 in 3.29 Seconds on a Single GPU", arXiv 2404.00498; Page 2019, "How to Train Your
        ResNet 8: Bag of Tricks".
    """
    images, kernel = np.asarray(images), np.array(kernel, "float32")
    height, width, channels, filters = kernel.shape
    fits = images.ndim == 4 and images.shape[1] >= height and images.shape[2] >= width and images.shape[3] == channels
    if not (fits and len(images)):
        raise ValueError(
            f"images must be [n, height, width, {channels}], and at least as large as the kernel. "
            f"Received: images.shape={images.shape}, kernel.shape={kernel.shape}"
        )
    values, vectors = np.linalg.eigh(_patch_covariance(images, (height, width)))
    # Rounding may make the smallest ones negative.
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
    # Patches that are equal differ by rounding at most.
    if values[0] <= 1e-9 * float(np.abs(images).max()) ** 2:
        raise ValueError("the images must differ from place to place. Received: equal patches")
    # The sign of an eigenvector is arbitrary.
    vectors = vectors * np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(len(values))])
    scaled = vectors / np.sqrt(values + epsilon * values.mean())
    both = np.stack([scaled, -scaled], axis=-1).reshape(len(values), -1)[:, :filters]
    kernel[..., : both.shape[1]] = both.reshape(height, width, channels, -1)
    return kernel


def _patch_covariance(images: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Returns the covariance of patches, flattened in the order of a kernel's axes, float64 [pixels, pixels]."""
    rows, columns = (images.shape[axis] - size[axis - 1] + 1 for axis in (1, 2))
    count = len(images) * rows * columns
    numbers = np.arange(count)
    if count > PATCHES:
        numbers = np.sort(np.random.default_rng(0).integers(count, size=PATCHES))
    length = size[0] * size[1] * images.shape[3]
    total, products = np.zeros(length), np.zeros((length, length))
    down, right = np.arange(size[0])[:, None], np.arange(size[1])
    for start in range(0, len(numbers), CHUNK):
        places = np.stack(np.unravel_index(numbers[start : start + CHUNK], (len(images), rows, columns)))
        image, row, column = places[..., None, None]
        patches = images[image, row + down, column + right].reshape(-1, length).astype("float64")
        total, products = total + patches.sum(axis=0), products + patches.T @ patches
    mean = total / len(numbers)
    return products / len(numbers) - np.outer(mean, mean)
