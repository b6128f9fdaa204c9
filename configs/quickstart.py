"""Quick start: a small BERT from scratch on sentences that the package generates itself. No file, no download, no accelerator.

jax-sentemb train --config quickstart --workdir runs/quickstart

The grammar describes scenes (who does what to what, where, when, how) with synonyms. The gold similarity of a pair is how much
their scenes agree, and half of the held-out pairs share no content word. Training takes less than a minute on two CPU cores.
"""

from jax_sentemb.config import Config, Data, Encoder, Evaluation, Optimizer, Train, sized
from jax_sentemb.methods.simcse import SimCSE


def get_config(size: str = "") -> Config:
    """Return the config; `size` is "" or "tiny"."""
    config = Config(
        method=SimCSE(pooling="mean"),
        data=Data(files="grammar:20000", vocab_size=600, max_seq_length=32, batch_size=64),
        # Half of everything is dropped: the views share little but what the words of a scene have in common.
        encoder=Encoder(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128, dropout=0.5),
        optimizer=Optimizer(learning_rate=1e-2, warmup_steps=40, weight_decay=0.01),
        eval=Evaluation(data="grammar", eval_steps=100, max_seq_length=48),
        train=Train(max_steps=400, save_steps=0),
    )
    return sized(config, size)
