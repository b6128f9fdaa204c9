"""Score the first numbers of an embedding, for a model that was trained for it (`train.matryoshka`)."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from jax_sentemb.errors import REPLACE_FILE, ModelFileError
from jax_sentemb.evaluation.diagnostics import halves, retrieval
from jax_sentemb.evaluation.sts import EmbedAs, correlate_tasks, task_cosines
from jax_sentemb.evaluation.sts_data import StsTask
from jax_sentemb.files import quote, read_json
from jax_sentemb.formats.encode_settings import read_encode_settings
from jax_sentemb.formats.model_dir import MANIFEST
from jax_sentemb.formats.run_dir import encode_settings_of

RETRIEVAL = "retrieval"  # of one half of a sentence by the other


def width_scores(
    embed: EmbedAs, tasks: dict[str, StsTask], sample: Sequence[str], widths: Sequence[int]
) -> dict[str, dict[str, float]]:
    """Return the scores of the first numbers of an embedding, and of all of them.

    Args:
        embed: The model.
        tasks: The sets with gold scores.
        sample: Sentences of a corpus, for the retrieval of one half of a sentence by the other.
        widths: The numbers of values that are scored; those that the embedding does not have are left out.

    Returns:
        For each width, as text, {set: Spearman x 100, "retrieval": mean reciprocal rank x 100}; the last is the full width.
    """
    encoded: dict[str, np.ndarray] = {}

    def vectors_of(sentences: Sequence[str]) -> np.ndarray:
        new = [sentence for sentence in dict.fromkeys(sentences) if sentence not in encoded]
        encoded.update(zip(new, embed("", new), strict=True) if new else ())
        return np.stack([encoded[sentence] for sentence in sentences])

    sentence_halves = list(zip(*(halves(sentence) for sentence in sample), strict=True))
    first, second = (embed("document", side) for side in sentence_halves)
    scores_of_width = {}
    full = first.shape[1]
    for width in sorted({*(width for width in widths if width < full), full}):
        cosines = task_cosines(lambda sentences, width=width: vectors_of(sentences)[:, :width], tasks) if tasks else {}
        scores = {name: result["spearman"]["all"] for name, result in correlate_tasks(cosines, tasks).items()}
        scores_of_width[str(width)] = {**scores, RETRIEVAL: retrieval(first[:, :width], second[:, :width])}
    return scores_of_width


def trained_widths(directory: Path) -> tuple[int, ...]:
    """Return the widths for which the model of an export or of a work directory was trained; () for other directories.

    Widths that the directory does not keep (`truncate_dim`) are left out.

    Raises:
        ModelFileError: The file that names them is damaged.
    """
    for name in (MANIFEST, "model.json"):
        if (directory / name).is_file():
            content = read_json(directory / name)
            training = content.get("training")
            widths = training.get("matryoshka", []) if isinstance(training, Mapping) else []
            if not isinstance(widths, list) or not all(type(width) is int and width > 0 for width in widths):
                raise ModelFileError(
                    f"{directory / name}: training.matryoshka={quote(widths)} is not a list of whole numbers; {REPLACE_FILE}"
                )
            if not widths:
                return ()
            limit = (encode_settings_of(content) if name != MANIFEST else read_encode_settings(directory)).truncate_dim
            return tuple(width for width in widths if limit is None or width < limit)
    return ()
