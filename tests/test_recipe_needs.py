"""What the list of recipes says they need, against what their methods accept."""

from dataclasses import replace

from jax_sentemb import recipes
from jax_sentemb.cli.recipe_needs import needs
from jax_sentemb.data.corpus import Corpus
from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.errors import DataError
from jax_sentemb.recipes import read_config


def test_a_shuffled_list_is_refused_exactly_by_recipes_that_need_running_text_or_pairs(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_SENTEMB_CACHE", str(tmp_path / "cache"))
    shuffled = tmp_path / "a.tsv"
    shuffled.write_text("text\n" + "".join(f"noun{number} verb{number} and some more words for it\n" for number in range(1200)))
    tokenizer = Tokenizer.train(["noun verb and some more words for it"], 100)
    for name in set(recipes.names()) - {"micse_low_shot"}:  # a study of methods of other recipes
        config = read_config(name)
        corpus = Corpus(lambda pairs: (str(shuffled), "text", ""), lambda lines: tokenizer, 16)
        monkeypatch.setattr(corpus, "taught", corpus.plain)
        problem = ""
        try:
            assert len(config.method.examples(corpus, 0))
        except DataError as error:
            problem = str(error)
        is_refused = "shuffled" in problem or "has no column" in problem
        texts = needs(replace(config, pretrain=None))[:1]
        assert is_refused == any(text in "".join(texts) for text in ("running text", "pairs")), name
