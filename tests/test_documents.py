"""The best chunk of each document: against brute force, and through encode, search, mine, distill and an index."""

import json
import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import tiny_model

from jax_sentemb import SentenceEncoder, Vectors, search
from jax_sentemb.__main__ import main
from jax_sentemb.cli.program import program
from jax_sentemb.errors import DataError
from jax_sentemb.formats.encode_settings import EncodeSettings
from jax_sentemb.formats.sentence_transformers import write_export
from jax_sentemb.retrieval.documents import best_chunks
from jax_sentemb.retrieval.search import Hits

SENTENCES = ["A man plays the guitar.", "Two women dance on the grass.", "A small dog runs!", "Does a tall man eat?"]
RANDOM = np.random.default_rng(0)
DOCUMENTS = [" ".join(RANDOM.choice(SENTENCES, count)) for count in (1, 9, 5, 1, 14, 3, 6)]
DOCUMENTS.insert(3, "")
QUERY = "Two women dance."


@settings(max_examples=30, deadline=None)
@given(counts=st.lists(st.integers(1, 9), min_size=1, max_size=8), top_k=st.integers(1, 9), seed=st.integers(0, 99))
def test_best_chunks_are_those_of_brute_force(counts, top_k, seed):
    random = np.random.default_rng(seed)
    documents = np.repeat(np.arange(len(counts)), counts)
    documents[random.random(len(documents)) < 0.2] = -1  # rows that cannot be found
    scores = random.normal(size=(3, len(documents)))
    searchable = np.flatnonzero(documents >= 0)

    def find(queries, count):
        order = np.argsort(-scores[queries][:, searchable], axis=1)[:, :count]
        rows = searchable[order]
        return search_hits(rows, np.take_along_axis(scores[queries], rows, axis=1))

    hits = best_chunks(find, 3, documents, top_k)
    for query in range(3):
        best = {}
        for row in searchable:
            if documents[row] not in best or scores[query, row] > scores[query, best[documents[row]]]:
                best[documents[row]] = row
        expected = sorted(best.values(), key=lambda row: -scores[query, row])[:top_k]
        assert hits.indices[query].tolist() == expected
        np.testing.assert_allclose(hits.scores[query], scores[query, expected], rtol=1e-6)


def search_hits(rows, scores):
    return Hits(rows, scores.astype(np.float32))


def test_a_document_with_most_of_the_best_chunks_does_not_hide_the_others():
    documents = np.array([0] * 20 + [1, 2])
    scores = np.linspace(1, 0, len(documents))
    hits = best_chunks(lambda queries, count: search_hits(np.arange(count)[None], scores[None, :count]), 1, documents, 2)
    assert hits.indices.tolist() == [[0, 20]]  # the first search sees eight chunks, all of document 0


def test_a_search_that_misses_chunks_has_rows_without_a_result():
    hits = best_chunks(lambda queries, count: search_hits(np.array([[1, 0, -1]]), np.array([[0.5, 0.4, 0]])), 1, np.arange(3), 3)
    assert hits.indices.tolist() == [[1, 0, -1]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model with prompts that reads 24 tokens, a corpus with ids, and its vectors for each chunk."""
    folder = tmp_path_factory.mktemp("chunks")
    prompts = EncodeSettings({"query": "a ", "passage": "the "})
    write_export(folder / "model", tiny_model(SENTENCES, 100, settings=prompts))
    lines = [json.dumps({"_id": f"d{row}", "text": text}) for row, text in enumerate(DOCUMENTS)]
    (folder / "corpus.jsonl").write_text("".join(f"{line}\n" for line in lines))
    assert run(folder, "encode", "--output", folder / "each", "--chunks", "each", "--rows-per-shard", 4) == 0
    assert run(folder, "encode", "--output", folder / "mean.npy", "--chunks", "mean") == 0
    assert run(folder, "encode", "--output", folder / "plain.npy") == 0
    return folder


def run(folder, command, *options):
    length = (
        () if "--corpus" in options and not str(options[options.index("--corpus") + 1]).endswith("l") else ("--max-seq-length", 24)
    )
    source = ("--input", folder / "corpus.jsonl") if command == "encode" else ()
    return program(main, ["jax-sentemb", *map(str, (command, "--model", folder / "model", *source, *length, *options))])


def results(folder, capsys, corpus, *options, top_k=5):
    capsys.readouterr()
    assert run(folder, "search", "--corpus", folder / corpus, "--query", QUERY, "--top-k", top_k, "--json", *options) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.fixture(scope="module")
def expected(folder):
    """The best chunk of each document by brute force: (cosine, row, start, end), best first."""
    encoder = SentenceEncoder(folder / "model", max_seq_length=24)
    query = encoder.encode_query(QUERY, normalize_embeddings=True)
    each = encoder.encode(DOCUMENTS, prompt="the ", chunks="each", normalize_embeddings=True)
    cosines = each.embeddings @ query
    best = []
    for row, text in enumerate(DOCUMENTS):
        chunk = max(np.flatnonzero(each.rows == row).tolist(), key=lambda number: cosines[number])
        if text:
            best.append((cosines[chunk], row, int(each.starts[chunk]), int(each.ends[chunk])))
    return sorted(best, key=lambda item: -item[0])


@pytest.mark.parametrize("options", [(), ("--index", "idx")])
@pytest.mark.parametrize("corpus", ["corpus.jsonl", "each", "each with text"])
@pytest.mark.parametrize("top_k", [2, 20])
def test_search_returns_the_best_chunk_of_each_document(folder, capsys, expected, corpus, options, top_k, tmp_path):
    if options:
        pytest.importorskip("faiss")
        options = ("--index", tmp_path / "idx")
    more = ("--chunks", "each") if corpus.endswith("l") else ()
    name, _, with_text = corpus.partition(" ")
    more += ("--corpus-text", folder / "corpus.jsonl") if with_text else ()
    hits = results(folder, capsys, name, *more, *options, top_k=top_k)
    assert [hit["row"] for hit in hits] == [row for _, row, _, _ in expected[:top_k]]
    np.testing.assert_allclose([hit["score"] for hit in hits], [score for score, *_ in expected[:top_k]], atol=1e-5)
    for hit, (_, row, start, end) in zip(hits, expected, strict=False):
        assert (hit["start"], hit["end"], hit["_id"]) == (start, end, f"d{row}")
        assert hit.get("text", DOCUMENTS[row][start:end]) == DOCUMENTS[row][start:end]
        assert ("text" in hit) == (corpus != "each")


def test_stored_chunks_are_those_of_the_encoder(folder):
    encoder = SentenceEncoder(folder / "model", max_seq_length=24)
    each = encoder.encode(DOCUMENTS, prompt="the ", chunks="each")
    vectors = Vectors(folder / "each")
    texts = [bool(DOCUMENTS[row]) for row in each.rows]
    np.testing.assert_allclose(vectors[:], np.where(np.array(texts)[:, None], each.embeddings, 0), atol=1e-5)
    np.testing.assert_array_equal(vectors.chunk_spans(), np.stack(each[1:], axis=1))
    record = vectors.record(3)
    assert (record.row, record.start, record.end, record.id) == (each.rows[3], each.starts[3], each.ends[3], f"d{each.rows[3]}")
    with pytest.raises(DataError, match="its rows are not chunks of texts"):
        Vectors(folder / "mean.npy").chunk_spans()


def test_pooled_vectors_have_a_row_for_each_text(folder, capsys):
    encoder = SentenceEncoder(folder / "model", max_seq_length=24)
    vectors = Vectors(folder / "mean.npy")
    mean = encoder.encode(DOCUMENTS, prompt="the ", chunks="mean")
    np.testing.assert_allclose(vectors[:], np.where(np.array([bool(text) for text in DOCUMENTS])[:, None], mean, 0), atol=1e-5)
    long_query = " ".join(SENTENCES * 3)
    capsys.readouterr()
    line = ("search", "--corpus", folder / "mean.npy", "--query", long_query, "--top-k", 3, "--json")
    assert run(folder, *line) == 0
    hits = [json.loads(row) for row in capsys.readouterr().out.splitlines()]
    rows, scores = search(encoder.encode_query(long_query, chunks="mean"), vectors, 3)
    assert [hit["row"] for hit in hits] == rows[0].tolist()
    np.testing.assert_allclose([hit["score"] for hit in hits], scores[0], atol=1e-5)
    assert "start" not in hits[0]


def test_the_notes_say_that_nothing_was_cut(folder, capsys, tmp_path):
    long = sum(
        SentenceEncoder(folder / "model", max_seq_length=24).encode([text], prompt="the ", chunks="each").rows.size > 1
        for text in DOCUMENTS
    )
    assert run(folder, "encode", "--output", tmp_path / "a.npy") == 0
    assert f"{long} sentences longer than 24 tokens were cut" in capsys.readouterr().err
    assert run(folder, "encode", "--output", tmp_path / "b", "--chunks", "each") == 0
    error = capsys.readouterr().err
    assert f"vectors of {len(DOCUMENTS)} texts; " in error
    assert "texts longer than 24 tokens were split into chunks, so nothing was cut" in error
    assert "were cut" not in error


def refused(folder, capsys, code, message, *line):
    capsys.readouterr()
    assert run(folder, *line) == code
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1


def test_other_settings_are_refused_by_name(folder, capsys, tmp_path):
    def find(corpus, *options):
        return "search", "--corpus", folder / corpus, "--query", "a", *options

    refused(folder, capsys, 3, "was made with chunks='each', not with chunks='mean'", *find("each", "--chunks", "mean"))
    refused(folder, capsys, 3, "was made with chunks='mean', not with chunks='each'", *find("mean.npy", "--chunks", "each"))
    refused(folder, capsys, 3, "was made without chunks, not with chunks='mean'", *find("plain.npy", "--chunks", "mean"))
    refused(folder, capsys, 3, "has a vector for each chunk of a text", "mine", "--corpus", folder / "each")
    refused(folder, capsys, 3, "has a vector for each chunk of a text", "cluster", "--corpus", folder / "each", "--k", 2)
    refused(folder, capsys, 2, "was made with chunks='each'", "encode", "--output", folder / "each", "--rows-per-shard", 4)
    (tmp_path / "bare.npy").write_bytes((folder / "plain.npy").read_bytes())
    refused(
        folder, capsys, 3, "bare.npy has no bare.npy.json: the places of its chunks are not known",
        "search", "--corpus", tmp_path / "bare.npy", "--query", "a", "--chunks", "each",
    )  # fmt: skip
    files = ("--model", folder / "model", "--corpus", folder / "corpus.jsonl", "--output", tmp_path / "t")
    capsys.readouterr()
    assert (
        program(
            main, ["jax-sentemb", "distill", *map(str, files), "--vectors", str(folder / "each"), "--width", "8", "--epochs", "1"]
        )
        == 3
    )
    assert "--vectors has a vector for each chunk of a text" in capsys.readouterr().err


def test_an_index_belongs_to_its_chunks(folder, capsys, tmp_path):
    pytest.importorskip("faiss")
    line = ("search", "--corpus", folder / "corpus.jsonl", "--query", "a", "--index", tmp_path / "idx")
    assert run(folder, *line, "--chunks", "each") == 0
    refused(folder, capsys, 3, "was made with chunks='each', not without chunks", *line)
    refused(folder, capsys, 3, "was made with chunks='each', not with chunks='max'", *line, "--chunks", "max")


def test_mine_and_cluster_compare_texts_by_their_chunks(folder, capsys):
    capsys.readouterr()
    assert run(folder, "mine", "--corpus", folder / "corpus.jsonl", "--chunks", "mean", "--top-k", 2, "--json") == 0
    from_text = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert run(folder, "mine", "--corpus", folder / "mean.npy", "--top-k", 2, "--json") == 0
    stored = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(pair["first"], pair["second"]) for pair in from_text] == [(pair["first"], pair["second"]) for pair in stored]


def test_damaged_spans_are_one_line(folder, capsys, tmp_path):
    shutil.copytree(folder / "each", tmp_path / "each")
    file = tmp_path / "each" / "000000.npy.records.jsonl"
    file.write_text(file.read_text().replace('"start"', '"begin"'))
    refused(
        folder,
        capsys,
        3,
        "the record of row 0 has no start and end",
        "search",
        "--corpus",
        tmp_path / "each",
        "--query",
        "a",
        "--no-verify",
    )


def test_parquet_has_the_spans(folder, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    assert run(folder, "encode", "--output", tmp_path / "a.parquet", "--chunks", "each") == 0
    table = parquet.read_table(tmp_path / "a.parquet").to_pydict()
    for row, start, end, text in zip(table["row"], table["start"], table["end"], table["text"], strict=True):
        assert DOCUMENTS[row][start:end] == text
