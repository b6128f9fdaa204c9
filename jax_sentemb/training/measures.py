"""Measure a state during training: scores and diagnostics, the validation loss, and the agreement with a teacher."""

import dataclasses
from typing import Any, NamedTuple

from jax.sharding import Mesh

from jax_sentemb.config import Config
from jax_sentemb.evaluation.sts import EmbedAs
from jax_sentemb.inference.build import build_embedder
from jax_sentemb.inference.embedder import COARSE_BUCKETS
from jax_sentemb.methods.base import Method
from jax_sentemb.models.encoder import TokenEncoder
from jax_sentemb.parallel import batch_sharding
from jax_sentemb.training.agreement import Agreement
from jax_sentemb.training.evaluator import PromptedEmbedder, Scorer
from jax_sentemb.training.logger import Log
from jax_sentemb.training.setup import RunSetup, corpus_sample
from jax_sentemb.training.validation import Validation
from jax_sentemb.types import Params, TrainState


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
            log.values(step, "validation", values, 4)
        return measured | self._agreement_of(step, state.params)

    def of_encoder(self, step: int, params: Params, label: str) -> dict[str, float]:
        """Log as LABEL/NAME, and return, the measures of another encoder of the method that may be exported."""
        return self.scorer.measure(step, params, label) | self._agreement_of(step, params, label)

    def of_model(self, embed: EmbedAs) -> dict[str, float]:
        """Return the measures of another model that need no state of the training."""
        agreement = self.agreement.of_model(embed) if self.agreement else {}
        return self.scorer.measured_by(embed) | agreement

    def _agreement_of(self, step: int, params: Params, label: str = "") -> dict[str, float]:
        """Log and return the agreement with the teacher; {} without a teacher."""
        if not self.agreement:
            return {}
        values = self.agreement(params)
        logged = {f"{label}/{name}" if label else name: value for name, value in values.items()}
        self.scorer.log.values(step, f"{label and f'{label}, '}agreement with the teacher (of 100)", logged, 2)
        return values


def make_measures(
    config: Config, setup: RunSetup, method: Method, encoder: TokenEncoder, metadata: dict[str, Any], mesh: Mesh, log: Log
) -> Measures:
    """Return the measures of a run.

    Args:
        config: The settings of the run.
        setup: Its data.
        method: The method as it is trained.
        encoder: The encoder as it is trained.
        metadata: The metadata of the model, as in model.json.
        mesh: The devices.
        log: The log, which receives the values.
    """
    # The verification of the export uses the same function, and on one device also its compiled programs.
    description = {**metadata, "encoder": dataclasses.asdict(setup.encoder_config), "normalize": False}
    sharding = batch_sharding(mesh) if mesh.size > 1 else None
    embedder = build_embedder(description, setup.plain_tokenizer).sharded(sharding, config.eval.batch_size, COARSE_BUCKETS)
    embed = PromptedEmbedder(embedder, setup.settings)
    sample = corpus_sample(setup, config.eval.diagnostic_sentences, config.train.seed)
    scorer = Scorer(embed, setup.tasks, setup.dev, sample, log, config.train.strict, setup.dev_task)
    width = setup.settings.truncate_dim
    agreement = Agreement(config, setup.held_out, embed.whole, width) if setup.held_out else None
    return Measures(scorer, setup.validation and Validation(method, encoder, setup.validation, mesh), agreement)
