"""A small untrained sentence encoder, for tests of what reads, writes and uses one."""

import jax
import numpy as np

from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.formats.sentence_transformers import SentenceModel
from jax_sentemb.models.bert import Bert, BertConfig
from jax_sentemb.types import Rows


def tiny_model(sentences, vocab_size, positions=48, layers=1, **fields):
    """A BERT with a vocabulary of the sentences, read by the mean of 40 tokens; `fields` are its other fields."""
    tokenizer = Tokenizer.train(sentences, vocab_size)
    config = BertConfig(tokenizer.vocab_size, 16, layers, 2, 32, positions, pad_token_id=tokenizer.pad_id)
    rows = Rows(np.zeros((1, 3), np.int32), np.ones((1, 3), bool))
    params = jax.device_get(jax.jit(Bert(config).init)(jax.random.key(0), rows)["params"])
    return SentenceModel(config, {"encoder": params}, tokenizer, "mean", 40, **fields)
