"""What a web server shares between its threads gives each thread the results of its own calls."""

import asyncio
import functools
import logging
import mmap
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from test_word_model import MODELS, made
from tiny_models import tiny_model

from jax_sentemb import SentenceEncoder, community_detection, kmeans, mine_pairs, search, senteval_batcher
from jax_sentemb.data import cache
from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.formats.encode_settings import EncodeSettings
from jax_sentemb.formats.sentence_transformers import write_export
from jax_sentemb.inference import embedder as embedder_module
from jax_sentemb.inference.load import LoadedModel, load
from jax_sentemb.inference.static import StaticEmbedder

THREADS = 8
RANDOM = np.random.default_rng(0)
WORDS = ["".join(RANDOM.choice(list("abcdefgh"), RANDOM.integers(1, 5))) for _ in range(900)]
SENTENCES = [" ".join(RANDOM.choice(WORDS, RANDOM.integers(1, 12))) for _ in range(THREADS * 40)]
PARTS = [SENTENCES[start::THREADS] for start in range(THREADS)]


@pytest.fixture(autouse=True)
def frequent_switches():
    """Threads take turns after each few bytecodes, so that what they share without a lock goes wrong soon."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def in_threads(call, arguments):
    """The results of `call` for each argument, one thread for each, which begin together."""
    begin = threading.Barrier(len(arguments))

    def run(argument):
        begin.wait()
        return call(argument)

    with ThreadPoolExecutor(len(arguments)) as pool:
        return list(pool.map(run, arguments))


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """A function that loads a BERT with a new, empty cache of words."""
    folder = tmp_path_factory.mktemp("bert")
    write_export(folder, tiny_model(SENTENCES, 120))
    return functools.partial(SentenceEncoder, folder)


@pytest.fixture(scope="module")
def static():
    """A function that makes a static table with a new, empty cache of words."""
    tokenizer = Tokenizer.train(SENTENCES, 120)
    table = RANDOM.normal(size=(tokenizer.vocab_size, 8)).astype(np.float32)
    facts = {"encoder": {"model_type": "static", "num_hidden_layers": 0}, "pooling": "mean"}
    return lambda: SentenceEncoder(LoadedModel(StaticEmbedder(tokenizer.copy(), True), {"table": table}, facts))


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """A function that loads a model on word vectors."""
    folder, _ = made(MODELS["WordAverage"], tmp_path_factory.mktemp("words"))
    return functools.partial(SentenceEncoder, folder)


@pytest.fixture(params=["bert", "static", "words"])
def make(request):
    return request.getfixturevalue(request.param)


def test_a_shared_encoder_gives_the_vectors_of_one_thread(make):
    expected = make().encode(SENTENCES)
    for _ in range(5):
        found = in_threads(make().encode, PARTS)
        for number, vectors in enumerate(found):
            np.testing.assert_allclose(vectors, expected[number::THREADS], atol=1e-6)


def test_token_embeddings_of_a_shared_encoder(bert):
    encode = functools.partial(bert().encode, output_value="token_embeddings")
    expected = bert().encode(SENTENCES, output_value="token_embeddings")
    for number, rows in enumerate(in_threads(encode, PARTS)):
        for row, other in zip(rows, expected[number::THREADS], strict=True):
            np.testing.assert_allclose(row, other, atol=1e-6)


@pytest.mark.parametrize("options", [{}, {"output_value": "token_embeddings"}])
def test_each_thread_knows_and_logs_what_its_own_call_cut(bert, caplog, options):
    encoder = bert(max_seq_length=30)

    def cut(count):
        for _ in range(10):
            encoder.encode([f"{'a ' * 40}{number}" for number in range(count)] + ["short"] * (count < 3), **options)
            assert encoder.truncated == count
        return encoder.truncated

    with caplog.at_level(logging.WARNING, "jax_sentemb"):
        assert in_threads(cut, range(THREADS)) == list(range(THREADS))
    said = sorted(record.getMessage() for record in caplog.records)
    assert len(said) == 10 * (THREADS - 1)
    for count in range(1, THREADS):
        assert sum(line.startswith(f"{count} of {count + (count < 3)} distinct sentences") for line in said) == 10
    assert encoder.truncated == 0  # this thread has not called it


def test_a_changed_length_holds_from_the_next_call_on(bert, monkeypatch):
    monkeypatch.setattr(embedder_module, "FIRST_WINDOW", 4)
    monkeypatch.setattr(embedder_module, "WINDOW", 4)
    long = [f"{'a b ' * number}c" for number in range(5, 25)]
    encoder, known = bert(), {}
    for length in (8, 40):
        encoder.max_seq_length = length
        known[length] = encoder.encode(long)
    ended = threading.Event()

    def change():
        while not ended.is_set():
            for length in known:
                encoder.max_seq_length = length

    with ThreadPoolExecutor(1) as other:
        waiting = other.submit(change)
        try:
            for _ in range(20):
                vectors = encoder.encode(long)
                assert any(np.allclose(vectors, each, atol=1e-6) for each in known.values())
        finally:
            ended.set()
        waiting.result()


def test_changed_prompts_hold_from_the_next_call_on(bert):
    model = load(bert.args[0])._replace(settings=EncodeSettings({"query": "a b "}))
    encoder = SentenceEncoder(model)
    old = encoder.encode(PARTS[0], prompt_name="query")
    new = encoder.encode(PARTS[0], prompt="c d ")
    ended = threading.Event()

    def change():
        while not ended.is_set():
            encoder.prompts = {"query": "c d "}
            encoder.prompts = {}
            encoder.prompts = {"query": "a b "}

    with ThreadPoolExecutor(1) as other:
        waiting = other.submit(change)
        try:
            bare = encoder.encode(PARTS[0])
            for _ in range(20):
                vectors = encoder.encode_query(PARTS[0])
                assert any(np.allclose(vectors, each, atol=1e-6) for each in (old, new, bare))
        finally:
            ended.set()
        waiting.result()


def test_encoders_of_one_model_have_lengths_of_their_own(static):
    first = static()
    second = SentenceEncoder(first._model, max_seq_length=5)
    assert first.max_seq_length != second.max_seq_length == 5


def test_searches_and_clusters_in_threads():
    vectors = RANDOM.normal(size=(300, 8)).astype(np.float32)
    calls = [
        lambda: search(vectors[:3], vectors, 5),
        lambda: search(vectors[:20], vectors, 5),
        lambda: mine_pairs(vectors, 20),
        lambda: kmeans(vectors, 7),
        lambda: community_detection(vectors, 0.6, 2),
    ]
    expected = [call() for call in calls]
    for call, result in enumerate(in_threads(lambda number: calls[number % 5](), range(15))):
        for side, other in zip(result, expected[call % 5], strict=True):
            np.testing.assert_array_equal(side, other)


def test_the_batcher_of_senteval_in_threads():
    prepare, batcher = senteval_batcher(lambda sentences: np.array([[len(s), ord(s[0])] for s in sentences], np.float32))

    def tasks(number):
        for _ in range(30):
            batch = [sentence.split() for sentence in PARTS[number][:10]]
            prepare(None, batch)
            expected = [[len(sentence), ord(sentence[0])] for sentence in PARTS[number][:10]]
            np.testing.assert_array_equal(batcher(None, batch), expected)

    in_threads(tasks, range(THREADS))


def test_files_are_mapped_and_checked_in_threads(tmp_path):
    (tmp_path / "numbers").write_bytes(bytes(mmap.PAGESIZE))

    def use(number):
        for _ in range(20):
            kept = [cache.map_array(tmp_path / "numbers", np.int64) for _ in range(40)]
            cache.check_maps()
        return len(kept)

    in_threads(use, range(THREADS))


def test_the_async_methods_of_langchain(bert):
    embeddings = pytest.importorskip("langchain_core.embeddings")

    class JaxEmbeddings(embeddings.Embeddings):  # as in docs/integrations.md
        def __init__(self, encoder):
            self.encoder = encoder

        def embed_documents(self, texts):
            return self.encoder.encode_document(texts, normalize_embeddings=True).tolist()

        def embed_query(self, text):
            return self.encoder.encode_query(text, normalize_embeddings=True).tolist()

    expected = bert().encode(SENTENCES, normalize_embeddings=True)
    shared = JaxEmbeddings(bert())

    async def serve():
        documents = [shared.aembed_documents(part) for part in PARTS]
        queries = [shared.aembed_query(sentence) for sentence in SENTENCES[:20]]
        return await asyncio.gather(*documents, *queries)

    found = asyncio.run(serve())
    for number, vectors in enumerate(found[:THREADS]):
        np.testing.assert_allclose(vectors, expected[number::THREADS], atol=1e-6)
    np.testing.assert_allclose(found[THREADS:], expected[:20], atol=1e-6)
