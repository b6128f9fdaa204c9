"""Score an encoder on pairs or on the tasks of a SentEval folder, from Python: `jax_sentemb.score`."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from jax_sentemb.checks import finite_number, text
from jax_sentemb.data.containers import columns_of, items_of, listed, problem_with
from jax_sentemb.errors import ConfigError, DataError, UserError
from jax_sentemb.evaluation import catalog, sts, suite, transfer
from jax_sentemb.evaluation.model_spec import EvalModel
from jax_sentemb.evaluation.pair_task import read_pairs
from jax_sentemb.evaluation.sts_data import ScoredPairs, StsTask, senteval_root
from jax_sentemb.evaluation.user_scores import embeddings_of, score_files
from jax_sentemb.files import user_path
from jax_sentemb.inference.encoder import SentenceEncoder

PAIRS = "pairs"
SCORED = ("sentence1", "sentence2", "score")  # the columns of a table of pairs
RESAMPLES = 1000


def score(
    encoder: SentenceEncoder,
    data: Any = None,
    tasks: str = "sts",
    *,
    pairs: str | Path | None = None,
    retrieval: str | Path | None = None,
    labels: str | Path | None = None,
    resamples: int | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Score an encoder on files of your own, on labelled pairs or on the tasks of a SentEval folder.

    Args:
        encoder: The encoder.
        data: A list of (first, second, gold score); a table with the columns sentence1, sentence2 and score, as a file, a
            DataFrame, a `datasets.Dataset` or a dict; a SentEval folder, whose `tasks` are scored with the protocols "simcse" and
            "senteval"; or an evaluator of sentence-transformers, whose result is returned.
        tasks: Names and groups of a SentEval folder's tasks, as in `jax-sentemb evaluate`.
        pairs: In place of `data`, a table of pairs with scores, or with the labels 0 and 1. Option: `columns`.
        retrieval: In place of `data`, a folder in BEIR's layout. Option: `split`.
        labels: In place of `data`, a table of texts with labels. Options: `label_column`, `column`, `sample`.
        resamples: Draws for the 95 % intervals of the scores on such files (default: 1,000); 0: none.
        options: The options of these files, as in `jax-sentemb evaluate`.

    Returns:
        Scores x 100: of `data` {"pairs": n, "spearman": ..., "pearson": ...} or {"STS12": 61.2, ...}. Of a file,
        {"queries": n, "nDCG@10": 37.4, ..., "intervals": {"nDCG@10": [34.0, 41.0], ...}}.

    Raises:
        DataError: The data are missing or malformed.
        ConfigError: A task is unknown.
    """
    if not hasattr(encoder, "encode"):
        raise ConfigError(f"encoder is {type(encoder).__name__}: give a SentenceEncoder")
    text("tasks", tasks)
    files = {name: value for name, value in (("pairs", pairs), ("retrieval", retrieval), ("labels", labels)) if value is not None}
    if (data is not None) + len(files) != 1:
        raise ConfigError("give one of data, pairs, retrieval and labels")
    if tasks != "sts" and not (isinstance(data, str | Path) and user_path(data).is_dir()):
        raise ConfigError(f"tasks={tasks!r} are those of a SentEval folder; give the folder as data, or leave tasks out")
    if files:
        ((name, value),) = files.items()
        return score_files(encoder, name, value, RESAMPLES if resamples is None else resamples, **options)
    options |= {} if resamples is None else {"resamples": resamples}
    if options:
        raise ConfigError(f"{next(iter(options))} is an option of pairs, retrieval or labels; leave it out")
    if not isinstance(data, str | Path) and callable(data):
        is_evaluator = hasattr(data, "store_metrics_in_model_card_data")
        result: Any = data(_ForEvaluators(encoder) if is_evaluator else encoder)
        return result
    encode: Callable[[Sequence[str]], np.ndarray] = lambda sentences: embeddings_of(encoder, list(sentences))  # noqa: E731
    if not isinstance(data, str | Path):
        return _of_pairs(encode, _pairs(data))
    path = user_path(data)
    if path.is_file():
        table = read_pairs("data", str(path))
        return _of_pairs(encode, ScoredPairs(table.first, table.second, table.labels))
    if not path.exists():
        raise DataError(f"data={str(data)!r}: no such file or folder")
    root = senteval_root(path, "data")
    protocols = suite.Protocols(sts.PROTOCOLS["simcse"], transfer.check_protocol("senteval"), 0)
    loaded = suite.load_all(catalog.select(tasks, "tasks"), root)
    for error in loaded.errors:
        raise error
    model = EvalModel("encoder", lambda _: encode, False, (), {})
    scores: dict[str, Any] = {}
    for item, outcome in suite.score(model, loaded.items, protocols):
        if isinstance(outcome, UserError):
            raise outcome.at(f"{item.name}: ")
        scores |= outcome.headline
    return scores


class _ForEvaluators:
    """An encoder with what the evaluators of sentence-transformers need in addition."""

    def __init__(self, encoder: Any) -> None:
        self._encoder = encoder
        self.model_card_data = SimpleNamespace(set_evaluation_metrics=lambda *arguments, **options: None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._encoder, name)

    def encode(self, sentences: Any, **options: Any) -> Any:
        """Encode sentences; the precision None of evaluators is float32."""
        return self._encoder.encode(sentences, **_precise(options))

    def encode_query(self, sentences: Any, **options: Any) -> Any:
        """Encode queries as `encode` does."""
        return self._encoder.encode_query(sentences, **_precise(options))

    def encode_document(self, sentences: Any, **options: Any) -> Any:
        """Encode documents as `encode` does."""
        return self._encoder.encode_document(sentences, **_precise(options))

    def similarity(self, first: Any, second: Any) -> Any:
        """Return similarities, as a tensor for tensors."""
        return _like(first, self._encoder.similarity(first, second))

    def similarity_pairwise(self, first: Any, second: Any) -> Any:
        """Return similarities of rows with the same number, as a tensor for tensors."""
        return _like(first, self._encoder.similarity_pairwise(first, second))


def _precise(options: dict[str, Any]) -> dict[str, Any]:
    return {**options, "precision": options.get("precision") or "float32"}


def _like(example: Any, values: np.ndarray) -> Any:
    """Return `values` as a tensor if `example` is one."""
    return example.new_tensor(values) if hasattr(example, "new_tensor") else values


def _of_pairs(encode: Callable[[Sequence[str]], np.ndarray], pairs: ScoredPairs) -> dict[str, Any]:
    tasks = {PAIRS: StsTask(PAIRS, {PAIRS: pairs})}
    result = sts.correlate_tasks(sts.task_cosines(encode, tasks), tasks)[PAIRS]
    return {"pairs": result["n"], "spearman": result["spearman"]["all"], "pearson": result["pearson"]["all"]}


def _triples(table: Any, names: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return the rows of the columns of SCORED in a table with the columns `names`."""
    if any(name not in names for name in SCORED):
        raise DataError(f"data is {type(table).__name__} with the columns {listed(names)}; it needs {', '.join(SCORED)}")
    columns = [list(items_of(table[name])) for name in SCORED]
    if len(set(map(len, columns))) > 1:
        raise DataError(f"data: the columns {', '.join(SCORED)} have {', '.join(str(len(column)) for column in columns)} rows")
    return list(zip(*columns, strict=True))


def _pairs(rows: Any) -> ScoredPairs:
    """Return the sides and gold scores of (first, second, gold) triples, or of a table with the columns of SCORED."""
    if (names := columns_of(rows)) is not None:
        triples = _triples(rows, names)
    elif problem := problem_with(rows, "data", "pairs"):
        raise DataError(problem)
    else:
        triples = list(items_of(rows))
    gold = []
    for number, row in enumerate(triples):
        if not (isinstance(row, Sequence) and len(row) == 3 and isinstance(row[0], str) and isinstance(row[1], str)):
            raise DataError(f"pair {number} is not (sentence, sentence, score): give two texts and a number")
        try:
            gold.append(finite_number(f"pair {number}: score", row[2]))
        except ConfigError as error:
            raise DataError(str(error)) from None
    if not triples:
        raise DataError("data is empty: give pairs (sentence, sentence, score)")
    return ScoredPairs([row[0] for row in triples], [row[1] for row in triples], np.array(gold, np.float64))
