"""Losses as pure functions of arrays, computed in float32. They are written for one device; XLA partitions them."""

from jax_sentemb.losses.arrays import (
    EPSILON,
    Embeddings,
    Scalar,
    l2_normalize,
    map_in_chunks,
    merge_microbatches,
    paired_cosine,
    split_microbatches,
)
from jax_sentemb.losses.context import (
    context_loss,
    neighbour_loss,
    remove_top_direction,
    rows_from_orthonormal,
    towards_orthonormal_rows,
)
from jax_sentemb.losses.contrastive import (
    alignment,
    contrastive_tension,
    info_nce,
    info_nce_without_negatives,
    nt_xent,
    ranking_loss,
    symmetric_info_nce,
)
from jax_sentemb.losses.information import correlation, gaussian_mutual_information, token_sentence_jsd
from jax_sentemb.losses.similarities import cross_view, rank_consistency, rank_distillation, similarity_distillation
from jax_sentemb.losses.words import negative_sampling, sampled_softmax_loss, softmax_cross_entropy

__all__ = [
    "EPSILON",
    "Embeddings",
    "Scalar",
    "alignment",
    "context_loss",
    "contrastive_tension",
    "correlation",
    "cross_view",
    "gaussian_mutual_information",
    "info_nce",
    "info_nce_without_negatives",
    "l2_normalize",
    "map_in_chunks",
    "merge_microbatches",
    "negative_sampling",
    "neighbour_loss",
    "nt_xent",
    "paired_cosine",
    "rank_consistency",
    "rank_distillation",
    "ranking_loss",
    "remove_top_direction",
    "rows_from_orthonormal",
    "sampled_softmax_loss",
    "similarity_distillation",
    "softmax_cross_entropy",
    "split_microbatches",
    "symmetric_info_nce",
    "token_sentence_jsd",
    "towards_orthonormal_rows",
]
