"""Score an encoder on pairs or on the tasks of a SentEval folder, from Python: `jax_sentemb.score`."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jax_sentemb.checks import finite_number, text
from jax_sentemb.data.containers import items_of, problem_with
from jax_sentemb.errors import ConfigError, DataError, UserError
from jax_sentemb.evaluation import catalog, sts, suite, transfer
from jax_sentemb.evaluation.model_spec import EvalModel
from jax_sentemb.evaluation.sts_data import ScoredPairs, StsTask, load_pairs, senteval_root
from jax_sentemb.files import user_path
from jax_sentemb.inference.encoder import SentenceEncoder

PAIRS = "pairs"


def score(encoder: SentenceEncoder, data: Any, tasks: str = "sts") -> dict[str, Any]:
    """Score an encoder on labelled pairs or on the tasks of a SentEval folder.

    Args:
        encoder: The encoder.
        data: A list of (first, second, gold score), or a table with the columns sentence1, sentence2 and score; a SentEval folder,
            whose `tasks` are scored with the protocols "simcse" and "senteval"; or an evaluator of sentence-transformers, whose
            result is returned.
        tasks: Names and groups of a SentEval folder's tasks, as in `jax-sentemb evaluate`.

    Returns:
        Scores x 100: of pairs {"pairs": n, "spearman": ..., "pearson": ...}, of tasks {"STS12": 61.2, ...}.

    Raises:
        DataError: The data are missing or malformed.
        ConfigError: A task is unknown.
    """
    if not hasattr(encoder, "encode"):
        raise ConfigError(f"encoder is {type(encoder).__name__}: give a SentenceEncoder")
    text("tasks", tasks)
    if not isinstance(data, str | Path) and callable(data):
        result: Any = data(encoder)
        return result
    encode: Callable[[Sequence[str]], np.ndarray] = lambda sentences: encoder.encode(list(sentences))  # noqa: E731
    if not isinstance(data, str | Path):
        return _of_pairs(encode, _pairs(data))
    path = user_path(data)
    if path.is_file():
        return _of_pairs(encode, load_pairs(path))
    if not path.exists():
        raise DataError(f"data={str(data)!r}: no such file or folder")
    root = senteval_root(path, "data")
    protocols = suite.Protocols(sts.PROTOCOLS["simcse"], transfer.check_protocol("senteval"), 0)
    loaded = suite.load_all(catalog.select(tasks, "tasks"), root)
    for error in loaded.errors:
        raise error
    model = EvalModel("encoder", lambda _: encode, False, (), {})
    scores: dict[str, Any] = {}
    for item, outcome in suite.score(model, loaded.items, protocols, lambda count: None):
        if isinstance(outcome, UserError):
            raise outcome.at(f"{item.name}: ")
        scores |= outcome.headline
    return scores


def _of_pairs(encode: Callable[[Sequence[str]], np.ndarray], pairs: ScoredPairs) -> dict[str, Any]:
    tasks = {PAIRS: StsTask(PAIRS, {PAIRS: pairs})}
    result = sts.correlate_tasks(sts.task_cosines(encode, tasks), tasks)[PAIRS]
    return {"pairs": result["n"], "spearman": result["spearman"]["all"], "pearson": result["pearson"]["all"]}


def _pairs(rows: Any) -> ScoredPairs:
    """Return the sides and gold scores of (first, second, gold) triples."""
    if problem := problem_with(rows, "data", "pairs"):
        raise DataError(problem)
    triples = list(items_of(rows))
    gold = []
    for number, row in enumerate(triples):
        if not (isinstance(row, Sequence) and len(row) == 3 and isinstance(row[0], str) and isinstance(row[1], str)):
            raise DataError(f"pair {number} is not (sentence, sentence, score)")
        try:
            gold.append(finite_number(f"pair {number}: score", row[2]))
        except ConfigError as error:
            raise DataError(str(error)) from None
    if not triples:
        raise DataError("data is empty: give pairs (sentence, sentence, score)")
    return ScoredPairs([row[0] for row in triples], [row[1] for row in triples], np.array(gold, np.float64))
