"""CamemBERT (Martin et al. 2020): a RoBERTa for French with a SentencePiece vocabulary."""

from dataclasses import replace

from jax_sentemb.models.families.roberta import XLM_ROBERTA

CAMEMBERT = replace(
    XLM_ROBERTA,
    model_type="camembert",
    title="CamemBERT",
    class_prefix="Camembert",
    tokenizer_class="CamembertTokenizer",
    tokenizer_classes={"CamembertTokenizer": "Unigram"},
)
