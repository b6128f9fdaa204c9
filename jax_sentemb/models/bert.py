"""BERT of any size in Flax, equal to the model of Hugging Face without its pooler; models/families describes related models.

Modules of related models derive from `Bert` and override `embed`, `layer_type`, `attention_bias`, `layer_bias` or `finish`.

It is written for contrastive learning. Dropout masks are independent for every row, head and position, since one mask for a batch
weakens dropout views. A function can read the attention of chosen layers, so no tensor of all layers is kept.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name as keep
from jax.sharding import Mesh
from jax.typing import DTypeLike
from jaxtyping import Bool, Float, Int, UInt

from jax_sentemb.models.attention import Attention, Capture, queried
from jax_sentemb.models.bert_config import BertConfig
from jax_sentemb.models.layers import DenseParameters, LayerNorm, dropout, matmul, row_major
from jax_sentemb.models.self_attention import AttentionMemory, layer_attention
from jax_sentemb.types import Array, Rows

ATTENTION_INPUTS = ("query", "key", "value")
KEPT = ("projection", "inner", "sum")  # of a layer for its backward pass; a tenth of its products is computed again
STREAMS = 8  # of random numbers in a layer
ACTIVATIONS = {
    # The exact GELU through erf: jax.nn.gelu goes through erfc, which costs two more passes on a CPU.
    "gelu": lambda x: 0.5 * x * (1.0 + jax.lax.erf(x * 0.5**0.5)),
    "gelu_new": lambda x: jax.nn.gelu(x, approximate=True),
    "gelu_pytorch_tanh": lambda x: jax.nn.gelu(x, approximate=True),
    "relu": jax.nn.relu,
}


class BertOutput(NamedTuple):
    """Token states of a forward pass, and what a capture read of its attention."""

    hidden: list[Float[Array, "rows _ width"]]  # embeddings, then each layer; the last one may have some of the tokens only
    observed: dict[int, Any]  # layer (1-based) -> what `Capture.read` returned


class Bert(nn.Module):
    """Compute the token states of every layer. `dropout` is the rate for hidden states and for attention.

    `attention_block` is the number of queries that attend at once; the backward pass computes them again, so no map of queries and
    keys is kept (0: whole maps). `fused_attention` is a kernel of `jax.nn.dot_product_attention` ("cudnn": NVIDIA GPUs, bfloat16;
    "xla") without dropout of attention weights, or "pallas": the kernel of this package for TPUs and GPUs, with dropout, whose rows
    are on the devices of `mesh`. `remat` keeps only the states between layers; the backward pass computes the inside of each layer
    again. `last_layers` is the number of layers that are trained, from the last one down. The states below them have no gradient.
    0: all layers and the embeddings are trained.
    """

    config: BertConfig
    dtype: DTypeLike = jnp.float32  # of the matrix products; parameters, sums and norms stay float32
    dropout: float = 0.1
    attention_block: int = 0
    remat: bool = False
    fused_attention: str = ""
    activations: DTypeLike = jnp.float32  # of states and of what is kept for the backward pass; sums and norms stay float32
    # For accelerators: layers without a capture are compiled once, from stacked parameters, and each layer keeps KEPT only.
    scan: bool = False
    mesh: Mesh | None = None  # for fused_attention="pallas"
    last_layers: int = 0

    @nn.compact
    def __call__(
        self,
        rows: Rows,
        seeds: UInt[Array, " rows"] | None = None,
        *,
        token_types: Int[Array, "rows tokens"] | None = None,
        dropout_rate: float | None = None,
        first_token_only: bool = False,
        token_indices: Int[Array, "rows indices"] | None = None,
        capture: Capture | None = None,
    ) -> BertOutput:
        """Encode `rows`; `seeds` uint32 [R] switch dropout on, and `capture` reads the attention of its layers.

        Args:
            rows: The tokens.
            seeds: A seed of each row; None switches dropout off.
            token_types: Segments, int32 [R, T]; None is 0 everywhere.
            dropout_rate: None is `dropout`.
            first_token_only: Compute only the first token of the last layer, whose states are then [R, 1, D]. This saves most of a
                layer's work.
            token_indices: Positions int32 [R, M]: the last layer computes only these, and its states are [R, M, D]. Dropout masks
                differ from those of a full pass.
            capture: The layers whose attention is read, and the function that reads it.
        """
        rate = self.dropout if dropout_rate is None else dropout_rate
        first_trained = first_trained_layer(self.config, self.last_layers)
        states = self.embed(rows.tokens, token_types, seeds, rate)
        hidden = [jax.lax.stop_gradient(states) if first_trained else states]
        observed, bias = {}, self.attention_bias(rows.tokens.shape[1])
        saved = None if self.remat else jax.checkpoint_policies.save_only_these_names(*KEPT)
        apart_from_arrays = (4, 5)
        layer_type = self.layer_type()
        if self.remat or self.scan:
            layer_type = nn.remat(layer_type, static_argnums=apart_from_arrays, policy=saved)
        captured_layers = capture.layers if capture else ()
        first_unlike = min((self.config.num_hidden_layers, *captured_layers))  # the first layer that cannot be in the scan
        if self.scan and first_unlike > 2 and not self.is_initializing():
            border = min(max(first_trained, 1), first_unlike)
            frozen = self._scan(hidden[0], rows.mask, seeds, rate, range(1, border), saved, bias)
            hidden += [jax.lax.stop_gradient(states) for states in frozen]
            hidden += self._scan(hidden[-1], rows.mask, seeds, rate, range(border, first_unlike), saved, bias)
        memory = self.attention_memory()
        for number in range(len(hidden), self.config.num_hidden_layers + 1):
            layer = layer_type(self.config, self.dtype, number, rate, memory, self.activations, name=f"layer_{number - 1}")
            captured = capture is not None and number in capture.layers
            last = number == self.config.num_hidden_layers
            indices = token_indices if last else None
            layer_bias = self.layer_bias(number, bias)
            states, attention = layer(hidden[-1], rows.mask, seeds, first_token_only and last, captured, indices, layer_bias)
            drop = memory.dropout(seeds, rate, STREAMS * number, self.config.counted_positions)
            attention = attention._replace(**drop._asdict(), bias=layer_bias)
            hidden.append(jax.lax.stop_gradient(states) if number < first_trained else states)
            if capture is not None and captured:
                observed[number] = capture.read(number, attention)
        hidden[-1] = self.finish(hidden[-1])
        return BertOutput([states.astype(jnp.float32) for states in hidden], observed)

    def embed(
        self,
        tokens: Int[Array, "rows tokens"],
        token_types: Int[Array, "rows tokens"] | None,
        seeds: UInt[Array, " rows"] | None,
        rate: float,
    ) -> Float[Array, "rows tokens width"]:
        """Return the states before the first layer: the embeddings, projected if they have another width."""
        config = self.config
        states = Embeddings(config, self.activations, name="embeddings")(tokens, token_types, seeds, rate)
        if config.embedding_width == config.hidden_size:
            return states
        kernel, bias = DenseParameters(config.embedding_width, config.hidden_size, config.initializer_range, name="projection")()
        return (matmul(states, kernel, self.dtype, self.activations) + bias).astype(self.activations)

    def layer_type(self) -> type[nn.Module]:
        """Return the class of the layers: `Layer`, or one with its fields and its call."""
        return Layer

    def finish(self, states: Float[Array, "rows _ width"]) -> Float[Array, "rows _ width"]:
        """Return the states of the encoder from those after its last layer, which are the same in this architecture."""
        return states

    def attention_memory(self) -> AttentionMemory:
        """Return how the layers compute their attention."""
        return AttentionMemory(self.attention_block, self.fused_attention, self.mesh)

    def attention_bias(self, width: int) -> Float[Array, "_ tokens tokens"] | None:
        """Return the bias [H, T, T] that is added to the attention scores; None in this architecture."""
        return None

    def layer_bias(self, number: int, bias: Float[Array, "_ tokens tokens"] | None) -> Float[Array, "_ tokens tokens"] | None:
        """Return the bias of layer `number`, from 1: the same `bias` in all layers of this architecture."""
        return bias

    def _scan(
        self,
        states: Float[Array, "rows tokens width"],
        mask: Bool[Array, "rows tokens"],
        seeds: UInt[Array, " rows"] | None,
        rate: float,
        numbers: range,
        saved: Callable[..., bool] | None,
        bias: Float[Array, "_ tokens tokens"] | None,
    ) -> list[Float[Array, "rows tokens width"]]:
        """Return the states of each of the layers `numbers`, which count from 1."""
        if not numbers:
            return []
        layers = [self.variables["params"][f"layer_{number - 1}"] for number in numbers]
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *layers)

        def run_layer(states: Array, layer: tuple[Array, Any]) -> tuple[Array, Array]:
            number, params = layer
            module = self.layer_type()(
                self.config, self.dtype, number, rate, self.attention_memory(), self.activations, parent=None
            )
            outputs, _ = module.apply({"params": params}, states, mask, seeds, False, False, None, bias)
            return outputs, outputs

        run_layer = jax.checkpoint(run_layer, policy=saved, prevent_cse=False)  # in a scan nothing is merged with the forward pass
        return list(jax.lax.scan(run_layer, states, (jnp.arange(numbers.start, numbers.stop), stacked))[1])


def first_trained_layer(config: BertConfig, last_layers: int) -> int:
    """Return the number, from 1, of the first layer that is trained; 0 if the embeddings are trained too."""
    return config.num_hidden_layers - last_layers + 1 if last_layers else 0


class Embeddings(nn.Module):
    """Sum of word, position and segment embeddings, with layer norm and dropout."""

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
        """Return the states before the first layer, as wide as the embeddings."""
        states = LayerNorm(self.config.layer_norm_eps, name="norm")(self.summed(tokens, token_types))
        return row_major(dropout(states, rate, seeds, 0))

    def summed(
        self, tokens: Int[Array, "rows tokens"], token_types: Int[Array, "rows tokens"] | None
    ) -> Float[Array, "rows tokens width"]:
        """Return the sum of the embeddings of words, positions and segments."""
        config, width = self.config, tokens.shape[1]
        normal = nn.initializers.normal(config.initializer_range)
        word = self.param("word", normal, (config.vocab_size, config.embedding_width))
        position = self.param("position", normal, (config.max_position_embeddings, config.embedding_width))
        if width + config.position_offset > config.max_position_embeddings:
            raise ValueError(f"{width} tokens do not fit max_position_embeddings={config.max_position_embeddings}")
        position_vectors = position[config.position_offset : config.position_offset + width]
        summed = word[tokens] + position_vectors
        if config.type_vocab_size:
            token_type = self.param("token_type", normal, (config.type_vocab_size, config.embedding_width))
            summed = summed + token_type[0 if token_types is None else token_types]
        return summed.astype(self.activations)


class Layer(nn.Module):
    """Self-attention and feed-forward block, each followed by residual and norm (post-norm, as in BERT)."""

    config: BertConfig
    dtype: DTypeLike
    number: int | Int[Array, ""]
    rate: float  # of dropout
    memory: AttentionMemory = AttentionMemory()
    activations: DTypeLike = jnp.float32
    between: Callable[[Array], Array] | None = None  # of a decoder: applied to the states after the attention

    @nn.compact
    def __call__(
        self,
        states: Float[Array, "rows tokens width"],
        mask: Bool[Array, "rows tokens"],
        seeds: UInt[Array, " rows"] | None,
        first_only: bool = False,
        captured: bool = True,
        indices: Int[Array, "rows indices"] | None = None,
        bias: Float[Array, "_ tokens tokens"] | None = None,
    ) -> tuple[Float[Array, "rows _ width"], Attention]:
        """Return the layer's states and its attention.

        The states are [R, T, D], or [R, 1, D] with `first_only`, or [R, M, D] with `indices` int32 [R, M]. A captured attention is
        that of all queries; it cannot be captured with `indices`. `bias` is added to the scores.
        """
        config, rate, stream = self.config, self.rate, STREAMS * self.number
        queried_states = queried(states, first_only, indices)
        heads = self.query_key_value(states, states if captured and indices is None else queried_states)
        drop = self.memory.dropout(seeds, rate, stream, config.counted_positions)
        context, attention = layer_attention(heads, mask, drop, self.memory, bias, first_only, indices)
        context = dropout(self.dense(context, "attention_output", config.hidden_size), rate, seeds, stream + 1)
        states = LayerNorm(config.layer_norm_eps, name="attention_norm")(queried_states + context)
        states = self.between(states) if self.between else states
        outer = self.feed_forward(states, seeds)
        return row_major(LayerNorm(config.layer_norm_eps, name="output_norm")(keep(states + outer, "sum"))), attention

    def feed_forward(
        self, states: Float[Array, "rows _ width"], seeds: UInt[Array, " rows"] | None
    ) -> Float[Array, "rows _ width"]:
        """Return the output of the feed-forward block, with dropout."""
        config, stream = self.config, STREAMS * self.number
        inner = keep(self.dense(states, "intermediate", config.intermediate_size), "inner").astype(jnp.float32)
        inner = ACTIVATIONS[config.hidden_act](inner).astype(self.activations)
        return dropout(self.dense(inner, "output", config.hidden_size), self.rate, seeds, stream + 2)

    def dense(self, inputs: Float[Array, "rows _ inputs"], name: str, features: int) -> Float[Array, "rows _ features"]:
        """Return the output of a dense layer with the parameters `name`."""
        kernel, bias = DenseParameters(inputs.shape[-1], features, self.config.initializer_range, name=name)()
        return (matmul(inputs, kernel, self.dtype, self.activations) + bias).astype(self.activations)

    def query_key_value(
        self, states: Float[Array, "rows tokens width"], queried: Float[Array, "rows queries width"]
    ) -> list[Float[Array, "rows heads _ size"]]:
        """Return queries [R, H, M, D / H] of the states `queried` [R, M, D], then keys and values [R, H, T, D / H] of `states`."""
        size = self.config.hidden_size
        projections = [DenseParameters(size, size, self.config.initializer_range, name=name)() for name in ATTENTION_INPUTS]

        def split(flat: Float[Array, "rows _ width"]) -> Float[Array, "rows heads _ size"]:
            flat = keep(flat.astype(self.dtype), "projection")  # before a TPU pads the heads to its tiles
            return flat.reshape(*flat.shape[:2], self.config.num_attention_heads, -1).swapaxes(1, 2)

        # One product: several small ones are slower.
        def project(states: Float[Array, "rows _ width"], *layers: tuple[Array, Array]) -> list[Float[Array, "rows heads _ size"]]:
            if self.activations != jnp.float32:  # separate products: a TPU would pad and copy the heads of a single one
                return [split(matmul(states, kernel, self.dtype, self.dtype) + bias) for kernel, bias in layers]
            kernels, biases = zip(*layers, strict=True)
            flat = matmul(states, jnp.concatenate(kernels, axis=1), self.dtype) + jnp.concatenate(biases)
            # The gradient of a split joins its parts; that of an index pads each part with zeros and adds them.
            return [split(part) for part in jnp.split(flat, len(layers), axis=-1)]

        if queried is not states:
            return project(queried, projections[0]) + project(states, *projections[1:])
        return project(states, *projections)
