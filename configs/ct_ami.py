r"""AMI+CT: Contrastive Tension with attention mutual information of the two encoders (miCSE paper, Tables 2 and 3).

jax-sentemb train --config ct_ami --workdir runs/ct_ami \
    --config.data.files=corpus.txt --config.encoder.weights=path/to/bert --config.eval.data=path/to/SentEval/data

Dropout is on. Without it both encoders start equal, so their attention would have no noise that AMI could reduce.
Published (BERT-base, Wikipedia, Spearman): STS average 73.55 on a million sentences, 71.12 on 0.1 % of them (CT: 72.69, 68.46).
"""

from jax_sentemb.config import Config, Data, Evaluation, Optimizer, Train, sized
from jax_sentemb.methods.attention_mi import AttentionMI
from jax_sentemb.methods.contrastive_tension import ContrastiveTension


def get_config(size: str = "") -> Config:
    """Return the config; `size` is "" or "tiny"."""
    config = Config(
        method=ContrastiveTension(dropout=True, ami=AttentionMI(weight=2.5e-3)),
        data=Data(max_seq_length=75, batch_size=16),
        optimizer=Optimizer(
            name="rmsprop",
            learning_rate=1e-5,
            lr_scheduler_type="steps",
            lr_steps="500:8e-6,1000:6e-6,1500:4e-6,2000:2e-6",
            adam_epsilon=1e-7,
            max_grad_norm=0.0,
        ),
        eval=Evaluation(eval_steps=500),
        train=Train(max_steps=5000),
    )
    return sized(config, size)
