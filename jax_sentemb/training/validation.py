"""Measure loss and accuracy of a method's training task on held-out sentences."""

import contextlib
from collections import defaultdict

import jax
import numpy as np
from jax.sharding import Mesh

from jax_sentemb.data.batches import AnyBatches
from jax_sentemb.methods.base import Method
from jax_sentemb.models.encoder import TokenEncoder
from jax_sentemb.parallel import process_share
from jax_sentemb.training.loop import batches_on_device
from jax_sentemb.training.step import make_measure
from jax_sentemb.types import TrainState


class Validation:
    """Measure a state on held-out sentences, always with the same batches, perturbations and dropout."""

    def __init__(self, method: Method, encoder: TokenEncoder, batches: AnyBatches, mesh: Mesh) -> None:
        self._batches, self._mesh = batches, mesh
        self._measure = make_measure(method, encoder, mesh)

    def __call__(self, state: TrainState) -> dict[str, float]:
        """Return the means over the batches of "loss" and every metric of the method."""
        share = *process_share(self._mesh), self._mesh.size
        values_of = defaultdict(list)
        reading = batches_on_device(lambda step: self._batches.parts(step, *share), 0, self._batches.steps_per_epoch, self._mesh)
        with contextlib.closing(reading) as batches:  # a signal or an error ends the reading in the background too
            for batch in batches:
                for name, value in self._measure(state, batch).items():
                    values_of[name].append(value)
        return {name: float(np.mean(jax.device_get(values))) for name, values in values_of.items()}
