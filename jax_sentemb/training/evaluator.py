"""Evaluate a run: load its evaluation sets, score during and after training, print the score table."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy
from jaxtyping import Float

from jax_sentemb.config import Evaluation
from jax_sentemb.data import synthetic
from jax_sentemb.data.pairs import JoinedPairs
from jax_sentemb.errors import ConfigError, NumericsError, Setting, UserError, note_text
from jax_sentemb.evaluation.catalog import DEVELOPMENT, heading, load_sts
from jax_sentemb.evaluation.diagnostics import diagnose, halves
from jax_sentemb.evaluation.pair_task import read_pairs
from jax_sentemb.evaluation.sts import (
    PROTOCOLS,
    Embed,
    EmbedAs,
    TaskSimilarities,
    correlate_tasks,
    score_of_pair,
    task_cosines,
    task_pair_scores,
)
from jax_sentemb.evaluation.sts_data import ScoredPairs, StsTask, senteval_root
from jax_sentemb.evaluation.word_baselines import TF_IDF, bag_of_words_similarity, tf_idf_similarity
from jax_sentemb.files import user_path
from jax_sentemb.formats.encode_settings import EncodeSettings
from jax_sentemb.inference.embedder import Embedder
from jax_sentemb.system.streams import print_line
from jax_sentemb.system.terminal import table
from jax_sentemb.training.dev_task import DEV, DevTask, dev_metric
from jax_sentemb.training.logger import Log
from jax_sentemb.types import EncodedSentences, Params

GRAMMAR_PAIRS = 1000


def evaluation_tasks(options: Evaluation) -> tuple[dict[str, StsTask], list[str], str]:
    """Return the evaluation sets, the names of missing sets, and the set that selects the best checkpoint ("" for none)."""
    tasks: dict[str, StsTask] = {}
    missing_tasks: list[str] = []
    dev = ""
    if options.data == "grammar":
        for dev_or_test, seed in (("dev", 1), ("test", 2)):
            pairs = ScoredPairs(*synthetic.graded_pairs(GRAMMAR_PAIRS, seed))
            tasks[f"grammar-{dev_or_test}"] = StsTask(f"grammar-{dev_or_test}", {dev_or_test: pairs})
        dev = "grammar-dev"
    elif options.data:
        tasks, missing_tasks = load_sts(options.data, required=not options.tasks)
        dev = "STSBenchmark-dev" if "STSBenchmark-dev" in tasks else ""
    if options.dev in DEVELOPMENT:
        if options.dev not in tasks:
            raise ConfigError(
                Setting("eval.dev", options.dev),
                ": ",
                Setting("eval.data"),
                " has no such set; give the SentEval folder that contains it",
            )
        dev = options.dev
    elif options.dev and not options.label_column and not user_path(options.dev).is_dir():  # the others: dev_task.py
        pairs = read_pairs("eval.dev", options.dev)
        tasks["dev"] = StsTask("dev", {"dev": ScoredPairs(pairs.first, pairs.second, pairs.labels)})
        dev = "dev"
    return tasks, missing_tasks, dev


class DownstreamTasks:
    """Score classification, regression, probing and argument tasks once, after training.

    `missing_tasks` are the tasks of a chosen group whose files are missing.
    """

    def __init__(self, names: str, folder: str, classifier: str) -> None:
        """Load the tasks `names`, which are given as for jax-sentemb evaluate.

        Raises:
            ConfigError: A task is unknown.
            DataError: A task is missing or damaged.
        """
        from jax_sentemb.evaluation import catalog, suite, transfer

        if not folder or folder == "grammar":
            raise ConfigError(
                Setting("eval.tasks", names), " needs the SentEval folder: ", Setting("eval.data", "path/to/SentEval/data")
            )
        loaded = suite.load_all(catalog.select(names, "eval.tasks"), senteval_root(folder, "eval.data"))
        if loaded.errors:
            raise loaded.errors[0]
        self.items, self.missing_tasks = loaded.items, loaded.missing_tasks
        self.protocols = suite.Protocols(PROTOCOLS["simcse"], transfer.check_protocol(classifier))

    def score(self, name: str, encode: Embed) -> dict[str, dict[str, Any]]:
        """Score the tasks and print their tables.

        Returns:
            Task -> {"protocol", "headline" (numbers of the tables), "scores" (all)}.
        """
        from jax_sentemb.evaluation import suite, tables
        from jax_sentemb.evaluation.model_spec import EvalModel

        model = EvalModel(name, lambda sentences: encode, False, (), {})
        outcomes: dict[str, Any] = {}
        for item, outcome in suite.score(model, self.items, self.protocols):
            if isinstance(outcome, UserError):
                raise outcome.at(f"{item.name}: ")
            outcomes[item.name] = outcome
        print_line(
            "\n\n".join(tables.as_text(table) for table in tables.layout({name: outcomes}, self.protocols, self.missing_tasks, []))
        )
        return {
            task: {"protocol": outcome.protocol, "headline": outcome.headline, "scores": outcome.scores}
            for task, outcome in outcomes.items()
        }


class PromptedEmbedder(NamedTuple):
    """Embed texts with the prompts of the start, which the tokenizer of `embedder` lacks, to as many numbers as its export has."""

    embedder: Embedder
    settings: EncodeSettings

    def encode(self, params: Params, texts: Sequence[Any], role: str) -> EncodedSentences:
        """Return the embeddings of texts of the role "query" or "document", or "", and how many were cut."""
        encoded = self.embedder.encode(params, self.settings.add_prompt(texts, role))
        return encoded._replace(vectors=encoded.vectors[:, : self.settings.truncate_dim])

    def whole(self, params: Params, texts: Sequence[str]) -> Float[np.ndarray, "texts width"]:
        """Return all numbers of the embeddings of documents."""
        return self._replace(settings=self.settings._replace(truncate_dim=None))(params, texts)

    def __call__(self, params: Params, texts: Sequence[str], role: str = "document") -> Float[np.ndarray, "texts width"]:
        """Return the embeddings. The sentences of a corpus are documents."""
        return self.encode(params, texts, role).vectors

    def embed_as(self, params: Params) -> EmbedAs:
        """Return the model with these parameters."""
        return lambda role, texts: self(params, texts, role)


class Scorer:
    """Score parameters: by a development set and label-free diagnostics during training, on every set at the end.

    A cross-encoder, whose embedder reads joined pairs, has no diagnostics, since they need embeddings.

    Attributes:
        similarities: The similarities of the pairs of each set from its latest scoring.
        truncated: The number of sentences that the latest scoring cut.
        vectors: The embeddings of the sample from its latest diagnostics.
    """

    def __init__(
        self,
        embed: PromptedEmbedder,
        tasks: dict[str, StsTask],
        dev: str,
        sample: Sequence[str],
        log: Log,
        strict: bool,
        dev_task: DevTask | None = None,
    ) -> None:
        """With `strict`, a collapse of the embeddings raises NumericsError. `dev_task` takes the place of the set `dev`."""
        self.embed, self.tasks, self.dev, self.dev_task = embed, tasks, DEV if dev_task else dev, dev_task
        self.sample, self.log, self.strict = sample, log, strict
        self.is_cross_encoder = isinstance(embed.embedder.tokenizer, JoinedPairs)
        self.parts = tuple(zip(*(halves(sentence) for sentence in sample), strict=True))
        self.similarities: TaskSimilarities = {}
        self.truncated = 0
        self.vectors = np.zeros((0, 0), np.float32)
        self._diagnosed: tuple[Params, dict[str, Any]] | None = None

    def diagnostics(self, params: Params) -> dict[str, Any]:
        """Return the diagnostics of the sample; {} for a cross-encoder. They are computed once for the same parameters in a row."""
        if self.is_cross_encoder:
            return {}
        if self._diagnosed is None or self._diagnosed[0] is not params:
            self.vectors, *parts = (self.embed(params, sentences) for sentences in (self.sample, *self.parts))
            self._diagnosed = params, diagnose(self.vectors, (parts[0], parts[1]))
        return dict(self._diagnosed[1])

    def measure(self, step: int, params: Params, label: str = "") -> dict[str, float]:
        """Log and return {name: value} of the diagnostics and of the scores on the development set if there is one.

        `label` names another candidate for export, whose values are logged as LABEL/NAME.
        """
        diagnostics = self.diagnostics(params)
        values = {f"diagnostics/{name}": float(value) for name, value in diagnostics.items()}
        score = None
        if self.dev:
            try:
                dev_values = self._dev_values(params)
                score = dev_values[dev_metric(self.dev, self.dev_task)]
                values |= dev_values
            except NumericsError as error:
                diagnostics["collapsed"] = bool(diagnostics)
                self.log.warn(step, f"step {step}: {error}")
        self.log.event(step, {f"{label}/{name}" if label else name: value for name, value in values.items()})
        summary = [f"{self.dev} {score:.2f}"] if score is not None else []
        formats = {"retrieval": "{:.2f} of 100"} if not summary else {}
        formats |= {"uniformity": "{:.2f}", "spread": "{:.3f}"}
        summary += [f"{name} {text.format(diagnostics[name])}" for name, text in formats.items() if name in diagnostics]
        self.log.info(f"step {step}{label and f', {label}'}: {', '.join(summary)}")
        if diagnostics.get("collapsed") and step:  # a new encoder starts with nearly equal vectors
            problem = (
                f"step {step}: the embeddings collapse (spread {diagnostics['spread']:.3f}, "
                f"effective rank {diagnostics['effective_rank']:.1f}): raise "
            )
            message = (problem, Setting("encoder.dropout"), " or lower ", Setting("optimizer.learning_rate"))
            self.log.warn(step, *message)
            if self.strict:
                raise NumericsError(*message)
        return values

    def measured_by(self, embed: EmbedAs) -> dict[str, float]:
        """Measure another model without the log: retrieval of halves, and the score on the development set."""
        embeddings = [embed("document", sentences) for sentences in (self.sample, *self.parts)]
        values = {"diagnostics/retrieval": float(diagnose(embeddings[0], (embeddings[1], embeddings[2]))["retrieval"])}
        if self.dev_task:
            values |= self.dev_task.values(embed)
        elif self.dev:
            task = {self.dev: self.tasks[self.dev]}
            results = correlate_tasks(task_cosines(functools.partial(embed, ""), task), task)
            values[dev_metric(self.dev, None)] = results[self.dev]["spearman"]["all"]
        return values

    def on_dev_task(self, params: Params) -> dict[str, float]:
        """Return the measures on queries and documents, or on labelled texts, by their names in metrics.jsonl; {} without them."""
        return self.dev_task.values(self.embed.embed_as(params)) if self.dev_task else {}

    def _dev_values(self, params: Params) -> dict[str, float]:
        """Return the scores on the development set by their names in metrics.jsonl."""
        if self.dev_task:
            return self.on_dev_task(params)
        task = self.tasks[self.dev]
        result = self._results(params, {task.name: task})[task.name]
        return {f"eval/{task.name}/{name}_cosine": result[name]["all"] for name in ("spearman", "pearson")}

    def all_tasks(self, params: Params) -> dict[str, dict]:
        """Return the results of every evaluation set."""
        return self._results(params, self.tasks)

    def _results(self, params: Params, tasks: dict[str, StsTask]) -> dict[str, dict]:
        self.truncated = 0

        def embed(texts: Sequence[Any]) -> np.ndarray:
            vectors, truncated = self.embed.encode(params, texts, "")
            self.truncated += truncated
            return vectors

        if self.is_cross_encoder:
            similarities = task_pair_scores(lambda pairs: score_of_pair(embed(pairs)), tasks)
        else:
            similarities = task_cosines(embed, tasks)
        self.similarities |= similarities
        return correlate_tasks(similarities, tasks)

    def all_spearman(self, params: Params) -> dict[str, float]:
        """Return Spearman x 100 over all pairs of every set."""
        return {name: result["spearman"]["all"] for name, result in self.all_tasks(params).items()}


def word_overlap_scores(tasks: dict[str, StsTask], corpus: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return Spearman x 100 of "bag of words" and "tf-idf" with gold for each set; document frequencies are those of `corpus`."""
    scores: dict[str, dict[str, float]] = {"bag of words": {}, TF_IDF: {}}
    for name, task in tasks.items():
        pairs = list(task.subsets.values())
        first, second = ([sentence for subset in pairs for sentence in subset[side]] for side in (0, 1))
        gold = np.concatenate([subset.gold for subset in pairs])
        for label, values in (
            ("bag of words", bag_of_words_similarity(first, second)),
            (TF_IDF, tf_idf_similarity(first, second, corpus)),
        ):
            correlation: Any = scipy.stats.spearmanr(values, gold)  # SciPy declares no attributes
            scores[label][name] = float(100 * correlation.statistic)
    return scores


def score_table(scores: dict[str, dict], missing_tasks: list[str], baselines: dict[str, dict[str, float]]) -> str:
    """Return the final scores as text: Spearman and Pearson x 100 over all pairs, and mean and weighted mean over subsets."""
    if not scores:
        sets = (Setting("eval.data", "SENTEVAL_FOLDER"), " or ", Setting("eval.dev", "PAIRS.tsv"))
        return note_text("no evaluation set: give ", *sets, " for scores")
    rows: list[list[str]] = []
    for name, result in scores.items():
        numbers = [
            result[correlation][aggregate] for correlation in ("spearman", "pearson") for aggregate in ("all", "mean", "wmean")
        ]
        rows.append([heading(name), f"{result['n']:,}", *(f"{number:.2f}" for number in numbers)])
        rows += [[f"  {label}", "", f"{values[name]:.2f}"] for label, values in baselines.items() if name in values]
    columns = [
        "set",
        "pairs",
        *(f"{correlation} {aggregate}" for correlation in ("Spearman", "Pearson") for aggregate in ("all", "mean", "wmean")),
    ]
    lines = [table(columns, rows, "Correlation with the gold scores, x 100")]
    if missing_tasks:
        lines.append(f"missing, not scored: {', '.join(missing_tasks)}")
    return "\n".join(lines)
