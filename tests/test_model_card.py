"""The model card: front matter that the hub's own reader takes, and no claim that nobody made."""

from huggingface_hub import ModelCard

from jax_sentemb.formats.model_card import Card, for_readers, render, render_word_card

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
    front = ModelCard(text).data
    assert front.base_model == "bert-mini"
    assert front.license == "mit"
    assert front.model_name == 'mice: "small"'
    first = front.eval_results[0]
    assert (first.dataset_name, first.metric_type, first.metric_value) == ("STS12", "spearman_cosine", 0.723666)
    assert len(front.eval_results) == 2
    assert "| STS12 | 3,108 | 72.37 | 69.99 | 71.05 | 81.30 | 1.00 | 2.00 |" in text
    assert "| sentences | 10,000 |\n| corpus | a\\|b c |" in text
    assert "STS13, STS16" in text
    assert "Trained with miCSE" in text
    assert "unit-length" in text


def test_a_word_model_names_its_library_and_says_how_it_is_loaded():
    facts = {"name": "average", "method": "WordAverage", "training": {"seed": 1, "examples": 20}}
    stock, own = (render_word_card(facts, 7, stock) for stock in (True, False))
    assert ModelCard(stock).data.library_name == "sentence-transformers"
    assert ModelCard(own).data.library_name == "jax_sentemb"
    assert "SentenceTransformer" in stock
    assert "SentenceTransformer" not in own
    assert "* seed: 1\n* examples: 20\n" in own
    assert "step 7" in own


def test_the_card_has_no_empty_setting_and_of_the_optimiser_only_the_rate():
    training = {"corpus": "a.txt", "seed": 0, "method.head": False, "method.momentum": None, "method.temperature": 0.05}
    training |= {"optimizer.learning_rate": 3e-5, "optimizer.lr_steps": "", "optimizer.adam_beta1": 0.9, "method.rank": 0.0}
    assert list(for_readers(training)) == ["corpus", "seed", "method.temperature", "optimizer.learning_rate"]
