"""IS-BERT-task: IS-BERT on the unlabelled text of one SentEval task, then the score of that task; a run for each task.

python -m jax_sentemb.main --config configs/is_bert_task.py --workdir runs/is_bert_task \\
    --config.encoder.weights=path/to/bert --config.eval.data=path/to/SentEval/data

The text of all parts of a task is used (the paper does not say which); a task whose files are not there is named and left out.
One task alone: --config.sweep= --config.data.files=senteval:MR. Ten seeds of it: --config.sweep=train.seed=1..10.
Published (BERT-base, accuracy): MR 81.09, CR 87.18, SUBJ 94.96, MPQA 88.75, SST2 85.96, TREC 88.64, MRPC 74.24.
"""

from jax_sentemb.config import Config, Data, Evaluation, Optimizer, sized
from jax_sentemb.methods.is_bert import ISBERT
from jax_sentemb.models.cnn import Convolution


def get_config(size: str = "") -> Config:
    config = Config(
        method=ISBERT(convolution=Convolution(windows=(1, 3, 5))),
        data=Data(max_seq_length=130, batch_size=32),
        # The published code's optimiser; the paper says 1e-6.
        optimizer=Optimizer(learning_rate=2e-6, warmup_ratio=0.1, weight_decay=0.01, adam_epsilon=1e-7, adam_bias_correction=False),
        eval=Evaluation(tasks="corpus", eval_steps=1000),
        sweep="data.files=" + ",".join(f"senteval:{task}" for task in ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC")),
    )
    return sized(config, size)
