"""From files to batches: what counts as a line, what stays text, what a batch is made of."""

import gzip
import json
import lzma
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jax_sentemb.errors import ConfigError, DataError, ModelFileError
from jax_sentemb.text import files
from jax_sentemb.text.batches import Batches
from jax_sentemb.text.files import open_corpus
from jax_sentemb.text.grammar import sentences as generated
from jax_sentemb.text.tokenizer import Tokenizer
from jax_sentemb.text.tokens import tokenize

LINES = ["first sentence", "zweite Zeile mit é", "a\u2028b\x0bc\x0cd\x85e", "lone\rcarriage return", 'quote " and , comma', "last"]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_SENTEMB_CACHE", str(tmp_path / "cache"))


def refused(kind, call, *named):
    """`call` raises `kind` with one line that holds every one of `named`."""
    with pytest.raises(kind) as error:
        call()
    message = str(error.value)
    assert "\n" not in message
    for text in named:
        assert str(text) in message


class TestFiles:
    @pytest.mark.parametrize("kind", [".txt", ".txt.gz", ".txt.xz", ".jsonl", ".csv", ".tsv"])
    def test_every_kind_gives_the_same_sentences(self, tmp_path, kind):
        path = tmp_path / f"corpus{kind}"
        text = "".join(line + "\n" for line in LINES).encode()
        if kind == ".txt":
            path.write_bytes(text)
        elif kind == ".txt.gz":
            path.write_bytes(gzip.compress(text))
        elif kind == ".txt.xz":
            path.write_bytes(lzma.compress(text))
        elif kind == ".jsonl":
            path.write_text("".join(json.dumps({"id": 1, "text": line}) + "\n" for line in LINES))
        elif kind == ".csv":
            quoted = ('"' + line.replace('"', '""') + '"' for line in LINES)
            path.write_bytes(("id,text\n" + "".join(f"1,{line}\n" for line in quoted)).encode())
        else:
            path.write_bytes(("id\ttext\n" + "".join(f"1\t{line}\n" for line in LINES if "\r" not in line)).encode())
        expected = [line for line in LINES if kind != ".tsv" or "\r" not in line]
        assert list(open_corpus(str(path))) == expected

    def test_several_files_and_globs_in_order(self, tmp_path):
        for name in "abc":
            (tmp_path / f"{name}.txt").write_text(f"from {name}\n")
        assert list(open_corpus(f"{tmp_path}/c.txt, {tmp_path}/[ab].txt")) == ["from c", "from a", "from b"]

    def test_line_ends_blanks_and_byte_order_mark(self, tmp_path):
        path = tmp_path / "x.txt"
        path.write_bytes(b"\xef\xbb\xbfone\r\n\r\n  \ntwo\n\t\nthree")
        corpus = open_corpus(str(path))
        assert list(corpus) == ["one", "two", "three"]
        assert corpus.report == {"lines": 6, "blank": 3, "bytes": path.stat().st_size}

    @settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(parts=st.lists(st.sampled_from(["\n", "\r\n", " ", "a", "é", "\u2028", "long " * 5, "\x00"]), max_size=30))
    def test_the_index_equals_a_plain_splitter_whatever_the_block(self, tmp_path, monkeypatch, parts):
        monkeypatch.setattr(files, "BLOCK", 7)
        text = "".join(parts)
        path = tmp_path / "x.txt"
        path.write_bytes(text.encode())
        lines = [line.removesuffix("\r") for line in text.split("\n")]
        expected = [line for line in lines if any(byte > 32 for byte in line.encode())]
        assert list(files.Sentences([path])) == expected

    def test_bytes_that_are_not_utf8_are_named(self, tmp_path):
        path = tmp_path / "x.txt"
        path.write_bytes(b"fine\nauch gut\n" + "schön\n".encode("latin-1"))
        refused(DataError, lambda: open_corpus(str(path)), path, "line 3", "byte 17", "UTF-8")

    def test_a_huge_line_is_cut(self, tmp_path):
        path = tmp_path / "x.txt"
        path.write_text("é" * 200_000 + "\nnext\n")
        first, second = open_corpus(str(path))
        assert second == "next"
        assert 0 < len(first) <= files.LONGEST

    def test_what_cannot_be_read_is_refused_in_one_line(self, tmp_path):
        (tmp_path / "cut.txt.gz").write_bytes(gzip.compress(b"text\n" * 1000)[:-10])
        (tmp_path / "bad.jsonl").write_text('{"text": "ok"}\n{"text"\n')
        (tmp_path / "number.jsonl").write_text('{"text": 3}\n')
        (tmp_path / "half.jsonl").write_text('{"text": "\\ud800"}\n')
        (tmp_path / "table.csv").write_text("id,sentence\n1,x\n")
        (tmp_path / "short.tsv").write_text("id\ttext\n1\n")
        (tmp_path / "page.html").write_text("x")
        for name, named in {
            "none.txt": "no such file", "*.nothing": "no file matches", "": "directory", "cut.txt.gz": "decompressed",
            "bad.jsonl": "line 2", "number.jsonl": "not text", "half.jsonl": "surrogate", "table.csv": "sentence",
            "short.tsv": "1 fields", "page.html": ".jsonl",
        }.items():  # fmt: skip
            refused(DataError, lambda name=name: open_corpus(f"{tmp_path}/{name}"), named)


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(generated(300, 0), 500)


class TestTokenizer:
    def test_special_tokens_written_in_a_text_stay_text(self, tokenizer, tmp_path):
        tokenizer.save(tmp_path / "json")
        tokenizer.save(tmp_path / "vocab")
        (tmp_path / "vocab" / "tokenizer.json").unlink()
        for folder in ("json", "vocab"):
            loaded = Tokenizer.load(tmp_path / folder)
            (ids,), _ = loaded.encode(["the [SEP] surgeon [MASK]"], 32)
            assert (ids == loaded.sep_id).sum() == 1
            assert loaded.mask_id not in ids
            np.testing.assert_array_equal(ids, tokenizer.encode(["the [SEP] surgeon [MASK]"], 32)[0][0])

    def test_truncation_keeps_the_end_and_is_counted(self, tokenizer):
        rows, cut = tokenizer.encode(["the " * 50, "the"], 10)
        assert [len(row) for row in rows] == [10, 3]
        assert rows[0][-1] == tokenizer.sep_id
        assert cut == 1

    def test_transformers_reads_back_the_same_ids(self, tokenizer, tmp_path):
        transformers = pytest.importorskip("transformers")
        tokenizer.save(tmp_path)
        theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
        for sentence in [*generated(20, 1), "", "[SEP] and [MASK]", "naïve café 漢字"]:
            assert theirs(sentence)["input_ids"] == tokenizer.encode([sentence], 512)[0][0].tolist()

    def test_case_is_kept_where_the_directory_says_so(self, tmp_path):
        (tmp_path / "vocab.txt").write_text(
            "".join(f"{t}\n" for t in ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "Paris", "paris"])
        )
        assert Tokenizer.load(tmp_path).encode(["Paris"], 8)[0][0].tolist() == [2, 6, 3]
        (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
        assert Tokenizer.load(tmp_path).encode(["Paris"], 8)[0][0].tolist() == [2, 5, 3]

    def test_training_gives_the_same_vocabulary_in_another_process(self, tokenizer):
        code = (
            "from jax_sentemb.text.grammar import sentences\nfrom jax_sentemb.text.tokenizer import Tokenizer\n"
            "print(Tokenizer.train(sentences(300, 0), 500).fingerprint)"
        )
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert other.stdout.strip() == tokenizer.fingerprint

    def test_damaged_and_foreign_tokenizers_are_refused(self, tokenizer, tmp_path):
        refused(ModelFileError, lambda: Tokenizer.load(tmp_path), "tokenizer.json")
        (tmp_path / "tokenizer.json").write_text('{"model": ')
        refused(ModelFileError, lambda: Tokenizer.load(tmp_path), "tokenizer.json")
        (tmp_path / "tokenizer.json").unlink()
        (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[SEP]\n[MASK]\n[CL]\n")
        refused(ModelFileError, lambda: Tokenizer.load(tmp_path), "vocab.txt")

    def test_what_is_no_text_is_named(self, tokenizer):
        with pytest.raises(TypeError, match="sentence 1 is int"):
            tokenizer.encode(["a", 3], 8)


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    lines = [*generated(200, 0), *generated(10, 0), "x " * 100]
    path.write_text("".join(line + "\n" for line in lines))
    return open_corpus(str(path))


class TestTokens:
    def test_duplicates_are_left_out_and_everything_is_counted(self, corpus, tokenizer):
        tokens = tokenize(corpus, tokenizer, 64)
        distinct = {tuple(tokenizer.encode([sentence], 64)[0][0]) for sentence in corpus}
        assert len(tokens) == len(distinct) == tokens.report["usable"]
        assert tokens.report["duplicates"] == len(corpus) - len(distinct) >= 10
        assert tokens.report["truncated"] == 1
        for row in (0, 57, len(tokens) - 1):
            expected = tokenizer.encode([corpus[int(tokens.line[row])]], 64)[0][0]
            np.testing.assert_array_equal(tokens.ids(row), expected)
            assert tokens.lengths[row] == len(expected)

    def test_the_cache_gives_the_same_and_a_damaged_one_is_made_again(self, corpus, tokenizer, tmp_path):
        first = tokenize(corpus, tokenizer, 32, tmp_path)
        last = first.ids(len(first) - 1).copy()
        (folder,) = tmp_path.glob("*.tokens")
        before = (folder / "ids.npy").stat().st_mtime_ns
        again = tokenize(corpus, tokenizer, 32, tmp_path)
        assert (folder / "ids.npy").stat().st_mtime_ns == before
        np.testing.assert_array_equal(again.ids(5), first.ids(5))
        (folder / "ids.npy").write_bytes((folder / "ids.npy").read_bytes()[:-40])
        healed = tokenize(corpus, tokenizer, 32, tmp_path)
        np.testing.assert_array_equal(healed.ids(len(first) - 1), last)

    def test_low_shot_subsets_are_drawn_by_seed(self, corpus, tokenizer):
        lines = [
            tuple(tokenize(corpus, tokenizer, 32, None, subset, seed).line)
            for subset, seed in [(50, 0), (50, 0), (50, 1), (0.1, 0)]
        ]
        assert lines[0] == lines[1] != lines[2]
        assert len(set(lines[0])) == len(lines[0]) <= 50
        assert 18 <= len(lines[3]) <= 21
        refused(DataError, lambda: tokenize(corpus, tokenizer, 32, None, 10_000), "data.subset=10000", len(corpus))


class TestBatches:
    @pytest.fixture
    def tokens(self, corpus, tokenizer):
        return tokenize(corpus, tokenizer, 48)

    def test_an_epoch_holds_every_row_at_most_once(self, tokens):
        batches = Batches(tokens, 8, seed=3)
        assert batches.steps_per_epoch == len(tokens) // 8
        for epoch in (0, 1):
            steps = range(epoch * batches.steps_per_epoch, (epoch + 1) * batches.steps_per_epoch)
            rows = np.concatenate([batches.rows(step) for step in steps])
            assert len(set(rows)) == len(rows) == batches.steps_per_epoch * 8
        assert list(batches.rows(0)) != list(batches.rows(batches.steps_per_epoch))

    def test_a_batch_is_a_function_of_seed_and_step(self, tokens):
        forwards = [Batches(tokens, 8, seed=3).at(step).tokens for step in range(40)]
        other = Batches(tokens, 8, seed=3)
        for step in (39, 0, 17):
            np.testing.assert_array_equal(other.at(step).tokens, forwards[step])
        assert not np.array_equal(Batches(tokens, 8, seed=4).rows(0), other.rows(0))

    def test_rows_are_the_padded_sentences(self, tokens):
        batches = Batches(tokens, 8, seed=0, buckets=(16, 32))
        for step in range(batches.steps_per_epoch):
            rows = batches.at(step)
            assert rows.tokens.shape[1] in (16, 32, 48)
            for row, tokens_of, mask in zip(batches.rows(step), rows.tokens, rows.mask, strict=True):
                ids = tokens.ids(row)
                np.testing.assert_array_equal(tokens_of[: len(ids)], ids)
                assert (tokens_of[len(ids) :] == tokens.pad_id).all()
                np.testing.assert_array_equal(mask, np.arange(len(mask)) < len(ids))

    def test_sorting_by_length_leaves_little_padding(self, tokens):
        filled = [Batches(tokens, 8, seed=0, buckets=range(4, 48, 4)).at(step).mask.mean() for step in range(20)]
        assert np.mean(filled) > 0.85

    def test_processes_together_read_the_global_batch(self, tokens):
        batches = Batches(tokens, 8, seed=0)
        parts = [batches.at(5, process, 2) for process in (0, 1)]
        np.testing.assert_array_equal(np.concatenate([part.tokens for part in parts]), batches.at(5).tokens)

    def test_fewer_sentences_than_a_batch_is_refused_with_the_counts(self, tokens):
        refused(DataError, lambda: Batches(tokens, 500, 0), "data.batch_size=500", f"{len(tokens)} usable")


class TestDataSets:
    def test_hugging_face_data_set_from_disk(self, tmp_path):
        datasets = pytest.importorskip("datasets")
        folder = str(tmp_path / "set")
        datasets.DatasetDict({"train": datasets.Dataset.from_dict({"text": LINES, "n": [1] * len(LINES)})}).save_to_disk(folder)
        assert list(open_corpus(f"hf:{folder}")) == LINES
        refused(DataError, lambda: open_corpus(f"hf:{folder}:dev"), "dev", "train")
        refused(DataError, lambda: open_corpus(f"hf:{folder}", "body"), "body", "text")
        refused(DataError, lambda: open_corpus(f"hf:{folder}", "n"), "not text")

    def test_tensorflow_data_set_without_tensorflow(self, tmp_path):
        tfds = pytest.importorskip("tensorflow_datasets")
        pytest.importorskip("array_record")

        class Lines(tfds.core.GeneratorBasedBuilder):
            VERSION = tfds.core.Version("1.0.0")

            def _info(self):
                features = tfds.features.FeaturesDict({"text": tfds.features.Text()})
                return tfds.core.DatasetInfo(builder=self, features=features)

            def _split_generators(self, manager):
                return {"train": self._generate_examples()}

            def _generate_examples(self):
                yield from enumerate({"text": line} for line in LINES)

        Lines(data_dir=str(tmp_path), file_format="array_record").download_and_prepare()
        folder = next(tmp_path.glob("lines/**/dataset_info.json")).parent
        assert sorted(open_corpus(f"tfds:{folder}")) == sorted(LINES)

    def test_a_source_without_a_name_is_refused(self):
        refused(ConfigError, lambda: open_corpus("hf:"), "hf:NAME")
