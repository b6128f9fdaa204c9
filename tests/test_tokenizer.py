"""Word pieces: text stays text, other libraries give the same ids, damage is one line."""

import json
import pickle
import random

import numpy as np
import pytest
import tokenizers

from jax_sentemb.data import corpus_files, text_file
from jax_sentemb.data import tokenizer as module
from jax_sentemb.data.tokenizer import Tokenizer, new_tokenizer
from jax_sentemb.errors import ModelFileError

CORPUS = [
    "The quick brown fox jumps over the lazy dog.",
    "A caf\u00e9 in Z\u00fcrich, don't you know?",
    "\u6f22\u5b57 and numbers 12,345 (twice)",
    "running runner runs ran; the dogs' dog",
] * 3
ODD = [
    "", " ", "  two  spaces ", "[SEP] [MASK]", "[CLS]x[PAD]", "<s> </s> <mask> <pad>",
    "The CAFE\u0301 caf\u00e9", "a\u00a0b\u3000c\u2028d",
    "\u6f22\u5b57kanji", "x" * 150 + " fox", "nul\x00 and \ufffd", "\U0001f600 \u200d emoji", "don't, stop...now", "\tfox\r\n dog",
]  # fmt: skip


@pytest.fixture(scope="module")
def trained():
    return Tokenizer.train(CORPUS, 200)


@pytest.fixture(scope="module")
def byte_level():
    """A byte-level BPE tokenizer as RoBERTa has it."""
    inner = tokenizers.ByteLevelBPETokenizer(lowercase=False)
    inner.train_from_iterator(
        CORPUS, vocab_size=320, min_frequency=1, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"], show_progress=False
    )
    return Tokenizer(inner._tokenizer)


def vocabulary_folder(folder, pieces, config=None):
    folder.mkdir()
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8")
    if config is not None:
        (folder / "tokenizer_config.json").write_text(config)
    return folder


def ids_of(tokenizer, sentences, length=64):
    return [row.tolist() for row in tokenizer.encode(sentences, length)[0]]


def directly(tokenizer, sentences):
    """What the library gives for one sentence after the other."""
    return [tokenizer._inner.encode(sentence).ids for sentence in sentences]


SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def test_rows_are_what_the_library_gives(trained, byte_level):
    for tokenizer in (trained, byte_level):
        rows, cut = tokenizer.encode(CORPUS + ODD, 512)
        assert cut == 0
        assert all(row.dtype == np.int32 for row in rows)
        assert [row.tolist() for row in rows] == directly(tokenizer, CORPUS + ODD)
        assert tokenizer.encode([], 8) == ([], 0)


def test_text_that_spells_a_special_token_stays_text(shared, trained, byte_level):
    models = shared / "models"
    folders = ("bert-base-uncased-tokenizer", "bert-base-cased-tokenizer", "bert-mini")
    for tokenizer in (trained, byte_level, *(Tokenizer.load(models / name) for name in folders if (models / name).is_dir())):
        special = {tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id}
        for row in ids_of(tokenizer, [" ".join(tokenizer.names.values()), "a[SEP]b</s>c", "[SEP]", "<mask>"]):
            assert (row[0], row[-1]) == (tokenizer.cls_id, tokenizer.sep_id)
            assert len(row) > 2
            assert not special & set(row[1:-1])


def test_rows_end_at_the_length_and_the_cut_ones_are_counted(trained):
    full = ids_of(trained, CORPUS[:1])[0]
    for length in (3, len(full) - 1, len(full), len(full) + 1):
        rows, cut = trained.encode([CORPUS[0], ""], length)
        assert cut == (length < len(full))
        assert rows[0].tolist() == (full if length >= len(full) else [*full[: length - 1], trained.sep_id])
        assert rows[1].tolist() == [trained.cls_id, trained.sep_id]


def test_a_very_long_line_is_cut_before_it_costs_time(trained):
    rows, cut = trained.encode(["fox " * 2_500_000, "\u6f22" * 10_000_000, "y" * 10_000_000, "fox"], 16)
    assert [len(row) for row in rows] == [16, 16, 3, 3]
    assert cut == 2  # a long word is one piece


@pytest.mark.parametrize("bad", [None, 3, b"bytes", ["nested"]])
def test_what_is_no_text_is_named_by_its_number(trained, bad):
    with pytest.raises(TypeError, match=f"sentence 1 is {type(bad).__name__}"):
        trained.encode(["good", bad], 8)
    with pytest.raises(ValueError, match="sentence 1 contains an unpaired surrogate"):
        trained.encode(["good", "\ud800"], 8)
    assert ids_of(trained, ["good"]) == directly(trained, ["good"])


def test_the_same_sentences_give_the_same_vocabulary(trained):
    again = Tokenizer.train(CORPUS, 200)
    assert again._inner.get_vocab() == trained._inner.get_vocab()
    assert again.fingerprint == trained.fingerprint
    assert Tokenizer.train([*CORPUS, "zebra"], 200).fingerprint != trained.fingerprint
    assert [trained.pad_id, trained.unk_id, trained.cls_id, trained.sep_id, trained.mask_id] == [0, 1, 2, 3, 4]
    assert 100 < trained.vocab_size <= 200
    assert not any(trained.unk_id in row for row in ids_of(trained, CORPUS))


def test_a_vocabulary_is_made_from_evenly_spaced_sentences(monkeypatch):
    monkeypatch.setattr(module, "TRAINING_SENTENCES", 2)
    vocabulary = Tokenizer.train(["a", "b", "c", "d"], 50)._inner.get_vocab()
    assert [letter in vocabulary for letter in "abcd"] == [True, False, True, False]
    assert Tokenizer.train([], 50).vocab_size == 5


def test_capital_letters_are_kept_as_the_configuration_or_the_vocabulary_says(tmp_path):
    cased, lower = [*SPECIALS, "Fox", "fox", "caf\u00e9", "cafe"], [*SPECIALS, "[unused0]", "fox", "cafe"]
    for name, pieces, config, expected in [
        ("lower", lower, None, ["fox", "cafe"]),
        ("cased", cased, None, ["Fox", "caf\u00e9"]),
        ("told_cased", lower, '{"do_lower_case": false}', ["[UNK]", "[UNK]"]),
        ("told_lower", cased, '{"do_lower_case": true}', ["fox", "cafe"]),
        ("accents", cased, '{"do_lower_case": true, "strip_accents": false}', ["fox", "caf\u00e9"]),
    ]:
        tokenizer = Tokenizer.load(vocabulary_folder(tmp_path / name, pieces, config))
        assert [pieces[number] for number in ids_of(tokenizer, ["Fox caf\u00e9"])[0][1:-1]] == expected, name


def test_ids_above_the_number_of_pieces_count(tmp_path, trained):
    trained.save(tmp_path / "a")
    state = json.loads((tmp_path / "a" / "tokenizer.json").read_text(encoding="utf-8"))
    state["model"]["vocab"]["far"] = 5000
    (tmp_path / "a" / "tokenizer.json").write_text(json.dumps(state), encoding="utf-8")
    far = Tokenizer.load(tmp_path / "a")
    assert far.vocab_size == 5001
    far.save(tmp_path / "b")
    assert (tmp_path / "b" / "vocab.txt").read_text(encoding="utf-8").split("\n")[5000] == "far"


def test_a_saved_tokenizer_is_the_same_one(tmp_path, trained, byte_level):
    for name, tokenizer in (("word_pieces", trained), ("byte_level", byte_level)):
        tokenizer.save(tmp_path / name)
        again = Tokenizer.load(tmp_path / name)
        assert again.fingerprint == tokenizer.fingerprint
        assert ids_of(again, CORPUS + ODD) == ids_of(tokenizer, CORPUS + ODD)
    (tmp_path / "word_pieces" / "tokenizer.json").unlink()
    assert ids_of(Tokenizer.load(tmp_path / "word_pieces"), CORPUS + ODD) == ids_of(trained, CORPUS + ODD)


@pytest.mark.parametrize("changes", [{}, {"lowercase": False}, {"strip_accents": False}, {"handle_chinese_chars": False}])
def test_transformers_gives_the_same_ids(tmp_path, trained, changes):
    transformers = pytest.importorskip("transformers")
    state = json.loads(trained._inner.to_str())
    state["normalizer"] |= changes
    tokenizer = Tokenizer(tokenizers.Tokenizer.from_str(json.dumps(state)))
    tokenizer.save(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs(CORPUS + ODD)["input_ids"] == ids_of(tokenizer, CORPUS + ODD, 512)
    assert (theirs.pad_token_id, theirs.mask_token_id) == (tokenizer.pad_id, tokenizer.mask_id)


@pytest.mark.parametrize("prefix", [False, True])
def test_transformers_gives_the_same_ids_for_byte_level_pieces(tmp_path, byte_level, prefix):
    transformers = pytest.importorskip("transformers")
    state = json.loads(byte_level._inner.to_str())
    state["pre_tokenizer"]["add_prefix_space"] = prefix
    tokenizer = Tokenizer(tokenizers.Tokenizer.from_str(json.dumps(state)))
    tokenizer.save(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs(CORPUS + ODD)["input_ids"] == ids_of(tokenizer, CORPUS + ODD, 512)
    assert (theirs.pad_token_id, theirs.mask_token_id) == (tokenizer.pad_id, tokenizer.mask_id)


def test_published_files_give_the_same_ids_as_transformers(shared):
    transformers = pytest.importorskip("transformers")
    folder = shared / "models" / "bert-mini"
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    theirs = transformers.AutoTokenizer.from_pretrained(folder, split_special_tokens=True)
    assert ids_of(Tokenizer.load(folder), CORPUS + ODD, 512) == theirs(CORPUS + ODD)["input_ids"]


def refused(folder, content=None, name="tokenizer.json"):
    """The message of the ModelFileError, checked to be one line that names the folder."""
    if content is not None:
        (folder / name).write_bytes(content)
    with pytest.raises(ModelFileError) as caught:
        Tokenizer.load(folder)
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)
    return str(caught.value)


def test_damaged_files_and_missing_tokens_are_one_line(tmp_path, trained):
    assert "no tokenizer.json and no vocab.txt" in refused(tmp_path)
    assert "damaged" in refused(tmp_path, b"{")
    assert "damaged" in refused(tmp_path, b"[" * 200_000)
    good = json.loads(trained._inner.to_str())
    vocabulary = {piece: number for piece, number in good["model"]["vocab"].items() if piece != "[MASK]"}
    without = {**good, "model": {**good["model"], "vocab": vocabulary}}
    without["added_tokens"] = [token for token in good["added_tokens"] if token["content"] != "[MASK]"]
    assert "no [MASK] or <mask> token" in refused(tmp_path, json.dumps(without).encode())
    (tmp_path / "tokenizer.json").unlink()
    assert refused(tmp_path, b"\xff\xfe", "vocab.txt")
    assert refused(tmp_path, b"", "vocab.txt")
    (tmp_path / "vocab.txt").write_text("\n".join(SPECIALS) + "\nfox\n")
    for config in (b"{", b"[1]", b"\xff"):
        assert "/tokenizer_config.json " in refused(tmp_path, config, "tokenizer_config.json")


def test_a_tokenizer_that_makes_special_tokens_of_text_is_refused(tmp_path, trained):
    state = json.loads(trained._inner.to_str())
    state["pre_tokenizer"] = {"type": "WhitespaceSplit"}
    state["normalizer"] = None
    assert "reads the text" in refused(tmp_path, json.dumps(state).encode())
    state = json.loads(trained._inner.to_str())
    for token in state["added_tokens"]:
        token["special"] = False
    (tmp_path / "tokenizer.json").write_text(json.dumps(state), encoding="utf-8")
    assert ids_of(Tokenizer.load(tmp_path), ODD) == ids_of(trained, ODD)


def test_random_damage_is_one_line_or_harmless(tmp_path, trained):
    content = trained._inner.to_str().encode()
    place = random.Random(0)
    messages, rows = [], []
    for _ in range(150):
        damaged = bytearray(content)
        for _ in range(place.randint(1, 4)):
            damaged[place.randrange(len(damaged))] = place.randrange(256)
        (tmp_path / "tokenizer.json").write_bytes(damaged)
        try:
            rows += Tokenizer.load(tmp_path).encode(CORPUS, 16)[0]
        except ModelFileError as error:
            messages.append(str(error))
    assert all(3 <= len(row) <= 16 for row in rows)
    assert not any("\n" in message for message in messages)
    assert min(len(rows), len(messages)) > 10


def test_the_vocabulary_of_a_large_corpus_is_made_once(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_SENTEMB_CACHE", str(tmp_path))
    monkeypatch.setattr(text_file, "LARGE", 1)
    (tmp_path / "a.txt").write_text("the quick brown fox jumped\n" * 9, encoding="utf-8")
    corpus = corpus_files.open_corpus(str(tmp_path / "a.txt"))
    first, trained = new_tokenizer(corpus, 60), Tokenizer.train(corpus, 60)
    assert new_tokenizer(corpus, 50).vocab_size < first.vocab_size
    monkeypatch.setattr(Tokenizer, "train", None)
    again = new_tokenizer(corpus, 60)
    assert again.fingerprint == first.fingerprint
    text = ["a quick fox \u00e9", "[SEP]"]
    assert [row.tolist() for row in again.encode(text, 9)[0]] == [row.tolist() for row in trained.encode(text, 9)[0]]


def test_a_prompt_stands_before_every_sentence_and_is_not_saved(trained, tmp_path):
    prompted = trained.with_prompt("the fox: ")
    expected = ids_of(trained, ["the fox: " + sentence for sentence in ODD])
    again = [prompted, prompted.copy(), pickle.loads(pickle.dumps(prompted))]
    assert [ids_of(one, ODD) for one in again] == [expected] * 3
    assert len({trained.fingerprint, *(one.fingerprint for one in again), trained.with_prompt("fox ").fingerprint}) == 3
    prompted.save(tmp_path)
    assert Tokenizer.load(tmp_path).fingerprint == trained.fingerprint == prompted.with_prompt("").fingerprint
