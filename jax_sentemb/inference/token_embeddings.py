"""Token embeddings of sentences: the states that a BERT's pooling reduces to one vector."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from jax_sentemb.data.batches import bucket
from jax_sentemb.data.tokens import pad
from jax_sentemb.errors import ConfigError
from jax_sentemb.formats.run_dir import convolution_of, is_words
from jax_sentemb.inference.embedder import BUCKETS, CPU_ROWS, batches_by_length
from jax_sentemb.inference.load import LoadedModel
from jax_sentemb.inference.static import StaticEmbedder
from jax_sentemb.models.architectures import make_encoder, transformer_config
from jax_sentemb.models.pooling import states_to_pool
from jax_sentemb.types import Array, Params, Rows

TokenEmbeddings = Callable[[Params, Sequence[str], int, int], tuple[list[Float[np.ndarray, "_ width"]], int]]


def token_embedder(model: LoadedModel, dtype: str) -> TokenEmbeddings:
    """Return a function of params, sentences, max_seq_length and batch_size.

    The function returns the token embeddings of each sentence, float32 [tokens, width], with [CLS] and [SEP], and the number of
    distinct sentences that were cut.

    Raises:
        ConfigError: The model is on word vectors, whose tokens have no states.
    """
    if is_words(model.metadata) or isinstance(model.embedder, StaticEmbedder):
        raise ConfigError('output_value="token_embeddings": a table of vectors has only sentence embeddings; leave it out')
    encoder = make_encoder(transformer_config(model.metadata["encoder"]), jnp.dtype(dtype))
    convolution = convolution_of(model.metadata)
    tokenizer = model.embedder.tokenizer

    @jax.jit
    def states(params: Params, rows: Rows) -> Array:
        hidden = encoder.apply({"params": params["encoder"]}, rows, None).hidden
        if convolution:
            return convolution.apply(params["cnn"], hidden[-1], rows.mask, encoder.dtype)
        return states_to_pool(hidden, model.metadata["pooling"])

    def embed(params: Params, sentences: Sequence[str], max_seq_length: int, batch_size: int) -> tuple[list[np.ndarray], int]:
        numbers = {sentence: number for number, sentence in enumerate(dict.fromkeys(sentences))}
        ids, cut = tokenizer.encode(list(numbers), max_seq_length)
        embeddings: list[np.ndarray] = [np.empty(0)] * len(ids)
        size = min(batch_size, CPU_ROWS) if jax.default_backend() == "cpu" else batch_size
        for chosen in batches_by_length(ids, size):
            width = min(bucket(len(ids[chosen[0]]), (*BUCKETS, max_seq_length)), max_seq_length)
            filled = [ids[row] for row in chosen] + [ids[chosen[0]]] * (size - len(chosen))
            outputs = np.asarray(states(params, pad(filled, width, tokenizer.pad_id)), np.float32)
            for index, row in enumerate(chosen):
                embeddings[row] = outputs[index, : len(ids[row])]
        return [embeddings[numbers[sentence]].copy() for sentence in sentences], cut

    return embed
