r"""SCT: the two dropout views of a sentence see many earlier sentences alike; made for small encoders (Limkonchotiwat et al. 2023).

jax-sentemb train --config sct --workdir runs/sct \
    --config.data.files=corpus.txt --config.encoder.weights=path/to/bert

Settings of the paper for a BERT of four layers of 256; its views are a sentence and its back-translation. A BERT of two layers:
--config.optimizer.learning_rate=5e-4, of base size: 5e-5. The queues take 2 x 131,072 vectors: 268 MB at a width of 256.
Published (BERT-mini, back-translated sentences, mean of seven sets, Spearman): 69.6.
"""

from jax_sentemb.config import Config, Data, Evaluation, Optimizer, Train, sized
from jax_sentemb.methods.sct import SCT


def get_config(size: str = "") -> Config:
    """Return the config; `size` is "" or "tiny"."""
    config = Config(
        method=SCT(),
        data=Data(max_seq_length=64, batch_size=128),
        optimizer=Optimizer(learning_rate=3e-4, warmup_ratio=0.1),
        eval=Evaluation(eval_steps=500),
        train=Train(num_train_epochs=20),
    )
    return sized(config, size)
