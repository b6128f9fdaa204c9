"""A BERT cross-encoder on argument pairs, ten folds or unseen topics (Reimers and Gurevych 2019; IS-BERT, Table 2).

python -m jax_sentemb.main --config configs/arguments_cross_encoder.py --workdir runs/arguments_cross_encoder \\
    --config.data.files=arguments:UKP_ASPECT.tsv --config.encoder.weights=path/to/bert

One command is one row of the table: a run for each fold, and their mean in vary.md; --config.data.scheme=cross-topic leaves a
topic out in each run. AFS: --config.data.files=arguments:FOLDER with its three ArgPairs files. One fold alone: --config.sweep= and
--config.data.fold=3. The last weights count: nothing of the tested part selects them. Epochs and rate are those of STS-B.
Published (BERT-base, AFS; Pearson, Spearman): 77.20 and 74.84 (ten folds), 58.49 and 57.23 (cross-topic).
"""

from jax_sentemb.config import Config, Data, Evaluation, Optimizer, Train, sized
from jax_sentemb.methods.cross_encoder import CrossEncoder


def get_config(size: str = "") -> Config:
    config = Config(
        method=CrossEncoder(),
        data=Data(max_seq_length=128, batch_size=16),
        optimizer=Optimizer(learning_rate=2e-5, warmup_ratio=0.1, weight_decay=0.01),
        eval=Evaluation(eval_steps=0, select="last"),
        train=Train(num_train_epochs=4, save_steps=0),
        sweep="data.fold=all",
    )
    return sized(config, size)
