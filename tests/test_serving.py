"""The service of docs/deploying.md gives many clients at once the results of `search`, and its benchmark counts requests."""

import asyncio
import json
import os
import runpy
import threading
import time
import urllib.parse
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pytest
from pages import ROOT, blocks
from tiny_models import tiny_model

from jax_sentemb import SentenceEncoder, Vectors, search
from jax_sentemb.__main__ import main
from jax_sentemb.cli.program import program
from jax_sentemb.formats.sentence_transformers import write_export

SENTENCES = [f"a {animal} {verb} in the rain" for animal in ("dog", "cat", "horse", "mouse") for verb in ("runs", "sleeps")]
ENCODE = "jax-sentemb encode --model runs/mine --input corpus.txt --output corpus-vectors"
LINES = [*SENTENCES[:2], "", *SENTENCES[2:]]  # a blank line has a row


@pytest.fixture(scope="module")
def benchmark():
    pytest.importorskip("httpx")
    return SimpleNamespace(**runpy.run_path(str(ROOT / "benchmarks/service.py")))


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    pytest.importorskip("fastapi")
    uvicorn = pytest.importorskip("uvicorn")
    folder = tmp_path_factory.mktemp("service")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("JAX_SENTEMB_CACHE", str(folder / "cache"))
        Path("corpus.txt").write_text("\n".join(LINES) + "\n", encoding="utf-8")
        write_export(folder / "runs" / "mine", tiny_model(SENTENCES, 60))
        assert program(main, ENCODE.split()) == 0
        names = {}
        exec(next(text for _, text in blocks(ROOT / "docs/deploying.md", ("python",)) if "FastAPI" in text), names)
        server = uvicorn.Server(uvicorn.Config(names["app"], port=0, log_level="warning"))
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive()
                time.sleep(0.05)
            yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/search"
        finally:
            server.should_exit = True
            thread.join(30)
        assert not thread.is_alive()


def test_clients_at_the_same_time_get_what_search_finds(address):
    encoder, vectors = SentenceEncoder("runs/mine"), Vectors("corpus-vectors")
    answers = {}

    def ask(query):
        with urllib.request.urlopen(f"{address}?{urllib.parse.urlencode({'query': query, 'top_k': 3})}", timeout=60) as answer:
            answers[query] = json.load(answer)

    threads = [threading.Thread(target=ask, args=(sentence,)) for sentence in SENTENCES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for sentence in SENTENCES:
        hits = search(encoder.encode_query(sentence), vectors, top_k=3)
        assert [answer["text"] for answer in answers[sentence]] == [LINES[row] for row in hits.indices[0]]
        assert answers[sentence][0]["text"] == sentence
        assert [answer["score"] for answer in answers[sentence]] == pytest.approx(hits.scores[0].tolist(), abs=1e-5)


def test_the_benchmark_counts_the_requests_of_all_clients(address, benchmark):
    for seconds in (0.5, 4, 32):  # enough for a busy machine
        latencies = asyncio.run(benchmark.measure(address, SENTENCES, 3, seconds, warm=0.1))
        if len(latencies) >= 6:
            break
    assert len(latencies) >= 6
    assert latencies == sorted(latencies)
    assert 0 < sum(latencies) <= 3 * seconds  # each client waits for one request at a time
    options = SimpleNamespace(url=address, seconds=seconds, warm=0.1, rounds=1, pid=os.getpid())
    rate, middle, high, used = benchmark.row(options, SENTENCES, 2)
    assert rate > 0
    assert 0 < middle <= high
    assert used > 0


def test_percentiles_are_by_nearest_rank(benchmark):
    values = list(range(1, 21))
    assert [benchmark.percentile(values, percent) for percent in (50, 95, 100)] == [10, 19, 20]
    assert benchmark.percentile([7], 95) == 7


def test_processor_time_is_that_of_all_threads(benchmark):
    assert benchmark.processor_seconds(os.getpid()) == pytest.approx(sum(os.times()[:2]), abs=0.1)
