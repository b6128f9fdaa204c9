"""Scores of a run: which sets there are, scoring while it trains and at the end, and the table that people read."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from jax_sentemb.config import Evaluation
from jax_sentemb.errors import NumericsError
from jax_sentemb.evaluation.baselines import bag_of_words_similarity, tf_idf_similarity
from jax_sentemb.evaluation.diagnostics import diagnose
from jax_sentemb.evaluation.embed import Embedder
from jax_sentemb.evaluation.sts import Pairs, StsTask, load_pairs, load_sts, score_tasks
from jax_sentemb.log import Log
from jax_sentemb.text import grammar
from jax_sentemb.types import Params

GRAMMAR_PAIRS = 1000


def evaluation_tasks(options: Evaluation) -> tuple[dict[str, StsTask], list[str], str]:
    """The sets to score, the names of absent ones, and which one selects the best checkpoint ("" for none)."""
    tasks: dict[str, StsTask] = {}
    absent: list[str] = []
    dev = ""
    if options.data == "grammar":
        for dev_or_test, seed in (("dev", 1), ("test", 2)):
            pairs = Pairs(*grammar.graded_pairs(GRAMMAR_PAIRS, seed))
            tasks[f"grammar-{dev_or_test}"] = StsTask(f"grammar-{dev_or_test}", {dev_or_test: pairs})
        dev = "grammar-dev"
    elif options.data:
        tasks, absent = load_sts(options.data)
        dev = "STSBenchmark-dev" if "STSBenchmark-dev" in tasks else ""
    if options.dev:
        tasks["dev"] = StsTask("dev", {"dev": load_pairs(options.dev)})
        dev = "dev"
    return tasks, absent, dev


class Scorer:
    """Scores parameters: on the development set and without labels while training, on every set at the end."""

    def __init__(
        self, embedder: Embedder, tasks: dict[str, StsTask], dev: str, sample: Sequence[str], log: Log, strict: bool
    ) -> None:
        self.embedder, self.tasks, self.dev_task = embedder, tasks, dev
        self.sample, self.log, self.strict = sample, log, strict

    def dev(self, step: int, params: Params) -> float | None:
        """Spearman x 100 on the development set (None without one); logs it with the label-free diagnostics."""
        values: dict[str, Any] = {}
        found = diagnose(self.embedder(params, self.sample))
        values |= {f"diagnostics/{name}": float(value) for name, value in found.items()}
        score = None
        if self.dev_task:
            task = self.tasks[self.dev_task]
            try:
                result = score_tasks(lambda sentences: self.embedder(params, sentences), {task.name: task})[task.name]
                score = result["spearman"]["all"]
                values[f"eval/{task.name}/spearman_cosine"] = score
                values[f"eval/{task.name}/pearson_cosine"] = result["pearson"]["all"]
            except NumericsError as error:
                found["collapsed"] = True
                self.log.say(f"warning: step {step}: {error}")
        self.log.event(step, values)
        shown = f"{self.dev_task} {score:.2f}, " if score is not None else ""
        self.log.say(f"step {step}: {shown}uniformity {found['uniformity']:.2f}, spread {found['spread']:.3f}")
        if found["collapsed"] and step:  # a new encoder starts with all vectors alike
            problem = (
                f"step {step}: the embeddings collapse (spread {found['spread']:.3f}, "
                f"effective rank {found['effective_rank']:.1f}): raise encoder.dropout or lower optimizer.learning_rate"
            )
            if self.strict:
                raise NumericsError(problem)
            self.log.say(f"warning: {problem}")
        return score

    def all_tasks(self, params: Params) -> dict[str, dict]:
        """Results of every evaluation set found."""
        return score_tasks(lambda sentences: self.embedder(params, sentences), self.tasks)

    def all_spearman(self, params: Params) -> dict[str, float]:
        """Spearman x 100 over all pairs of every set."""
        return {name: result["spearman"]["all"] for name, result in self.all_tasks(params).items()}


def word_overlap_scores(tasks: dict[str, StsTask], corpus: Sequence[str]) -> dict[str, dict[str, float]]:
    """{"bag of words", "tf-idf"} -> Spearman x 100 with gold over all pairs of each set; document frequencies from `corpus`."""
    scores: dict[str, dict[str, float]] = {"bag of words": {}, "tf-idf": {}}
    for name, task in tasks.items():
        pairs = list(task.subsets.values())
        first, second = ([sentence for part in pairs for sentence in part[side]] for side in (0, 1))
        gold = np.concatenate([part.gold for part in pairs])
        for label, values in (
            ("bag of words", bag_of_words_similarity(first, second)),
            ("tf-idf", tf_idf_similarity(first, second, corpus)),
        ):
            scores[label][name] = float(100 * spearmanr(values, gold).statistic)
    return scores


def score_table(scores: dict[str, dict], absent: list[str], baselines: dict[str, dict[str, float]]) -> str:
    """The final scores as text: Spearman and Pearson x 100 over all pairs, mean and weighted mean over subsets."""
    if not scores:
        return "no evaluation set: give --config.eval.data=SENTEVAL_FOLDER or --config.eval.dev=PAIRS.tsv for scores"
    lines = [
        f"{'':<22}{'':>7}{'Spearman x 100':^26}{'Pearson x 100':^26}",
        f"{'set':<22}{'pairs':>7}" + f"{'all':>10}{'mean':>8}{'wmean':>8}" * 2,
    ]
    for name, result in scores.items():
        numbers = [result[kind][which] for kind in ("spearman", "pearson") for which in ("all", "mean", "wmean")]
        cells = "".join(f"{x:>{width}.2f}" for x, width in zip(numbers, (10, 8, 8) * 2, strict=True))
        lines.append(f"{name:<22}{result['n']:>7}{cells}")
        lines += [f"  {label:<27}{values[name]:>10.2f}" for label, values in baselines.items() if name in values]
    if absent:
        lines.append(f"absent, not scored: {', '.join(absent)}")
    return "\n".join(lines)
