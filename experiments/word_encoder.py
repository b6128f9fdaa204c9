"""tf-idf as an encoder, for the scores of studies that take an encoder."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from baselines import CORPUS_NAME, sentences_of

from jax_sentemb.evaluation.model_spec import Encode, tf_idf_baselines


class Words(NamedTuple):
    """tf-idf that was fitted, as an encoder."""

    embed: Encode

    def encode(self, sentences: Sequence[str], **options: Any) -> np.ndarray:
        """Return the embeddings, whose length is 1 whatever the options."""
        return self.embed(list(sentences))


def word_encoders(texts: Sequence[str], corpus_file: str) -> dict[str, Words]:
    """Return the baselines of tf-idf for these texts by their names; `corpus_file` is CORPUS of baselines.py."""
    return {model.name: Words(model.fit(texts)) for model in tf_idf_baselines(sentences_of(Path(corpus_file)), CORPUS_NAME)}
