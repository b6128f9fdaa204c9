r"""Mirror-BERT for a sentence encoder that is already good: few steps at a small rate on the text that it will embed.

jax-sentemb train --config adapt --workdir runs/adapt \
    --config.data.files=corpus.txt --config.encoder.weights=path/to/all-MiniLM-L6-v2

The settings are those of experiments/adapting, which compares methods on several domains. There a learning rate of 1e-5 gains
1.4 to 3.4 times as much, but makes the encoder worse in some domains. Labelled data (--config.eval.dev) or a stronger model
(--config.eval.teacher) select the weights, and the start is exported if no step is better. Without them the last weights are
exported, because selection without labels (--config.eval.select=retrieval) prefers the start even if the result is better.
"""

from jax_sentemb.config import Config, Data, Encoder, Evaluation, Optimizer, Train, sized
from jax_sentemb.methods.mirror_bert import MirrorBERT


def get_config(size: str = "") -> Config:
    """Return the config; `size` is "" or "tiny"."""
    config = Config(
        method=MirrorBERT(pooling="mean", span=5),
        encoder=Encoder(from_scratch=False),
        data=Data(max_seq_length=32, batch_size=64),
        optimizer=Optimizer(learning_rate=3e-6, warmup_ratio=0.1),
        eval=Evaluation(eval_steps=25),
        train=Train(max_steps=50),
    )
    return sized(config, size)
