"""MPNet (Song et al. 2020): a BERT whose attention also depends on the distance of two tokens."""

from jax_sentemb.models.families.family import ABSOLUTE, CLS_AND_SEP, Family
from jax_sentemb.models.families.roberta import LM_HEAD
from jax_sentemb.models.families.weights import EMBEDDINGS, POOLER, Weight, keep

BUCKETS = 32  # of distances; transformers fixes it
MPNET = Family(
    model_type="mpnet",
    title="MPNet",
    class_prefix="MPNet",
    weight_prefix="mpnet.",
    module="mpnet:MPNet",
    can_decode=False,
    positions_after_pad=True,
    fixed={"type_vocab_size": 0},
    defaults={"vocab_size": 30527, "pad_token_id": 1},
    harmless={"type_vocab_size": "MPNet has no segments"},
    refused={
        **ABSOLUTE,
        "relative_attention_num_buckets": ((BUCKETS,), "another number of distances"),
        "pad_token_id": ((1,), "other positions"),
    },
    written={"position_embedding_type": "absolute", "relative_attention_num_buckets": BUCKETS},
    token_ids=CLS_AND_SEP,
    tokenizer_class="MPNetTokenizer",
    tokenizer_classes={"MPNetTokenizer": "WordPiece"},
    embeddings=(*EMBEDDINGS, Weight("relative_bias", "encoder.relative_attention_bias.weight", keep, f"{BUCKETS} H")),
    renamed=(
        (".attention.self.query.", ".attention.attn.q."),
        (".attention.self.key.", ".attention.attn.k."),
        (".attention.self.value.", ".attention.attn.v."),
        (".attention.output.dense.", ".attention.attn.o."),
        (".attention.output.LayerNorm.", ".attention.LayerNorm."),
    ),
    heads={"token_head": LM_HEAD, "pooler": POOLER},
    head_activation="gelu",
)
