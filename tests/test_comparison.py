"""The runs of `jax-sentemb compare`: budgets, starts, and the set that chooses the steps."""

import pytest

from jax_sentemb.errors import ConfigError
from jax_sentemb.training.comparison import Budget, base_config, comparison
from jax_sentemb.training.sweep import variants


@pytest.fixture
def folder(tmp_path):
    """A SentEval folder with SICK and STS-B dev."""
    benchmark, sick = (tmp_path / "data/downstream" / name for name in ("STS/STSBenchmark", "SICK"))
    for path in (benchmark, sick):
        path.mkdir(parents=True)
    rows = ["g\tf\t2017\t1\t1.0\ta b\tc d", "g\tf\t2017\t2\t2.0\ta c\tb d"]
    (benchmark / "sts-dev.csv").write_text("".join(f"{row}\n" for row in rows))
    header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"
    (sick / "SICK_test_annotated.txt").write_text(f"{header}\n1\tx\ty\t1.0\tNEUTRAL\n2\tx\tz\t2.0\tNEUTRAL\n")
    return tmp_path


def test_the_common_budget_is_the_same_for_all_and_the_published_one_is_that_of_the_recipe(folder):
    base = base_config(str(folder / "corpus.txt"), "text", "", folder / "data")
    made = comparison(["simcse", "micse", "is_bert"], 3, base, Budget(100, 16, 20, "mean"), [("optimizer.weight_decay", "0.1")])
    runs = {(chosen["variant"], chosen["train.seed"]): config for chosen, config in variants(made.study)}
    assert len(runs) == 3 * 2 * 3
    common = [runs[f"{name}:common", "2"] for name in ("simcse", "micse", "is_bert")]
    for config in common:
        assert (config.train.max_steps, config.data.batch_size, config.data.max_seq_length) == (100, 16, 20)
        assert (config.method.pooling, config.optimizer.warmup_steps, config.optimizer.warmup_ratio) == ("mean", 0, 0.1)
        assert (config.eval.eval_steps, config.eval.dev) == (10, "STSBenchmark-dev-disjoint")
    assert [config.optimizer.learning_rate for config in common] == [3e-5, 3e-5, 2e-6]
    published = runs["micse:published", "1"]
    assert (published.data.batch_size, published.optimizer.warmup_steps, published.eval.eval_steps) == (50, 250, 500)
    assert (runs["is_bert:published", "1"].data.max_seq_length, runs["is_bert:published", "1"].data.column) == (130, "text")
    assert {config.optimizer.weight_decay for config in runs.values()} == {0.1}
    assert {config.train.seed for config in runs.values()} == {1, 2, 3}
    starts = [config for _, config in variants(made.starts)]
    assert [config.method.pooling for config in starts[:3]] == ["cls", "mean", "first_last"]
    assert {config.train.max_steps for config in starts} == {0}
    assert len(starts) == 3 * 3


def test_the_start_from_a_bert_is_scored_once(folder):
    base = base_config(str(folder / "corpus.txt"), "text", "some/bert", folder / "data")
    made = comparison(["simcse"], 5, base, Budget(100, 16, 20, "mean"))
    assert len(variants(made.starts)) == 3
    assert {config.encoder.weights for _, config in variants(made.study)} == {"some/bert"}


def test_without_a_development_set_the_last_step_is_scored(folder):
    (folder / "data/downstream/STS/STSBenchmark/sts-dev.csv").unlink()
    made = comparison(["simcse"], 1, base_config("corpus.txt", "text", "", folder / "data"), Budget(9, 8, 20, "mean"))
    assert not made.selects
    assert {config.eval.select for _, config in variants(made.study)} == {"last"}


def test_a_recipe_cannot_have_the_name_of_the_start(folder):
    (folder / "start.yaml").write_text("recipe: simcse\n", encoding="utf-8")
    base = base_config(str(folder / "corpus.txt"), "text", "", folder / "data")
    with pytest.raises(ConfigError, match="--recipes start has the name of the untrained encoder; rename the file"):
        comparison([str(folder / "start.yaml")], 1, base, Budget(100, 16, 20, "mean"))


def test_a_recipe_with_settings_that_all_runs_share_is_refused(folder):
    """Its evaluation would be left out without a word."""
    base = base_config("corpus.txt", "text", "", folder / "data")
    for name, value in (("eval.max_seq_length", 20), ("eval.teacher", "mini"), ("encoder.dropout", 0.2), ("data.join", "'; '")):
        (folder / "mine.yaml").write_text(f"recipe: simcse\n{name}: {value}\n")
        with pytest.raises(ConfigError, match=f"mine changes {name}, which all runs share; remove it"):
            comparison([str(folder / "mine.yaml")], 1, base, Budget(100, 16, 20, "mean"))
    (folder / "mine.yaml").write_text("recipe: simcse\neval.eval_steps: 20\n")
    comparison([str(folder / "mine.yaml")], 1, base, Budget(100, 16, 20, "mean"))
