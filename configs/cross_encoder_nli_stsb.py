r"""A BERT cross-encoder on NLI pairs, then on STS-B: from NLI a small BERT learns to compare two sentences in one row.

jax-sentemb train --config cross_encoder_nli_stsb --workdir runs/cross_encoder_nli_stsb \
    --config.pretrain.data.files=nli.tsv --config.encoder.weights=path/to/bert --config.eval.data=path/to/SentEval/data

pretrain.data.files: tables with the columns sentence1, sentence2 and label (entailment, neutral, contradiction).
The rates and the six epochs on NLI are for a small BERT (4 layers of 256), which needs them to learn to compare two sentences
(experiments/is_bert/README.md). BERT-base needs a rate of 2e-5 in both runs and fewer epochs.
"""

from jax_sentemb.config import Config, sized
from jax_sentemb.methods.cross_encoder import CrossEncoder
from jax_sentemb.paper_configs import labelled_pairs, stsb


def get_config(size: str = "") -> Config:
    """Return the config; `size` is "" or "tiny"."""
    config = stsb(CrossEncoder())
    config.pretrain = labelled_pairs(CrossEncoder(task="classes"), epochs=6, eval_steps=500)
    config.pretrain.data.batch_size = 32
    config.optimizer.learning_rate = config.pretrain.optimizer.learning_rate = 3e-4
    config.eval.eval_steps = 360
    return sized(config, size)
