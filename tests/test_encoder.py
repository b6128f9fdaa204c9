"""SentenceEncoder: the interface of sentence-transformers, its vectors, and what is refused."""

import copy
import json
import logging
import shutil
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from jax_sentemb import SentenceEncoder
from jax_sentemb.cli.program import program
from jax_sentemb.errors import ConfigError, DataError, ModelFileError, NumericsError
from jax_sentemb.formats.huggingface import read_parts
from jax_sentemb.inference.build import build_embedder
from jax_sentemb.inference.embedder import BUCKETS
from jax_sentemb.inference.load import load
from jax_sentemb.inference.verify import PROBES
from jax_sentemb.main import main
from jax_sentemb.models.architectures import make_encoder, transformer_config
from jax_sentemb.retrieval.quantize import PRECISIONS, quantize, ranges_of, restore
from jax_sentemb.types import Rows

ROOT = Path(__file__).parents[1]
SENTENCES = ["A man plays.", "", "Two dogs run through the tall grass.", "A man plays.", "word " * 100]


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    config = f"--config={ROOT}/configs/simcse.py:tiny"
    assert program(main, ["main", config, "--config.train.max_steps=1", f"--workdir={folder}"]) == 0
    return folder


@pytest.fixture(scope="module")
def encoder(workdir):
    return SentenceEncoder.load(workdir / "export")


def test_importing_the_package_is_quick_and_imports_no_jax():
    code = "import sys, jax_sentemb; print([name for name in ('jax', 'numpy', 'flax') if name in sys.modules])"
    begin = time.monotonic()
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
    assert time.monotonic() - begin < 5  # under 0.1 s on an idle machine


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_vectors_and_arguments_are_those_of_sentence_transformers(encoder, workdir):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    theirs = sentence_transformers.SentenceTransformer(str(workdir / "export"), device="cpu")
    sentences = [sentence for sentence in PROBES if "[" not in sentence]  # "[SEP]" stays text with us
    for options in ({}, {"normalize_embeddings": True}, {"truncate_dim": 7}, {"truncate_dim": 7, "normalize_embeddings": True}):
        expected = theirs.encode(sentences, **options)
        np.testing.assert_allclose(encoder.encode(sentences, batch_size=16, **options), expected, atol=1e-5)
    assert encoder.get_sentence_embedding_dimension() == theirs.encode("a").shape[0]
    assert encoder.max_seq_length == theirs.max_seq_length
    pair = encoder.encode(sentences[:5])
    np.testing.assert_allclose(encoder.similarity(pair, pair[:2]), np.asarray(theirs.similarity(pair, pair[:2])), atol=1e-6)


def test_a_str_gives_one_vector_and_no_sentence_none(encoder):
    width = encoder.get_sentence_embedding_dimension()
    assert encoder.encode("a").shape == (width,)
    np.testing.assert_allclose(encoder.encode("a"), encoder.encode(["a"])[0], atol=1e-6)
    assert encoder.encode([]).shape == (0, width)
    assert np.isfinite(encoder.encode("")).all()
    assert isinstance(encoder.encode(["a"], convert_to_numpy=False), jax.Array)


def test_lists_tuples_generators_and_numpy_arrays_are_the_same(encoder):
    expected = encoder.encode(SENTENCES)
    for sentences in (tuple(SENTENCES), (s for s in SENTENCES), np.array(SENTENCES), np.array(SENTENCES, object)):
        np.testing.assert_array_equal(encoder.encode(sentences), expected)
    np.testing.assert_allclose(expected, [encoder.encode(sentence) for sentence in SENTENCES], atol=1e-6)
    np.testing.assert_allclose(expected, encoder.encode(SENTENCES, batch_size=2), atol=1e-6)


@pytest.mark.parametrize(
    ("sentences", "named"),
    [
        (["a", None], "sentence 1 is NoneType"),
        (["a", "b", b"c"], "sentence 2 is bytes"),
        ([["a", "b"]], "sentence 0 is list"),
        (["a", float("nan")], "sentence 1 is float"),
        (b"a", "sentences is bytes"),
        (None, "sentences is NoneType"),
        (3, "sentences is int"),
        ({"a": "b"}, "sentences is dict"),
        ({"a", "b"}, "sentences is set"),
    ],
)
def test_what_is_no_text_is_refused_with_its_place(encoder, sentences, named):
    with pytest.raises(TypeError, match=named):
        encoder.encode(sentences)


def test_half_a_surrogate_pair_is_refused_with_its_place(encoder):
    with pytest.raises(ValueError, match="sentence 2"):
        encoder.encode(["a", "a", "\ud800"])


@pytest.mark.parametrize("options", [{"precision": "int4"}, {"truncate_dim": 0}, {"truncate_dim": 10**4}, {"batch_size": 0}])
def test_arguments_that_cannot_be(encoder, options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        encoder.encode(["a"], **options)


def test_truncation_is_counted_and_said_once(encoder, caplog):
    with caplog.at_level(logging.WARNING, "jax_sentemb"):
        encoder.encode([*SENTENCES, SENTENCES[-1]])
    assert encoder.truncated == 1
    assert [record.message for record in caplog.records] == [
        f"1 of 4 distinct sentences is longer than max_seq_length={encoder.max_seq_length} tokens and was cut"
    ]
    caplog.clear()
    encoder.encode(["short"])
    assert not caplog.records
    assert encoder.truncated == 0


def test_a_shorter_limit_cuts_there(workdir, encoder):
    short = SentenceEncoder.load(workdir / "export", max_seq_length=3)  # room for one piece
    vectors = short.encode(["a b", "a c d", "b"])
    np.testing.assert_allclose(vectors, encoder.encode(["a", "a", "b"]), atol=1e-5)
    assert short.truncated == 2
    for length in (2, 10**6):
        with pytest.raises(ConfigError, match="max_seq_length"):
            short.max_seq_length = length


def test_few_shapes_are_compiled(eight_devices, every_shape, workdir):
    shapes = []
    encoder = SentenceEncoder.load(workdir / "export")
    inner = encoder._embedder.embed
    encoder._embedder._embed = jax.jit(lambda params, rows: (shapes.append(rows.tokens.shape), inner(params, rows))[1])
    for count in (1, 2, 3, 5, 9, 20, 64, 65, 100, 200):
        encoder.encode(["word " * (number % 12) for number in range(count)])
    assert len(set(shapes)) == len(shapes)
    assert {rows for rows, _ in shapes} <= {8, 64}
    assert {width for _, width in shapes} <= {*BUCKETS, encoder.max_seq_length}


def test_a_work_directory_its_export_and_another_pooling(workdir, encoder):
    run = SentenceEncoder.load(workdir)
    np.testing.assert_allclose(run.encode(SENTENCES), encoder.encode(SENTENCES), atol=1e-5)
    assert np.abs(SentenceEncoder.load(f"{workdir}@mean").encode(SENTENCES) - encoder.encode(SENTENCES)).max() > 1e-3
    assert run.fingerprint == SentenceEncoder.load(workdir).fingerprint
    assert run.fingerprint != SentenceEncoder.load(f"{workdir}@mean").fingerprint


def test_whatever_changes_the_vectors_changes_the_fingerprint(workdir, encoder, tmp_path):
    config = json.loads((workdir / "export/config.json").read_text(encoding="utf-8"))
    for name, value in (("hidden_act", "relu"), ("layer_norm_eps", 0.1)):
        folder = tmp_path / name
        shutil.copytree(workdir / "export", folder)
        (folder / "jax_sentemb.json").unlink()  # its hashes would notice
        (folder / "config.json").write_text(json.dumps({**config, name: value}), encoding="utf-8")
        assert SentenceEncoder.load(folder).fingerprint != encoder.fingerprint


def test_bfloat16_is_near_and_is_another_model(workdir, encoder):
    half = SentenceEncoder.load(workdir / "export", dtype="bfloat16")
    ours, exact = half.encode(SENTENCES), encoder.encode(SENTENCES)
    assert ours.dtype == np.float32
    assert 0 < np.abs(ours - exact).max() < 0.1
    assert np.diag(half.similarity(ours, exact)).min() > 0.99


FAMILIES = [
    {"model_type": "bert"},
    {"model_type": "mpnet"},
    {"model_type": "electra", "embedding_size": 16},
    {"model_type": "modernbert", "intermediate_size": 48},
]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family["model_type"])
def test_matrices_in_bfloat16_give_the_same_bits_as_those_that_each_batch_converts(workdir, family):
    plain = load(workdir / "export")
    sizes = {"vocab_size": plain.embedder.tokenizer.vocab_size, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    description = {**plain.metadata, "encoder": {**sizes, **family}, "max_seq_length": 32}
    blank = Rows(np.zeros((1, 3), np.int32), np.ones((1, 3), bool))
    params = {"encoder": make_encoder(transformer_config(description["encoder"])).init(jax.random.key(0), blank)["params"]}
    embedder = build_embedder(description, plain.embedder.tokenizer, dtype="bfloat16")
    half = SentenceEncoder(plain._replace(embedder=embedder, params=params, metadata=description, dtype="bfloat16"))
    np.testing.assert_array_equal(half.encode(SENTENCES), embedder(params, SENTENCES))
    matrices = [leaf.dtype for leaf in jax.tree.leaves(half._params["encoder"]["layer_1"]) if leaf.ndim == 2]
    assert len(matrices) >= 4
    assert {*matrices} == {np.dtype("bfloat16")}


def test_a_loaded_model_has_the_dtype_that_it_was_loaded_with(workdir):
    plain, half = load(workdir / "export"), load(workdir / "export", dtype="bfloat16")
    assert SentenceEncoder(half).dtype == SentenceEncoder(half, dtype="bfloat16").dtype == "bfloat16"
    with pytest.raises(ConfigError, match="dtype=bfloat16: the model was loaded with float32"):
        SentenceEncoder(plain, dtype="bfloat16")
    with pytest.raises(ConfigError, match="dtype='float16': must be one of"):
        SentenceEncoder(plain, dtype="float16")


def test_a_model_in_bfloat16_is_saved_in_float32(workdir, tmp_path):
    SentenceEncoder.load(workdir / "export", dtype="bfloat16").save(tmp_path / "saved")
    saved, exact = load(tmp_path / "saved"), load(workdir / "export")
    jax.tree.map(np.testing.assert_array_equal, saved.params, exact.params)


def test_models_that_are_not_there(tmp_path, workdir):
    for path, error, named in (
        (tmp_path / "absent", ConfigError, "no such directory"),
        ("nobody/no-such-model", ConfigError, "cannot be downloaded from the hub"),
        (tmp_path, ModelFileError, "config.json"),
        (f"{workdir}@maximum", ConfigError, "option 'maximum' is unknown"),
        (f"{workdir}@f", ConfigError, "multi-view"),
    ):
        with pytest.raises(error, match=named) as caught:
            SentenceEncoder.load(path)
        assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match="float16"):
        SentenceEncoder.load(workdir, dtype="float16")
    (tmp_path / "glove.txt").write_text("a 1 2\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="word vectors"):
        SentenceEncoder.load(tmp_path / "glove.txt")


def test_a_model_on_word_vectors(tmp_path):
    config = f"--config={ROOT}/configs/multi_view.py:tiny"
    assert program(main, ["main", config, "--config.train.max_steps=1", f"--workdir={tmp_path}"]) == 0
    run, export = SentenceEncoder.load(tmp_path), SentenceEncoder.load(tmp_path / "export")
    np.testing.assert_allclose(run.encode(SENTENCES), export.encode(SENTENCES), atol=1e-5)
    assert SentenceEncoder.load(f"{tmp_path}@f").encode("a").shape != ()
    with pytest.raises(ConfigError, match="float32"):
        SentenceEncoder.load(tmp_path, dtype="bfloat16")


def test_vectors_that_are_not_finite_are_an_error(workdir):
    encoder = SentenceEncoder.load(workdir / "export")
    encoder._params = jax.tree.map(lambda leaf: leaf * np.nan, encoder._params)
    with pytest.raises(NumericsError, match="2 of 2"):
        encoder.encode(["a", "b"])


@pytest.mark.parametrize("precision", PRECISIONS)
def test_quantised_vectors_are_those_of_sentence_transformers(encoder, precision):
    util = pytest.importorskip("sentence_transformers.util.quantization")
    vectors = np.random.default_rng(0).normal(size=(150, 20)).astype(np.float32)
    vectors[:, 3] = 0.25  # a dimension without a range

    def reference(vectors, ranges=None):
        return vectors.astype(np.float16) if precision == "float16" else util.quantize_embeddings(vectors, precision, ranges=ranges)

    for ranges in (None, np.array([[-1.0] * 20, [1.5] * 20], np.float32)):
        expected = reference(vectors, ranges)
        found = quantize(vectors, precision, ranges)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
    assert encoder.encode(SENTENCES, precision=precision).dtype == expected.dtype
    np.testing.assert_array_equal(encoder.encode(SENTENCES, precision=precision), reference(encoder.encode(SENTENCES)))


def test_restored_vectors_are_within_a_step():
    vectors = np.random.default_rng(0).normal(size=(50, 20)).astype(np.float32)
    ranges = ranges_of(vectors)
    for precision in ("int8", "uint8"):
        again = restore(quantize(vectors, precision, ranges), precision, 20, ranges)
        assert (np.abs(again - vectors) <= (ranges[1] - ranges[0]) / 255 * 1.001).all()
    for precision in ("binary", "ubinary"):
        np.testing.assert_array_equal(restore(quantize(vectors, precision), precision, 20), np.where(vectors > 0, 1, -1))
    with pytest.raises(ConfigError, match="several different embeddings"):
        ranges_of(vectors[:1])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_prompts_tokens_and_tensors_are_those_of_sentence_transformers(workdir, tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    shutil.copytree(workdir / "export", tmp_path / "model")
    settings = {"prompts": {"query": "a man: ", "passage": "b ", "other": ""}, "default_prompt_name": "passage"}
    (tmp_path / "model" / "jax_sentemb.json").unlink()
    (tmp_path / "model" / "config_sentence_transformers.json").write_text(json.dumps(settings))
    theirs = sentence_transformers.SentenceTransformer(str(tmp_path / "model"), device="cpu")
    ours = SentenceEncoder(tmp_path / "model")
    texts = ["A man plays.", "Two dogs run through the tall grass.", ""]
    for options in ({}, {"prompt": "c "}, {"prompt_name": "query"}, {"prompt_name": "other"}, {"prompt": ""}):
        np.testing.assert_allclose(ours.encode(texts, **options), theirs.encode(texts, **options), atol=1e-5)
    np.testing.assert_allclose(ours.encode_query(texts), theirs.encode_query(texts), atol=1e-5)
    np.testing.assert_allclose(ours.encode_document(texts[0]), theirs.encode_document(texts[0]), atol=1e-5)
    assert (ours.prompt_for("query"), ours.prompt_for("document")) == (settings["prompts"]["query"], settings["prompts"]["passage"])
    assert SentenceEncoder(workdir / "export").prompt_for("query") == ""
    for shaping in ({"truncate_dim": 2}, {"normalize_embeddings": True}, {"precision": "int8"}):
        with pytest.raises(ConfigError, match=f"{next(iter(shaping))} is for sentence embeddings"):
            ours.encode(texts, output_value="token_embeddings", **shaping)
    expected = theirs.encode(texts, output_value="token_embeddings")
    for mine, other in zip(ours.encode(texts, output_value="token_embeddings", batch_size=2), expected, strict=True):
        np.testing.assert_allclose(mine, other.numpy(), atol=1e-5)
    both = SentenceEncoder(SentenceEncoder(f"{tmp_path / 'model'}@first_last").save(tmp_path / "first_last"))
    expected = sentence_transformers.SentenceTransformer(str(tmp_path / "first_last"), device="cpu")
    for options in ({"output_value": "token_embeddings"}, {}):
        for mine, other in zip(both.encode(texts, **options), expected.encode(texts, **options), strict=True):
            np.testing.assert_allclose(mine, np.asarray(other), atol=1e-5)
    tensor = ours.encode(texts, convert_to_tensor=True)
    assert type(tensor).__name__ == "Tensor"
    np.testing.assert_allclose(ours.similarity_pairwise(tensor, tensor), theirs.similarity_pairwise(tensor, tensor), atol=1e-6)
    saved = SentenceEncoder(ours.save(tmp_path / "saved"))
    assert (saved.prompts, saved.default_prompt) == (settings["prompts"], "b ")
    with pytest.raises(ConfigError, match="prompt_name='absent' is unknown; the model has query, passage, other"):
        ours.encode("a", prompt_name="absent")
    with pytest.raises(ConfigError, match="both given"):
        ours.encode("a", prompt_name="query", prompt="c")


def test_the_representation_states_path_kind_and_sizes(encoder, workdir):
    assert repr(encoder) == (
        f"SentenceEncoder('{workdir / 'export'}': bert, 2 layers, cls pooling, 32 dimensions, max_seq_length=24, float32)"
    )


def test_a_work_directory_is_no_start_and_the_error_names_its_export(workdir):
    with pytest.raises(ModelFileError, match=rf"{workdir} is the work directory of a run, not its model; give {workdir}/export"):
        read_parts(workdir)


def test_a_model_is_saved_with_a_changed_length_and_its_card(encoder, workdir, tmp_path):
    shorter = SentenceEncoder(workdir, max_seq_length=9)
    shorter.save(tmp_path / "model")
    assert SentenceEncoder(tmp_path / "model").max_seq_length == 9
    assert "SimCSE" in (tmp_path / "model" / "README.md").read_text(encoding="utf-8")


def test_the_hub_gets_the_files_of_the_export(encoder, monkeypatch):
    import huggingface_hub

    uploaded = {}

    class Hub:  # stands in for huggingface.co
        def __init__(self, token):
            uploaded["token"] = token

        def create_repo(self, name, private, exist_ok):
            if "/" not in name:
                raise OSError("401 unauthorized")
            return huggingface_hub.RepoUrl(f"https://huggingface.co/{name}")

        def upload_folder(self, repo_id, folder_path, commit_message):
            uploaded[repo_id] = SentenceEncoder(folder_path).encode("a man")
            return f"https://huggingface.co/{repo_id}/commit/1"

    monkeypatch.setattr(huggingface_hub, "HfApi", Hub)
    assert encoder.push_to_hub("me/model", token="t") == "https://huggingface.co/me/model/commit/1"
    np.testing.assert_allclose(uploaded["me/model"], encoder.encode("a man"), atol=1e-5)
    assert uploaded["token"] == "t"
    with pytest.raises(ConfigError, match="401 unauthorized"):
        encoder.push_to_hub("model")


def test_evaluators_of_sentence_transformers_score_an_encoder(encoder):
    evaluation = pytest.importorskip("sentence_transformers.evaluation")
    texts = ["A man plays.", "Two dogs run.", "A cat.", "The cat sleeps.", "It rains."]
    documents = {str(number): sentence for number, sentence in enumerate(texts)}
    at = {name: [1] for name in ("accuracy_at_k", "precision_recall_at_k", "mrr_at_k", "ndcg_at_k", "map_at_k")}
    similarity = encoder.evaluate(evaluation.EmbeddingSimilarityEvaluator(texts[:3], texts[1:4], [0.1, 0.5, 0.9]))
    own = encoder.evaluate(list(zip(texts[:3], texts[1:4], [0.1, 0.5, 0.9], strict=True)))
    assert 100 * similarity["spearman_cosine"] == pytest.approx(own["spearman"])
    found = encoder.evaluate(evaluation.InformationRetrievalEvaluator({"q": texts[2]}, documents, {"q": {"2"}}, **at))
    assert found["cosine_accuracy@1"] == 1.0
    assert "cosine_accuracy" in encoder.evaluate(evaluation.TripletEvaluator(texts[:3], texts[:3], texts[2:5]))


def test_a_default_prompt_is_looked_up_by_its_name(encoder):
    encoder = copy.copy(encoder)
    given = {"query": "query: "}
    encoder.prompts, encoder.default_prompt_name = given, "query"
    encoder.prompts["query"] = "Represent this: "
    np.testing.assert_array_equal(encoder.encode("a cat"), encoder.encode("a cat", prompt="Represent this: "))
    assert (encoder.default_prompt_name, given) == ("query", {"query": "query: "})
    encoder.prompts = {}
    np.testing.assert_array_equal(encoder.encode("a cat"), encoder.encode("a cat", prompt=""))
    assert (encoder.default_prompt, encoder.default_prompt_name) == ("", None)


def test_pairs_and_evaluators_score_an_encoder(encoder, tmp_path):
    pairs = [("A man plays.", "A man plays.", 5.0), ("A man plays.", "Two dogs run.", 0.0), ("A cat.", "The cat sleeps.", 3.0)]
    found = encoder.evaluate(pairs)
    vectors = [encoder.encode([first, second]).astype(np.float64) for first, second, _ in pairs]
    cosines = [(one @ other) / np.linalg.norm(one) / np.linalg.norm(other) for one, other in vectors]
    assert found["pairs"] == 3
    assert found["pearson"] == pytest.approx(100 * np.corrcoef(cosines, [5, 0, 3])[0, 1], abs=0.05)  # cosines of 0.999 in float32
    table = "".join(f"{first}\t{second}\t{gold}\n" for first, second, gold in pairs)
    (tmp_path / "pairs.tsv").write_text(f"sentence1\tsentence2\tscore\n{table}")
    assert encoder.evaluate(tmp_path / "pairs.tsv") == pytest.approx(found)
    assert encoder.evaluate(lambda model: model is encoder) is True
    with pytest.raises(ConfigError, match="resamples is an option of pairs, retrieval or labels"):
        encoder.evaluate(pairs, resamples=9)
    with pytest.raises(DataError, match="pair 1 is not"):
        encoder.evaluate([pairs[0], ("a", "b")])


def test_a_batch_of_columns_gets_its_embeddings(encoder):
    texts = ["a dog runs", "the red fox sleeps near a river"]
    found = encoder({"text": np.array(texts, object), "line": np.arange(2)})
    assert list(found) == ["text", "line", "embedding"]
    np.testing.assert_array_equal(found["embedding"], encoder.encode(texts))
