r"""The low-shot protocol of miCSE: methods x training sizes x seeds, with equal steps (Klein and Nabi 2023, Tables 2 to 4).

jax-sentemb train --config micse_low_shot --workdir runs/micse_low_shot \
    --config.data.files=corpus.txt --config.encoder.weights=path/to/bert --config.eval.data=path/to/SentEval/data

Each method is trained on five draws of 100 %, 10 %, 1 %, 0.1 % and 0.01 % of the corpus. A draw's seed is also that of its
training, and all methods have the same seeds, so that differences are paired. The results are low_shot.md (the tables), sweep.csv
(every run), low_shot.png and low_shot_differences.png (Figures 3 and 4). The same command continues a study that was stopped.

A part of the study: --config.sweep="data.subset_seed,train.seed=0..4 data.subset=0.001 variant=SimCSE,AMI+SimCSE".
The weight of AMI for one size, by STS-B dev:
--config.sweep="data.subset=0.001 variant=AMI+SimCSE method.ami.weight=1e-3,1e-2,1e-1,1".
Published (BERT-base, a million Wikipedia sentences, STS average at 0.1 %, 1 %, 10 %, 100 %): SimCSE 67.94, 74.96, 75.76, 76.15;
AMI+SimCSE 73.85, 76.21, 76.31, 76.88; MoCo+SimCSE 69.54, 75.73, 76.73, 76.81; miCSE 73.68, 76.40, 76.38, 78.13. A run of
20,000 steps takes about 1.5 h on a V100. 150 of the 375 runs have 20,000 steps, those of CT 5,000 and those of Mirror-BERT 50.
"""

from dataclasses import replace

from jax_sentemb.config import Config, Data, Evaluation, Optimizer, Train, Variant, sized
from jax_sentemb.methods.attention_mi import AttentionMI
from jax_sentemb.methods.base import Method
from jax_sentemb.methods.contrastive_tension import ContrastiveTension
from jax_sentemb.methods.mirror_bert import MirrorBERT
from jax_sentemb.methods.simcse import Momentum, SimCSE

WEIGHT = 2.5e-3  # of AMI on all sentences, from the paper
WEIGHTS = {0.1: 5e-4, 0.01: 1e-4, 0.001: 1e-3, 0.0001: 1e-3}  # from the published code; the paper tunes them for each size
SENTENCES = 1_000_000  # of the paper's corpus
# Settings of the other methods, as in their own recipes (configs/ct.py, configs/mirror_bert.py), with the number of steps.
CT = {
    "data.max_seq_length": 75, "data.batch_size": 16, "train.max_steps": 5000,
    "optimizer.name": "rmsprop", "optimizer.learning_rate": 1e-5, "optimizer.lr_scheduler_type": "steps",
    "optimizer.lr_steps": "500:8e-6,1000:6e-6,1500:4e-6,2000:2e-6", "optimizer.warmup_steps": 0,
    "optimizer.adam_epsilon": 1e-7, "optimizer.max_grad_norm": 0.0,
}  # fmt: skip
MIRROR = {
    "data.max_seq_length": 50, "data.batch_size": 200, "train.max_steps": 50, "eval.eval_steps": 50,
    "optimizer.learning_rate": 2e-5, "optimizer.lr_scheduler_type": "constant", "optimizer.warmup_steps": 0,
    "optimizer.weight_decay": 0.01, "optimizer.max_grad_norm": 0.0,
}  # fmt: skip
MIRROR_SIZES = {0.0001: {"data.batch_size": 100}}  # 0.01 % of a million sentences are fewer than a batch


def ami() -> AttentionMI:
    """Return AMI with the paper's weight."""
    return AttentionMI(weight=WEIGHT)


def with_ami(method: Method, baseline: str, settings: dict | None = None, by_subset: dict | None = None) -> Variant:
    """Return a variant with AMI, whose weight depends on the size."""
    weights = {subset: {"method.ami.weight": weight} for subset, weight in WEIGHTS.items()}
    by_subset = {subset: weights[subset] | (by_subset or {}).get(subset, {}) for subset in weights}
    return Variant(method, settings or {}, by_subset, baseline)


def variants() -> dict[str, Variant]:
    """Return all methods of the study by name."""
    methods = {
        "SimCSE": Variant(SimCSE()),
        "AMI+SimCSE": with_ami(SimCSE(ami=ami()), "SimCSE"),
        "MoCo+SimCSE": Variant(SimCSE(momentum=Momentum()), baseline="SimCSE"),
        "miCSE": with_ami(SimCSE(ami=ami(), momentum=Momentum()), "SimCSE"),
        "SimCSE-without-negatives": Variant(SimCSE(negatives=False)),
        "miCSE-without-negatives": with_ami(SimCSE(negatives=False, ami=ami()), "SimCSE-without-negatives"),
        # AMI compares two passes of one sentence, which needs dropout and no masked spans, so its baseline has the same.
        "CT": Variant(ContrastiveTension(), CT),
        "CT-dropout": Variant(ContrastiveTension(dropout=True), CT, baseline="CT"),
        "AMI+CT": with_ami(ContrastiveTension(dropout=True, ami=ami()), "CT-dropout", CT),
    }
    for pooling, name in (("cls", "Mirror-BERT"), ("mean", "Mirror-BERT-mean")):
        spans, plain = MirrorBERT(pooling=pooling, span=5), MirrorBERT(pooling=pooling, span=0)
        methods[name] = Variant(spans, MIRROR, MIRROR_SIZES)
        methods[f"{name}-no-spans"] = Variant(plain, MIRROR, MIRROR_SIZES, name)
        methods[f"AMI+{name}"] = with_ami(replace(plain, ami=ami()), f"{name}-no-spans", MIRROR, MIRROR_SIZES)
    for variant in methods.values():  # data.subset=1000 has the settings of 0.001
        counts = {round(share * SENTENCES): settings for share, settings in variant.by_subset.items()}
        variant.by_subset = variant.by_subset | counts
    return methods


def get_config(size: str = "") -> Config:
    """Return the config; `size` is "" or "tiny"."""
    config = Config(
        method=SimCSE(),
        data=Data(max_seq_length=32, batch_size=50),  # sorted by length also at the small sizes: experiments/length_grouping
        optimizer=Optimizer(learning_rate=3e-5, warmup_steps=250),
        eval=Evaluation(eval_steps=250),
        train=Train(max_steps=20_000),  # an epoch of a million sentences, ten of 10 %, ...
        variants=variants(),
    )
    config = sized(config, size)
    config.sweep = "data.subset_seed,train.seed=0..4 data.subset=0,0.1,0.01,0.001,0.0001"
    if size == "tiny":
        config.sweep = "data.subset_seed,train.seed=0,1 data.subset=0,0.1"
        config.variants = {name: config.variants[name] for name in ("SimCSE", "AMI+SimCSE", "miCSE")}
    return config
