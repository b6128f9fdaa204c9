"""Small untrained models, for tests of what trains, reads, writes and uses one."""

import jax
import numpy as np

from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.formats.sentence_transformers import SentenceModel
from jax_sentemb.models.bert import Bert, BertConfig
from jax_sentemb.types import Rows


def bert_config(
    vocab_size=40,
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=12,
    initializer_range=0.3,
    **fields,
):
    """A BERT that compiles in a moment. Its weights are large, so that its states differ."""
    sizes = (vocab_size, hidden_size, num_hidden_layers, num_attention_heads, intermediate_size, max_position_embeddings)
    return BertConfig(*sizes, initializer_range=initializer_range, **fields)


def tiny_model(sentences, vocab_size, positions=48, layers=1, **fields):
    """A BERT with a vocabulary of the sentences, read by the mean of 40 tokens; `fields` are its other fields."""
    tokenizer = Tokenizer.train(sentences, vocab_size)
    config = BertConfig(tokenizer.vocab_size, 16, layers, 2, 32, positions, pad_token_id=tokenizer.pad_id)
    rows = Rows(np.zeros((1, 3), np.int32), np.ones((1, 3), bool))
    params = jax.device_get(jax.jit(Bert(config).init)(jax.random.key(0), rows)["params"])
    return SentenceModel(config, {"encoder": params}, tokenizer, "mean", 40, **fields)
