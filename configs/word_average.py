r"""The average of word vectors as a sentence encoder: nothing is trained, and the words of the corpus are exported.

jax-sentemb train --config word_average --workdir runs/word_average \
    --config.data.files=corpus.txt --config.encoder.vectors=glove.840B.300d.txt --config.eval.data=path/to/SentEval/data

The export is WordEmbeddings + Pooling of sentence-transformers. Published for fastText vectors, Pearson, mean over subsets: 62.7;
with the first component removed 67.8 (Tang and de Sa 2019).
"""

from jax_sentemb.config import Config, Data, Evaluation, Train, Words, sized
from jax_sentemb.methods.word_average import WordAverage


def get_config(size: str = "") -> Config:
    """Return the config; `size` is "" or "tiny"."""
    config = Config(
        method=WordAverage(),
        data=Data(max_seq_length=128, batch_size=64),
        encoder=Words(),
        eval=Evaluation(eval_steps=0),
        train=Train(max_steps=0),
    )
    config = sized(config, size)
    config.train.max_steps = 0
    return config
