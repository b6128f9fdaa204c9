"""The code of docs/topics.md with the real BERTopic, KeyBERT and SetFit (extra `topics`): importing them takes half a minute."""

from pathlib import Path

import numpy as np
import pytest
from pages import ROOT, blocks
from tiny_models import tiny_model

from jax_sentemb import SentenceEncoder
from jax_sentemb.data import synthetic
from jax_sentemb.formats.sentence_transformers import write_export

pytestmark = [pytest.mark.nightly, pytest.mark.filterwarnings("default")]  # of libraries that this package does not use
SENTENCES = synthetic.sentences(120, seed=0)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run the block of the page that imports a package, in a folder with its data and model; return its names."""

    def run_block(package):
        pytest.importorskip(package)
        names = {}
        code = next(text for _, text in blocks(ROOT / "docs/topics.md", ("python",)) if f"from {package} import" in text)
        exec(code.replace("min_topic_size=20", "min_topic_size=5"), names)
        return names

    monkeypatch.chdir(tmp_path)
    for name in ("runs/packages", "runs/packages/export"):
        write_export(tmp_path / name, tiny_model(SENTENCES, 300))
    rows = [f'section {row % 3}\t{line} "\n' for row, line in enumerate(SENTENCES)]  # a quote is text
    Path("packages.tsv").write_text("section\ttext\n" + "".join(rows), encoding="utf-8")
    return run_block


def test_bertopic_groups_the_texts_by_our_vectors(run):
    names = run("bertopic")
    assert len(names["texts"]) == len(names["model"].topics_) == len(SENTENCES)
    assert names["model"].get_topic_info()["Count"].sum() == len(SENTENCES)
    assert isinstance(names["model"].embedding_model, names["Backend"])
    topics, _ = names["model"].transform(SENTENCES[:3])
    assert len(topics) == 3


def test_keybert_takes_the_words_nearest_to_the_text(run, capsys):
    names = run("keybert")
    keywords = names["KeyBERT"](names["Backend"]("runs/packages")).extract_keywords(names["text"], top_n=5)
    assert str(keywords) in capsys.readouterr().out
    encoder = SentenceEncoder("runs/packages")
    for word, score in keywords:
        assert score == pytest.approx(
            float(np.squeeze(encoder.similarity(encoder.encode(word), encoder.encode(names["text"])))), abs=1e-4
        )


def test_setfit_trains_a_classifier_on_the_export(run):
    names = run("setfit")
    assert len(names["texts"]) == 3 * 8
    assert set(names["classifier"].predict(SENTENCES[:5])) <= {"section 0", "section 1", "section 2"}
