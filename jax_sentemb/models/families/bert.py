"""BERT (Devlin et al. 2019)."""

from jax_sentemb.models.families.family import Family
from jax_sentemb.models.families.weights import POOLER, Weight, keep, token_head, transpose

HEAD = "cls.predictions"
BERT = Family(
    model_type="bert",
    title="BERT",
    class_prefix="Bert",
    weight_prefix="bert.",
    tokenizer_classes={"BertTokenizer": "WordPiece"},
    heads={
        "token_head": token_head(f"{HEAD}.transform.dense", f"{HEAD}.transform.LayerNorm", f"{HEAD}.bias"),
        "pooler": POOLER,
        "classifier": (
            Weight("kernel", "classifier.weight", transpose, "C D"),
            Weight("bias", "classifier.bias", keep, "C"),
        ),
    },
)
