"""ELECTRA (Clark et al. 2020): a BERT whose embeddings may be narrower than its states.

A discriminator and a generator have the same encoder. Only a generator has a masked-language-model head; a discriminator gets a new
one for mlm, as in transformers.
"""

from dataclasses import dataclass

from jax_sentemb.models.bert_config import BertConfig
from jax_sentemb.models.families.family import Family
from jax_sentemb.models.families.weights import EMBEDDINGS, Weight, keep, token_head, transpose

PROJECTION = (
    Weight("projection/kernel", "embeddings_project.weight", transpose, "D E"),
    Weight("projection/bias", "embeddings_project.bias", keep, "D"),
)


@dataclass(frozen=True)
class ElectraConfig(BertConfig):
    """The architecture of an ELECTRA."""

    embedding_size: int = 128
    model_type: str = "electra"

    @property
    def embedding_width(self) -> int:
        """Return the width of the word embeddings."""
        return self.embedding_size


ELECTRA = Family(
    model_type="electra",
    title="ELECTRA",
    class_prefix="Electra",
    weight_prefix="electra.",
    config=ElectraConfig,
    defaults={"hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024},
    harmless={"summary_type summary_use_proj summary_activation summary_last_dropout": "of a task head"},
    tokenizer_classes={"ElectraTokenizer": "WordPiece"},
    embeddings=(*EMBEDDINGS, *PROJECTION),
    absent=lambda config: tuple(row.flax for row in PROJECTION) if config.embedding_width == config.hidden_size else (),
    ignored=("discriminator_predictions.", "generator_lm_head.weight", "sequence_summary."),
    heads={
        "token_head": token_head("generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head.bias"),
    },
    head_activation="gelu",
)
