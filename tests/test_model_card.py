"""The model card: front matter that YAML readers take, and no claim that nobody made."""

import json

from jax_sentemb.formats.model_card import Card, render

SCORE = {
    "n": 3108,
    "spearman": {"all": 72.3666, "mean": 69.99, "wmean": 71.05},
    "pearson": {"all": 81.3, "mean": 1, "wmean": 2},
}


def test_an_empty_card_claims_nothing():
    text = render(Card(), pooling="cls", normalize=False, max_seq_length=32, width=8)
    front = text.split("---")[1]
    assert "license" not in front
    assert "base_model" not in front
    assert "model-index" not in front
    assert "No scores were measured" in text
    assert "## Training" not in text
    assert "8-dimensional vectors" in text
    assert "pooling mode `cls`" in text
    assert "after 32 tokens" in text


def test_scores_facts_and_absent_sets_are_told():
    card = Card(
        name='mice: "small"',
        method="miCSE",
        base_model="bert-mini",
        license="mit",
        training={"sentences": 10_000, "corpus": "a|b\nc"},
        scores={"STS12": SCORE},
        missing_tasks=["STS13", "STS16"],
    )
    text = render(card, pooling="mean", normalize=True, max_seq_length=64, width=8)
    front = dict(line.split(": ", 1) for line in text.split("---")[1].strip().splitlines())
    assert json.loads(front["base_model"]) == "bert-mini"
    assert json.loads(front["license"]) == "mit"
    (model,) = json.loads(front["model-index"])
    assert model["name"] == 'mice: "small"'
    assert model["results"][0]["metrics"][0] == {
        "type": "spearman_cosine", "name": "Spearman Cosine", "value": 0.723666,
    }  # fmt: skip
    assert "| STS12 | 3,108 | 72.37 | 69.99 | 71.05 | 81.30 | 1.00 | 2.00 |" in text
    assert "| sentences | 10,000 |\n| corpus | a\\|b c |" in text
    assert "STS13, STS16" in text
    assert "Trained with miCSE" in text
    assert "unit-length" in text
