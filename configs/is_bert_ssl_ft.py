"""IS-BERT on the sentences of STS-B's training pairs, then fine-tuned on their scores: `ssl+ft` of the paper's STS-B table.

python -m jax_sentemb.main --config configs/is_bert_ssl_ft.py --workdir runs/is_bert_ssl_ft \\
    --config.encoder.weights=path/to/bert --config.eval.data=path/to/SentEval/data --config.sweep=train.seed=1..10

Published (BERT-base, ten seeds): 84.84 +- 0.43, against 74.25 for the fine-tuning alone.
"""

from jax_sentemb.config import Config, Data, Evaluation, Optimizer, Train, sized
from jax_sentemb.methods.is_bert import ISBERT
from jax_sentemb.methods.sbert import SBERT
from jax_sentemb.models.cnn import Convolution


def get_config(size: str = "") -> Config:
    config = Config(
        method=SBERT(task="scores", convolution=Convolution()),
        data=Data(files="senteval:STSBenchmark", max_seq_length=128, batch_size=16),
        optimizer=Optimizer(learning_rate=2e-5, warmup_ratio=0.1, weight_decay=0.01),
        eval=Evaluation(eval_steps=1000),
        train=Train(num_train_epochs=4),
        pretrain=Config(
            method=ISBERT(),
            data=Data(files="senteval:STSBenchmark/train", max_seq_length=130, batch_size=32),
            optimizer=Optimizer(
                learning_rate=2e-6, warmup_ratio=0.1, weight_decay=0.01, adam_epsilon=1e-7, adam_bias_correction=False
            ),
            eval=Evaluation(eval_steps=100),
        ),
    )
    return sized(config, size)
