"""The share of near duplicates against all pairs of sets of pieces."""

import numpy as np
import pytest

from jax_sentemb.data import near_duplicates as module
from jax_sentemb.data.near_duplicates import OVERLAP, near_duplicates
from jax_sentemb.data.sentences import Sentences
from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.data.tokens import tokenize


def corpus_of(folder, seed):
    random = np.random.default_rng(seed)
    words = np.array([f"{first}{second}" for first in "bcdfghklmn" for second in "aeiou"])
    frequency = 1 / np.arange(1, len(words) + 1)
    lines = [list(random.choice(words, random.integers(1, 14), p=frequency / frequency.sum())) for _ in range(300)]
    for line in lines[:120]:
        line[random.integers(len(line))] = str(random.choice(words))
        lines.append([*line, str(random.choice(words))][: random.integers(4, 20)])
    file = folder / "corpus.txt"
    file.write_text("".join(" ".join(line) + "\n" for line in lines), encoding="utf-8")
    return Sentences([file], folder)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("rows", "pairs"), [(4096, 1 << 16), (64, 7)])
def test_it_counts_the_sentences_that_comparing_all_pairs_finds(tmp_path, monkeypatch, seed, rows, pairs):
    monkeypatch.setattr(module, "ROWS", rows)
    monkeypatch.setattr(module, "PAIRS", pairs)
    corpus = corpus_of(tmp_path, seed)
    tokenizer = Tokenizer.train(corpus, 200)
    tokens = tokenize(corpus, tokenizer, 24, tmp_path)
    special = {int(token) for token in tokens.ids(0)[[0, -1]]}
    sets = [{*tokens.ids(row).tolist()} - special for row in range(len(tokens))]
    near = [any(row != other and _overlap(sets[row], sets[other]) for other in range(len(sets))) for row in range(len(sets))]
    assert near_duplicates(tokens, tokenizer) == (len(tokens), sum(near))
    assert 0.1 < np.mean(near) < 0.9


def _overlap(first, second):
    return len(first & second) * 5 >= 4 * len(first | second) > 0  # in whole numbers


def test_a_sample_is_an_estimate(tmp_path, monkeypatch):
    assert OVERLAP == 0.8
    corpus = corpus_of(tmp_path, 0)
    tokenizer = Tokenizer.train(corpus, 200)
    tokens = tokenize(corpus, tokenizer, 24, tmp_path)
    whole = near_duplicates(tokens, tokenizer)
    monkeypatch.setattr(module, "SAMPLE", 100)
    part = near_duplicates(tokens, tokenizer)
    assert part.sample == 100
    assert part.near / part.sample == pytest.approx(whole.near / whole.sample, abs=0.15)
