r"""InferSent: BiLSTM-max trained on the labels of NLI pairs (Conneau et al. 2017), the supervised baseline of ConsSent.

jax-sentemb train --config infer_sent --workdir runs/infer_sent \
    --config.data.files=nli.tsv --config.encoder.vectors=glove.840B.300d.txt --config.eval.data=path/to/SentEval/data

data.files: tables with the columns sentence1, sentence2 and label. Published: average 85.0 on ten transfer tasks.
"""

from jax_sentemb.config import Config, sized
from jax_sentemb.methods.infer_sent import InferSent
from jax_sentemb.paper_configs import recurrent


def get_config(size: str = "") -> Config:
    """Return the config; `size` is "" or "tiny"."""
    width = 8 if size == "tiny" else 512
    config = recurrent(InferSent(hidden=4 * width, classifier_width=width), validation=5_000)
    return sized(config, size)
