"""RoBERTa (Liu et al. 2019) and XLM-R (Conneau et al. 2020): a BERT whose positions begin after the number of [PAD]."""

from dataclasses import replace

from jax_sentemb.models.families.family import CLS_AND_SEP, Family
from jax_sentemb.models.families.weights import POOLER, token_head

LM_HEAD = token_head("lm_head.dense", "lm_head.layer_norm", "lm_head.bias")
ROBERTA = Family(
    model_type="roberta",
    title="RoBERTa",
    class_prefix="Roberta",
    weight_prefix="roberta.",
    positions_after_pad=True,
    defaults={"vocab_size": 50265, "pad_token_id": 1},
    token_ids=CLS_AND_SEP,
    tokenizer_class="RobertaTokenizer",
    tokenizer_classes={"RobertaTokenizer": "BPE"},
    heads={"token_head": LM_HEAD, "pooler": POOLER},
    head_activation="gelu",
)
XLM_ROBERTA = replace(
    ROBERTA,
    model_type="xlm-roberta",
    title="XLM-R",
    class_prefix="XLMRoberta",
    defaults={"pad_token_id": 1},
    tokenizer_class="XLMRobertaTokenizer",
    tokenizer_classes={"XLMRobertaTokenizer": "Unigram"},
)
