r"""IS-BERT-task: IS-BERT on the unlabelled text of a SentEval task, scored on the same task; a run for each task.

jax-sentemb train --config is_bert_task --workdir runs/is_bert_task \
    --config.encoder.weights=path/to/bert --config.eval.data=path/to/SentEval/data

The text of all splits of a task is used; the paper does not name the splits. Tasks without files are named and skipped.
One task: --config.sweep= --config.data.files=senteval:MR. Ten seeds of it: --config.sweep=train.seed=1..10.
Published (BERT-base, accuracy): MR 81.09, CR 87.18, SUBJ 94.96, MPQA 88.75, SST2 85.96, TREC 88.64, MRPC 74.24.
"""

from jax_sentemb.config import Config, Data, sized
from jax_sentemb.paper_configs import is_bert


def get_config(size: str = "") -> Config:
    """Return the config; `size` is "" or "tiny"."""
    config = is_bert(Data())
    config.eval.tasks = "corpus"
    config.sweep = "data.files=" + ",".join(f"senteval:{task}" for task in ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC"))
    return sized(config, size)
