"""IS-BERT-NLI: mutual information of a sentence and its tokens, on NLI sentences without their labels (Zhang et al. 2020).

python -m jax_sentemb.main --config configs/is_bert.py --workdir runs/is_bert \\
    --config.data.files=nli.tsv --config.encoder.weights=path/to/bert --config.eval.data=path/to/SentEval/data

data.files: tables with the columns sentence1 and sentence2; each distinct sentence is used once. For a plain text file of your
domain add --config.data.column=text.
Published (BERT-base, all sentences of SNLI and MultiNLI, Spearman): STS average 66.58, STS-B 69.21.
"""

from jax_sentemb.config import Config, Data, Evaluation, Optimizer, sized
from jax_sentemb.methods.is_bert import ISBERT
from jax_sentemb.models.cnn import Convolution


def get_config(size: str = "") -> Config:
    config = Config(
        method=ISBERT(convolution=Convolution(windows=(1, 3, 5))),
        data=Data(column="sentence1,sentence2", max_seq_length=130, batch_size=32),
        # The published code's optimiser; the paper says 1e-6.
        optimizer=Optimizer(learning_rate=2e-6, warmup_ratio=0.1, weight_decay=0.01, adam_epsilon=1e-7, adam_bias_correction=False),
        eval=Evaluation(eval_steps=1000),
    )
    return sized(config, size)
