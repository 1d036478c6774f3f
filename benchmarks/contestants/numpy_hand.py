"""The net in NumPy, with a hand-written gradient."""

import numpy as np

from benchmarks.problem import Arrays, Problem
from benchmarks.worker import Train, serve


def start(task: str) -> Train:
    """Loads data and weights; see `benchmarks.worker`."""
    problem = Problem.from_json(task)
    images, labels = problem.data()
    weights = problem.initial()
    mean = {name: np.zeros_like(value) for name, value in weights.items()}
    square = {name: np.zeros_like(value) for name, value in weights.items()}
    done = 0

    def train(steps: int) -> list[float]:
        nonlocal done
        losses = []
        for _ in range(steps):
            loss, gradients = gradient(weights, images[done % len(images)], labels[done % len(images)])
            done += 1
            losses.append(loss)
            norm = np.sqrt(sum(float(np.vdot(g, g)) for g in gradients.values()))
            scale = np.float32(min(1.0, problem.clip_norm / norm))
            rate = np.float32(problem.learning_rate / (1 - 0.9**done))
            correction = np.float32(1 / np.sqrt(1 - 0.999**done))
            for name, unclipped in gradients.items():
                g = unclipped * scale
                mean[name] += np.float32(0.1) * (g - mean[name])
                square[name] += np.float32(0.001) * (g * g - square[name])
                weights[name] -= rate * mean[name] / (np.sqrt(square[name]) * correction + np.float32(problem.epsilon))
        return losses

    return train


def gradient(weights: Arrays, images: np.ndarray, labels: np.ndarray) -> tuple[float, Arrays]:
    """Computes the mean cross-entropy of a batch and its gradient with respect to every weight.

    Args:
        weights: see `benchmarks.problem.initial_weights`.
        images: float32 [batch, 784].
        labels: integers [batch].

    Returns:
        The loss, and the gradients, with the names and shapes of the weights.
    """
    entry = np.tanh(images @ weights["entry_kernel"] + weights["entry_bias"])
    x, kept = entry, []
    kernels, transforms = weights["kernel"], weights["transform_kernel"]
    for kernel, bias, transform, transform_bias in zip(
        kernels, weights["bias"], transforms, weights["transform_bias"], strict=True
    ):
        h = np.tanh(x @ kernel + bias)
        t = 1 / (1 + np.exp(-(x @ transform + transform_bias)))
        kept.append((x, h, t))
        x = t * h + (1 - t) * x
    logits = x @ weights["head_kernel"] + weights["head_bias"]
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities = exponentials / exponentials.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = -float(np.log(probabilities[rows, labels]).mean())

    gradients = {name: np.empty_like(value) for name, value in weights.items()}
    d = probabilities
    d[rows, labels] -= 1
    d /= len(labels)
    gradients["head_kernel"], gradients["head_bias"] = x.T @ d, d.sum(axis=0)
    d = d @ weights["head_kernel"].T
    for layer in reversed(range(len(kernels))):
        x, h, t = kept[layer]
        dh = d * t * (1 - h * h)
        dt = d * (h - x) * t * (1 - t)
        gradients["kernel"][layer], gradients["bias"][layer] = x.T @ dh, dh.sum(axis=0)
        gradients["transform_kernel"][layer], gradients["transform_bias"][layer] = x.T @ dt, dt.sum(axis=0)
        d = d * (1 - t) + dh @ kernels[layer].T + dt @ transforms[layer].T
    d = d * (1 - entry * entry)
    gradients["entry_kernel"], gradients["entry_bias"] = images.T @ d, d.sum(axis=0)
    return loss, gradients


if __name__ == "__main__":
    serve(start, "numpy")
