"""Two views of a sentence, by dropout or by two encoders, with the attention mutual information (AMI) of the two."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Float, UInt

from jax_sentemb.losses import Scalar
from jax_sentemb.methods.attention_mi import AttentionMI, Positions
from jax_sentemb.models.architectures import bert_config
from jax_sentemb.models.bert import BertConfig
from jax_sentemb.models.encoder import TokenEncoder
from jax_sentemb.models.layers import hash32
from jax_sentemb.models.pooling import pool, sentence_embedding
from jax_sentemb.types import Array, Params, Rows

VIEWS = 2


class TwoViews(NamedTuple):
    """Two embeddings of each sentence, its length in tokens and, with AMI, the information of each slice of attention maps."""

    first: Float[Array, "batch embedding"]
    second: Float[Array, "batch embedding"]
    lengths: Float[Array, " batch"]  # float32
    information: Float[Array, "batch slices"] | None = None  # in nats
    valid: Float[Array, "batch slices"] | None = None  # the fraction of valid samples


def view_seed(seeds: UInt[Array, " batch"], view: int) -> UInt[Array, " batch"]:
    """Return the seeds [B] of the forward pass number `view` of each sentence: every pass has its own dropout."""
    return hash32(seeds + jnp.uint32((view + 1) * 0x9E3779B1 % 2**32))


def view_seeds(seeds: UInt[Array, " batch"]) -> UInt[Array, " rows"]:
    """Return the seeds [2B] of two views, sentence-major."""
    return jnp.stack([view_seed(seeds, view) for view in range(VIEWS)], axis=1).reshape(-1)


def two_dropout_views(
    encoder: TokenEncoder, encoder_params: Params, rows: Rows, seeds: UInt[Array, " batch"], ami: AttentionMI | None, pooling: str
) -> TwoViews:
    """Encode `rows` [B, T] twice, in one pass over 2B rows, each with its own dropout."""
    both = Rows(*(jnp.repeat(values, VIEWS, axis=0) for values in rows))
    options: dict[str, Any] = {"first_token_only": pooling == "cls"}
    positions = None
    if ami is not None:
        layers, positions = _positions(bert_config(encoder), rows, seeds, ami)
        options["capture"] = ami.capture_attention(positions, layers, VIEWS)
    output = encoder.apply({"params": encoder_params}, both, view_seeds(seeds), **options)
    pooled = pool(output.hidden, both.mask, pooling)  # sentence-major: row 2 i is the first view of sentence i
    information = (None, None) if ami is None or positions is None else ami.mutual_information(output.observed, positions)
    return TwoViews(pooled[0::2], pooled[1::2], rows.mask.sum(-1, dtype=jnp.float32), *information)


def two_texts(encoder: TokenEncoder, params: Params, rows: Rows, seeds: UInt[Array, " batch"], pooling: str) -> TwoViews:
    """Encode rows [2B, T], the two texts of each example one after the other, in one pass, each with its own dropout."""
    pooled = sentence_embedding(encoder, params, rows, pooling, seeds=view_seeds(seeds))
    return TwoViews(pooled[0::2], pooled[1::2], rows.mask[0::2].sum(-1, dtype=jnp.float32))


def two_encoders(
    encoder: TokenEncoder,
    both_params: tuple[Params, Params],
    rows: Rows,
    dropout_seeds: UInt[Array, " rows"] | None,
    ami_seeds: UInt[Array, " batch"],
    ami: AttentionMI | None,
    pooling: str,
) -> TwoViews:
    """Encode `rows` with two encoders of the same architecture.

    Args:
        encoder: The architecture.
        both_params: The weights of the two encoders.
        rows: The tokens [B, T].
        dropout_seeds: Seeds of the dropout, uint32 [2B], sentence-major; None switches it off.
        ami_seeds: Seeds of the positions of AMI, uint32 [B].
        ami: The comparison of the attention of the two encoders; None for no comparison.
        pooling: How states become an embedding.
    """
    halves = (None, None) if dropout_seeds is None else (dropout_seeds[0::2], dropout_seeds[1::2])
    options: dict[str, Any] = {"first_token_only": pooling == "cls"}
    layers, positions = (), None
    if ami is not None:
        layers, positions = _positions(bert_config(encoder), rows, ami_seeds, ami)
        options["capture"] = ami.capture_attention(positions, layers, 1)
    outputs = [encoder.apply({"params": params}, rows, half, **options) for params, half in zip(both_params, halves, strict=True)]

    def interleave(first: Array, second: Array) -> Array:
        return jnp.stack([first, second], axis=1).reshape(-1, *first.shape[1:])

    first_vectors, second_vectors = (pool(output.hidden, rows.mask, pooling) for output in outputs)
    lengths = rows.mask.sum(-1, dtype=jnp.float32)
    if ami is None or positions is None:
        return TwoViews(first_vectors, second_vectors, lengths)
    first, second = (output.observed for output in outputs)
    observed = {
        layer: (interleave(first[layer][0], second[layer][0]), interleave(first[layer][1], second[layer][1])) for layer in layers
    }
    return TwoViews(first_vectors, second_vectors, lengths, *ami.mutual_information(observed, positions))


def add_ami_loss(ami: AttentionMI | None, loss: Scalar, metrics: dict[str, Scalar], views: TwoViews) -> Scalar:
    """Return `loss` plus the term of AMI if there is one, and put the mean information into `metrics`."""
    if ami is None or views.information is None or views.valid is None:
        return loss
    term, metrics["attention_mi"] = ami.term(views.information, views.valid, views.lengths)
    return loss + term


def _positions(config: BertConfig, rows: Rows, seeds: UInt[Array, " batch"], ami: AttentionMI) -> tuple[tuple[int, ...], Positions]:
    layers = ami.chosen_layers(config.num_hidden_layers)
    slices = ami.slices(layers, config.num_attention_heads)
    return layers, ami.sample(seeds, rows.mask.sum(-1, dtype=jnp.int32), rows.tokens.shape[1], slices)
