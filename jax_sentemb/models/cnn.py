"""Parallel 1-D convolutions over token states (IS-BERT, Eq. 1), as sentence-transformers' CNN module computes them."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Bool, Float, Key

from jax_sentemb.errors import ConfigError, Setting
from jax_sentemb.models.layers import matmul
from jax_sentemb.settings import check_settings, setting
from jax_sentemb.types import Array, Params


@dataclass
class Convolution:
    """Filters of several window sizes, "same" padding, concatenated: [R, T, D] -> [R, T, len(windows) * filters].

    * relu: apply a ReLU, as Eq. 1 of the paper. The published code, which made the published figures, has none.
    * reference: also convolve the encoder's output at [PAD], as the published code does; an embedding then depends on the padding
      of its batch. Default False: masked positions are zero before the convolution, and padding changes nothing.
    """

    windows: tuple[int, ...] = setting((1, 3, 5), least=1)  # widths of the filters in tokens
    filters: int = setting(256, least=1)  # number of filters of each width
    relu: bool = False  # apply a ReLU, as in Eq. 1; the published code does not
    reference: bool = False  # also convolve the states at [PAD], as in the published code

    @property
    def width(self) -> int:
        """Return the number of features of a token."""
        return len(self.windows) * self.filters

    def check(self) -> None:
        """Raise ConfigError for invalid windows or filters."""
        check_settings(self, "method.convolution.")
        windows = tuple(self.windows)
        if not windows or any(window % 2 == 0 for window in windows) or len(set(windows)) < len(windows):
            raise ConfigError(
                Setting("method.convolution.windows", windows), " must be different odd numbers, for instance (1, 3, 5)"
            )

    def init(self, key: Key[Array, ""], inputs: int) -> Params:
        """Return {"window_K": kernel [K, inputs, filters] and bias [filters]}, drawn from U(-b, b) as in torch.

        b is 1 / sqrt(K * inputs).
        """
        params = {}
        for window, window_key in zip(self.windows, jax.random.split(key, len(self.windows)), strict=True):
            bound = (window * inputs) ** -0.5
            kernel_key, bias_key = jax.random.split(window_key)
            params[f"window_{window}"] = {
                "kernel": jax.random.uniform(kernel_key, (window, inputs, self.filters), jnp.float32, -bound, bound),
                "bias": jax.random.uniform(bias_key, (self.filters,), jnp.float32, -bound, bound),
            }
        return params

    def loaded_or_new(self, loaded: Params | None, key: Key[Array, ""], width: int) -> Params:
        """Return the convolution of a directory, or a new one if it has none.

        Raises:
            ConfigError: That of the directory has other windows or another number of filters.
        """
        if not loaded:
            return self.init(key, width)
        given = {int(name.removeprefix("window_")): layer["kernel"].shape[-1] for name, layer in loaded.items()}
        if given != dict.fromkeys(self.windows, self.filters):
            raise ConfigError(
                Setting("method.convolution.windows", self.windows),
                " and ",
                Setting("method.convolution.filters", self.filters),
                " do not fit the convolution of ",
                Setting("encoder.weights"),
                ": set ",
                Setting("method.convolution.windows", sorted(given)),
                " and ",
                Setting("method.convolution.filters", min(given.values())),
            )
        return loaded

    def apply(
        self,
        params: Params,
        states: Float[Array, "rows tokens width"],
        mask: Bool[Array, "rows tokens"],
        dtype: DTypeLike = jnp.float32,
    ) -> Float[Array, "rows tokens features"]:
        """Return features of each token of `states` [R, T, D], float32; `mask` is bool [R, T]."""
        if not self.reference:
            states = jnp.where(mask[..., None], states, 0.0)
        features = []
        for window in self.windows:
            kernel, bias = (params[f"window_{window}"][name] for name in ("kernel", "bias"))
            reach = window // 2
            padded = jnp.pad(states, ((0, 0), (reach, reach), (0, 0)))
            # A window is a sum of shifted products: matrix products are fast everywhere, small convolutions are not.
            shifted = jnp.concatenate([padded[:, shift : shift + states.shape[1]] for shift in range(window)], axis=-1)
            features.append(matmul(shifted, kernel.reshape(-1, kernel.shape[-1]), dtype) + bias)
        joined = jnp.concatenate(features, axis=-1)
        return jax.nn.relu(joined) if self.relu else joined
