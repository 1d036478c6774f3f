"""Dropout on several devices with TensorFlow, with the masks of one device."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import keras
import tensorflow as tf

from pipelines.training.divided_dropout import DividedDropout, with_dropout


class MirroredDropout(DividedDropout):
    """A dropout layer for the replicas of a `tf.distribute.MirroredStrategy`.

    Args:
        dropout: the layer, whose rate and seed are used.
        compiled: whether to draw the numbers that XLA would draw, which are others.

    Example:
        mirrored = MirroredDropout(keras.layers.Dropout(0.5, seed=0), compiled=False)
    """

    def __init__(self, dropout: keras.layers.Dropout, compiled: bool) -> None:
        super().__init__(dropout)
        self.compiled = compiled

    def place(self) -> tuple[Any, int]:
        """Returns the number of the replica that computes, and that of all replicas."""
        context = tf.distribute.get_replica_context()
        return context.replica_id_in_sync_group, context.num_replicas_in_sync

    def drawn(self, whole: Any) -> Any:
        """Returns the mask of a whole batch, given as ones."""
        if not (self.compiled and self.dropout.rate):
            return super().drawn(whole)
        return self._by_xla(whole, self.dropout.seed_generator.next())

    @cached_property
    def _by_xla(self) -> Callable[[Any, Any], Any]:
        state = self.dropout.seed_generator.state

        @tf.function(jit_compile=True, autograph=False)
        def drawn(whole: Any, seed: Any) -> Any:
            # Replicas share the program, but not the variable of the seed.
            with keras.StatelessScope([(state, seed)]):
                return self.dropout(whole, training=True)

        return drawn


def mirrored(net: keras.Model, compiled: bool) -> keras.Model:
    """Returns a functional net with the same weights and seeds, and each dropout layer mirrored.

    Args:
        net: the net.
        compiled: see `MirroredDropout`.

    Example:
        mirrored(from_preset("cifar10_19"), compiled=False)
    """
    return with_dropout(net, lambda dropout: MirroredDropout(dropout, compiled))
