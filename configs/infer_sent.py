"""InferSent: BiLSTM-max trained on the labels of NLI pairs (Conneau et al. 2017), the supervised baseline of ConsSent.

python -m jax_sentemb.main --config configs/infer_sent.py --workdir runs/infer_sent \\
    --config.data.files=nli.tsv --config.encoder.vectors=glove.840B.300d.txt --config.eval.data=path/to/SentEval/data

data.files: tables with the columns sentence1, sentence2 and label. Published: average 85.0 on ten transfer tasks.
"""

from jax_sentemb.config import Config, Data, Evaluation, Optimizer, Train, Words, sized
from jax_sentemb.methods.infer_sent import InferSent


def get_config(size: str = "") -> Config:
    width = 8 if size == "tiny" else 512
    config = Config(
        method=InferSent(hidden=4 * width, classifier_width=width),
        data=Data(max_seq_length=64, batch_size=64, validation=5_000),
        encoder=Words(),
        optimizer=Optimizer(
            name="sgd", learning_rate=0.1, lr_scheduler_type="exponential", lr_decay=0.99, plateau_factor=0.2, max_grad_norm=5.0
        ),
        eval=Evaluation(eval_steps=-1, select="validation"),
        train=Train(num_train_epochs=20),
    )
    return sized(config, size)
