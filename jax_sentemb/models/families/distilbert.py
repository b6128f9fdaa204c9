"""DistilBERT (Sanh et al. 2019): a BERT without segments, whose files have other names."""

from jax_sentemb.models.families.family import Family
from jax_sentemb.models.families.weights import token_head

DISTILBERT = Family(
    model_type="distilbert",
    title="DistilBERT",
    class_prefix="DistilBert",
    weight_prefix="distilbert.",
    keys={
        "hidden_size": "dim",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "intermediate_size": "hidden_dim",
        "hidden_act": "activation",
    },
    aliases=("hidden_size", "num_hidden_layers", "num_attention_heads"),
    fixed={"type_vocab_size": 0, "layer_norm_eps": 1e-12},
    defaults={"num_hidden_layers": 6},
    harmless={
        "qa_dropout seq_classif_dropout": "of training",
        "sinusoidal_pos_embds": "the positions are in the weight file",
    },
    dropout=("dropout", "attention_dropout"),
    tokenizer_classes={"DistilBertTokenizer": "WordPiece"},
    renamed=(
        ("encoder.layer.", "transformer.layer."),
        (".attention.self.query.", ".attention.q_lin."),
        (".attention.self.key.", ".attention.k_lin."),
        (".attention.self.value.", ".attention.v_lin."),
        (".attention.output.dense.", ".attention.out_lin."),
        (".attention.output.LayerNorm.", ".sa_layer_norm."),
        (".intermediate.dense.", ".ffn.lin1."),
        (".output.dense.", ".ffn.lin2."),
        (".output.LayerNorm.", ".output_layer_norm."),
    ),
    ignored=("vocab_projector.weight", "pre_classifier."),
    heads={"token_head": token_head("vocab_transform", "vocab_layer_norm", "vocab_projector.bias")},
)
