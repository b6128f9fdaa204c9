"""Distillation: a small encoder learns the sentence vectors of a teacher, which are computed once and read from disk.

References:
    Cosine regression: Reimers and Gurevych 2020 (with a squared error). Queue: ConGen (Limkonchotiwat et al., EMNLP Findings 2022).
    Ranking: ListNet (Cao et al. 2007) as in RankCSE (Liu et al., ACL 2023).
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Float, Key

from jax_sentemb.data.corpus import Corpus
from jax_sentemb.data.examples import Examples
from jax_sentemb.errors import ConfigError, Setting
from jax_sentemb.losses import Scalar, paired_cosine, rank_distillation, similarity_distillation
from jax_sentemb.methods.base import Carry, EmbeddingMethod, InitialState, Objective, Seeds
from jax_sentemb.models.dense import DENSE
from jax_sentemb.models.encoder import TokenEncoder
from jax_sentemb.models.pooling import POOLINGS, sentence_embedding
from jax_sentemb.settings import setting
from jax_sentemb.types import ROW_NUMBERS, Array, Batch, Params, TrainState

START = "start"  # a teacher: the encoder that the run starts from
TEACHER = "teacher"  # the part of `loaded` with vectors of the teacher, which fill the queue at the start


class Taught(NamedTuple):
    """The student's and the teacher's vector of each sentence, and its row number."""

    student: Float[Array, "batch width"]
    teacher: Float[Array, "batch target"]
    row: Float[Array, " batch"] | None


@dataclass
class Distillation(EmbeddingMethod):
    """Learn the vectors of a teacher by a weighted sum of three losses.

    `cosine` is 1 - cosine of W s(x) and t(x), with a matrix W that is learned. `congen` compares how W s(x) and t(x) see the
    teacher's vectors of other sentences: those of the batch and of a queue. `rank` compares the order of the batch by s(x) itself
    with its order by t(x). The state's `params` are {"encoder", "dense" (W; without it if only `rank` has a weight)}.
    """

    # A model, a directory that `jax-sentemb encode` wrote for the same text, "start" (the encoder of encoder.weights before the
    # training) or "words:WIDTH" (tf-idf of the text); several are comma separated.
    teacher: str = "all-MiniLM-L6-v2"
    teacher_precision: str = setting("float32", choices=("float32", "bfloat16"))  # precision of the teacher's matrix products
    cosine: float = setting(1.0, least=0)  # weight of the cosine regression
    congen: float = setting(0.0, least=0)  # weight of the similarities to the queue (ConGen)
    rank: float = setting(0.0, least=0)  # weight of the order of the batch (ListNet)
    queue_size: int = setting(16384, least=1, used_if="congen")  # teacher vectors in the queue of `congen`
    teacher_temperature: float = setting(0.05, above=0, used_if="congen")  # divides the teacher's cosines in `congen`
    student_temperature: float = setting(0.07, above=0, used_if="congen")  # divides the student's cosines in `congen`
    rank_temperature: float = setting(0.05, above=0, used_if="rank")  # divides the cosines in `rank`
    # The exported vectors: "teacher" (W s, comparable with the teacher's vectors) or "student" (s, as wide as the encoder). In a
    # long training W removes a direction that all s share, so s alone becomes worse while W s becomes better.
    output: str = setting("teacher", choices=("student", "teacher"))
    pooling: str = setting("mean", choices=POOLINGS)  # how token states become an embedding
    embeddings: ClassVar[tuple[str, ...]] = ("student",)  # the queue holds vectors of the teacher

    @property
    def has_map(self) -> bool:
        """Return whether a loss uses W."""
        return self.cosine > 0 or self.congen > 0

    @property
    def dense(self) -> tuple[str, ...] | None:
        """Return the activation of W as a layer after the pooling, () if the export is without W, and None if there is no W."""
        if not self.has_map:
            return None
        return ("identity",) if self.output == "teacher" else ()

    def check(self, encoder: TokenEncoder, batch_size: int) -> None:
        """Raise ConfigError if a setting is out of range."""
        super().check(encoder, batch_size)
        if not self.teacher.strip(" ,"):
            raise ConfigError(Setting("method.teacher"), " is empty: name a model, or a directory that jax-sentemb encode wrote")
        weights = {name: getattr(self, name) for name in ("cosine", "congen", "rank")}
        if not any(weights.values()):
            raise ConfigError(Setting("method.cosine"), ", congen and rank are 0: give one of them a weight")
        if self.output == "teacher" and not self.has_map:
            raise ConfigError(
                Setting("method.output", "teacher"),
                " needs the matrix W: give ",
                Setting("method.cosine"),
                " or ",
                Setting("method.congen"),
                " a weight, or set ",
                Setting("method.output", "student"),
            )

    def examples(self, corpus: Corpus, seed: int) -> Examples:
        """Return distinct sentences, each with the vector of the teacher."""
        return corpus.taught()

    def from_examples(self, examples: Examples, seed: int) -> Params:
        """Return vectors of the teacher for the queue, and the numbers of their rows; one vector if there is no queue."""
        size = self.queue_size if self.congen else 1
        random = np.random.default_rng(seed)
        drawn = random.choice(len(examples), min(size, len(examples)), replace=False)
        rows = np.resize(np.sort(drawn), size)
        numbers = (rows % ROW_NUMBERS).astype(np.int32)  # as in `Batch.row`, with which the loss compares them
        return {TEACHER: {"vectors": np.asarray(examples.labels(rows, 0), np.float32), "rows": numbers}}

    def init(self, encoder: TokenEncoder, loaded: Params, key: Key[Array, ""]) -> InitialState:
        """Return the parameters {"encoder", "dense"} and a full queue.

        W starts as the loaded "dense" part if there is one, else as the identity, or as a random matrix if the widths differ.
        """
        params: Params = {"encoder": loaded["encoder"]}
        vectors, rows = loaded[TEACHER]["vectors"], loaded[TEACHER]["rows"]
        if self.has_map:
            width, target = encoder.config.hidden_size, vectors.shape[1]
            kernel = jnp.eye(width) if width == target else width**-0.5 * jax.random.normal(key, (width, target))
            params[DENSE] = loaded.get(DENSE, {"layer_0": {"kernel": kernel}})
        return InitialState(params, queue=vectors, queue_rows=rows) if self.congen else InitialState(params)

    def encode(self, encoder: TokenEncoder, params: Params, state: TrainState, batch: Batch, seeds: Seeds) -> Taught:
        """Return the student's vectors with dropout, and those of the teacher."""
        assert batch.label is not None
        row = None if batch.row is None else batch.row.astype(jnp.float32)
        return Taught(sentence_embedding(encoder, params, batch.rows, self.pooling, seeds=seeds), batch.label, row)

    def objective(self, params: Params, state: TrainState, encoded: Taught) -> Objective:
        """Return the weighted sum of the losses, each loss as NAME_loss, and the teacher's vectors and rows for the queue."""
        student, teacher = encoded.student, lax.stop_gradient(encoded.teacher)
        losses: dict[str, Scalar] = {}
        mapped = student
        if self.has_map:
            mapped = jnp.matmul(student, params[DENSE]["layer_0"]["kernel"], precision="highest")
            losses["cosine"] = (1.0 - paired_cosine(mapped, teacher)).mean()
        if self.congen and state.queue is not None and state.queue_rows is not None:
            row = jnp.full(len(student), -1.0) if encoded.row is None else encoded.row
            temperatures = self.teacher_temperature, self.student_temperature
            losses["congen"] = similarity_distillation(mapped, teacher, state.queue, (row, state.queue_rows), temperatures)
        if self.rank:
            losses["rank"] = rank_distillation(student, teacher, self.rank_temperature)
        loss: Scalar = jnp.stack([getattr(self, name) * value for name, value in losses.items()]).sum()
        return loss, ({f"{name}_loss": value for name, value in losses.items()}, (teacher, encoded.row))

    def post_update(self, state: TrainState, carry: Carry) -> TrainState:
        """Return the state with the step's teacher vectors at the front of the queue."""
        if state.queue is None or state.queue_rows is None:
            return state
        teacher, row = carry
        rows = jnp.full(len(teacher), -1, jnp.int32) if row is None else row.astype(jnp.int32)
        queue, queue_rows = jnp.concatenate([teacher, state.queue]), jnp.concatenate([rows, state.queue_rows])
        return state._replace(queue=queue[: self.queue_size], queue_rows=queue_rows[: self.queue_size])
