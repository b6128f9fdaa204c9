"""Two views of a sentence, by dropout or by two encoders, with their attention mutual information if it is wanted."""

from typing import Any, NamedTuple

import jax.numpy as jnp

from jax_sentemb.methods.attention_mi import AttentionMI
from jax_sentemb.models.layers import hash32
from jax_sentemb.models.pooling import pool
from jax_sentemb.types import Array, Params, Rows

VIEWS = 2


class Views(NamedTuple):
    first: Array  # pooled states [B, D]
    second: Array
    information: Array | None  # [B, S]
    valid: Array | None  # [B, S]


def view_seed(seeds: Array, view: int) -> Array:
    """Seeds [B] of the forward pass number `view` of each sentence: every pass has its own dropout."""
    return hash32(seeds + jnp.uint32((view + 1) * 0x9E3779B1 % 2**32))


def view_seeds(seeds: Array) -> Array:
    """Seeds [2B] of two views, sentence-major."""
    return jnp.stack([view_seed(seeds, view) for view in range(VIEWS)], axis=1).reshape(-1)


def two_dropout_views(
    encoder: Any, encoder_params: Params, rows: Rows, seeds: Array, ami: AttentionMI | None, pooling: str
) -> Views:
    """Both views of `rows` [B, T]."""
    both = Rows(*(jnp.repeat(values, VIEWS, axis=0) for values in rows))
    options: dict[str, Any] = {"first_token_only": pooling == "cls"}
    positions = None
    if ami is not None:
        layers, positions = _positions(encoder, rows, seeds, ami)
        options |= {"capture_attention": ami.capture_attention(positions, layers, VIEWS), "observed_layers": layers}
    output = encoder.apply({"params": encoder_params}, both, view_seeds(seeds), **options)
    pooled = pool(output.hidden, both.mask, pooling)  # sentence-major: row 2 i is the first view of sentence i
    information = (None, None) if ami is None or positions is None else ami.mutual_information(output.observed, positions)
    return Views(pooled[0::2], pooled[1::2], *information)


def two_encoders(
    encoder: Any,
    both_params: tuple[Params, Params],
    rows: Rows,
    seeds: Array | None,
    ami_seeds: Array,
    ami: AttentionMI | None,
    pooling: str,
) -> Views:
    """`rows` through one encoder and through another; `seeds` [2B] switch dropout on."""
    halves = (None, None) if seeds is None else (seeds[0::2], seeds[1::2])
    options: dict[str, Any] = {"first_token_only": pooling == "cls"}
    layers, positions = (), None
    if ami is not None:
        layers, positions = _positions(encoder, rows, ami_seeds, ami)
        options |= {"capture_attention": ami.capture_attention(positions, layers, 1), "observed_layers": layers}
    outputs = [encoder.apply({"params": params}, rows, half, **options) for params, half in zip(both_params, halves, strict=True)]

    def interleave(first: Array, second: Array) -> Array:
        return jnp.stack([first, second], axis=1).reshape(-1, *first.shape[1:])

    one, other = (pool(output.hidden, rows.mask, pooling) for output in outputs)
    if ami is None or positions is None:
        return Views(one, other, None, None)
    first, second = (output.observed for output in outputs)
    observed = {layer: tuple(interleave(*pair) for pair in zip(first[layer], second[layer], strict=True)) for layer in layers}
    return Views(one, other, *ami.mutual_information(observed, positions))


def add_ami_loss(ami: AttentionMI | None, loss: Array, metrics: dict[str, Array], encoded: Any) -> Array:
    """`loss` with AMI's term, if there is one; its mean goes into `metrics`. `encoded` has information, valid and lengths."""
    if ami is None:
        return loss
    term, metrics["attention_mi"] = ami.term(encoded.information, encoded.valid, encoded.lengths)
    return loss + term


def _positions(encoder: Any, rows: Rows, seeds: Array, ami: AttentionMI) -> tuple[tuple[int, ...], Any]:
    layers = ami.chosen_layers(encoder.config.num_hidden_layers)
    slices = ami.slices(layers, encoder.config.num_attention_heads)
    return layers, ami.sample(seeds, rows.mask.sum(-1, dtype=jnp.int32), rows.tokens.shape[1], slices)
