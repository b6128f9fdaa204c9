r"""Masked-language-model training of a BERT, from scratch or from given weights on the text of a domain (Devlin et al. 2019).

jax-sentemb train --config mlm --workdir runs/mlm --config.data.files=corpus.txt \
    --config.encoder.weights=path/to/bert
jax-sentemb train --config micse --workdir runs/micse --config.data.files=corpus.txt \
    --config.encoder.weights=runs/mlm/export

Rows are packed from consecutive sentences, and a blank line ends a document. With --config.data.pack=False each sentence is a row.
--config.encoder.dropout=0.0 suits a small model that reads its text once; --config.method.mlm_probability=0.3 masks more tokens.
The export is a Hugging Face directory with its masked-language-model head. Without encoder.weights a new BERT is trained; set its
size with --config.encoder.hidden_size=256 and similar settings, and its vocabulary with --config.data.vocab_size=8000.
The printed scores are those of the mean of the last layer, for comparison. The recipe does not train sentence embeddings.
"""

from jax_sentemb.config import Config, Data, Evaluation, Optimizer, sized
from jax_sentemb.methods.masked_lm import MaskedLM


def get_config(size: str = "") -> Config:
    """Return the config; `size` is "" or "tiny"."""
    config = Config(
        method=MaskedLM(mlm_probability=0.15),
        data=Data(max_seq_length=128, batch_size=64, pack=True),
        optimizer=Optimizer(learning_rate=1e-4, warmup_ratio=0.06, weight_decay=0.01),
        eval=Evaluation(eval_steps=1000),
    )
    return sized(config, size)
