"""The studies of README.md, on the command of the low-shot protocol: bert_mini, and mini_2 after weights.

    python -m jax_sentemb.main --config experiments/micse_low_shot/study.py:mini_2 --workdir runs/low_shot \\
        --config.data.files=wiki_sentences.txt.xz --config.encoder.weights=experiments/pretraining/mini-2 \\
        --config.eval.data=senteval

bert_mini: 1,000 and 10,000 sentences, five seeds, 60 steps at 1e-5 in bfloat16. weights: the weight of AMI for each size,
scored on STS-B dev only. mini_2: 5,000, 500 and 50 sentences, five seeds, 100 steps at 1e-4. long: 5,000 sentences and 1,000 steps.
long_few: SimCSE with AMI and without it as in long, on 500 sentences. long_relatives: as in long, CT in batch and SimCSE without
negatives, each with AMI and without it, three seeds.
"""

from dataclasses import replace
from pathlib import Path

from jax_sentemb.config import Config, Variant
from jax_sentemb.errors import ConfigError
from jax_sentemb.evaluation.catalog import DISJOINT_DEV
from jax_sentemb.methods.attention_mi import AttentionMI
from jax_sentemb.methods.contrastive_tension import ContrastiveTension
from jax_sentemb.methods.simcse import SimCSE
from jax_sentemb.recipes import read_config

METHODS = ("SimCSE", "AMI+SimCSE", "MoCo+SimCSE", "miCSE")
BERT_MINI_WEIGHT = 10.0  # of AMI, chosen on STS-B dev at 1,000 sentences, seed 0: README.md has the scores
SIZES = (0.01, 0.001, 0.0001)  # 100 steps see 5,000 rows, so that a larger share than 1 % has no sentence twice either
SHARES = "data.subset=" + ",".join(map(str, SIZES))
AMI_WEIGHTS = {0.01: 10.0, 0.001: 0.1, 0.0001: 10.0}  # chosen on STS-B dev by the stage `weights`: README.md has the scores
LONG_SIZE = 0.01  # 5,000 sentences, each ten times in 1,000 steps
FEW = 0.001  # 500 sentences, each a hundred times
AMI = AttentionMI(weight=AMI_WEIGHTS[LONG_SIZE])
CT_IN_BATCH = {"form": "in_batch", "dropout": True, "pooling": "cls"}  # its scale of 20 is SimCSE's temperature of 0.05
RELATIVES = {
    "CT-in-batch": Variant(ContrastiveTension(**CT_IN_BATCH)),
    "AMI+CT-in-batch": Variant(ContrastiveTension(**CT_IN_BATCH, ami=AMI), baseline="CT-in-batch"),
    "without-negatives": Variant(SimCSE(negatives=False)),
    "AMI+without-negatives": Variant(SimCSE(negatives=False, ami=AMI), baseline="without-negatives"),
}


def get_config(stage: str = "mini_2") -> Config:
    config = read_config(str(Path(__file__).parents[2] / "configs" / "micse_low_shot.py"))
    config.variants = {name: config.variants[name] for name in METHODS}
    config.optimizer.warmup_steps, config.train.save_steps, config.eval.dev = 0, 0, DISJOINT_DEV
    match stage:
        case "bert_mini":
            return bert_mini(config)
        case "mini_2":
            return mini_2(config)
        case "weights":
            return weights(mini_2(config))
        case "long":
            return long(mini_2(config), seeds="0..4")
        case "long_few":
            return long_few(long(mini_2(config), seeds="0..4", size=FEW))
        case "long_relatives":
            method = RELATIVES["CT-in-batch"].method  # a study's method is one of its variants
            return replace(long(mini_2(config), seeds="0..2"), method=method, variants=RELATIVES)
    raise ConfigError(f"study.py:{stage} is not one of its stages: bert_mini, weights, mini_2, long, long_few, long_relatives")


def bert_mini(config: Config) -> Config:
    for name in ("AMI+SimCSE", "miCSE"):
        config.variants[name] = replace(config.variants[name], settings={"method.ami.weight": BERT_MINI_WEIGHT}, by_subset={})
    config.data.batch_size, config.train.max_steps, config.train.precision = 64, 60, "bfloat16"
    config.optimizer.learning_rate, config.eval.eval_steps = 1e-5, 20
    config.sweep = "data.subset_seed,train.seed=0..4 data.subset=1000,10000"
    return config


def mini_2(config: Config) -> Config:
    for name in ("AMI+SimCSE", "miCSE"):
        config.variants[name].by_subset = {size: {"method.ami.weight": weight} for size, weight in AMI_WEIGHTS.items()}
    config.train.max_steps, config.optimizer.learning_rate = 100, 1e-4
    config.eval.eval_steps, config.eval.diagnostic_sentences, config.eval.report_sentences = 50, 128, 0
    config.sweep = f"data.subset_seed,train.seed=0..4 {SHARES}"
    return config


def weights(config: Config) -> Config:
    config.sweep = f"data.subset_seed,train.seed=0 {SHARES} variant=AMI+SimCSE method.ami.weight=0.1,1,10"
    return config


def long(config: Config, seeds: str, size: float = LONG_SIZE) -> Config:
    config.train.max_steps, config.eval.eval_steps, config.train.precision = 1000, 100, "bfloat16"
    config.sweep = f"data.subset_seed,train.seed={seeds} data.subset={size}"
    return config


def long_few(config: Config) -> Config:
    """Return the study of `long` with the weight of its own size, so that only the number of sentences differs from it."""
    config.variants = {name: replace(config.variants[name], by_subset={}) for name in ("SimCSE", "AMI+SimCSE")}
    config.variants["AMI+SimCSE"].settings["method.ami.weight"] = AMI_WEIGHTS[LONG_SIZE]
    return config
