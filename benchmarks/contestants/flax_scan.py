"""The net in Flax, with one block under `nn.scan`, Optax and a jitted step."""

from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.training.train_state import TrainState

from benchmarks.problem import Problem
from benchmarks.worker import Train, serve


class Highway(nn.Module):
    """y = t * h + (1 - t) * x, in the form that `nn.scan` takes."""

    width: int

    @nn.compact
    def __call__(self, x: jax.Array, _: None) -> tuple[jax.Array, None]:
        """Maps x [batch, width] to y of the same shape."""
        h = nn.tanh(nn.Dense(self.width, name="block")(x))
        t = nn.sigmoid(nn.Dense(self.width, name="transform")(x))
        return t * h + (1 - t) * x, None


class ScannedNet(nn.Module):
    """The whole net."""

    depth: int
    width: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Maps images [batch, 784] to logits [batch, 10]."""
        x = nn.tanh(nn.Dense(self.width, name="entry")(x))
        stack = nn.scan(Highway, variable_axes={"params": 0}, split_rngs={"params": True}, length=self.depth)
        x, _ = stack(self.width, name="blocks")(x, None)
        return nn.Dense(10, name="head")(x)


@partial(jax.jit, donate_argnums=0)
def step(state: TrainState, images: jax.Array, labels: jax.Array) -> tuple[TrainState, jax.Array]:
    """One training step."""

    def loss(params: Any) -> jax.Array:
        logits = state.apply_fn({"params": params}, images)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    value, gradients = jax.value_and_grad(loss)(state.params)
    return state.apply_gradients(grads=gradients), value


def start(task: str) -> Train:
    """Builds the net; see `benchmarks.worker`."""
    problem = Problem.from_json(task)
    images, labels = problem.data()
    weights = problem.initial()

    def dense(kernel: str, bias: str) -> dict[str, jax.Array]:
        return {"kernel": jnp.asarray(weights[kernel]), "bias": jnp.asarray(weights[bias])}

    net = ScannedNet(problem.depth, problem.width)
    # Every user has to do this, and all other contestants draw weights too, although they are replaced afterwards.
    jax.jit(net.init)(jax.random.key(0), images[0])
    params = {
        "entry": dense("entry_kernel", "entry_bias"),
        "blocks": {"block": dense("kernel", "bias"), "transform": dense("transform_kernel", "transform_bias")},
        "head": dense("head_kernel", "head_bias"),
    }
    optimizer = optax.chain(
        optax.clip_by_global_norm(problem.clip_norm), optax.adam(problem.learning_rate, eps=problem.epsilon)
    )
    state = TrainState.create(apply_fn=net.apply, params=params, tx=optimizer)
    done = 0

    def train(steps: int) -> list[float]:
        nonlocal state, done
        losses = []
        for _ in range(steps):
            at = done % len(images)
            done += 1
            state, loss = step(state, images[at], labels[at])
            losses.append(loss)
        return [float(loss) for loss in jax.device_get(losses)]

    return train


if __name__ == "__main__":
    serve(start, "flax", "jax")
