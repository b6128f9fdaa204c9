"""ConsSent-MT(3): one encoder for the four perturbations, another for the two ways to part a sentence (Brahma 2018).

python -m jax_sentemb.main --config configs/cons_sent_multitask.py --workdir runs/cons_sent_multitask \\
    --config.data.files=corpus.txt --config.encoder.vectors=crawl-300d-2M.vec.gz --config.eval.data=path/to/SentEval/data

Published (15 million news sentences, ten transfer tasks): average 84.4. Score them with --config.eval.tasks=transfer.
"""

from jax_sentemb.config import Config, Data, Evaluation, Optimizer, Train, Words, sized
from jax_sentemb.methods.cons_sent import ConsSent


def get_config(size: str = "") -> Config:
    width = 8 if size == "tiny" else 512
    config = Config(
        method=ConsSent(task="MT", k=3, hidden=2 * width, classifier_width=width),
        data=Data(max_seq_length=64, batch_size=64, validation=50_000, length_grouping=1),
        encoder=Words(),
        optimizer=Optimizer(
            name="sgd", learning_rate=0.1, lr_scheduler_type="exponential", lr_decay=0.99, plateau_factor=0.2, max_grad_norm=5.0
        ),
        eval=Evaluation(eval_steps=-1, select="validation"),
        train=Train(num_train_epochs=20),
    )
    return sized(config, size)
