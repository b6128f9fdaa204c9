"""SimCSE and its relatives on one small BERT, tuned on STS-B dev only: the study of README.md.

    python -m jax_sentemb.main --config experiments/simcse_family/study.py:rate --workdir runs/simcse_rate \\
        --config.data.files=wiki_sentences.txt.xz --config.encoder.weights=mini-2 --config.eval.data=senteval

Stages: rate (readout and learning rate, at the published temperature), temperature, then methods over seeds with what was chosen;
queue (what could make MoCo worse); relatives_rate (three rates for each of the other methods), relatives (three seeds, two sizes);
positives (what makes the positive pair harder), negatives (a large batch and large queues) and cls ([CLS], a large queue and AMI).
"""

from dataclasses import replace

from jax_sentemb.config import Config, Data, Evaluation, Optimizer, Train, Variant
from jax_sentemb.errors import ConfigError
from jax_sentemb.evaluation.catalog import DISJOINT_DEV
from jax_sentemb.methods.attention_mi import AttentionMI
from jax_sentemb.methods.contrastive_tension import ContrastiveTension
from jax_sentemb.methods.is_bert import ISBERT
from jax_sentemb.methods.mirror_bert import MirrorBERT
from jax_sentemb.methods.simcse import Momentum, SimCSE
from jax_sentemb.models.cnn import Convolution

FIRST_LAST = {"pooling": "first_last", "head": False}
CHOSEN = {**FIRST_LAST, "temperature": 0.5}
AMI, QUEUE = AttentionMI(weight=0.1, depth="upper"), Momentum(queue_size=384)
SPAN = MirrorBERT(pooling="first_last", temperature=0.5)
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
    "Mirror-BERT": Variant(SPAN, **PLAIN),
    "SimCSE-0.05": Variant(SimCSE(**FIRST_LAST), **PLAIN),
}
RANDOM_BATCHES = {"data.length_grouping": 1}
FRESH = replace(QUEUE, decay=0.9, dropout=0.1)  # lags by 10 steps instead of 200, with the dropout of the views
QUEUES = {  # is it the lag of the encoder that fills the queue, its dropout, or that its sentences have other lengths?
    "SimCSE": METHODS["SimCSE"],
    "MoCo": METHODS["MoCo"],
    "MoCo-0.9": Variant(SimCSE(**CHOSEN, momentum=replace(QUEUE, decay=0.9)), **PLAIN),
    "MoCo-0.9-dropout-0.1": Variant(SimCSE(**CHOSEN, momentum=FRESH), **PLAIN),
    "random-batches": Variant(SimCSE(**CHOSEN), RANDOM_BATCHES, **PLAIN),
    "random-batches-MoCo-0.9-dropout-0.1": Variant(SimCSE(**CHOSEN, momentum=FRESH), RANDOM_BATCHES, baseline="random-batches"),
}
IS_BERT = ISBERT(convolution=Convolution(windows=(1, 3, 5)))
IN_BATCH = {"form": "in_batch", "scale": 2.0, "dropout": True, "pooling": "first_last"}  # temperature 0.5
RELATIVES = {  # Mirror-BERT without its span mask, which AMI needs, is SimCSE
    "Mirror-BERT": Variant(SPAN),
    "CT": Variant(ContrastiveTension(pooling="first_last")),
    "CT-in-batch": Variant(ContrastiveTension(**IN_BATCH)),
    "CT-in-batch-AMI": Variant(ContrastiveTension(**IN_BATCH, ami=AMI), baseline="CT-in-batch"),
    "IS-BERT": Variant(IS_BERT),
    "no-negatives": Variant(SimCSE(**CHOSEN, negatives=False)),
    "no-negatives-AMI": Variant(SimCSE(**CHOSEN, negatives=False, ami=AMI), baseline="no-negatives"),
}
RATES = {  # chosen on STS-B dev by the stage relatives_rate
    "Mirror-BERT": 3e-5,
    "CT": 3e-4,
    "CT-in-batch": 1e-4,
    "CT-in-batch-AMI": 1e-4,
    "IS-BERT": 3e-5,
    "no-negatives": 3e-5,
    "no-negatives-AMI": 3e-5,
}
TUNED = {name: replace(variant, settings={"optimizer.learning_rate": RATES[name]}) for name, variant in RELATIVES.items()}
POSITIVES = {
    "dropout-0.1": Variant(SimCSE(**CHOSEN)),
    "dropout-0.3": Variant(SimCSE(**CHOSEN), {"encoder.dropout": 0.3}, baseline="dropout-0.1"),
    "span": Variant(SPAN, baseline="dropout-0.1"),
    "repetition": Variant(SimCSE(**CHOSEN, repetition=0.32), baseline="dropout-0.1"),
    "random-batches": Variant(SimCSE(**CHOSEN), RANDOM_BATCHES, baseline="dropout-0.1"),
    "random-batches-repetition": Variant(SimCSE(**CHOSEN, repetition=0.32), RANDOM_BATCHES, baseline="random-batches"),
    "random-batches-span": Variant(SPAN, RANDOM_BATCHES, baseline="random-batches"),
}
LARGE_BATCH = {"data.batch_size": 512, "train.max_steps": 138, "eval.eval_steps": 23}
NEGATIVES = {  # 70,656 sentences each, more than the largest queue holds; [CLS], with which the queue gains in micse_low_shot
    "batch-64": Variant(SimCSE()),
    "batch-512": Variant(SimCSE(), LARGE_BATCH, baseline="batch-64"),
    **{f"queue-{size}": Variant(SimCSE(momentum=Momentum(size)), baseline="batch-64") for size in (384, 16_384, 65_536)},
}
LARGE_QUEUE = Momentum(queue_size=16_384)
STRONG_AMI = AttentionMI(weight=10.0)  # the weight that micse_low_shot chose for [CLS], with its layers
CLS = {
    "SimCSE": NEGATIVES["batch-64"],
    "AMI": Variant(SimCSE(ami=STRONG_AMI), **PLAIN),
    "AMI-upper": Variant(SimCSE(ami=replace(STRONG_AMI, depth="upper")), baseline="AMI"),
    "AMI-upper-3": Variant(SimCSE(ami=AttentionMI(weight=3.0, depth="upper")), baseline="AMI"),
    "queue-16384": Variant(SimCSE(momentum=LARGE_QUEUE), **PLAIN),
    "miCSE-16384": Variant(SimCSE(ami=STRONG_AMI, momentum=LARGE_QUEUE), **PLAIN),
}
STAGES = {
    "rate": (READOUTS, "optimizer.learning_rate=3e-5,1e-4,3e-4", 300, 100),
    "temperature": ({"first_last": READOUTS["first_last"]}, "method.temperature=0.05,0.1,0.2,0.5,1", 100, 25),
    "ami": ({"AMI": replace(METHODS["AMI"], baseline="")}, "method.ami.weight=0.1,1,10", 100, 25),
    "methods": (METHODS, "data.subset_seed,train.seed=0..2", 100, 25),
    "queue": (QUEUES, "data.subset_seed,train.seed=0..2 data.subset=1000", 100, 50),
    "relatives_rate": (RELATIVES, "optimizer.learning_rate=3e-5,1e-4,3e-4", 100, 25),
    "relatives": (TUNED, "data.subset_seed,train.seed=0..2 data.subset=1000,100000", 100, 50),
    "positives": (POSITIVES, "data.subset_seed,train.seed=0..2", 100, 50),
    "negatives": (NEGATIVES, "data.subset_seed,train.seed=0..2", 1104, 184),
    "cls": (CLS, "data.subset_seed,train.seed=0..4", 300, 50),
}


def get_config(stage: str = "methods") -> Config:
    if stage not in STAGES:
        raise ConfigError(f"study.py:{stage} is not one of its stages: {', '.join(STAGES)}")
    variants, sweep, steps, every = STAGES[stage]
    return Config(
        method=next(iter(variants.values())).method,
        data=Data(max_seq_length=32, batch_size=64, subset=100_000),
        optimizer=Optimizer(learning_rate=1e-4),
        eval=Evaluation(dev=DISJOINT_DEV, eval_steps=every, diagnostic_sentences=256, report_sentences=0),
        train=Train(max_steps=steps, save_steps=0),
        variants=variants,
        sweep=sweep,
    )
