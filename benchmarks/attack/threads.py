"""Attack with threads that share what a web server shares: encoders, tokenizers, settings, files."""

from commands import case, corpus, fresh, model, run, static_table

# Each program has `lines`, a `folder` with a model, and THREADS that switch every microsecond. It fails with an exception.
PROLOGUE = """
import asyncio, logging, sys, threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import numpy as np
import jax_sentemb
from jax_sentemb import SentenceEncoder
folder, text = sys.argv[1:3]
lines = Path(text).read_text(encoding="utf-8").splitlines()
THREADS = 8
parts = [lines[start::THREADS] for start in range(THREADS)]
sys.setswitchinterval(1e-6)

def in_threads(call, arguments):
    begin = threading.Barrier(len(arguments))
    def one(argument):
        begin.wait()
        return call(argument)
    with ThreadPoolExecutor(len(arguments)) as pool:
        return list(pool.map(one, arguments))

def check(found, expected):
    for number, vectors in enumerate(found):
        np.testing.assert_allclose(vectors, expected[number::THREADS], atol=1e-5)
"""

PROGRAMS = {
    "vectors of an encoder with an empty cache of words": """
expected = SentenceEncoder(folder).encode(lines)
for _ in range(6):
    check(in_threads(SentenceEncoder(folder).encode, parts), expected)
""",
    "queries and documents at once": """
encoder = SentenceEncoder(folder)
calls = [encoder.encode, encoder.encode_query, encoder.encode_document, lambda part: encoder({"text": part})["embedding"]]
expected = SentenceEncoder(folder).encode(lines)
check(in_threads(lambda number: calls[number % 4](parts[number]), range(THREADS)), expected)
""",
    "cut sentences, as counted and as logged": """
encoder, messages = SentenceEncoder(folder, max_seq_length=10), []
class Keep(logging.Handler):
    def emit(self, record):
        messages.append(record.getMessage())
logging.getLogger("jax_sentemb").addHandler(Keep())
def cut(count):
    for _ in range(10):
        encoder.encode(["a man " * 20 + str(number) for number in range(count)] + ["a man"])
        assert encoder.truncated == count, (encoder.truncated, count)
in_threads(cut, range(THREADS))
for count in range(1, THREADS):
    assert sum(line.startswith(f"{count} of {count + 1} ") for line in messages) == 10, messages
""",
    "max_seq_length and prompts that change meanwhile": """
from jax_sentemb.inference import embedder
embedder.FIRST_WINDOW = embedder.WINDOW = 8
encoder, long, known = SentenceEncoder(folder), ["a man " * number for number in range(3, 40)], []
for length in (6, 24):
    for prompt in ("", "the cook "):
        encoder.max_seq_length, encoder.prompts = length, {"query": prompt}
        known.append(encoder.encode_query(long))
ended = threading.Event()
def change():
    while not ended.is_set():
        for length in (6, 24):
            encoder.max_seq_length = length
            encoder.prompts = {"query": "the cook " * (length % 5 == 1)}
            encoder.prompts = {}
thread = threading.Thread(target=change)
thread.start()
try:
    for _ in range(30):
        vectors = encoder.encode_query(long)
        assert any(np.allclose(vectors, each, atol=1e-5) for each in known), "a mixture of settings"
finally:
    ended.set()
    thread.join()
""",
    "long texts in chunks, with every mode at once": """
encoder, modes = SentenceEncoder(folder, max_seq_length=12), ("mean", "max", "each", None)
long = [". ".join(lines[first : first + 12]) for first in range(0, 240, 12)]
expected = [SentenceEncoder(folder, max_seq_length=12).encode(long, chunks=mode) for mode in modes]
def encoded(number):
    vectors = encoder.encode(long, chunks=modes[number % 4])
    assert (encoder.truncated > 0) == (modes[number % 4] is None), encoder.truncated
    return vectors
for number, result in enumerate(in_threads(encoded, range(24))):
    for side, other in zip(result, expected[number % 4], strict=True):
        np.testing.assert_allclose(side, other, atol=1e-5)
""",
    "searches, pairs, clusters and groups": """
from jax_sentemb import community_detection, kmeans, mine_pairs, search
vectors = SentenceEncoder(folder).encode(lines)
calls = [lambda: search(vectors[:2], vectors), lambda: search(vectors[:40], vectors), lambda: mine_pairs(vectors),
         lambda: kmeans(vectors, 5), lambda: community_detection(vectors, 0.9, 2)]
expected = [call() for call in calls]
for number, result in enumerate(in_threads(lambda number: calls[number % 5](), range(20))):
    for side, other in zip(result, expected[number % 5], strict=True):
        np.testing.assert_array_equal(side, other)
""",
    "the async methods of LangChain": """
from langchain_core.embeddings import Embeddings
class Jax(Embeddings):
    def __init__(self):
        self.encoder = SentenceEncoder(folder)
    def embed_documents(self, texts):
        return self.encoder.encode_document(texts).tolist()
    def embed_query(self, text):
        return self.encoder.encode_query(text).tolist()
shared, expected = Jax(), SentenceEncoder(folder).encode(lines)
async def serve():
    return await asyncio.gather(*map(shared.aembed_documents, parts), *map(shared.aembed_query, lines[:30]))
found = asyncio.run(serve())
check(found[:THREADS], expected)
np.testing.assert_allclose(found[THREADS:], expected[:30], atol=1e-5)
""",
    "two trainings and an encoder at work": """
encoder, expected = SentenceEncoder(folder), SentenceEncoder(folder).encode(lines)
def work(number):
    if number > 1:
        return [encoder.encode(lines) for _ in range(5)][-1]
    options = {"recipe": "simcse:tiny", "max_steps": 3, "eval__data": "", "report_sentences": 0, "seed": 1}
    return jax_sentemb.train(lines, **options).encode(lines)
found = in_threads(work, range(4))
np.testing.assert_allclose(found[0], found[1], atol=1e-5)
np.testing.assert_allclose(found[2:], [expected, expected], atol=1e-5)
""",
}
for title, program in PROGRAMS.items():

    @case(15, title)
    def in_threads(program=program):
        code, _, err = run(PROLOGUE + program, str(model()), str(corpus()), python=("-c",))
        assert code == 0, err.strip().splitlines()[-1]


@case(15, "vectors of a static table with an empty cache of words")
def static():
    program = PROLOGUE + PROGRAMS["vectors of an encoder with an empty cache of words"]
    code, _, err = run(program, str(static_table()), str(corpus()), python=("-c",))
    assert code == 0, err.strip().splitlines()[-1]


@case(15, "vectors of a model on word vectors")
def word_model():
    folder = fresh("words")
    (folder / "v.txt").write_text(
        "".join(f"{word} {n} 1 {n % 3}\n" for n, word in enumerate(["a", "man", "cook", "farmer", "gravy"]))
    )
    train = ["train", "--config=word_average", f"--config.data.files={corpus()}", "--config.eval.data="]
    train += [
        "--config.train.max_steps=1",
        "--config.data.batch_size=4",
        f"--config.encoder.vectors={folder / 'v.txt'}",
        f"--workdir={folder / 'run'}",
    ]
    code, _, err = run(*train)
    assert code == 0, err[-200:]
    program = PROLOGUE + PROGRAMS["vectors of an encoder with an empty cache of words"]
    code, _, err = run(program, str(folder / "run" / "export"), str(corpus()), python=("-c",))
    assert code == 0, err.strip().splitlines()[-1]
