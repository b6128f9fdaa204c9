"""From sentences to ids, from ids to batches."""

import json
import os
import subprocess
import sys
import warnings

import numpy as np
import pytest

from jax_sentemb.errors import DataError, ModelFileError
from jax_sentemb.text import tokens as tokens_module
from jax_sentemb.text.batches import BUCKETS, Batches, bucket, pad
from jax_sentemb.text.files import open_corpus
from jax_sentemb.text.grammar import sentences as generated
from jax_sentemb.text.tokenizer import SPECIALS, Tokenizer
from jax_sentemb.text.tokens import tokenize

TEXTS = generated(300, seed=1)
HOSTILE = ["", "[SEP] [MASK] [CLS][PAD]", "<s> </s>", "ÉCOLE naïve 漢字", "a" * 500, "😀 tab\tand\u2028more", "\x00\x01", "[MASK]."]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_SENTEMB_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(TEXTS, 600)


@pytest.fixture
def corpus(tmp_path):
    """Opens a corpus of the texts."""

    def corpus_of(texts):
        path = tmp_path / "corpus.txt"
        path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        return open_corpus(str(path))

    return corpus_of


@pytest.fixture(scope="module")
def many(tokenizer, tmp_path_factory):
    """Tokens of some 1000 sentences of many lengths."""
    folder = tmp_path_factory.mktemp("many")
    random = np.random.default_rng(0)
    words = " ".join(TEXTS).split()
    lines = [" ".join(random.choice(words, random.integers(1, 60))) for _ in range(1000)]
    (folder / "corpus.txt").write_text("\n".join(lines), encoding="utf-8")
    return tokenize(open_corpus(str(folder / "corpus.txt")), tokenizer, 48, cache=folder)


def rows_of(tokens):
    return [tokens.ids(row).tolist() for row in range(len(tokens))]


# --- tokenizer


def test_special_tokens_in_text_stay_text(tokenizer):
    (ids,), _ = tokenizer.encode(["[SEP] [MASK] [CLS] [PAD]"], 64)
    assert (ids[0], ids[-1]) == (tokenizer.cls_id, tokenizer.sep_id)
    assert not {tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id, tokenizer.pad_id} & set(ids[1:-1].tolist())


def test_truncation_keeps_the_beginning_and_the_separator(tokenizer):
    words = TEXTS[0].split()
    text = " ".join(words * 3)
    (whole,), cut = tokenizer.encode([text], 512)
    assert cut == 0
    length = len(whole)
    for width in (2, 3, length - 1, length, length + 1):
        (ids, short), cut = tokenizer.encode([text, ""], width)
        assert ids.dtype == np.int32
        assert ids.tolist() == ([*whole[: width - 1], tokenizer.sep_id] if width < length else whole.tolist())
        assert short.tolist() == [tokenizer.cls_id, tokenizer.sep_id]
        assert cut == (width < length)


def test_no_sentences_and_no_strings(tokenizer):
    assert tokenizer.encode([], 8) == ([], 0)
    with pytest.raises(TypeError, match="sentence 1 is int"):
        tokenizer.encode(["a", 1], 8)


def test_a_line_of_a_megabyte_counts_as_cut(tokenizer):
    (ids,), cut = tokenizer.encode([" " * 1_000_000 + "word"], 8)
    assert cut == 1
    assert ids[-1] == tokenizer.sep_id


def test_tokenizer_json_and_vocab_txt_agree(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "both")
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "vocab.txt").write_bytes((tmp_path / "both" / "vocab.txt").read_bytes())
    texts = [*TEXTS[:50], *HOSTILE]
    expected, cut = tokenizer.encode(texts, 32)
    for folder in ("both", "plain"):
        loaded = Tokenizer.load(tmp_path / folder)
        found, found_cut = loaded.encode(texts, 32)
        assert [row.tolist() for row in found] == [row.tolist() for row in expected]
        assert found_cut == cut
        for role in SPECIALS:
            assert getattr(loaded, f"{role}_id") == getattr(tokenizer, f"{role}_id")


def test_do_lower_case_false_is_read_and_written(tmp_path):
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nword\nWord\n")
    assert Tokenizer.load(tmp_path).encode(["Word"], 8)[0][0].tolist() == [2, 5, 3]
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    cased = Tokenizer.load(tmp_path)
    assert cased.encode(["Word"], 8)[0][0].tolist() == [2, 6, 3]
    cased.save(tmp_path / "saved")
    assert json.loads((tmp_path / "saved" / "tokenizer_config.json").read_text())["do_lower_case"] is False
    assert Tokenizer.load(tmp_path / "saved").fingerprint == cased.fingerprint


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer.json", b""),
        ("tokenizer.json", b'{"version": "1.0", "model"'),
        ("tokenizer.json", b"[1, 2]"),
        ("tokenizer.json", b"\xff\xfe\x00"),
        ("vocab.txt", b"\xff\xfe"),
        ("vocab.txt", b"only\nwords\n"),
        ("config.json", b"{}"),
    ],
)
def test_damaged_tokenizer_files_are_named_in_one_line(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ModelFileError) as error:
        Tokenizer.load(tmp_path)
    assert "\n" not in str(error.value)
    assert str(tmp_path) in str(error.value)


TRAIN = """
import sys, hashlib
from jax_sentemb.text.grammar import sentences
from jax_sentemb.text.tokenizer import Tokenizer
print(Tokenizer.train(sentences(300, seed=1), 600).fingerprint)
"""


def test_training_is_the_same_in_every_process(tokenizer):
    assert Tokenizer.train(iter(TEXTS), 600).fingerprint == tokenizer.fingerprint
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "RAYON_NUM_THREADS": seed}
        run = subprocess.run([sys.executable, "-c", TRAIN], capture_output=True, text=True, env=environment, check=True)
        assert run.stdout.strip() == tokenizer.fingerprint
    assert tokenizer.vocab_size <= 600


def test_transformers_reads_what_is_saved(tokenizer, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        transformers = pytest.importorskip("transformers")
        tokenizer.save(tmp_path)
        theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
        texts = [*TEXTS[:50], *HOSTILE]
        expected = theirs(texts, truncation=True, max_length=24)["input_ids"]
    assert [row.tolist() for row in tokenizer.encode(texts, 24)[0]] == expected


# --- tokens


def test_tokens_are_those_of_the_sentences(tokenizer, corpus, monkeypatch):
    monkeypatch.setattr(tokens_module, "BLOCK", 7)  # many blocks
    texts = list(dict.fromkeys(TEXTS))
    tokens = tokenize(corpus(texts), tokenizer, 16)
    expected, cut = tokenizer.encode(texts, 16)
    wanted = list(dict.fromkeys(tuple(row.tolist()) for row in expected))
    assert rows_of(tokens) == [list(row) for row in wanted]
    assert tokens.report["truncated"] == cut
    assert tokens.lengths.tolist() == [len(row) for row in wanted]
    for row, line in enumerate(tokens.line):
        assert tokens.ids(row).tolist() == expected[line].tolist()


def test_duplicates_are_left_out_wherever_they_are(tokenizer, corpus, monkeypatch):
    monkeypatch.setattr(tokens_module, "BLOCK", 3)
    texts = [TEXTS[0], TEXTS[1], TEXTS[0].upper(), TEXTS[2], TEXTS[3], TEXTS[1], " ".join(reversed(TEXTS[0].split()))]
    tokens = tokenize(corpus(texts), tokenizer, 64)
    assert tokens.line.tolist() == [0, 1, 3, 4, 6]  # another order of the same words is another sentence
    assert (tokens.report["usable"], tokens.report["duplicates"]) == (5, 2)


def test_the_report(tokenizer, corpus):
    words = TEXTS[0].split()[:1]
    tokens = tokenize(corpus([" ".join(words * 40), "☃", "", words[0], "☃☃ ☃"]), tokenizer, 8)
    report = tokens.report
    assert (report["lines"], report["blank"], report["usable"], report["truncated"]) == (5, 1, 4, 1)
    assert report["mean_tokens"] == round(float(tokens.lengths.mean()), 1)
    unknown = sum(row.count(tokenizer.unk_id) for row in rows_of(tokens))
    assert unknown > 0
    assert report["unknown_rate"] == round(unknown / tokens.lengths.sum(), 5)


def same(first, second):
    return (
        rows_of(first) == rows_of(second)
        and first.line.tolist() == second.line.tolist()
        and first.report == second.report
        and first.fingerprint == second.fingerprint
    )


def test_the_cache_is_hit_and_gives_the_same(tokenizer, corpus, monkeypatch):
    sentences = corpus(TEXTS)
    first = tokenize(sentences, tokenizer, 16)
    other = tokenize(sentences, tokenizer, 17)
    assert other.fingerprint != first.fingerprint
    monkeypatch.setattr(tokens_module, "_write", None)  # writing again would fail
    assert same(first, tokenize(sentences, tokenizer, 16))


def test_a_damaged_cache_is_made_again(tokenizer, corpus, tmp_path):
    sentences = corpus(TEXTS)
    first = tokenize(sentences, tokenizer, 16, cache=tmp_path / "tokens")
    expected, lines, report = rows_of(first), first.line.tolist(), first.report
    (folder,) = (tmp_path / "tokens").glob("*.tokens")
    for file in sorted(folder.iterdir()):
        for damage in (b"", file.read_bytes()[:-3], b"[]", None):
            if damage is None:
                file.unlink()
            else:
                file.write_bytes(damage)
            again = tokenize(sentences, tokenizer, 16, cache=tmp_path / "tokens")
            assert (rows_of(again), again.line.tolist(), again.report) == (expected, lines, report), (file.name, damage)


def test_subsets(tokenizer, corpus):
    texts = list(dict.fromkeys(TEXTS))
    sentences = corpus(texts)

    def lines(subset, seed):
        return tokenize(sentences, tokenizer, 512, subset=subset, seed=seed).line.tolist()

    assert len(lines(50, 0)) == 50
    assert lines(50, 0) == sorted(set(lines(50, 0)))
    assert len(lines(0.1, 0)) == round(0.1 * len(texts))
    assert lines(50, 0) == lines(50, 0) != lines(50, 1)
    assert lines(0.1, 3) != lines(0.1, 4)
    assert len(lines(None, 5)) == len(texts)
    fingerprints = {
        tokenize(sentences, tokenizer, 512, subset=subset, seed=seed).fingerprint for subset in (50, 0.1) for seed in (0, 1)
    }
    assert len(fingerprints) == 4
    with pytest.raises(DataError, match=f"exceeds the {len(texts)} sentences"):
        lines(len(texts) + 1, 0)


# --- batches


def test_an_epoch_holds_every_row_at_most_once(many):
    batches = Batches(many, 64, seed=3)
    assert batches.steps_per_epoch == len(many) // 64
    for epoch in range(2):
        steps = range(epoch * batches.steps_per_epoch, (epoch + 1) * batches.steps_per_epoch)
        rows = np.concatenate([batches.rows(step) for step in steps])
        assert len(np.unique(rows)) == len(rows) == batches.steps_per_epoch * 64


def test_a_batch_holds_what_its_lines_say(many):
    batches = Batches(many, 64, seed=3)
    place = {int(line): row for row, line in enumerate(many.line)}
    batch = batches.at(5)
    assert (batch.tokens.dtype, batch.mask.dtype) == (np.int32, np.bool_)
    for ids, mask, line in zip(batch.tokens, batch.mask, batches.lines(5), strict=True):
        assert ids[mask].tolist() == many.ids(place[int(line)]).tolist()
        assert (ids[~mask] == many.pad_id).all()
        assert mask[: mask.sum()].all()


def test_batches_are_a_function_of_seed_and_step(many):
    batches = Batches(many, 32, seed=3)
    steps = [40, 0, 7, 100, 40, 0]  # forwards, backwards, over the epochs
    seen = [batches.lines(step).tolist() for step in steps]
    assert seen == [Batches(many, 32, seed=3).lines(step).tolist() for step in steps]
    assert seen[0] == seen[4]
    assert (Batches(many, 32, seed=3).at(9).tokens == batches.at(9).tokens).all()
    assert Batches(many, 32, seed=4).lines(0).tolist() != seen[1]


def test_epochs_differ_in_batches_and_their_order(many):
    batches = Batches(many, 32, seed=0)
    epoch = batches.steps_per_epoch
    first, second = ([frozenset(batches.lines(step).tolist()) for step in range(at, at + epoch)] for at in (0, epoch))
    assert not set(first) & set(second)
    widths = [batches.at(step).tokens.shape[1] for step in range(epoch)]
    assert widths != sorted(widths)  # not from short to long


@pytest.mark.parametrize("count", [2, 4])
def test_the_slices_of_the_processes_are_the_global_batch(many, count):
    batches = Batches(many, 64, seed=0)
    for step in range(batches.steps_per_epoch):
        whole = batches.at(step)
        parts = [batches.at(step, index, count) for index in range(count)]
        assert (np.concatenate([part.tokens for part in parts]) == whole.tokens).all()
        assert (np.concatenate([part.mask for part in parts]) == whole.mask).all()


def test_few_widths_and_little_padding(many):
    batches = Batches(many, 16, seed=0)
    real = total = plain = 0
    for step in range(batches.steps_per_epoch):
        mask = batches.at(step).mask
        assert mask.shape[1] in {width for width in BUCKETS if width <= 48}
        assert mask.shape[1] == bucket(mask.sum(1).max(), BUCKETS)  # no wider than its longest row asks for
        real, total, plain = real + mask.sum(), total + mask.size, plain + 16 * 48
    assert real / total > 0.85 > real / plain


def test_the_length_limit_is_the_widest_bucket(many):
    assert Batches(many, 16, seed=0, buckets=(8, 40, 64)).buckets == (8, 40, 48)


def test_fewer_sentences_than_a_batch(many):
    assert Batches(many, len(many), seed=0).steps_per_epoch == 1
    with pytest.raises(DataError, match=rf"{len(many)} usable .* fewer than data.batch_size={len(many) + 1}") as error:
        Batches(many, len(many) + 1, seed=0)
    assert "\n" not in str(error.value)


def test_pad_and_bucket():
    rows = pad([np.array([5, 6], np.int32), np.array([7], np.int32)], 3, pad_id=9)
    assert rows.tokens.tolist() == [[5, 6, 9], [7, 9, 9]]
    assert rows.mask.tolist() == [[True, True, False], [True, False, False]]
    assert [bucket(length, (16, 24)) for length in (1, 16, 17, 24)] == [16, 16, 24, 24]
