"""The study of README.md, on the command of the low-shot protocol: four methods, two sizes, three seeds, 60 steps.

    python -m jax_sentemb.main --config experiments/micse_low_shot/study.py --workdir runs/micse_low_shot \\
        --config.data.files=wiki_sentences.txt.xz --config.encoder.weights=bert-mini --config.eval.data=senteval
"""

from pathlib import Path

from jax_sentemb.config import Config
from jax_sentemb.recipes import read_config

METHODS = ("SimCSE", "AMI+SimCSE", "MoCo+SimCSE", "miCSE")
AMI_WEIGHT = 10.0  # chosen on STS-B dev at 1,000 sentences, seed 0: README.md has the scores


def get_config() -> Config:
    config = read_config(str(Path(__file__).parents[2] / "configs" / "micse_low_shot.py"))
    config.variants = {name: config.variants[name] for name in METHODS}
    for name in ("AMI+SimCSE", "miCSE"):
        config.variants[name].settings["method.ami.weight"] = AMI_WEIGHT
    config.data.batch_size, config.train.max_steps, config.train.precision = 64, 60, "bfloat16"
    config.optimizer.learning_rate, config.optimizer.warmup_steps = 1e-5, 0
    config.eval.eval_steps, config.train.save_steps = 20, 0
    config.sweep = "data.subset_seed,train.seed=0..2 data.subset=1000,10000"
    return config
