"""jax-sentemb distill: from an encoder to a static table that every command and sentence-transformers read."""

import json
import resource

import jax.numpy as jnp
import numpy as np
import pytest
from tiny_models import tiny_model

from jax_sentemb import SentenceEncoder
from jax_sentemb.__main__ import main
from jax_sentemb.cli.program import program
from jax_sentemb.cosines import unit_length
from jax_sentemb.data.corpus_files import open_text
from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.distillation.distill import _encoded
from jax_sentemb.distillation.token_table import piece_counts, piece_vectors, sif_weights
from jax_sentemb.errors import ConfigError, ModelFileError
from jax_sentemb.formats.encode_settings import EncodeSettings
from jax_sentemb.formats.sentence_transformers import write_export
from jax_sentemb.formats.static_embedding import read_static
from jax_sentemb.inference.load import load
from jax_sentemb.inference.static import StaticEmbedder
from jax_sentemb.inference.verify import PROBES
from jax_sentemb.retrieval.vector_store import Vectors
from jax_sentemb.types import Rows

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "red", "green", "blue"]
RANDOM = np.random.default_rng(0)
SENTENCES = [" ".join(RANDOM.choice(WORDS, RANDOM.integers(2, 9))) for _ in range(200)]


def run(*arguments):
    return program(main, ["jax-sentemb", *map(str, arguments)])


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    folder = tmp_path_factory.mktemp("teacher")
    write_export(folder / "model", tiny_model(SENTENCES, 80, positions=40))
    (folder / "corpus.txt").write_text("\n".join(SENTENCES) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def static(teacher):
    assert run("distill", "--model", teacher / "model", "--corpus", teacher / "corpus.txt", "--width", 8,
               "--output", teacher / "static") == 0  # fmt: skip
    return teacher / "static"


def test_a_table_has_a_representation(static):
    assert repr(SentenceEncoder(static)).startswith(f"SentenceEncoder('{static}': static table, 8 dimensions")


def test_few_sentences_are_noted_and_a_command_continues(teacher, tmp_path, capsys, monkeypatch):
    command = ("distill", "--model", teacher / "model", "--corpus", teacher / "corpus.txt", "--width", 8, "--output", tmp_path)
    assert run(*command) == 0
    printed = capsys.readouterr()
    assert f"note: {len(SENTENCES)} sentences say little about how rare a word is; add other text" in printed.err
    assert f"next    jax-sentemb search --model {tmp_path} --corpus {teacher / 'corpus.txt'} --query" in printed.out
    monkeypatch.setattr("jax_sentemb.cli.distill.FEW", len(SENTENCES) - 1)
    assert run(*command) == 0
    assert "note" not in capsys.readouterr().err
    table = tmp_path / "a.tsv"
    table.write_text("body\n" + "".join(f"{line}\n" for line in SENTENCES), encoding="utf-8")
    assert run("distill", "--model", teacher / "model", "--corpus", table, "--column", "body", "--width", 8,
               "--output", tmp_path / "of table") == 0  # fmt: skip
    assert f"--corpus {table} --column body --query" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_sentence_transformers_gives_the_same_vectors(static):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    theirs = sentence_transformers.SentenceTransformer(str(static), device="cpu")
    expected = theirs.encode([*PROBES, *SENTENCES])
    np.testing.assert_allclose(SentenceEncoder.load(static).encode([*PROBES, *SENTENCES]), expected, atol=1e-5)


def test_the_embedding_for_a_device_is_that_of_the_host(static):
    model = load(static)
    ids, _ = model.embedder.tokenizer.encode(SENTENCES[:5], 6)
    width = max(map(len, ids))
    tokens = np.array([np.pad(row, (0, width - len(row))) for row in ids], np.int32)
    mask = np.arange(width) < np.array([[len(row)] for row in ids])
    model.embedder.max_seq_length = 6
    found = model.embedder.embed({"table": jnp.asarray(model.params["table"])}, Rows(tokens, mask))
    np.testing.assert_allclose(model(SENTENCES[:5]), found, atol=1e-6)
    cut = model.embedder.encode(model.params, SENTENCES[:5]).truncated
    assert cut == sum(len(sentence.split()) > 6 for sentence in SENTENCES[:5])


def test_words_add_numbers_whose_cosine_is_that_of_the_weighted_bags_of_pieces(static, teacher):
    output, words = teacher / "words", 4096
    run(
        "distill",
        "--model",
        teacher / "model",
        "--corpus",
        teacher / "corpus.txt",
        "--width",
        8,
        "--words",
        words,
        "--output",
        output,
    )
    model = load(output)
    table, plain = model.params["table"], load(static).params["table"]
    assert table.shape == (len(plain), 8 + words)
    encoder_part, word_part = table[:, :8], table[:, 8:]
    np.testing.assert_allclose(encoder_part, plain * (encoder_part[9, 0] / plain[9, 0]), rtol=1e-4, atol=1e-6)

    pieces = model.embedder.tokenizer
    shares = pieces.share_matrix(SENTENCES, 100, len(plain))[0].toarray()
    for part in (encoder_part, word_part):
        np.testing.assert_allclose(((shares @ part) ** 2).sum(axis=1).mean(), 1, rtol=1e-4)
    counts = piece_counts(SENTENCES, pieces.inner)
    bags = shares * sif_weights(counts, 1e-3)
    found, expected = (unit_length(rows) @ unit_length(rows).T for rows in (shares @ word_part, bags))
    np.testing.assert_allclose(found, expected, atol=5 / np.sqrt(words))
    assert "The last 4096 dimensions stand for the words themselves" in (output / "README.md").read_text(encoding="utf-8")


def test_encode_and_search_read_it(static, teacher, capsys):
    vectors = teacher / "static vectors"
    assert run("encode", "--model", static, "--input", teacher / "corpus.txt", "--output", vectors) == 0
    for corpus in (teacher / "corpus.txt", vectors):
        texts = ("--corpus-text", teacher / "corpus.txt") if corpus == vectors else ()
        assert run("search", "--model", static, "--corpus", corpus, *texts, "--query", SENTENCES[7], "--top-k", 1) == 0
        assert SENTENCES[7] in capsys.readouterr().out


def test_encode_writes_its_vectors(static, teacher):
    assert run("encode", "--model", static, "--input", teacher / "corpus.txt", "--output", teacher / "of_static") == 0
    np.testing.assert_allclose(Vectors(teacher / "of_static")[:], SentenceEncoder.load(static).encode(SENTENCES), atol=1e-6)


def test_the_encoder_reads_sentences_with_its_prompt_for_documents_as_in_encode(teacher, tmp_path):
    prompts = {"query": "red blue ", "passage": "green "}
    model = load(teacher / "model")._replace(settings=EncodeSettings(prompts, "query"))
    sentences = open_text("--corpus", str(teacher / "corpus.txt")).sentences
    found = _encoded(model, sentences, tmp_path / "vectors.npy", 16, lambda *_: None)
    np.testing.assert_allclose(found, SentenceEncoder(model).encode(SENTENCES, prompt="green "), atol=1e-6)


def test_a_table_learns_the_numbers_that_its_encoder_keeps(teacher, tmp_path, capsys):
    model = tmp_path / "model"
    write_export(model, tiny_model(SENTENCES, 80, positions=40, settings=EncodeSettings(truncate_dim=8)))
    loaded = load(model)
    assert piece_vectors(loaded, loaded.embedder.tokenizer).shape[1] == 8
    common = ("distill", "--model", model, "--corpus", teacher / "corpus.txt", "--output", tmp_path / "table")
    for epochs in (0, 1):
        assert run(*common, "--epochs", epochs, "--width", 8) == 0
        assert SentenceEncoder(tmp_path / "table").encode(SENTENCES).shape == (len(SENTENCES), 8)
    assert run(*common, "--width", 9) == 2
    assert "more than the model's 8 dimensions" in capsys.readouterr().err


def test_training_comes_nearer_to_the_encoder_with_vectors_of_encode_or_without(static, teacher, capsys):
    model, corpus = teacher / "model", teacher / "corpus.txt"
    common = ("distill", "--model", model, "--corpus", corpus, "--width", 8, "--epochs", 5, "--batch-size", 50)
    (teacher / ".trained.vectors.0123456789abcdef.partial").write_bytes(b"of a process that was killed")
    assert run(*common, "--output", teacher / "trained") == 0
    assert run("encode", "--model", model, "--input", corpus, "--output", teacher / "vectors") == 0
    assert run(*common, "--vectors", teacher / "vectors", "--output", teacher / "again") == 0
    trained, again = (read_static(teacher / name).vectors for name in ("trained", "again"))
    np.testing.assert_allclose(trained, again, rtol=1e-4, atol=1e-4)
    exact = load(model)(SENTENCES)
    exact = exact - exact.mean(axis=0)

    def error(name):
        found = load(teacher / name)(SENTENCES)
        unit = exact / np.linalg.norm(exact, axis=1, keepdims=True)
        return np.abs(found @ found.T - unit @ unit.T).mean()

    assert error("trained") < error("static")
    assert json.loads((teacher / "trained" / "jax_sentemb.json").read_text())["regression"]["epochs"] == 5
    assert not list(teacher.glob(".trained*"))  # the vectors that were encoded on the way


def test_vectors_of_a_text_with_blank_lines_have_a_row_for_each_line(teacher, capsys):
    model, gaps = teacher / "model", teacher / "gaps.txt"
    lines = [line for number, sentence in enumerate(SENTENCES) for line in ([""] * (number % 5 == 2) + [sentence])]
    gaps.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    common = ("distill", "--model", model, "--width", 8, "--epochs", 2, "--batch-size", 50)
    tables = {}
    for corpus in (teacher / "corpus.txt", gaps):
        vectors = teacher / f"{corpus.stem} vectors"
        assert run("encode", "--model", model, "--input", corpus, "--output", vectors) == 0
        output = teacher / f"{corpus.stem} table"
        assert run(*common, "--corpus", corpus, "--vectors", vectors, "--output", output) == 0
        tables[corpus.stem] = read_static(output).vectors
    np.testing.assert_allclose(tables["gaps"], tables["corpus"], rtol=1e-4, atol=1e-5)
    damaged = Vectors(vectors)[:].copy()
    damaged[lines.index("") + 1] = np.nan
    np.save(teacher / "nan.npy", damaged)
    capsys.readouterr()
    assert run(*common, "--corpus", gaps, "--vectors", teacher / "nan.npy", "--output", teacher / "x") == 3
    assert f"the vector of row {lines.index('') + 1} has NaN or Inf" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "code", "part"),
    [
        (("--width", "17"), 2, "--width 17 is more than the model's 16 dimensions"),
        (("--vectors", "x"), 2, "give --epochs"),
        (("--learning-rate", "0.1"), 2, "--learning-rate is not used: only training has it; give --epochs"),
        (("--model", "static"), 2, "already"),
        (("--corpus", "other.txt", "--vectors", "vectors", "--epochs", "1", "--width", "8"), 3, "--vectors"),
        (("--sif", "-1"), 2, "--sif"),
        (("--batch-size", "9" * 40), 2, "whole number from 1 to"),
        (("--corpus", "signs.txt", "--width", "8"), 3, "no piece of the vocabulary"),
        (("--output", "."), 2, "is not an export"),
    ],
)
def test_mistakes_are_one_line(static, teacher, capsys, monkeypatch, options, code, part):
    monkeypatch.chdir(teacher)
    (teacher / "other.txt").write_text("\n".join(reversed(SENTENCES)) + "\n", encoding="utf-8")
    (teacher / "signs.txt").write_text("\u4e00\n" * 9, encoding="utf-8")
    if "vectors" in options and not (teacher / "vectors").is_dir():
        assert run("encode", "--model", "model", "--input", "corpus.txt", "--output", "vectors") == 0
    given = {"--model": "model", "--corpus": "corpus.txt", "--output": "bad", **dict(zip(options[::2], options[1::2], strict=True))}
    assert run("distill", *(part for option in given.items() for part in option)) == code
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: ")
    assert part in error
    assert not (teacher / "bad").exists()


def test_a_full_disk_names_the_output(teacher, capsys):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, limits[1]))
    try:
        command = ("distill", "--model", teacher / "model", "--corpus", teacher / "corpus.txt", "--width", 8, "--epochs", 1)
        assert run(*command, "--output", teacher / "full") == 7
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert capsys.readouterr().err.splitlines()[-1] == f"error: {teacher / 'full'}: File too large"
    assert not list(teacher.glob("*full*"))


def test_a_damaged_table_and_options_of_encoders_are_refused(static, tmp_path):
    with pytest.raises(ConfigError, match="static table"):
        load(f"{static}@cls")
    for name in ("modules.json", "tokenizer.json", "model.safetensors"):
        (tmp_path / name).write_bytes((static / name).read_bytes())
    modules = json.loads((tmp_path / "modules.json").read_text())
    modules[1] = {**modules[1], "type": "sentence_transformers.models.Dense"}
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ModelFileError, match=r"StaticEmbedding [+] Dense"):
        load(tmp_path)


def test_no_sentence_and_no_piece_are_zero_rows():
    tokenizer = Tokenizer.train(SENTENCES, 80)
    params = {"table": np.ones((tokenizer.vocab_size, 3), np.float32)}
    embedder = StaticEmbedder(tokenizer, True)
    assert embedder(params, []).shape == (0, 3)
    np.testing.assert_allclose(embedder(params, ["", "one two"]), [[0, 0, 0], [3**-0.5] * 3], atol=1e-6)


def test_vectors_of_another_model_or_length_are_refused_by_name(teacher, static, tmp_path, capsys):
    model, corpus = teacher / "model", teacher / "corpus.txt"
    common = ("distill", "--model", model, "--corpus", corpus, "--width", 8, "--epochs", 1, "--output", tmp_path / "out")
    for name, of, more, expected in (
        ("cut", model, ("--max-seq-length", 5), "was made with max_seq_length=5, not with max_seq_length="),
        ("other", f"{model}@cls", (), f"was made from model {teacher.name}@cls (SHA-256"),
    ):
        assert run("encode", "--model", of, "--input", corpus, "--output", tmp_path / name, *more) == 0
        assert run(*common, "--vectors", tmp_path / name) == 3
        assert expected in capsys.readouterr().err
