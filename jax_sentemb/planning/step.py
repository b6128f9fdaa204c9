"""Trace the train step of a run for devices that this machine lacks: arrays are shapes, and sentences are generated."""

import dataclasses
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jax_sentemb.config import Config, Data, Words
from jax_sentemb.data.batches import AnyBatches, Batches, make_batches
from jax_sentemb.data.corpus import Corpus
from jax_sentemb.data.tokenizer import new_tokenizer
from jax_sentemb.distillation.teacher import WordVectors
from jax_sentemb.models.dense import DENSE
from jax_sentemb.models.word_vectors import FROZEN, WordsConfig
from jax_sentemb.parallel import batch_sharding, make_mesh
from jax_sentemb.training.corpus_source import corpus_files
from jax_sentemb.training.encoder_source import BertSource, WordSource
from jax_sentemb.training.optimizer import make_optimizer
from jax_sentemb.training.setup import check_attention, run_encoder, trained_method
from jax_sentemb.training.step import make_step, state_shapes
from jax_sentemb.types import Batch, TrainState

SENTENCES = 400  # generated, for the structure of a batch
STEPS = 1000  # of the learning-rate schedule: its length changes no shape


class PlannedRun:
    """A run whose encoder, optimiser and batches are only shapes. `encoder.weights` is read, `data.files` is not."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._encoder_config, self._loaded = _encoder(config)
        with generated_batches(config, 8) as batches:
            self._example = batches.at(0)
            if isinstance(batches, Batches):
                self._loaded = self._loaded | _shapes(config.method.from_examples(batches.tokens, 0))

    def trace(self, devices: list[Any], batch_size: int, fsdp: int) -> tuple[Any, tuple[TrainState, Batch]]:
        """Return the traced train step over `devices`, and the shapes of its state and batch, as wide as data.max_seq_length.

        Raises:
            ConfigError: Settings do not fit each other or the devices.
        """
        config = self.config
        mesh = make_mesh(batch_size, devices, fsdp)
        check_attention(config.train, mesh)
        encoder = run_encoder(config, self._encoder_config, mesh)
        config.method.check(encoder, batch_size)
        optimizer = make_optimizer(config.optimizer, STEPS, STEPS, config.method.step_shares)
        method = trained_method(config, self._encoder_config, ())
        state = state_shapes(method, encoder, optimizer, self._loaded, mesh)
        shardings = jax.tree.map(lambda leaf: leaf.sharding, state)
        step: Any = make_step(method, encoder, optimizer, mesh, config.train.grad_cache_chunk, shardings)
        shapes = state, self._batch(batch_size, batch_sharding(mesh))
        return step.trace(*shapes), shapes

    def _batch(self, batch_size: int, sharding: Any) -> Batch:
        def shape(name: str, values: np.ndarray) -> Any:  # a ShapeDtypeStruct instead of an array
            sizes = [batch_size, *values.shape[1:]]
            if name in ("tokens", "mask"):
                sizes[-1] = self.config.data.max_seq_length
            return jax.ShapeDtypeStruct(tuple(sizes), values.dtype, sharding=sharding)

        fields = self._example._asdict()
        shapes: dict[str, Any] = {
            name: values if values is None else shape(name, np.asarray(values)) for name, values in fields.items()
        }
        return Batch(**shapes)


def feed_rate(config: Config, batch_size: int, seconds: float = 1.0) -> float:
    """Return the rows per second that one core of this machine reads and pads for the run, from generated sentences."""
    with generated_batches(config, min(batch_size, SENTENCES // 4)) as batches:
        batches.at(0)
        start, step, rows = time.process_time(), 0, 0
        while time.process_time() - start < seconds:
            step += 1
            rows += sum(len(batch.tokens) for batch in batches.parts(step % batches.steps_per_epoch))
        return rows / (time.process_time() - start)


@contextmanager
def generated_batches(config: Config, batch_size: int) -> Iterator[AnyBatches]:
    """Yield batches of generated sentences, as the method of `config` makes them from its corpus."""
    data = Data(f"grammar:{SENTENCES}", max_seq_length=config.data.max_seq_length, pack=config.data.pack, num_workers=0)

    def tokenizer(sentences: Any) -> Any:
        if isinstance(config.encoder, Words):
            small = dataclasses.replace(config.encoder, vectors="", hidden_size=2)
            return WordSource(small, lambda: (), 0).tokenizer(sentences)
        return new_tokenizer(sentences, 1000)

    with tempfile.TemporaryDirectory() as folder:
        files = lambda pairs: corpus_files(data, "grammar", Path(folder), pairs)  # noqa: E731
        teacher = f"words:{getattr(config.encoder, 'hidden_size', 1)}"  # counts as wide as a new student
        corpus = Corpus(files, tokenizer, data.max_seq_length, pack=data.pack, teacher=lambda text, _: WordVectors(teacher, text))
        yield make_batches(config.method.examples(corpus, 0), batch_size, 0, config.data.length_grouping)


def _encoder(config: Config) -> tuple[Any, Any]:
    """Return the configuration of the encoder, and the shapes of the weights that training starts from."""
    if isinstance(config.encoder, Words):
        rows, width = config.encoder.max_words + 2, config.encoder.hidden_size
        vectors, counts = jax.ShapeDtypeStruct((rows, width), np.float32), jax.ShapeDtypeStruct((rows,), np.float32)
        shapes = {FROZEN: {"vectors": vectors, "counts": counts}}
        if config.encoder.trained:
            shapes = {"encoder": {"vectors": vectors}, FROZEN: {"counts": counts}}
        return WordsConfig(rows, width), shapes
    lengths = {"data.max_seq_length": config.data.max_seq_length, "eval.max_seq_length": config.eval.max_seq_length}
    source = BertSource(config.encoder, config.data, lengths)
    # The matrix of a distillation has the width of its teacher, which is not read here: see `generated_batches`.
    loaded = {name: part for name, part in source.loaded.items() if name != DENSE or config.method.dense is None}
    return source.blank().config, _shapes(loaded)


def _shapes(arrays: Any) -> Any:
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), arrays)
