"""Measure a state during training: scores and diagnostics, the validation loss, and the agreement with a teacher."""

from typing import NamedTuple

from jax.sharding import Mesh

from jax_sentemb.config import Config
from jax_sentemb.data.pairs import JoinedPairs
from jax_sentemb.data.tokenizer import Tokenizer
from jax_sentemb.inference.embedder import COARSE_BUCKETS, Embedder
from jax_sentemb.methods.base import Method
from jax_sentemb.models.encoder import TokenEncoder
from jax_sentemb.parallel import batch_sharding
from jax_sentemb.training.agreement import Agreement
from jax_sentemb.training.evaluator import Scorer
from jax_sentemb.training.logger import Log
from jax_sentemb.training.setup import RunSetup, corpus_sample
from jax_sentemb.training.step import make_embed
from jax_sentemb.training.validation import Validation
from jax_sentemb.types import TrainState


class Measures(NamedTuple):
    """What an evaluation measures; the last two are None if the run has no held-out sentences or no teacher."""

    scorer: Scorer
    validation: Validation | None
    agreement: Agreement | None

    def __call__(self, step: int, state: TrainState) -> dict[str, float]:
        """Log and return all measures of a state by their names in metrics.jsonl."""
        log, measured = self.scorer.log, self.scorer.measure(step, state.params)
        if self.validation:
            values = {f"validation/{name}": value for name, value in self.validation(state).items()}
            measured |= values
            log.values(step, values, 4)
        if self.agreement:
            values = self.agreement(state.params)
            measured |= values
            log.values(step, values, 2)
        return measured


def make_measures(
    config: Config, setup: RunSetup, method: Method, encoder: TokenEncoder, dense: tuple[str, ...], mesh: Mesh, log: Log
) -> Measures:
    """Return the measures of a run.

    Args:
        config: The settings of the run.
        setup: Its data.
        method: The method as it is trained.
        encoder: The encoder as it is trained.
        dense: The activations of the layers after the pooling.
        mesh: The devices.
        log: The log, which receives the values.
    """
    tokenizer = setup.tokenizer
    embedder = Embedder(
        make_embed(config.method, setup.encoder_config, dense),
        JoinedPairs(tokenizer) if config.method.is_cross_encoder and isinstance(tokenizer, Tokenizer) else tokenizer,
        config.eval.max_seq_length,
        config.eval.batch_size,
        COARSE_BUCKETS,
        sharding=batch_sharding(mesh),
    )
    sample = corpus_sample(setup, config.eval.diagnostic_sentences, config.train.seed)
    agreement = Agreement(config, setup.held_out, embedder) if setup.held_out else None
    return Measures(
        Scorer(embedder, setup.tasks, setup.dev, sample, log, config.train.strict, setup.dev_task),
        setup.validation and Validation(method, encoder, setup.validation, mesh),
        agreement,
    )
