r"""AMI+Mirror-BERT: Mirror-BERT with attention mutual information, two dropout views (miCSE paper, Tables 2 and 3).

jax-sentemb train --config mirror_bert_ami --workdir runs/mirror_bert_ami \
    --config.data.files=corpus.txt --config.encoder.weights=path/to/bert --config.eval.data=path/to/SentEval/data

Spans are not masked. A mask moves the tokens after it, so attention entries of the two views would not correspond.
Published (BERT-base, 0.1 % of a million Wikipedia sentences, Spearman): STS average 43.99 ([CLS]), 71.49 (mean); Mirror-BERT 40.13,
71.48.
"""

from jax_sentemb.config import Config, Data, Evaluation, Optimizer, sized
from jax_sentemb.methods.attention_mi import AttentionMI
from jax_sentemb.methods.mirror_bert import MirrorBERT


def get_config(size: str = "") -> Config:
    """Return the config; `size` is "" or "tiny"."""
    config = Config(
        method=MirrorBERT(pooling="cls", span=0, ami=AttentionMI(weight=2.5e-3)),
        data=Data(max_seq_length=50, batch_size=200),
        optimizer=Optimizer(learning_rate=2e-5, lr_scheduler_type="constant", weight_decay=0.01, max_grad_norm=0.0),
        eval=Evaluation(eval_steps=50),
    )
    return sized(config, size)
