"""A development set of queries and documents, or of labelled texts, which selects the weights in place of scored pairs."""

from collections.abc import Iterator, Sequence

import numpy as np

from jax_sentemb.config import Evaluation
from jax_sentemb.errors import ConfigError, DataError, Setting
from jax_sentemb.evaluation.label_task import LabelTask
from jax_sentemb.evaluation.measures import values_of
from jax_sentemb.evaluation.retrieval_task import RetrievalTask
from jax_sentemb.evaluation.sts import EmbedAs
from jax_sentemb.evaluation.user_task import Texts, UserTask
from jax_sentemb.files import fingerprint, user_path
from jax_sentemb.retrieval.vector_records import encode_texts
from jax_sentemb.types import EncodedSentences

DEV = "dev"


class DevTask:
    """A task of the user as a development set.

    Attributes:
        metric: The name of the measure that selects, as in metrics.jsonl.
        digest: The SHA-256 of texts, judgements and labels.
    """

    def __init__(self, task: UserTask) -> None:
        self._task = task
        self.metric = f"eval/{DEV}/{task.main}"
        self.digest = fingerprint({name: source["sha256"] for name, source in task.facts["sources"].items()})

    def sentences(self) -> Iterator[str]:
        """Yield all texts."""
        for texts in self._task.texts.values():
            yield from texts.lines

    def values(self, embed: EmbedAs) -> dict[str, float]:
        """Return the measures of a model x 100 by their names in metrics.jsonl. The first one selects weights."""
        vectors = {name: _vectors(embed, texts) for name, texts in self._task.texts.items()}
        ((_, scored),) = self._task.score(DEV, vectors)
        return {f"eval/{DEV}/{name}": value for name, value in values_of(scored).items()}


def open_dev_task(options: Evaluation, is_cross_encoder: bool) -> DevTask | None:
    """Return the development set of `eval.dev` if it is a folder in BEIR's layout, or has `eval.label_column`; None otherwise.

    Raises:
        ConfigError: `eval.label_column` is set without a table in `eval.dev`, or the model is a cross-encoder.
        DataError: The files are missing or malformed.
    """
    label_column, is_folder = options.label_column, bool(options.dev) and user_path(options.dev).is_dir()
    if label_column and (not options.dev or is_folder):
        raise ConfigError(Setting("eval.label_column", label_column), " needs a table with labels: ", Setting("eval.dev", "FILE"))
    if not label_column and not is_folder:
        return None
    if is_cross_encoder:
        problem = ": a cross-encoder has no embeddings to compare texts by; give labelled pairs"
        raise ConfigError(Setting("eval.dev", options.dev), problem)
    if not label_column:
        split = "dev" if (user_path(options.dev) / "qrels" / "dev.tsv").is_file() else ""
        return DevTask(RetrievalTask("eval.dev", options.dev, split, has_bm25=False))
    try:
        return DevTask(LabelTask("eval.dev", options.dev, label_column, options.text_column))
    except (ConfigError, DataError) as error:
        raise error.rename({"--column": "eval.text_column", "--label-column": "eval.label_column"}) from None


def dev_metric(dev: str, task: DevTask | None) -> str:
    """Return the name in metrics.jsonl of the score on the development set `dev`; "" if there is none."""
    if task:
        return task.metric
    return f"eval/{dev}/spearman_cosine" if dev else ""


def _vectors(embed: EmbedAs, texts: Texts) -> np.ndarray:
    """Return the vectors of texts in memory; an empty text has zeros."""

    def encode(lines: Sequence[str]) -> EncodedSentences:
        return EncodedSentences(np.asarray(embed(texts.role, lines), np.float32), 0)

    return encode_texts(list(texts.lines), encode).vectors
