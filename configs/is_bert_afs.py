"""IS-BERT-AFS: IS-BERT on the sentences of an argument corpus, windows of 3, 5 and 7 tokens (Zhang et al. 2020, section 4.1.2).

python -m jax_sentemb.main --config configs/is_bert_afs.py --workdir runs/is_bert_afs \\
    --config.data.files=arguments.tsv --config.encoder.weights=path/to/bert
jax-sentemb evaluate --model runs/is_bert_afs --arguments arguments.tsv

data.files: a table; --config.data.column names its columns of sentences (here those of UKP ASPECT; AFS: sentence_1,sentence_2).
Published (BERT-base, AFS, mean over topics): Pearson 49.14, Spearman 45.25.
"""

from jax_sentemb.config import Config, Data, Evaluation, Optimizer, sized
from jax_sentemb.methods.is_bert import ISBERT
from jax_sentemb.models.cnn import Convolution


def get_config(size: str = "") -> Config:
    config = Config(
        method=ISBERT(convolution=Convolution(windows=(3, 5, 7))),
        data=Data(column="sentence1,sentence2", max_seq_length=130, batch_size=32),
        # The published code's optimiser; the paper says 1e-6.
        optimizer=Optimizer(learning_rate=2e-6, warmup_ratio=0.1, weight_decay=0.01, adam_epsilon=1e-7, adam_bias_correction=False),
        eval=Evaluation(eval_steps=1000),
    )
    return sized(config, size)
