"""SimCSE and its relatives on one small BERT, tuned on STS-B dev only: the study of README.md.

    python -m jax_sentemb.main --config experiments/simcse_family/study.py:rate --workdir runs/simcse_rate \\
        --config.data.files=wiki_sentences.txt.xz --config.encoder.weights=mini-2 --config.eval.data=senteval

Stages: rate (readout and learning rate, at the published temperature), temperature, then methods over seeds with what was chosen.
"""

from jax_sentemb.config import Config, Data, Evaluation, Optimizer, Train, Variant
from jax_sentemb.errors import ConfigError
from jax_sentemb.methods.attention_mi import AttentionMI
from jax_sentemb.methods.contrastive_tension import ContrastiveTension
from jax_sentemb.methods.mirror_bert import MirrorBERT
from jax_sentemb.methods.simcse import Momentum, SimCSE

FIRST_LAST = {"pooling": "first_last", "head": False}
CHOSEN = {**FIRST_LAST, "temperature": 0.5}
AMI, QUEUE = AttentionMI(weight=0.1, depth="upper"), Momentum(queue_size=384)
READOUTS = {
    "cls": Variant(SimCSE()),
    "mean": Variant(SimCSE(pooling="mean", head=False)),
    "first_last": Variant(SimCSE(**FIRST_LAST)),
}
PLAIN = {"baseline": "SimCSE"}
METHODS = {
    "SimCSE": Variant(SimCSE(**CHOSEN)),
    "AMI": Variant(SimCSE(**CHOSEN, ami=AMI), **PLAIN),
    "MoCo": Variant(SimCSE(**CHOSEN, momentum=QUEUE), **PLAIN),
    "miCSE": Variant(SimCSE(**CHOSEN, ami=AMI, momentum=QUEUE), **PLAIN),
    "Mirror-BERT": Variant(MirrorBERT(pooling="first_last", temperature=0.5), **PLAIN),
    "CT-in-batch": Variant(ContrastiveTension(form="in_batch", scale=2.0, dropout=True, pooling="first_last"), **PLAIN),
    "SimCSE-0.05": Variant(SimCSE(**FIRST_LAST), **PLAIN),
}
STAGES = {
    "rate": (READOUTS, "optimizer.learning_rate=3e-5,1e-4,3e-4", 300, 100),
    "temperature": ({"first_last": READOUTS["first_last"]}, "method.temperature=0.05,0.1,0.2,0.5,1", 100, 25),
    "ami": ({"AMI": METHODS["AMI"]}, "method.ami.weight=0.1,1,10", 100, 25),
    "methods": (METHODS, "data.subset_seed,train.seed=0..2", 100, 25),
}


def get_config(stage: str = "methods") -> Config:
    if stage not in STAGES:
        raise ConfigError(f"study.py:{stage} is not one of its stages: {', '.join(STAGES)}")
    variants, sweep, steps, every = STAGES[stage]
    return Config(
        method=next(iter(variants.values())).method,
        data=Data(max_seq_length=32, batch_size=64, subset=100_000),
        optimizer=Optimizer(learning_rate=1e-4),
        eval=Evaluation(eval_steps=every, diagnostic_sentences=256, report_sentences=0),
        train=Train(max_steps=steps, save_steps=0),
        variants=variants,
        sweep=sweep,
    )
