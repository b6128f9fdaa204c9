r"""Distillation of a sentence encoder into a smaller encoder: it learns the vectors of a teacher, without labels.

jax-sentemb train --config distill_encoder --workdir runs/student \
    --config.data.files=corpus.txt --config.method.teacher=all-MiniLM-L6-v2 \
    --config.encoder.weights=all-MiniLM-L6-v2 --config.encoder.layers=1,3,5

The student starts from layers of the teacher, as here, or from any BERT (a small one at --config.optimizer.learning_rate=5e-4).
The teacher's vectors are computed once and stored in the cache. The exported vectors are as wide as the teacher's, so an existing
index can still be used (--config.method.output=student: as wide as the student's). Agreement with the teacher on 1,000 held-out
sentences selects the step. For an encoder without layers, which is faster still, take `jax-sentemb distill` instead: it makes a
static table of the teacher's vectors of words.
"""

from jax_sentemb.config import Config, Data, Encoder, Evaluation, Optimizer, Train, sized
from jax_sentemb.methods.distillation import Distillation


def get_config(size: str = "") -> Config:
    """Return the config; `size` is "" or "tiny"."""
    config = Config(
        method=Distillation(),
        data=Data(max_seq_length=64, batch_size=128, validation=1000),
        encoder=Encoder(dropout=0.0),  # better agreement than with 0.1 (experiments/stronger)
        optimizer=Optimizer(learning_rate=2e-4, lr_scheduler_type="cosine", warmup_ratio=0.05),
        eval=Evaluation(eval_steps=500, select="agreement"),
        train=Train(num_train_epochs=3),
    )
    return sized(config, size)
