"""Trains word vectors of 300 dimensions on the corpora at hand, by word2vec (gensim: `pip install -e .[word2vec]`).

    python experiments/multiview/vectors.py --files wiki_sentences.txt.xz ordered_wiki.txt.xz --output wiki.300d.npz

Skip-gram with negative sampling (Mikolov et al. 2013), a window of 5, words that occur five times or more, split as the models on
word vectors do. Files are text, a sentence a line, plain or .xz.
"""

import argparse
import logging
import lzma
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from gensim.models import Word2Vec

from jax_sentemb.data.word_tokenizer import split_words

WINDOW, FEWEST, NEGATIVES, FREQUENT = 5, 5, 10, 1e-4


def sentences(files: list[Path]) -> Iterator[str]:
    """All lines with text."""
    for file in files:
        with lzma.open(file, "rt", encoding="utf-8") if file.suffix == ".xz" else file.open(encoding="utf-8") as lines:
            yield from filter(None, map(str.strip, lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", nargs="+", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True, help=".npz with `words` and `vectors` (float16)")
    parser.add_argument("--width", type=int, default=300)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1, help="more than 1 is faster, and each time gives other vectors")
    options = parser.parse_args()
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as corpus:
        for sentence in sentences(options.files):
            corpus.write(" ".join(split_words(sentence, lowercase=True)) + "\n")
        corpus.flush()
        model = Word2Vec(
            corpus_file=corpus.name, vector_size=options.width, window=WINDOW, min_count=FEWEST, sg=1, negative=NEGATIVES,
            sample=FREQUENT, epochs=options.epochs, workers=options.workers, seed=options.seed,
        )  # fmt: skip
    words = np.array([word.encode() for word in model.wv.index_to_key])
    np.savez_compressed(options.output, words=words, vectors=model.wv.vectors.astype(np.float16))
    print(f"{options.output}: {len(words):,} words, {options.width} numbers each")


if __name__ == "__main__":
    main()
