"""Attention mutual information (AMI): a regulariser that makes two views attend to the same tokens (miCSE, 3.3 and 3.4)."""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Bool, Float, Int, Shaped, UInt

from jax_sentemb.errors import ConfigError, Setting
from jax_sentemb.losses import Scalar, correlation, gaussian_mutual_information
from jax_sentemb.models.attention import Attention, Capture
from jax_sentemb.models.bert_config import MAX_POSITIONS
from jax_sentemb.models.layers import random_bits
from jax_sentemb.settings import check_settings, setting
from jax_sentemb.types import Array

STREAM = 1 << 20  # none of the encoder's dropout streams
SUBSET_STRIDES = 2 * MAX_POSITIONS**2, 1  # of the keys of "gumbel": slice, entry; they do not depend on padding
MAX_SAMPLES = 1 << 15  # their square is a number of 32 bits


class Positions(NamedTuple):
    """Sampled entries of the pool of each slice: int32 [B, S, M] each."""

    member: Int[Array, "batch slices samples"]  # 0 or 1: which of the two attention maps of the slice
    query: Int[Array, "batch slices samples"]
    key: Int[Array, "batch slices samples"]


@dataclass
class AttentionMI:
    """Add -weight * mean over slices and sentences of -1/2 log(1 - rho^2); rho correlates the log attention of two views.

    A slice pools two attention maps. For every sentence and slice `samples` positions are drawn, the same for both views. The
    settings choose between paper and published code where they differ (the default is the code, except where noted):

    * weight: the paper's for all of Wikipedia. The code's for 10 %, 1 %, 0.1 % and 0.01 % of it are 5e-4, 1e-4, 1e-3, 1e-3.
    * pairing: "layers" pools layers l and l + n/2 of the same head (code), "heads" heads 2h and 2h + 1 of a layer (paper).
    * layers: counted from 1; () takes those of `depth`.
    * depth: "code" is the four layers before the last one (8 to 11 of 12; all of four). "paper" is the last four (9 to 12). "upper"
      is the upper half (7 to 12 of 12, 3 and 4 of 4; one more than an odd half if layers are paired). The paper restricts AMI to
      the upper part of the stack; four of four layers are the whole stack.
    * post_dropout: entries that attention dropout removed in either view are not used (code); False uses all entries.
    * density: multiply the weight by (valid entries / entries of the padded map)^2, without gradient (code). The paper has no such
      factor; the code's weights are tuned with it. Here it is estimated from the sampled positions, padded to the longest sentence.
    * sampling: "stratified" takes one entry from each of `samples` equal parts of the pool: uniform, without repetition or sort.
      "gumbel" draws a uniform subset as the code does (slower, it sorts the pool); "replacement" draws with replacement.
      A pool smaller than `samples` repeats entries; the code drops such slices (discard_short=True).
    * Positions to which a layer with local attention (ModernBERT) does not attend are not used, as if dropout had removed them.
    * padding_queries: True adds the rows of [PAD] queries to the pool (code). Default False (paper): padding changes nothing.
    """

    weight: float = setting(2.5e-3, least=0)  # weight of the AMI loss; the default is the paper's for Wikipedia
    samples: int = setting(150, least=2, most=MAX_SAMPLES)  # number of positions of a slice that are compared
    layers: tuple[int, ...] = setting((), least=1)  # layers to compare, counted from 1; empty: those of depth
    # Layers to compare: those before the last, the last four, or the upper half.
    depth: str = setting("code", choices=("code", "paper", "upper"))
    # The maps of a slice: of layers l and l + n/2, or of heads 2h and 2h + 1.
    pairing: str = setting("layers", choices=("layers", "heads"))
    post_dropout: bool = True  # leave out entries that attention dropout removed in either view
    density: bool = True  # multiply the weight by the squared share of valid entries, as in the code
    sampling: str = setting(
        "stratified", choices=("stratified", "gumbel", "replacement")
    )  # how entries are drawn; gumbel is the code's, and slower
    discard_short: bool = False  # drop slices with fewer entries than samples, as in the code
    padding_queries: bool = False  # include the rows of [PAD] queries, as in the code

    def check(self, num_layers: int, num_heads: int) -> None:
        """Raise ConfigError if a setting is invalid, or does not fit the encoder's numbers of layers and heads."""
        check_settings(self, "method.ami.")
        layers = self.chosen_layers(num_layers)
        if self.layers and self.depth != "code":
            raise ConfigError(
                Setting("method.ami.layers", layers),
                " and ",
                Setting("method.ami.depth", self.depth),
                " both choose layers: give one of them",
            )
        if not layers or min(layers) < 1 or max(layers) > num_layers or len(set(layers)) != len(layers):
            raise ConfigError(
                Setting("method.ami.layers", layers), f" must be different numbers from 1 to {num_layers}, the encoder's depth"
            )
        if self.pairing == "layers" and len(layers) % 2:
            raise ConfigError(
                Setting("method.ami.layers", layers),
                " cannot be paired: give an even number, or ",
                Setting("method.ami.pairing", "heads"),
            )
        if self.pairing == "heads" and num_heads % 2:
            raise ConfigError(
                Setting("method.ami.pairing", "heads"), f" needs an even number of heads; the encoder has {num_heads}"
            )

    def chosen_layers(self, num_layers: int) -> tuple[int, ...]:
        """Return the layers whose attention is compared, counted from 1, in ascending order."""
        if self.layers:
            return tuple(sorted(self.layers))  # `mutual_information` pairs them in this order
        paired = self.pairing == "layers"
        last = num_layers - 1 if num_layers > 4 and self.depth == "code" else num_layers
        count = min(4, num_layers - num_layers % 2 if paired else num_layers)
        if self.depth == "upper":
            half = max(num_layers // 2, 1)
            count = half + half % 2 if paired else half
        return tuple(range(last - count + 1, last + 1))

    def slices(self, layers: tuple[int, ...], heads: int) -> int:
        """Return the number of slices S: half the number of attention maps."""
        return len(layers) * heads // 2

    def _of_layer(
        self, per_slice: Int[Array, "batch slices samples"], index: int, layers: tuple[int, ...], heads: int
    ) -> Int[Array, "batch heads samples"]:
        """Return the entries of the slice of each head, for the layer number `index` of `layers`."""
        half = len(layers) // 2
        if self.pairing == "layers":
            return per_slice.reshape(len(per_slice), half, heads, -1)[:, index % half]
        return jnp.repeat(per_slice.reshape(len(per_slice), len(layers), heads // 2, -1)[:, index], 2, axis=1)

    def _by_slice(self, maps: Shaped[Array, "layers rows heads samples"]) -> Shaped[Array, "rows slices 2 samples"]:
        """Return the two maps of each slice."""
        layers, rows, heads, samples = maps.shape
        if self.pairing == "layers":
            pairs = maps.reshape(2, layers // 2, rows, heads, samples).transpose(2, 1, 3, 0, 4)
        else:
            pairs = maps.reshape(layers, rows, heads // 2, 2, samples).transpose(1, 0, 2, 3, 4)
        return pairs.reshape(rows, -1, 2, samples)

    def sample(self, seeds: UInt[Array, " batch"], lengths: Int[Array, " batch"], width: int, slices: int) -> Positions:
        """Draw positions for each sentence and slice among the entries of real tokens.

        Args:
            seeds: A seed of each sentence, uint32 [B].
            lengths: The number of tokens of each sentence, int32 [B].
            width: The number of tokens of a row, with padding.
            slices: The number of slices S.
        """
        queries = jnp.full_like(lengths, width) if self.padding_queries else lengths
        pool = (2 * queries * lengths)[:, None, None]  # entries of the two maps
        if self.sampling == "gumbel":
            index = self._subset(seeds, pool, 2 * width * width, slices)
        else:

            def below(limit: Array, stream: int, count: int) -> Array:
                """Return random numbers from 0 to limit - 1; a pool of more than 2^24 entries needs all bits."""
                bits = random_bits(seeds, stream, (slices, count)) >> jnp.where(pool > 1 << 24, 0, 8).astype(jnp.uint32)
                return (bits % limit.astype(jnp.uint32)).astype(jnp.int32)

            if self.sampling == "replacement":
                index = below(pool, STREAM, self.samples)
            else:
                start = self._part_start(jnp.arange(self.samples), pool)
                end = self._part_start(jnp.arange(1, self.samples + 1), pool)
                # Parts differ by one entry in size; a random rotation of the pool makes all entries equally likely.
                drawn = start + below(jnp.maximum(end - start, 1), STREAM, self.samples)
                index = (drawn + below(pool, STREAM + 1, 1)) % pool
        area = (queries * lengths)[:, None, None]
        inside = index % area
        return Positions(index // area, inside // lengths[:, None, None], inside % lengths[:, None, None])

    def _part_start(self, part: Int[Array, " parts"], pool: Int[Array, "batch 1 1"]) -> Int[Array, "batch 1 parts"]:
        """Return part * pool // samples. The product itself would be too large for 32 bits."""
        return part * (pool // self.samples) + part * (pool % self.samples) // self.samples

    def _subset(
        self, seeds: UInt[Array, " batch"], pool: Int[Array, "batch 1 1"], largest: int, slices: int
    ) -> Int[Array, "batch slices samples"]:
        """Return the `samples` entries with the largest random keys among the first `pool` of `largest` entries."""
        keys = random_bits(seeds, STREAM, (slices, largest), SUBSET_STRIDES) >> 1
        keys = jnp.where(jnp.arange(largest) < pool, keys, 0)
        order = jnp.argsort(-keys.astype(jnp.int32), axis=-1)[..., : self.samples]
        return order % pool  # repeats entries of a pool smaller than `samples`

    def capture_attention(self, positions: Positions, layers: tuple[int, ...], views: int) -> Capture:
        """Return what makes an encoder read log attention and validity [R, H, M] at the positions of each head's slice.

        Args:
            positions: The sampled positions of each sentence.
            layers: The layers to read, counted from 1.
            views: Rows of each sentence, which have the same positions.
        """

        def gather(
            layer: int, attention: Attention
        ) -> tuple[Float[Array, "rows heads samples"], Bool[Array, "rows heads samples"]]:
            heads, index = attention.query.shape[1], layers.index(layer)
            query, key = (
                jnp.repeat(self._of_layer(axis, index, layers, heads), views, axis=0) for axis in (positions.query, positions.key)
            )
            is_valid = attention.kept_at(query, key) if self.post_dropout else attention.attended_at(query, key)
            return attention.log_probability_at(query, key), is_valid

        return Capture(layers, gather)

    def mutual_information(
        self,
        observed: dict[int, tuple[Float[Array, "rows heads samples"], Bool[Array, "rows heads samples"]]],
        positions: Positions,
    ) -> tuple[Float[Array, "batch slices"], Float[Array, "batch slices"]]:
        """Return the MI in nats and the fraction of sampled entries that are valid in both views, float32 [B, S].

        Args:
            observed: Log attention and validity by layer, from `capture_attention`. The rows are two views, sentence-major.
            positions: The positions that were read.
        """

        def sampled(maps: list[Array]) -> Shaped[Array, "batch 2 slices samples"]:
            pairs = self._by_slice(jnp.stack(maps))
            pairs = pairs.reshape(-1, 2, *pairs.shape[1:])
            return jnp.where(positions.member[:, None] == 0, pairs[..., 0, :], pairs[..., 1, :])

        layers = sorted(observed)
        logs = sampled([observed[layer][0] for layer in layers])
        valid = jnp.all(sampled([observed[layer][1] for layer in layers]), axis=1)
        information = gaussian_mutual_information(correlation(logs[:, 0], logs[:, 1], valid))
        return information, valid.mean(-1, dtype=jnp.float32)

    def term(
        self,
        information: Float[Array, "batch slices"],
        valid: Float[Array, "batch slices"],
        lengths: Float[Array, " batch"],
    ) -> tuple[Scalar, Scalar]:
        """Return the term to add to a loss, and the mean MI in nats.

        Args:
            information: The MI of each sentence and slice, [B, S].
            valid: The fraction of valid entries, [B, S].
            lengths: The number of tokens of each sentence, float32 [B].
        """
        counted = jnp.ones_like(information)
        longest = lengths.max()
        if self.discard_short:
            queries = longest if self.padding_queries else lengths
            enough = 2 * queries * lengths * valid.mean(-1) >= self.samples
            counted = counted * jnp.where(enough.any(), enough, True)[:, None]
        mean = (information * counted).sum() / jnp.maximum(counted.sum(), 1.0)
        factor = jnp.square((lengths[:, None] / longest * valid).mean()) + 1e-6 if self.density else 1.0
        return -self.weight * factor * mean, mean
