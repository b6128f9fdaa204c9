r"""Multi-view, generative: a recurrent view predicts the words of the next sentence, U^T is the linear view (Tang and de Sa 2019).

jax-sentemb train --config multi_view_generative --workdir runs/multi_view_generative \
    --config.data.files=ordered.txt --config.encoder.vectors=crawl-300d-2M.vec.gz --config.eval.data=path/to/SentEval/data

data.files: consecutive sentences, one a line (a shuffled corpus is refused). Without the constraint on U:
--config.method.invertible=False. Both objectives: --config.method.form=both.
Published (G2: UMBC news, fastText vectors, Pearson, mean over subsets, first component removed): STS and SICK average 70.3.
"""

from jax_sentemb.config import Config, Data, Evaluation, Optimizer, Words, sized
from jax_sentemb.methods.multi_view import MultiView


def get_config(size: str = "") -> Config:
    """Return the config; `size` is "" or "tiny"."""
    config = Config(
        method=MultiView(form="generative", hidden=16 if size == "tiny" else 1024),
        data=Data(max_seq_length=40, batch_size=512),
        encoder=Words(),
        optimizer=Optimizer(learning_rate=5e-4, lr_scheduler_type="constant", max_grad_norm=5.0),
        eval=Evaluation(eval_steps=500),
    )
    return sized(config, size)
