r"""Mirror-BERT: a sentence against its copy with a masked span, all 2B views of the batch as anchors (Liu et al. 2021).

jax-sentemb train --config mirror_bert --workdir runs/mirror_bert \
    --config.data.files=corpus.txt --config.encoder.weights=path/to/bert --config.eval.data=path/to/SentEval/data

Made for about 10,000 sentences and 50 steps: --config.data.subset=10000. Mean pooling: --config.method.pooling=mean.
Published (BERT-base, 10,000 sentences of STS-B, three seeds, Spearman): STS average 75.40.
"""

from jax_sentemb.config import Config, Data, Evaluation, Optimizer, sized
from jax_sentemb.methods.mirror_bert import MirrorBERT


def get_config(size: str = "") -> Config:
    """Return the config; `size` is "" or "tiny"."""
    config = Config(
        method=MirrorBERT(pooling="cls", span=5),
        data=Data(max_seq_length=50, batch_size=200),
        optimizer=Optimizer(learning_rate=2e-5, lr_scheduler_type="constant", weight_decay=0.01, max_grad_norm=0.0),
        eval=Evaluation(eval_steps=50),
    )
    return sized(config, size)
