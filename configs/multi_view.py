r"""Multi-view, discriminative: two views of a sentence, recurrent and linear, agree with its neighbours' (Tang and de Sa 2019).

jax-sentemb train --config multi_view --workdir runs/multi_view \
    --config.data.files=ordered.txt --config.encoder.vectors=crawl-300d-2M.vec.gz --config.eval.data=path/to/SentEval/data

data.files: consecutive sentences, one a line (a shuffled corpus is refused). Ablations: --config.method.views=f (g, ff, gg).
The paper starts from a temperature of 1, which is for very long runs. For some thousand batches use
--config.method.temperature=0.1 (experiments/multiview/README.md).
Published (D2: UMBC news, fastText vectors, Pearson, mean over subsets, first component removed): STS and SICK average 71.4.
"""

from jax_sentemb.config import Config, Data, Evaluation, Optimizer, Words, sized
from jax_sentemb.methods.multi_view import MultiView


def get_config(size: str = "") -> Config:
    """Return the config; `size` is "" or "tiny"."""
    config = Config(
        method=MultiView(hidden=16 if size == "tiny" else 1024),
        data=Data(max_seq_length=40, batch_size=512),
        encoder=Words(),
        optimizer=Optimizer(learning_rate=5e-4, lr_scheduler_type="constant", max_grad_norm=5.0),
        eval=Evaluation(eval_steps=500),
    )
    return sized(config, size)
