"""BERT and RoBERTa encoders of any size in Flax, equal to Hugging Face's BertModel / RobertaModel without their pooler.

Written for contrastive learning: dropout masks are independent for every row, head and position (one mask shared by a batch
weakens dropout views), and the attention of any layer can be looked at from inside without keeping a tensor of all layers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name as keep
from jax.typing import DTypeLike
from jaxtyping import Bool, Float, Int, UInt

from jax_sentemb.models.layers import DenseParameters, LayerNorm, dropout, keep_mask, kept_at, matmul
from jax_sentemb.types import Array, Rows

ATTENTION_INPUTS = ("query", "key", "value")
NORMALIZER_BLOCK = 128  # queries whose log-sum-exp is computed at once beside a fused kernel
KEPT = ("projection", "inner", "sum")  # of a layer for its backward pass, the rest is computed again: a sixth of its products
STREAMS = 8  # of random numbers in a layer
MAX_POSITIONS = 2**11  # larger than any sequence
STRIDES = (MAX_POSITIONS**2, MAX_POSITIONS, 1)  # of the attention's dropout counter: head, query, key
ACTIVATIONS = {
    # The exact GELU through erf: jax.nn.gelu goes through erfc, which costs two more passes on a CPU.
    "gelu": lambda x: 0.5 * x * (1.0 + jax.lax.erf(x * 0.5**0.5)),
    "gelu_new": lambda x: jax.nn.gelu(x, approximate=True),
    "gelu_pytorch_tanh": lambda x: jax.nn.gelu(x, approximate=True),
    "relu": jax.nn.relu,
}


@dataclass(frozen=True)
class BertConfig:
    """The architecture of a BERT; field names are those of Hugging Face's config.json."""

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    layer_norm_eps: float = 1e-12
    hidden_act: str = "gelu"
    initializer_range: float = 0.02
    pad_token_id: int = 0
    position_offset: int = 0  # position of the first token: 0 in BERT, pad_token_id + 1 in RoBERTa
    model_type: str = "bert"
    mask_token_id: int = 103  # of the tokenizer; only masked-language-model losses use it
    sep_token_id: int = 102  # of the tokenizer; only cross-encoders use it


class Attention(NamedTuple):
    """One layer's attention, as `capture_attention` sees it; the compiler drops what it does not use."""

    query: Float[Array, "rows heads queries size"]
    key: Float[Array, "rows heads tokens size"]
    mask: Bool[Array, "rows tokens"]
    log_normalizer: Float[Array, "rows heads queries 1"]  # float32
    # The next three are None in blocks. log probability = scores - log_normalizer; probabilities are those before dropout.
    scores: Float[Array, "rows heads queries tokens"] | None  # float32, scaled and masked
    probabilities: Float[Array, "rows heads queries tokens"] | None  # float32
    kept: Bool[Array, "rows heads queries tokens"] | None  # False where dropout removed an entry; None without dropout, too
    seeds: UInt[Array, " rows"] | None = None  # of dropout
    rate: float = 0.0
    stream: int | Int[Array, ""] = 0

    def log_probability_at(
        self, query: Int[Array, "rows heads samples"], key: Int[Array, "rows heads samples"]
    ) -> Float[Array, "rows heads samples"]:
        """Float32 [R, H, M] at places int [R, H, M] of queries and keys, both real tokens."""
        normalizer = jnp.take_along_axis(self.log_normalizer[..., 0], query, axis=-1)
        if self.scores is not None:
            return _entries(self.scores, query, key) - normalizer
        rows = [
            jnp.take_along_axis(values, place[..., None], axis=2).astype(jnp.float32)
            for values, place in ((self.query, query), (self.key, key))
        ]
        return (rows[0] * rows[1]).sum(-1) / self.query.shape[-1] ** 0.5 - normalizer

    def kept_at(
        self, query: Int[Array, "rows heads samples"], key: Int[Array, "rows heads samples"]
    ) -> Bool[Array, "rows heads samples"]:
        """Bool [R, H, M]: the entries at these places that dropout left."""
        if self.kept is not None:
            return _entries(self.kept, query, key)
        if self.seeds is None or self.rate == 0.0:
            return jnp.ones(query.shape, bool)
        head = jnp.arange(query.shape[1])[:, None]
        return kept_at(self.rate, self.seeds, self.stream, head * STRIDES[0] + query * STRIDES[1] + key * STRIDES[2])


def _entries(maps: Array, query: Array, key: Array) -> Array:
    rows, heads, _, width = maps.shape
    return jnp.take_along_axis(maps.reshape(rows, heads, width * width), query * width + key, axis=-1)


class BertOutput(NamedTuple):
    hidden: list[Float[Array, "rows _ width"]]  # embeddings, then each layer; the last one may have some of the tokens only
    observed: dict[int, Any]  # layer (1-based) -> what `capture_attention` returned


Observe = Callable[[int, Attention], Any]


class Bert(nn.Module):
    """Token states of every layer. `dropout` is the rate for hidden states and attention alike.

    `attention_block` queries attend at once, and again in the backward pass: no map of queries and keys is kept (0: whole maps).
    `fused_attention` is a kernel of `jax.nn.dot_product_attention` ("cudnn": NVIDIA GPUs, bfloat16; "xla"): no weight is dropped.
    `remat` keeps only the states between layers, and computes the inside of each again in the backward pass.
    """

    config: BertConfig
    dtype: DTypeLike = jnp.float32  # of the matrix products; parameters, sums and norms stay float32
    dropout: float = 0.1
    attention_block: int = 0
    remat: bool = False
    fused_attention: str = ""
    activations: DTypeLike = jnp.float32  # of states and of what is kept for the backward pass; sums and norms stay float32
    # For accelerators: layers that nobody looks into are compiled once, from stacked parameters, and each layer keeps KEPT only.
    scan: bool = False

    @nn.compact
    def __call__(
        self,
        rows: Rows,
        seeds: UInt[Array, " rows"] | None = None,
        *,
        token_types: Int[Array, "rows tokens"] | None = None,
        dropout_rate: float | None = None,
        first_token_only: bool = False,
        token_places: Int[Array, "rows places"] | None = None,
        capture_attention: Observe | None = None,
        observed_layers: tuple[int, ...] = (),
    ) -> BertOutput:
        """Encode `rows`; `seeds` uint32 [R] switches dropout on, `capture_attention` is called with the attention of
        `observed_layers`.

        `token_types` int32 [R, T] (segments) is 0 everywhere unless given. `first_token_only`: nobody reads more of the last layer,
        whose states are then [R, 1, D]: most of a layer's work is saved. `token_places` int32 [R, M]: the same for other tokens;
        the last states are then [R, M, D], without dropout those of these places, with it under masks of their own.
        """
        rate = self.dropout if dropout_rate is None else dropout_rate
        hidden = [Embeddings(self.config, self.activations, name="embeddings")(rows.tokens, token_types, seeds, rate)]
        observed = {}
        kept = None if self.remat else jax.checkpoint_policies.save_only_these_names(*KEPT)
        apart_from_arrays = (4, 5, 6)
        kind = nn.remat(Layer, static_argnums=apart_from_arrays, policy=kept) if self.remat or self.scan else Layer
        apart = min((self.config.num_hidden_layers, *observed_layers))  # the first layer that is not like the others
        if self.scan and apart > 2 and not self.is_initializing():
            hidden += self._scan(hidden[0], rows.mask, seeds, rate, apart - 1, kept)
        for number in range(len(hidden), self.config.num_hidden_layers + 1):
            memory = self.attention_block, self.fused_attention, self.activations
            layer = kind(self.config, self.dtype, number, *memory, name=f"layer_{number - 1}")
            looked_at = capture_attention is not None and number in observed_layers
            last = number == self.config.num_hidden_layers
            places = token_places if last else None
            states, attention = layer(hidden[-1], rows.mask, seeds, rate, first_token_only and last, looked_at, places)
            dropped = 0.0 if self.fused_attention else rate
            attention = attention._replace(seeds=seeds, rate=dropped, stream=STREAMS * number)
            hidden.append(states)
            if capture_attention is not None and looked_at:
                observed[number] = capture_attention(number, attention)
        return BertOutput([states.astype(jnp.float32) for states in hidden], observed)

    def _scan(
        self,
        states: Float[Array, "rows tokens width"],
        mask: Bool[Array, "rows tokens"],
        seeds: UInt[Array, " rows"] | None,
        rate: float,
        count: int,
        kept: Callable[..., bool] | None,
    ) -> list[Float[Array, "rows tokens width"]]:
        """The states of each of the first `count` layers."""
        layers = [self.variables["params"][f"layer_{number}"] for number in range(count)]
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *layers)

        def one(states: Array, layer: tuple[Array, Any]) -> tuple[Array, Array]:
            number, params = layer
            memory = self.attention_block, self.fused_attention, self.activations
            module = Layer(self.config, self.dtype, number, *memory, parent=None)
            found, _ = module.apply({"params": params}, states, mask, seeds, rate, False, False)
            return found, found

        one = jax.checkpoint(one, policy=kept, prevent_cse=False)  # in a scan nothing is merged with the forward pass
        return list(jax.lax.scan(one, states, (jnp.arange(1, count + 1), stacked))[1])


class Embeddings(nn.Module):
    config: BertConfig
    activations: DTypeLike = jnp.float32

    @nn.compact
    def __call__(
        self,
        tokens: Int[Array, "rows tokens"],
        token_types: Int[Array, "rows tokens"] | None,
        seeds: UInt[Array, " rows"] | None,
        rate: float,
    ) -> Float[Array, "rows tokens width"]:
        config, width = self.config, tokens.shape[1]
        normal = nn.initializers.normal(config.initializer_range)
        word = self.param("word", normal, (config.vocab_size, config.hidden_size))
        position = self.param("position", normal, (config.max_position_embeddings, config.hidden_size))
        token_type = self.param("token_type", normal, (config.type_vocab_size, config.hidden_size))
        if width + config.position_offset > config.max_position_embeddings:
            raise ValueError(f"{width} tokens do not fit max_position_embeddings={config.max_position_embeddings}")
        places = position[config.position_offset : config.position_offset + width]
        summed = word[tokens] + places + token_type[0 if token_types is None else token_types]
        states = LayerNorm(config.layer_norm_eps, name="norm")(summed.astype(self.activations))
        return dropout(states, rate, seeds, 0)


class Layer(nn.Module):
    """Self-attention and feed-forward block, each followed by residual and norm (post-norm, as in BERT)."""

    config: BertConfig
    dtype: DTypeLike
    number: int | Int[Array, ""]
    attention_block: int = 0
    fused_attention: str = ""
    activations: DTypeLike = jnp.float32

    @nn.compact
    def __call__(
        self,
        states: Float[Array, "rows tokens width"],
        mask: Bool[Array, "rows tokens"],
        seeds: UInt[Array, " rows"] | None,
        rate: float,
        first_only: bool = False,
        looked_at: bool = True,
        places: Int[Array, "rows places"] | None = None,
    ) -> tuple[Float[Array, "rows _ width"], Attention]:
        """States [R, T, D] and the attention. Of the first token or of `places` int32 [R, M] only: [R, 1, D] or [R, M, D].

        The attention is that of all queries if it is looked at, which `places` do not allow.
        """
        config, stream = self.config, STREAMS * self.number
        asked = states[:, :1] if first_only else states
        if places is not None:
            asked = jnp.take_along_axis(states, places[..., None], axis=1)

        def dense(inputs: Array, name: str, features: int) -> Array:
            kernel, bias = DenseParameters(inputs.shape[-1], features, config.initializer_range, name=name)()
            return (matmul(inputs, kernel, self.dtype) + bias).astype(self.activations)

        few_queries = places is not None or (first_only and not looked_at)
        query, key, value = (keep(part, "projection") for part in self.query_key_value(states, asked if few_queries else states))
        drop = AttentionDropout(seeds, rate, stream)
        if few_queries:
            some = drop._replace(rate=0.0) if self.fused_attention else drop
            context, attention = attend(query, key, value, mask, some)
        elif self.fused_attention:
            context, attention = attend_fused(query, key, value, mask, self.fused_attention)
        elif self.attention_block:
            context, attention = attend_in_blocks(query, key, value, mask, drop, self.attention_block)
        else:
            context, attention = attend(query, key, value, mask, drop)
        states, context = asked, context[:, :, : asked.shape[1]]
        context = context.swapaxes(1, 2).reshape(states.shape)
        context = dropout(dense(context, "attention_output", config.hidden_size), rate, seeds, stream + 1)
        states = LayerNorm(config.layer_norm_eps, name="attention_norm")(states + context)
        inner = keep(dense(states, "intermediate", config.intermediate_size), "inner").astype(jnp.float32)
        inner = ACTIVATIONS[config.hidden_act](inner).astype(self.activations)
        outer = dropout(dense(inner, "output", config.hidden_size), rate, seeds, stream + 2)
        return LayerNorm(config.layer_norm_eps, name="output_norm")(keep(states + outer, "sum")), attention

    def query_key_value(
        self, states: Float[Array, "rows tokens width"], asked: Float[Array, "rows queries width"]
    ) -> list[Float[Array, "rows heads _ size"]]:
        """Three arrays [R, H, T, D / H]; queries [R, H, M, D / H] of the states `asked` [R, M, D], which may be all."""
        size = self.config.hidden_size
        projections = [DenseParameters(size, size, self.config.initializer_range, name=name)() for name in ATTENTION_INPUTS]

        def split(flat: Float[Array, "rows _ width"]) -> Float[Array, "rows heads _ size"]:
            return flat.astype(self.dtype).reshape(*flat.shape[:2], self.config.num_attention_heads, -1).swapaxes(1, 2)

        def project(states: Array, *some: tuple[Array, Array]) -> list[Array]:  # one product: several small ones are slower
            if self.activations != jnp.float32:  # apart: a TPU would pad and copy the heads of one product
                return [split(matmul(states, kernel, self.dtype) + bias) for kernel, bias in some]
            kernels, biases = zip(*some, strict=True)
            flat = matmul(states, jnp.concatenate(kernels, axis=1), self.dtype)
            flat = flat + jnp.concatenate(biases)
            heads = flat.astype(self.dtype).reshape(*flat.shape[:2], len(some), self.config.num_attention_heads, -1)
            return list(heads.transpose(2, 0, 3, 1, 4))

        if asked is not states:
            return project(asked, projections[0]) + project(states, *projections[1:])
        return project(states, *projections)


class AttentionDropout(NamedTuple):
    """Dropout of the attention weights of one layer; off without seeds or at rate 0."""

    seeds: UInt[Array, " rows"] | None = None
    rate: float = 0.0
    stream: int | Int[Array, ""] = 0


def attend(
    query: Float[Array, "rows heads queries size"],
    key: Float[Array, "rows heads tokens size"],
    value: Float[Array, "rows heads tokens size"],
    mask: Bool[Array, "rows tokens"],
    dropout: AttentionDropout,
    start: Int[Array, ""] | int = 0,
) -> tuple[Float[Array, "rows heads queries size"], Attention]:
    """Context in float32 with dropout on the weights, and the Attention it comes from. Softmax in float32.

    A finite mask value: a row of padding only gets uniform weights, never NaN. The queries are those from `start` on.
    """
    scores = jnp.matmul(query, key.swapaxes(-1, -2), preferred_element_type=jnp.float32) / query.shape[-1] ** 0.5
    scores = jnp.where(mask[:, None, None, :], scores, -1e9)
    largest = jax.lax.stop_gradient(scores.max(-1, keepdims=True))
    exponentials = jnp.exp(scores - largest)
    total = exponentials.sum(-1, keepdims=True)
    probabilities = exponentials / total
    weights, kept = probabilities, None
    if dropout.seeds is not None and dropout.rate > 0.0:
        kept = keep_mask(dropout.rate, dropout.seeds, dropout.stream, scores.shape[1:], STRIDES, start * STRIDES[1])
        weights = jnp.where(kept, probabilities / (1.0 - dropout.rate), 0.0)
    context = jnp.matmul(weights.astype(value.dtype), value, preferred_element_type=jnp.float32)
    return context, Attention(query, key, mask, largest + jnp.log(total), scores, probabilities, kept)


def attend_in_blocks(
    query: Float[Array, "rows heads tokens size"],
    key: Float[Array, "rows heads tokens size"],
    value: Float[Array, "rows heads tokens size"],
    mask: Bool[Array, "rows tokens"],
    dropout: AttentionDropout,
    block: int,
) -> tuple[Float[Array, "rows heads tokens size"], Attention]:
    """As `attend`, `block` queries at a time; the backward pass computes each block again, so memory is linear in T."""
    rows, heads, width, inner = query.shape
    padding = -width % block
    blocks = jnp.pad(query, ((0, 0), (0, 0), (0, padding), (0, 0))).reshape(rows, heads, -1, block, inner).transpose(2, 0, 1, 3, 4)

    @jax.checkpoint
    def one(part: tuple[Array, Array]) -> tuple[Array, Array]:
        context, attention = attend(part[0], key, value, mask, dropout, part[1])
        return context, attention.log_normalizer

    found = jax.lax.map(one, (blocks, jnp.arange(len(blocks)) * block))
    context, normalizer = (part.transpose(1, 2, 0, 3, 4).reshape(rows, heads, width + padding, -1)[:, :, :width] for part in found)
    return context, Attention(query, key, mask, normalizer, None, None, None)


def attend_fused(
    query: Float[Array, "rows heads tokens size"],
    key: Float[Array, "rows heads tokens size"],
    value: Float[Array, "rows heads tokens size"],
    mask: Bool[Array, "rows tokens"],
    kernel: str,
) -> tuple[Float[Array, "rows heads tokens size"], Attention]:
    """As `attend` without dropout, by a kernel of `jax.nn.dot_product_attention`. Rows are padded on the right.

    Kernels keep the row's log-sum-exp to themselves, or stop its gradient: it is computed beside, in blocks, for those who look at
    the attention; nobody else pays for it.
    """
    # An even number of each: cuDNN has no gradient for odd ones.
    even = (jnp.pad(values, ((0, 0), (0, 0), (0, values.shape[2] % 2), (0, 0))) for values in (query, key, value))
    by_token = (values.swapaxes(1, 2) for values in even)
    lengths = mask.sum(-1, dtype=jnp.int32)
    context = jax.nn.dot_product_attention(*by_token, key_value_seq_lengths=lengths, implementation=kernel)  # type: ignore[arg-type]
    _, attention = attend_in_blocks(query, key, value, mask, AttentionDropout(), NORMALIZER_BLOCK)
    return context[:, : query.shape[2]].swapaxes(1, 2).astype(jnp.float32), attention
