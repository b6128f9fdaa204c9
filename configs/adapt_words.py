r"""Rank distillation for a sentence encoder that is already good: it also learns the order of your texts by their words.

jax-sentemb train --config adapt_words --workdir runs/adapt_words \
    --config.data.files=corpus.txt --config.encoder.weights=path/to/all-MiniLM-L6-v2

The teachers are the encoder itself, which counts twice, and tf-idf of the text. So texts that share rare words become closer, and
the rest of the order stays. The encoder first embeds the whole text; --config.data.subset=20000 limits this. The settings are those
of experiments/adapting. Labelled data (--config.eval.dev) or a stronger model (--config.eval.teacher) select the weights, and the
start is exported if no step is better.
"""

from jax_sentemb.config import Config, Data, Encoder, Evaluation, Optimizer, Train, sized
from jax_sentemb.methods.distillation import START, Distillation


def get_config(size: str = "") -> Config:
    """Return the config; `size` is "" or "tiny"."""
    config = Config(
        method=Distillation(teacher=f"{START},{START},words:4096", cosine=0.0, rank=1.0, output="student"),
        encoder=Encoder(from_scratch=False),
        data=Data(max_seq_length=32, batch_size=64),
        optimizer=Optimizer(learning_rate=3e-5, warmup_ratio=0.1),
        eval=Evaluation(eval_steps=50),
        train=Train(max_steps=200),
    )
    return sized(config, size)
