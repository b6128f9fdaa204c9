"""A run at work: it trains, evaluates, saves, continues, goes back, and ends with scores and an export. No mathematics."""

import contextlib
import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from jax_sentemb.config import Config, Words, flatten, rewind_window
from jax_sentemb.data.batches import after_skips
from jax_sentemb.data.pairs import JoinedPairs
from jax_sentemb.errors import ConfigError, NotFinite
from jax_sentemb.formats.checkpoint import Checkpoints
from jax_sentemb.formats.run_dir import read_metadata, write_metadata
from jax_sentemb.formats.sentence_transformers import check_exportable
from jax_sentemb.inference.embedder import Embedder
from jax_sentemb.inference.export import export_run
from jax_sentemb.models.word_vectors import make_encoder
from jax_sentemb.parallel import agree, batch_sharding, fsdp_sharding, is_main_process, make_mesh, replicate
from jax_sentemb.reporting.html_report import not_vital
from jax_sentemb.reporting.samples import collect_samples
from jax_sentemb.training.checkpoint_selection import better, kept_encoder, score, selected_by, should_stop_early
from jax_sentemb.training.evaluator import Scorer, score_table, word_overlap_scores
from jax_sentemb.training.logger import Log, check_writers
from jax_sentemb.training.loop import batches_on_device, check_finite, fit
from jax_sentemb.training.optimizer import drop_rate, make_optimizer
from jax_sentemb.training.run_metadata import about, checkpoint_metadata, description, model_metadata, write_json
from jax_sentemb.training.setup import corpus_sample, prepare
from jax_sentemb.training.signals import Preempted, StopSignal
from jax_sentemb.training.step import create_state, make_step
from jax_sentemb.training.validation import Validation
from jax_sentemb.types import Batch, Params, TrainState

REWINDS = 3  # of train.on_nan, in a run


@dataclasses.dataclass
class Progress:
    """What a checkpoint says beside its facts: of the best weights, the evaluation done last, the batches taken out."""

    start: dict[str, float] = dataclasses.field(default_factory=dict)  # scores of the untrained weights
    best_score: float = -math.inf
    best_step: int = -1
    kept: str = ""  # which candidate of a method with several encoders the best weights are
    selected_by: str = ""
    evaluated: int = -1
    skipped: list[int] = dataclasses.field(default_factory=list)
    rewinds: int = 0


class Trainer:
    """A run in its work directory, from the step of its newest checkpoint on: `with Session(...)`, `train`, `finish`.

    ConfigError, DataError and ModelFileError for what cannot be run or continued, before anything is compiled.
    """

    def __init__(self, config: Config, workdir: Path) -> None:
        check_writers(config.train)
        self.config, self.workdir = config, workdir
        self.mesh = make_mesh(config.data.batch_size, fsdp=config.train.fsdp)
        if config.train.fused_attention == "cudnn" and jax.default_backend() != "gpu":
            raise ConfigError(
                f"train.fused_attention=cudnn needs an NVIDIA GPU, and this run has {jax.devices()[0].platform}: leave it out"
            )
        self.setup = setup = prepare(config, workdir)
        is_cross_encoder = config.method.is_cross_encoder
        self.progress = Progress(selected_by=selected_by(config.eval, setup.validation is not None, setup.dev, is_cross_encoder))
        an_epoch = setup.batches.steps_per_epoch
        epochs, steps = config.train.num_train_epochs, config.train.max_steps
        self.steps = steps if steps >= 0 else math.ceil(epochs * an_epoch)
        self.eval_steps = config.eval.eval_steps if config.eval.eval_steps >= 0 else an_epoch
        self.metadata = checkpoint_metadata(config, setup, self.steps)
        agree(json.dumps(self.metadata))
        self.log = Log(workdir, config.train, flatten(config))
        self.log.say(description(setup, self.steps, self.mesh.size))

        dtype = jnp.dtype(config.train.precision)
        memory = {name: getattr(config.train, name) for name in ("attention_block", "remat", "fused_attention")}
        self.encoder = make_encoder(setup.encoder_config, dtype, getattr(config.encoder, "dropout", 0.0), **memory)
        self.optimizer = make_optimizer(config.optimizer, self.steps, an_epoch, config.method.shares)
        self.state = self._untrained()
        self.stop = StopSignal()
        embedder = Embedder(
            lambda params, rows: config.method.embed(make_encoder(setup.encoder_config), params, rows),
            JoinedPairs(setup.tokenizer) if is_cross_encoder else setup.tokenizer,
            config.eval.max_seq_length,
            config.eval.batch_size,
            sharding=batch_sharding(self.mesh),
        )
        sample = corpus_sample(setup, config.eval.diagnostic_sentences, config.train.seed)
        self.scorer = Scorer(embedder, setup.tasks, setup.dev, sample, self.log, config.train.strict, is_cross_encoder)
        self.validation = setup.validation and Validation(config.method, self.encoder, setup.validation, self.mesh)
        self.checkpoints = Checkpoints(workdir, config.train.keep_checkpoints, self.log.warn)
        continued = self._continue()
        self._describe()
        self.log.rewind(self.step if continued else -1)
        self.log.event(self.step, {"event": "start"})

    @property
    def step(self) -> int:
        """Steps done."""
        return int(self.state.step)

    def train(self) -> None:
        """To the last step, or until evaluations are not better any more.

        Preempted if a signal came; what is done is saved then.
        """
        setup, mesh, config = self.setup, self.mesh, self.config
        # Parts of a batch are split over the devices, and into chunks.
        how = jax.process_index(), jax.process_count(), math.lcm(mesh.size, config.train.grad_cache_chunk or 1)

        def batch(step: int) -> tuple[Batch, ...]:
            return setup.batches.parts(self._batch_of(step), *how)

        left_out = 0 < self.step < self.steps and self.eval_steps and self.step % self.eval_steps == 0
        if self.step == 0 or (left_out and self.progress.evaluated < self.step):  # a signal had ended it
            self.state = self._evaluate(self.step, self.state)
        shardings = fsdp_sharding(mesh, self.state)
        step = make_step(config.method, self.encoder, self.optimizer, mesh, config.train.grad_cache_chunk, shardings)
        while not self._exhausted() and self.progress.evaluated < self.steps:
            try:
                with contextlib.closing(batches_on_device(batch, self.step, self.steps, mesh)) as rows:
                    self.state = fit(
                        self.state, step, rows, self.steps, config.train, self.log, config.data.batch_size,
                        self._evaluate, self.eval_steps, self._exhausted, self._save, self.stop,
                    )  # fmt: skip
                if not self.stop.reached and not self._exhausted():
                    with contextlib.suppress(Preempted):
                        self.state = self._evaluate(self.steps, self.state)
                    self._save(self.steps, self.state)
            except NotFinite as error:
                self._rewind(error)  # goes on even if a signal came: what is left out is saved with the next step
            else:
                if self.stop.reached:
                    raise Preempted

    def finish(self) -> None:
        """Scores and export of the best weights, or of the last ones where nothing selects. Preempted if a signal came."""
        self.stop.watch()
        self.checkpoints.wait()
        params, step = self._best()
        with self.stop.interruptible():
            self._score(params, step)
            self._look("end", step, params)

    def say_stopped(self) -> None:
        """After Preempted."""
        self.checkpoints.wait()
        self.log.say(f"stopped at step {self.step} of {self.steps} and saved; the same command continues")

    def __enter__(self) -> "Trainer":
        return self

    def __exit__(self, *error: object) -> None:
        self.log.close()
        self.checkpoints.close()

    def _untrained(self) -> TrainState:
        config = self.config
        return create_state(config.method, self.encoder, self.optimizer, self.setup.loaded, config.train.seed, self.mesh)

    def _continue(self) -> bool:
        """Take state and progress of the newest checkpoint; whether there is one."""
        restored = self.checkpoints.restore(self.state, self.metadata)
        if restored is None:
            return False
        self.state, saved = restored
        selected = self.progress.selected_by
        self.progress = dataclasses.replace(self.progress, **{name: saved[name] for name in vars(self.progress) if name in saved})
        self.log.say(f"continuing at step {self.step} of {self.steps}")
        if (before := self.progress.selected_by) != selected:  # scores of two kinds cannot be compared
            self.log.say(f"weights are selected by {selected or 'age'} from here on, so far by {before or 'age'}")
            self.progress = dataclasses.replace(self.progress, best_score=-math.inf, selected_by=selected)
        return True

    def _describe(self) -> None:
        """Write what an export from a checkpoint needs, and what made this run."""
        setup, workdir = self.setup, self.workdir
        if is_main_process():
            setup.tokenizer.save(workdir / "tokenizer")
            write_metadata(workdir, setup.encoder_config, model_metadata(self.config, setup, workdir))
        write_json(workdir / "config.json", flatten(self.config))
        write_json(workdir / "run.json", about(setup, self.steps, self.state.params, self.progress.selected_by))

    def _evaluate(self, step: int, state: TrainState) -> TrainState:
        """The state, with a lower rate where that is asked for; better weights are kept. Preempted if a signal came."""
        progress, log = self.progress, self.log
        with self.stop.interruptible():
            measured = self.scorer.measure(step, state.params)
            if self.validation:
                values = {f"validation/{name}": value for name, value in self.validation(state).items()}
                measured |= values
                log.event(step, values)
                log.say(f"step {step}: " + ", ".join(f"{name.replace('/', ' ', 1)} {value:.4f}" for name, value in values.items()))
            kept, params, found = self._better(step, state.params, score(progress.selected_by, measured))
        progress.evaluated = step
        if step == 0:  # the starting point is scored for comparison, it is no checkpoint
            progress.start = self._start_scores(measured, state.params)
            self._look("start", step, state.params)
        elif found is not None and found > progress.best_score:
            check_finite(step, params)
            progress.best_score, progress.best_step, progress.kept = found, step, kept
            said = {name: getattr(progress, name) for name in ("start", "best_score", "best_step", "kept")}
            self.checkpoints.save_best(step, params, said)
        elif self.config.optimizer.plateau_factor < 1:
            state, total = drop_rate(state, self.config.optimizer.plateau_factor)
            log.event(step, {"learning_rate_factor": total})
            log.say(
                f"step {step}: not above the best of step {progress.best_step}: the learning rate is {total:.2g} of its schedule"
            )
        return state

    def _better(self, step: int, params: Params, found: float | None) -> tuple[str, Params, float | None]:
        """Name, parameters and score of the encoder to keep, of those that the method offers; `found` is the default's score."""
        several = self.config.method.encoders(params)
        default, *others = several
        scores = {default: found}
        if step and "/" in self.progress.selected_by:  # at first all are alike; held-out loss is of all encoders together
            measured = {name: self.scorer.measure(step, several[name], f"{name} encoder") for name in others}
            scores |= {name: score(self.progress.selected_by, values) for name, values in measured.items()}
        kept = better(scores)
        return kept, several[kept], scores[kept]

    def _start_scores(self, measured: dict[str, float], params: Params) -> dict[str, float]:
        if self.config.eval.data == "grammar":
            return self.scorer.all_spearman(params)
        dev = self.setup.dev
        found = score(f"eval/{dev}/spearman_cosine", measured)
        return {} if found is None else {dev: found}

    def _exhausted(self) -> bool:
        return should_stop_early(self.config.eval.patience, self.eval_steps, self.progress.evaluated, self.progress.best_step)

    def _save(self, step: int, state: TrainState) -> None:
        check_finite(step, state)
        self.checkpoints.save(step, state, {**self.metadata, **dataclasses.asdict(self.progress)})

    def _batch_of(self, step: int) -> int:
        return after_skips(step, self.progress.skipped)

    def _rewind(self, error: NotFinite) -> None:
        """Back to the last checkpoint, without the batches that led to `error`; raises it where that is not wanted."""
        progress, window = self.progress, rewind_window(self.config.train)
        lines = (self.setup.batches.lines(self._batch_of(error.step - 1)) + 1).tolist()
        report = {"step": error.step, "problem": str(error), "lines": lines, "losses": list(self.log.losses)}
        write_json(self.workdir / "not_finite.json", report)
        if not window or progress.rewinds == REWINDS:
            file = self.workdir / "not_finite.json"
            advice = f"they were skipped {REWINDS} times already" if window else "or skip them with train.on_nan=rewind:1"
            problem = (
                f"{error}; {file} has its lines, the last checkpoint is untouched: lower optimizer.learning_rate, "
                f"look at the lines, {advice}"
            )
            self.log.warn(error.step, problem)
            raise NotFinite(error.step, problem.partition(": ")[2]) from None
        self.checkpoints.wait()
        found = self.checkpoints.restore(self.state, self.metadata)
        self.state = found[0] if found else self._untrained()
        back = self.step
        out = [self._batch_of(step) for step in range(max(error.step - window, back), error.step)]
        progress.skipped = sorted({*progress.skipped, *out})
        progress.rewinds += 1
        progress.evaluated = back
        self.log.rewind(back)
        self.log.warn(back, f"{error}; not_finite.json has its lines. Back at step {back}, batches {out} are skipped")

    def _best(self) -> tuple[Params, int]:
        """The weights to export and their step."""
        progress, log = self.progress, self.log
        params, at = self.state.params, self.step
        if at < self.steps:
            log.say(f"training ends at step {at}: {self.config.eval.patience} evaluations were not above step {progress.best_step}")
        if progress.best_step < 0:
            return params, at
        at, params = self.checkpoints.restore_best(params) or (at, params)
        progress.kept = self.checkpoints.best_facts(at).get("kept", "")
        if at != progress.best_step:
            log.warn(at, f"the best weights, of step {progress.best_step}, are not there: those of step {at} are exported")
        dev = self.setup.dev
        start = progress.start.get(dev) if progress.selected_by.startswith("eval/") else None
        if start is not None and -math.inf < progress.best_score < start:
            log.warn(
                progress.best_step,
                f"the best checkpoint scores {progress.best_score:.2f} on {dev}, below the starting point's {start:.2f}: "
                "training made this model worse",
            )
        return params, at

    def _score(self, params: Params, step: int) -> None:
        """Final scores to the terminal and scores.json, then the verified export."""
        config, setup, scorer, workdir = self.config, self.setup, self.scorer, self.workdir
        params = replicate(params)
        scores = scorer.all_tasks(params) if setup.tasks else {}
        if cut := scorer.embedder.truncated:
            longest = config.eval.max_seq_length
            self.log.warn(step, f"{cut:,} distinct evaluation sentences were cut at eval.max_seq_length={longest}")
        baselines = {"untrained": self.progress.start}
        if config.eval.data == "grammar":
            baselines |= word_overlap_scores(setup.tasks, [setup.sentences[row] for row in range(len(setup.sentences))])
        results: dict[str, Any] = {"step": step, "scores": scores, "baselines": baselines, "absent": setup.missing_tasks}
        kept = kept_encoder(config.method, params, self.progress.kept, self.progress.selected_by)
        results |= kept
        if kept:
            self.log.say(f"exported is the {kept['kept_encoder']} encoder: {kept['kept_because']}")
        results["diagnostics"] = scorer.diagnostics(params)
        self.log.summary({name: result["spearman"]["all"] for name, result in scores.items()})
        self.log.finish_progress()
        if scores or not setup.final:
            print(score_table(scores, setup.missing_tasks, baselines))
        if setup.final:
            results["transfer"] = setup.final.score(workdir.name, lambda sentences: scorer.embedder(params, sentences))
            results["absent"] = [*setup.missing_tasks, *setup.final.missing_tasks]
        if not is_main_process():
            return
        write_json(workdir / "scores.json", results)
        metadata = model_metadata(config, setup, workdir)
        write_metadata(workdir, setup.encoder_config, {**metadata, **kept, "scores": scores, "scores_of_step": step})
        try:
            if not isinstance(config.encoder, Words):  # word models are directories of our own
                check_exportable(config.method.pooling, config.method.convolution)
        except ConfigError as error:  # known before, but no reason not to train: evaluation reads the work directory
            print(f"not exported: {error}")
            return
        export_run(workdir / "export", read_metadata(workdir), jax.device_get(params), workdir, step)

    def _look(self, when: str, step: int, params: Params) -> None:
        """`workdir`/samples/`when`.json: what the report shows of these weights, so that it needs no model."""
        scorer, config = self.scorer, self.config
        with not_vital(self.workdir):
            wanted = 0 if scorer.is_cross_encoder else config.eval.report_sentences
            sentences = corpus_sample(self.setup, wanted, config.train.seed) if wanted else []
            found = collect_samples(lambda texts: scorer.embedder(params, texts), sentences, scorer.similarities, self.setup.tasks)
            write_json(self.workdir / "samples" / f"{when}.json", {"step": step, **found})
