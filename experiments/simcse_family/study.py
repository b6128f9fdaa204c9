"""SimCSE and its relatives on one small BERT, tuned on STS-B dev only: the study of README.md.

    python -m jax_sentemb.main --config experiments/simcse_family/study.py:rate --workdir runs/simcse_rate \\
        --config.data.files=wiki_sentences.txt.xz --config.encoder.weights=mini-2 --config.eval.data=senteval

Stages: rate (readout and learning rate), temperature, dropout. Each uses what the stages before it chose: CHOSEN.
"""

from typing import Any

from jax_sentemb.config import Config, Data, Evaluation, Optimizer, Train, Variant
from jax_sentemb.methods.simcse import SimCSE

READOUTS = {
    "cls": SimCSE(),
    "mean": SimCSE(pooling="mean", head=False),
    "first_last": SimCSE(pooling="first_last", head=False),
}
STAGES = {
    "rate": "optimizer.learning_rate=3e-5,1e-4,3e-4",
    "temperature": "method.temperature=0.02,0.1",
    "dropout": "encoder.dropout=0.2,0.3",
}
CHOSEN: dict[str, dict[str, Any]] = {}  # readout -> settings


def get_config(stage: str = "rate") -> Config:
    return Config(
        method=SimCSE(),
        data=Data(max_seq_length=32, batch_size=64, subset=100_000),
        optimizer=Optimizer(learning_rate=1e-4),
        eval=Evaluation(eval_steps=100, diagnostic_sentences=256, report_sentences=0),
        train=Train(max_steps=300, save_steps=0),
        variants={name: Variant(method, CHOSEN.get(name, {})) for name, method in READOUTS.items()},
        sweep=STAGES[stage],
    )
