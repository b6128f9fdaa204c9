"""Quick start: a small BERT from scratch on sentences that the package generates itself. No file, no download, no accelerator.

python -m jax_sentemb.main --config configs/quickstart.py --workdir runs/quickstart
"""

from jax_sentemb.config import Config, Data, Encoder, Evaluation, Optimizer, Train, sized
from jax_sentemb.methods.simcse import SimCSE


def get_config(size: str = "") -> Config:
    config = Config(
        method=SimCSE(pooling="mean"),
        data=Data(files="grammar:20000", vocab_size=600, max_seq_length=48, batch_size=64),
        # Half of everything is dropped: the two views share little, so what survives is what the words of a scene have in common.
        encoder=Encoder(hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=256, dropout=0.5),
        optimizer=Optimizer(learning_rate=3e-3, warmup_steps=30),
        eval=Evaluation(data="grammar", eval_steps=100, max_seq_length=48),
        train=Train(max_steps=300, save_steps=0),
    )
    return sized(config, size)
