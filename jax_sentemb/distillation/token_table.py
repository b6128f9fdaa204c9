"""Make a static table without training: encode every piece of the vocabulary, whiten the vectors, weight them by rarity.

Token vectors by a forward pass and PCA are those of Model2Vec (Tulkens and van Dongen 2024). The weights are those of SIF (Arora,
Liang and Ma 2017), with frequencies of the user's text. The components also follow the text: a piece counts as often as its
weighted vector enters sentences.
"""

from collections.abc import Iterator

import jax
import numpy as np
from jaxtyping import Float

from jax_sentemb.data.tokenizer import Lines, Tokenizer
from jax_sentemb.inference.load import LoadedModel
from jax_sentemb.inference.static import LONGEST, Pieces
from jax_sentemb.types import Rows

AT_ONCE = 1 << 10  # pieces that the encoder reads in one batch
LINES = 1 << 14  # sentences that are tokenised at once
SCALED_BY = 20_000  # sentences by which the two parts of a table get the same scale


def piece_vectors(model: LoadedModel, tokenizer: Tokenizer) -> Float[np.ndarray, "pieces width"]:
    """Return the model's embedding of the text [CLS] piece [SEP] for each piece, float32 [V, E]; 0 for special tokens."""
    embed = jax.jit(model.embedder.embed)
    parts = []
    for start in range(0, tokenizer.vocab_size, AT_ONCE):
        pieces = (
            np.arange(start, start + AT_ONCE) % tokenizer.vocab_size
        )  # one shape: the last batch is filled with the first pieces
        rows = np.stack([np.full(AT_ONCE, tokenizer.cls_id), pieces, np.full(AT_ONCE, tokenizer.sep_id)], axis=1).astype(np.int32)
        parts.append(np.asarray(embed(model.params, Rows(rows, np.ones(rows.shape, np.bool_))), np.float32))
    vectors = np.concatenate(parts)[: tokenizer.vocab_size, : model.settings.truncate_dim]
    vectors[special_ids(tokenizer)] = 0
    return vectors


def special_ids(tokenizer: Tokenizer) -> list[int]:
    """Return the ids that stand for no text, and the id for unknown text."""
    return [tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id]


def in_batches(sentences: Lines, size: int = LINES) -> Iterator[list[str]]:
    """Yield the sentences in their order, in lists of `size`."""
    for start in range(0, len(sentences), size):
        yield [sentences[row] for row in range(start, min(start + size, len(sentences)))]


def piece_counts(sentences: Lines, tokenizer: Tokenizer) -> Float[np.ndarray, " pieces"]:
    """Return how often each piece occurs, float64 [V]."""
    counts = np.zeros(tokenizer.vocab_size)
    for batch in in_batches(sentences):
        counts += np.bincount(tokenizer.pieces(batch, LONGEST)[0], minlength=tokenizer.vocab_size)
    return counts


def sif_weights(counts: Float[np.ndarray, " pieces"], sif: float) -> Float[np.ndarray, " pieces"]:
    """Return the weight a / (a + p) of each piece, where a = `sif` and p is its share of `counts`; sif=0 gives all the weight 1."""
    shares = counts / max(counts.sum(), 1.0)
    return sif / (sif + shares) if sif else np.ones(len(counts))


def whitened(
    vectors: Float[np.ndarray, "pieces inputs"], importance: Float[np.ndarray, " pieces"], width: int
) -> Float[np.ndarray, "pieces width"]:
    """Return the first `width` principal components of the rows, each with variance 1, float64 [V, W].

    Rows count by `importance`. Directions in which the rows do not vary become 0.
    """
    total = importance.sum()
    centred = vectors - importance @ vectors / total
    values, axes = np.linalg.eigh((centred * importance[:, None]).T @ centred / total)
    values, axes = values[::-1][:width], axes[:, ::-1][:, :width]
    varies = values > 1e-9 * values[0]
    return centred @ axes * np.where(varies, 1 / np.sqrt(np.where(varies, values, 1.0)), 0.0)


def token_table(
    vectors: Float[np.ndarray, "pieces inputs"],
    counts: Float[np.ndarray, " pieces"],
    specials: list[int],
    width: int,
    sif: float,
) -> Float[np.ndarray, "pieces width"]:
    """Return the table, float32 [V, W].

    Args:
        vectors: The vectors of the pieces.
        counts: How often each piece occurs.
        specials: The ids of special tokens, whose rows are 0 and are not counted.
        width: The width W of a vector.
        sif: The number a in the weights of the pieces, as in `sif_weights`.
    """
    weights = sif_weights(counts, sif)
    importance = counts * weights**2
    importance = importance / max(importance.sum(), 1e-300) + 1e-9 / len(counts)  # unseen pieces count when there are few others
    importance[specials] = 0
    table = whitened(np.asarray(vectors, np.float64), importance, width) * weights[:, None]
    table[specials] = 0
    return table.astype(np.float32)


def with_words(
    table: Float[np.ndarray, "pieces width"], weights: Float[np.ndarray, " pieces"], specials: list[int], sentences: Lines,
    tokenizer: Tokenizer, width: int,
) -> Float[np.ndarray, "pieces both"]:  # fmt: skip
    """Return the table with `width` more numbers, which are random signs of each piece times its weight, float32 [V, W + width].

    The cosine of these numbers is about that of the weighted bags of pieces of two sentences (a random projection, Achlioptas
    2003). So sentences with the same rare words are close, also where the encoder knows little of these words. Both parts get a
    mean square of 1 over evenly spread sentences.

    Args:
        table: The vectors of the pieces.
        weights: The weights of the pieces, as `sif_weights` returns them.
        specials: The ids of special tokens, whose rows stay 0.
        sentences: The text.
        tokenizer: The tokenizer of the table.
        width: How many numbers are appended.
    """
    signs = 2 * np.random.default_rng(0).integers(0, 2, (len(table), width), np.int8) - 1
    words = signs * weights[:, None].astype(np.float32)
    words[specials] = 0
    rows = np.unique(np.linspace(0, len(sentences) - 1, min(SCALED_BY, len(sentences))).astype(int))
    shares = Pieces(tokenizer).share_matrix([sentences[row] for row in rows.tolist()], LONGEST, len(table))[0]
    squares = [max(float(((shares @ part) ** 2).sum(axis=1).mean()), 1e-24) for part in (table, words)]
    return np.hstack([part / np.float32(np.sqrt(square)) for part, square in zip((table, words), squares, strict=True)])
