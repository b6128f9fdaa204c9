"""Batches of sentences of one length against random batches, for every method on a BERT and ConsSent: the study of README.md.

    python -m jax_sentemb.main --config experiments/length_grouping/study.py --workdir runs/length_grouping \\
        --config.data.files=wiki_sentences.txt.xz --config.encoder.weights=experiments/pretraining/mini-2 \\
        --config.eval.data=senteval
    python -m jax_sentemb.main --config experiments/length_grouping/study.py:cons_sent --workdir runs/length_grouping_cons_sent \\
        --config.data.files=wiki_sentences.txt.xz --config.encoder.vectors=glove.6B.50d.npz --config.eval.dev=STSBenchmark-dev.tsv

The stage low_shot has the options of the first: 5,000 and 500 sentences, 1,000 steps, the rest as in experiments/micse_low_shot.
"""

from dataclasses import replace
from pathlib import Path

from jax_sentemb.config import Config, Data, Evaluation, Optimizer, Train, Variant
from jax_sentemb.errors import ConfigError
from jax_sentemb.evaluation.catalog import DISJOINT_DEV
from jax_sentemb.methods.attention_mi import AttentionMI
from jax_sentemb.methods.base import Method
from jax_sentemb.methods.cons_sent import ConsSent
from jax_sentemb.methods.contrastive_tension import ContrastiveTension
from jax_sentemb.methods.is_bert import ISBERT
from jax_sentemb.methods.mirror_bert import MirrorBERT
from jax_sentemb.methods.simcse import Momentum, SimCSE
from jax_sentemb.models.cnn import Convolution
from jax_sentemb.paper_configs import recurrent
from jax_sentemb.recipes import read_config

SEEDS = "data.subset_seed,train.seed=0..4"
SORTED = 32  # batches whose sentences are sorted by length together
METHODS: dict[str, Method] = {
    "SimCSE": SimCSE(),
    "SimCSE-0.5": SimCSE(pooling="first_last", head=False, temperature=0.5),
    "miCSE": SimCSE(ami=AttentionMI(weight=2.5e-3), momentum=Momentum(queue_size=384)),
    "IS-BERT": ISBERT(convolution=Convolution(windows=(1, 3, 5))),
    "CT-in-batch": ContrastiveTension(form="in_batch", dropout=True),
    "Mirror-BERT": MirrorBERT(pooling="cls", span=5),
    "Mirror-BERT-mean": MirrorBERT(pooling="mean", span=5),
}
CONS_SENT: dict[str, Method] = {"D(5)": ConsSent(task="D", k=5, hidden=256, classifier_width=256)}


def pair(name: str, variant: Variant) -> dict[str, Variant]:
    """The variant on random batches, and on sorted ones with the random ones as baseline."""
    plain = f"{name}-random"
    return {
        plain: replace(variant, settings={"data.length_grouping": 1}, baseline=""),
        f"{name}-sorted": replace(variant, settings={"data.length_grouping": SORTED}, baseline=plain),
    }


def pairs(variants: dict[str, Variant]) -> dict[str, Variant]:
    return {name: variant for one in variants.items() for name, variant in pair(*one).items()}


def get_config(stage: str = "bert") -> Config:
    match stage:
        case "bert":
            return bert()
        case "cons_sent":
            return cons_sent()
        case "low_shot":
            return low_shot()
    raise ConfigError(f"study.py:{stage} is not one of its stages: bert, cons_sent, low_shot")


def bert() -> Config:
    return Config(
        method=SimCSE(),
        data=Data(max_seq_length=32, batch_size=64, subset=100_000),
        optimizer=Optimizer(learning_rate=1e-4),
        eval=Evaluation(dev=DISJOINT_DEV, eval_steps=50, diagnostic_sentences=256, report_sentences=0),
        train=Train(max_steps=150, save_steps=0, precision="bfloat16"),
        variants=pairs({name: Variant(method) for name, method in METHODS.items()}),
        sweep=SEEDS,
    )


def cons_sent() -> Config:
    config = recurrent(CONS_SENT["D(5)"], validation=2048)
    config.data.subset = 100_000
    config.optimizer = Optimizer(name="adamw", learning_rate=1e-3, lr_scheduler_type="constant")
    config.eval = Evaluation(eval_steps=400, select="validation", diagnostic_sentences=256, report_sentences=0)
    config.train = Train(max_steps=400, save_steps=0)
    config.variants, config.sweep = pairs({name: Variant(method) for name, method in CONS_SENT.items()}), SEEDS
    return config


def low_shot() -> Config:
    """Small corpora, of which one sorted group is a whole epoch (500 sentences) or a third of one."""
    config = read_config(f"{Path(__file__).parents[1] / 'micse_low_shot' / 'study.py'}:long")
    config.variants = pairs({name: config.variants[name] for name in ("SimCSE", "miCSE")})
    config.sweep = f"{SEEDS} data.subset=0.01,0.001"
    return config
