"""The studies of README.md, on the command of the low-shot protocol: bert_mini, and mini_2 after weights.

    python -m jax_sentemb.main --config experiments/micse_low_shot/study.py:mini_2 --workdir runs/low_shot \\
        --config.data.files=wiki_sentences.txt.xz --config.encoder.weights=experiments/pretraining/mini-2 \\
        --config.eval.data=senteval

bert_mini: 1,000 and 10,000 sentences, three seeds, 60 steps at 1e-5 in bfloat16. weights: the weight of AMI for each size,
scored on STS-B dev only. mini_2: 5,000, 500 and 50 sentences, five seeds, 100 steps at 1e-4.
"""

from pathlib import Path

from jax_sentemb.config import Config
from jax_sentemb.errors import ConfigError
from jax_sentemb.recipes import read_config

METHODS = ("SimCSE", "AMI+SimCSE", "MoCo+SimCSE", "miCSE")
BERT_MINI_WEIGHT = 10.0  # of AMI, chosen on STS-B dev at 1,000 sentences, seed 0: README.md has the scores
SIZES = (0.01, 0.001, 0.0001)  # 100 steps see 5,000 rows, so that a larger share than 1 % has no sentence twice either
AMI_WEIGHTS = {0.01: 10.0, 0.001: 0.1, 0.0001: 10.0}  # chosen on STS-B dev by the stage `weights`: README.md has the scores


def get_config(stage: str = "mini_2") -> Config:
    config = read_config(str(Path(__file__).parents[2] / "configs" / "micse_low_shot.py"))
    config.variants = {name: config.variants[name] for name in METHODS}
    config.optimizer.warmup_steps, config.train.save_steps = 0, 0
    match stage:
        case "bert_mini":
            return bert_mini(config)
        case "weights" | "mini_2":
            return mini_2(config, stage)
    raise ConfigError(f"study.py:{stage} is not one of its stages: bert_mini, weights, mini_2")


def bert_mini(config: Config) -> Config:
    for name in ("AMI+SimCSE", "miCSE"):
        config.variants[name].settings["method.ami.weight"] = BERT_MINI_WEIGHT
    config.data.batch_size, config.train.max_steps, config.train.precision = 64, 60, "bfloat16"
    config.optimizer.learning_rate, config.eval.eval_steps = 1e-5, 20
    config.sweep = "data.subset_seed,train.seed=0..2 data.subset=1000,10000"
    return config


def mini_2(config: Config, stage: str) -> Config:
    for name in ("AMI+SimCSE", "miCSE"):
        config.variants[name].by_subset = {size: {"method.ami.weight": weight} for size, weight in AMI_WEIGHTS.items()}
    config.train.max_steps, config.optimizer.learning_rate = 100, 1e-4
    config.eval.eval_steps, config.eval.diagnostic_sentences, config.eval.report_sentences = 50, 128, 0
    sizes = "data.subset=" + ",".join(map(str, SIZES))
    if stage == "mini_2":
        config.sweep = f"data.subset_seed,train.seed=0..4 {sizes}"
        return config
    config.sweep = f"data.subset_seed,train.seed=0 {sizes} variant=AMI+SimCSE method.ami.weight=0.1,1,10"
    return config
