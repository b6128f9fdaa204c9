"""From a corpus and a file of word vectors to a vocabulary and its table of vectors."""

from collections.abc import Iterable

import numpy as np

from jax_sentemb.config import Words
from jax_sentemb.models.words import FROZEN
from jax_sentemb.text.tokenizer import Lines
from jax_sentemb.text.vectors import read_word_vectors
from jax_sentemb.text.words import WordTokenizer, count_words
from jax_sentemb.types import Params


def word_table(words: Words, corpus: Lines, scored: Iterable[str], seed: int) -> tuple[WordTokenizer, dict[str, Params]]:
    """The vocabulary and the parts of the parameters that belong to it: "vectors" [V, E] and "counts" [V].

    Words of the corpus by frequency, then those of the `scored` sentences, at most `max_words`; with a file of vectors only words
    that it has. Unknown words and padding have the vector 0 (Tang and de Sa 2019). New vectors are drawn from N(0, 0.1^2).
    "counts", in the corpus, are what negative words are drawn by.
    """
    counts = count_words((corpus[row] for row in range(len(corpus))), words.lowercase)
    wanted = [word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
    wanted += sorted(count_words(scored, words.lowercase).keys() - counts.keys())
    table: dict[str, np.ndarray] = {}
    if words.vectors:
        found = read_word_vectors(words.vectors, set(wanted))
        table = dict(zip(found.words, found.vectors, strict=True))
        wanted = [word for word in wanted if word in table]
    wanted = wanted[: words.max_words]
    tokenizer = WordTokenizer.of(wanted, words.lowercase)
    width = len(next(iter(table.values()))) if table else words.hidden_size
    vectors = np.zeros((tokenizer.vocab_size, width), np.float32)
    if table:
        vectors[2:] = [table[word] for word in wanted]
    else:
        vectors[2:] = np.random.default_rng(seed).normal(0, 0.1, (len(wanted), width))
    frequency = np.array([0, 0, *(counts[word] for word in wanted)], np.float32)
    if words.trained:
        return tokenizer, {"encoder": {"vectors": vectors}, FROZEN: {"counts": frequency}}
    return tokenizer, {FROZEN: {"vectors": vectors, "counts": frequency}}
