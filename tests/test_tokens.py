"""Tokenised corpora: what is left out and counted, low-shot subsets, and a cache that is used when it is whole and only then."""

import math
import os
import time
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_sentemb.data import text_file, workers
from jax_sentemb.data import tokens as module
from jax_sentemb.data.corpus_files import open_corpus
from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.data.tokens import Subsample, tokenize
from jax_sentemb.errors import ConfigError, DataError

WORDS = [f"{first}{second}" for first in "bcdfghjklm" for second in "aeiou"]
DRAW = [45, 126, 209, 268, 444, 573, 652, 961]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train([" ".join(WORDS), "Z"], 300)


@pytest.fixture
def write(tmp_path):
    def corpus(lines, name="corpus.txt"):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return open_corpus(str(tmp_path / name))

    return corpus


@pytest.fixture
def corpus(write):
    """200 different sentences of 1 to 5 words."""
    words = np.random.default_rng(0)
    return write(" ".join([WORDS[n % 50], WORDS[n // 50], *words.choice(WORDS, n % 4)]) for n in range(200))


@pytest.fixture
def encoded(monkeypatch):
    """Counts the sentences that are really tokenised; not an empty one, which shows what a row without text has."""
    counts = []
    original = Tokenizer.encode

    def encode(self, sentences, max_seq_length):
        if sentences != [""]:
            counts.append(len(sentences))
        return original(self, sentences, max_seq_length)

    monkeypatch.setattr(Tokenizer, "encode", encode)
    return counts


def rows_of(tokens):
    return [tokens.ids(row).tolist() for row in range(len(tokens))]


def test_rows_are_the_distinct_sentences_in_order(tokenizer, write, tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "SENTENCES", 3)  # duplicates across blocks
    lines = [
        "ba be",
        "ba",
        "",
        "be ba",
        "BA  be",
        "\u200b",
        "ba be bi bo bu da",
        "ba",
        "ba be bi bo bu de",
        "\u0436 ba bi bo",
        "\u0301",
    ]
    corpus = write(lines)
    tokens = tokenize(corpus, tokenizer, 6, tmp_path)
    assert [corpus[line] for line in tokens.line] == ["ba be", "ba", "be ba", "ba be bi bo bu da", "\u0436 ba bi bo"]
    assert rows_of(tokens) == [tokenizer.encode([corpus[line]], 6)[0][0].tolist() for line in tokens.line]
    assert tokens.lengths.tolist() == [4, 3, 4, 6, 6]
    assert tokens.ids(0).dtype == np.int32
    assert tokens.report == {
        "lines": 11, "blank": 3, "sentences": 8, "usable": 5, "duplicates": 3, "truncated": 2, "mean_tokens": 4.6,
        "median_tokens": 4, "p95_tokens": 6, "unknown_token_rate": round(1 / 20, 5),
        "max_seq_length": 6,
    }  # fmt: skip


def test_duplicates_are_equal_rows_and_not_permuted_or_longer_ones(tokenizer, write, tmp_path):
    lines = [" ".join(order) for order in (("ba", "be"), ("be", "ba"), ("ba", "ba"), ("ba", "ba", "ba"), ("be", "be"))]
    assert len(tokenize(write(lines), tokenizer, 16, tmp_path)) == 5
    random = np.random.default_rng(0)
    rows = random.integers(0, 3, (5000, 6))
    digests = workers.digests(rows.reshape(-1).astype(np.int32), np.full(5000, 6))
    assert len(np.unique(digests)) == len(np.unique(rows, axis=0))


def test_a_row_without_tokens_has_no_part_in_the_hashes_of_others():
    lengths = np.array([0, 1, 2, 0, 1, 0])
    found = workers.digests(np.array([7, 8, 9, 7], np.int32), lengths)
    assert found[1] == found[4] != 0
    assert (found[lengths == 0] == 0).all()
    assert (workers.digests(np.zeros(0, np.int32), np.zeros(2, int)) == 0).all()


def rows_in_plain_numpy(corpus, tokenizer, max_seq_length, lines, ordered):
    """(line, ids) of the rows and the report, with everything in memory at once."""
    rows, cut = tokenizer.encode([corpus[line] for line in lines], max_seq_length)
    with_text = [(line, row.tolist()) for line, row in zip(lines, rows, strict=True) if len(row) > 2]
    first: dict[tuple, int] = {}
    for line, ids in with_text:
        first.setdefault(tuple(ids), line)
    kept = with_text if ordered else [(line, list(ids)) for ids, line in first.items()]
    lengths, pieces = [len(ids) for _, ids in kept], [piece for row in rows for piece in row.tolist()[1:-1]]
    median, p95 = np.percentile(lengths, [50, 95]).astype(int).tolist()
    return kept, {
        "lines": corpus.report["lines"], "blank": corpus.report["blank"] + len(rows) - len(with_text),
        "sentences": len(with_text), "usable": len(kept), "duplicates": len(with_text) - len(kept), "truncated": cut,
        "mean_tokens": round(float(np.mean(lengths)), 1), "median_tokens": median, "p95_tokens": p95,
        "unknown_token_rate": round(pieces.count(tokenizer.unk_id) / len(pieces), 5), "max_seq_length": max_seq_length,
    }  # fmt: skip


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("subset", [module.ALL, Subsample(300, 3)])
def test_rows_are_those_of_the_plain_algorithm_however_the_corpus_is_cut(tokenizer, write, tmp_path, monkeypatch, ordered, subset):
    random = np.random.default_rng(1)
    lines = [" ".join(random.choice(WORDS[:6], random.integers(1, 5))) for _ in range(500)]
    lines[7::50], lines[8::60] = ["\u200b"] * 10, ["\u0436 ba"] * 9
    corpus = write(lines)
    for sizes in ((64, 50, 37), (1, 1000, 1000), (7, 7, 3), (1000, 100, 100)):
        monkeypatch.setattr(workers, "SENTENCES", sizes[0])
        monkeypatch.setattr(module, "CHUNK", sizes[1])
        monkeypatch.setattr(module, "PARTITION", sizes[2])
        cache = tmp_path / str(sizes)
        tokens = tokenize(corpus, tokenizer, 5, cache, subset, ordered)
        wanted = module.draw(500, subset).tolist() if subset.size else range(500)
        kept, report = rows_in_plain_numpy(corpus, tokenizer, 5, wanted, ordered)
        assert list(zip(tokens.line.tolist(), rows_of(tokens), strict=True)) == kept
        assert (tokens.report, tokens.lengths.tolist()) == (report, [len(ids) for _, ids in kept])
        counts = np.bincount([piece for _, ids in kept for piece in ids], minlength=tokenizer.vocab_size)
        assert tokens.word_counts(tokenizer.vocab_size).tolist() == counts.tolist()
        assert sorted(path.name for path in next(cache.glob("*.tokens")).iterdir()) == [
            "about.json", "ids.bin", "lengths.bin", "line.bin", "starts.bin"
        ]  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(3, 40), min_size=1, max_size=60))
def test_percentiles_of_a_histogram_are_those_of_the_lengths(lengths):
    found = module.length_report(np.bincount(lengths, minlength=41))
    exact = [Fraction(value) for value in sorted(lengths)]
    for name, percent in (("median_tokens", 50), ("p95_tokens", 95)):
        place = Fraction(percent * (len(lengths) - 1), 100)
        low = exact[math.floor(place)]
        assert found[name] == math.floor(low + (exact[math.ceil(place)] - low) * (place - math.floor(place)))
        assert abs(found[name] - np.percentile(lengths, percent)) < 1 + 1e-9
    assert found["mean_tokens"] == round(float(np.mean(lengths)), 1)


def test_a_corpus_without_a_usable_sentence_has_no_rows(tokenizer, write, tmp_path):
    tokens = tokenize(write(["\u200b", "\u0301"]), tokenizer, 8, tmp_path)
    assert len(tokens) == 0
    assert tokens.report["usable"] == 0


@pytest.mark.parametrize("prompt", ["", "ba be "])
def test_a_row_without_a_piece_of_its_text_is_blank_with_a_prompt_too(tokenizer, write, tmp_path, prompt):
    tokens = tokenize(write(["ba", "\u200b", "be", "\u0301"]), tokenizer.with_prompt(prompt), 8, tmp_path)
    assert (tokens.line.tolist(), tokens.report["usable"], tokens.report["blank"]) == ([0, 2], 2, 2)


def test_the_second_time_nothing_is_tokenised(tokenizer, corpus, tmp_path, encoded):
    first = tokenize(corpus, tokenizer, 8, tmp_path)
    again = tokenize(corpus, tokenizer, 8, tmp_path)
    assert encoded == [200]
    assert (rows_of(again), again.report, again.fingerprint) == (rows_of(first), first.report, first.fingerprint)


def test_whatever_decides_the_rows_decides_the_fingerprint(tokenizer, corpus, write, tmp_path):
    first = tokenize(corpus, tokenizer, 8, tmp_path).fingerprint
    others = [
        tokenize(corpus, tokenizer, 7, tmp_path),
        tokenize(corpus, Tokenizer.train(WORDS, 200), 8, tmp_path),
        tokenize(write([*corpus, "more"], "more.txt"), tokenizer, 8, tmp_path),
        tokenize(corpus, tokenizer, 8, tmp_path, Subsample(50)),
        tokenize(corpus, tokenizer, 8, tmp_path, Subsample(50, 1)),
    ]
    assert len({first, *(tokens.fingerprint for tokens in others)}) == 6
    assert tokenize(write(corpus, "copy.txt"), tokenizer, 8, tmp_path, Subsample(0, 5)).fingerprint == first  # an unused seed


@pytest.mark.parametrize("file", ["ids.bin", "starts.bin", "lengths.bin", "line.bin", "about.json"])
def test_a_damaged_cache_is_made_again(tokenizer, corpus, tmp_path, encoded, file):
    whole = rows_of(tokenize(corpus, tokenizer, 8, tmp_path))
    (entry,) = tmp_path.glob("*.tokens")
    content = (entry / file).read_bytes()
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 255
    for times, damaged in enumerate([content[:-3], b"", None, bytes(flipped)], 2):
        if damaged is None:
            (entry / file).unlink()
        else:
            (entry / file).write_bytes(damaged)
        assert rows_of(tokenize(corpus, tokenizer, 8, tmp_path)) == whole
        assert encoded == [200] * times
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("subset", [module.ALL, Subsample(150)])
@pytest.mark.parametrize("restored", [True, False])
def test_text_that_is_edited_while_it_is_tokenised_is_refused_and_not_kept(
    tokenizer, corpus, tmp_path, monkeypatch, restored, subset, large
):
    path, encode = tmp_path / "corpus.txt", Tokenizer.encode
    monkeypatch.setattr(text_file, "LARGE", 1 if large else 1 << 20)
    monkeypatch.setenv("JAX_SENTEMB_CACHE", str(tmp_path / "indexes"))
    corpus = open_corpus(str(path))
    text, times = path.read_bytes(), path.stat()
    time.sleep(0.02)  # a tick of the file system's clock

    def meanwhile(self, sentences, max_seq_length):
        with path.open("r+b") as file:
            file.write(text[::-1].replace(b"\n", b" "))
        rows = encode(self, [path.read_text()[:20]] * len(sentences), max_seq_length)
        if restored:
            with path.open("r+b") as file:
                file.write(text)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        return rows

    with monkeypatch.context() as patch:
        patch.setattr(Tokenizer, "encode", meanwhile)
        with pytest.raises(DataError, match=r"corpus\.txt changed while it was read: run the command again"):
            tokenize(corpus, tokenizer, 8, tmp_path / "cache", subset)
    assert not list((tmp_path / "cache").glob("*.tokens*/about.json"))
    path.write_bytes(text)
    again = open_corpus(str(path))
    assert again.fingerprint == corpus.fingerprint
    rows = rows_of(tokenize(again, tokenizer, 8, tmp_path / "cache", subset))
    assert rows == rows_of(tokenize(again, tokenizer, 8, tmp_path / "fresh", subset))


def test_text_whose_times_do_not_tell_is_compared(tokenizer, corpus, tmp_path, monkeypatch):
    identity = text_file.identity_of(corpus._paths)
    monkeypatch.setattr(text_file, "identity_of", lambda paths: identity)  # as on a file system that keeps no time of change
    (tmp_path / "corpus.txt").write_bytes((tmp_path / "corpus.txt").read_bytes()[::-1])
    with pytest.raises(DataError, match="changed while it was read"):
        tokenize(corpus, tokenizer, 8, tmp_path / "cache")


def test_a_run_that_stops_while_tokenising_leaves_no_half_cache(tokenizer, corpus, tmp_path, monkeypatch):
    def stop(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "length_report", stop)
        with pytest.raises(KeyboardInterrupt):
            tokenize(corpus, tokenizer, 8, tmp_path)
    assert [path.suffix for path in tmp_path.iterdir() if path.suffix != ".lock"] == [".txt"]
    assert len(tokenize(corpus, tokenizer, 8, tmp_path)) == 200


def test_a_subset_is_drawn_by_seed_and_only_it_is_tokenised(tokenizer, corpus, tmp_path, encoded):
    drawn = [tokenize(corpus, tokenizer, 8, tmp_path, Subsample(20, seed)).line.tolist() for seed in (0, 1, 0)]
    assert encoded == [20, 20]
    assert drawn[0] == drawn[2] == sorted(set(drawn[0]))
    assert drawn[0] != drawn[1]
    assert tokenize(corpus, tokenizer, 8, tmp_path, Subsample(0.1)).line.tolist() == drawn[0]
    assert tokenize(corpus, tokenizer, 8, tmp_path, Subsample(20.0)).line.tolist() == drawn[0]
    report = tokenize(corpus, tokenizer, 8, tmp_path, Subsample(20)).report
    assert (report["lines"], report["sentences"], report["usable"]) == (200, 20, 20)
    assert len(tokenize(corpus, tokenizer, 8, tmp_path, Subsample(0.0001))) == 1
    assert len(tokenize(corpus, tokenizer, 8, tmp_path, Subsample(0))) == 200


def test_the_draw_of_a_seed_stays_what_it_was():
    assert module.draw(1000, Subsample(8, 3)).tolist() == DRAW


def test_a_subset_that_cannot_be_drawn_is_one_line(tokenizer, corpus, tmp_path):
    with pytest.raises(DataError, match=r"data.subset=201 exceeds the 200 sentences") as caught:
        tokenize(corpus, tokenizer, 8, tmp_path, Subsample(201))
    assert "\n" not in str(caught.value)
    for subset in (1.5, -0.5, -3):
        with pytest.raises(ConfigError, match="whole number"):
            tokenize(corpus, tokenizer, 8, tmp_path, Subsample(subset))


def test_large_vocabularies_are_stored_whole(tokenizer, corpus, tmp_path, monkeypatch):
    def encode(self, sentences, max_seq_length):
        rows = [[2, 65536 + number, 3] if sentence else [2, 3] for number, sentence in enumerate(sentences)]
        return [np.array(row, np.int32) for row in rows], 0

    monkeypatch.setattr(Tokenizer, "encode", encode)
    monkeypatch.setattr(tokenizer, "vocab_size", 70_000)
    tokens = tokenize(corpus, tokenizer, 8, tmp_path)
    assert rows_of(tokens) == [[2, 65536 + number, 3] for number in range(200)]
