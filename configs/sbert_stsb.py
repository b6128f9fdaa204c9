"""SBERT on STS-B: cosine regression on labelled pairs, a supervised baseline (Reimers and Gurevych 2019).

python -m jax_sentemb.main --config configs/sbert_stsb.py --workdir runs/sbert_stsb \\
    --config.encoder.weights=path/to/bert --config.eval.data=path/to/SentEval/data

Your own scored pairs: --config.data.files=pairs.tsv (sentence1, sentence2, score from 0 to 5).
Published (BERT-base, ten seeds): STS-B test 84.67 +- 0.19.
"""

from jax_sentemb.config import Config, Data, Evaluation, Optimizer, Train, sized
from jax_sentemb.methods.sbert import SBERT


def get_config(size: str = "") -> Config:
    config = Config(
        method=SBERT(task="scores"),
        data=Data(files="senteval:STSBenchmark", max_seq_length=128, batch_size=16),
        optimizer=Optimizer(learning_rate=2e-5, warmup_ratio=0.1, weight_decay=0.01),
        eval=Evaluation(eval_steps=1000),
        train=Train(num_train_epochs=4),
    )
    return sized(config, size)
