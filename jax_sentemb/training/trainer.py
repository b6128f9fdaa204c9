"""Train a run: resume, train, evaluate, save, rewind after NaN, score and export."""

import contextlib
import dataclasses
import json
import math
import time
from pathlib import Path

from jax_sentemb.config import Config, flatten, unused_notes
from jax_sentemb.data.batches import after_skips
from jax_sentemb.errors import ModelFileError, NotFinite, Setting, note_text, stored_text
from jax_sentemb.evaluation.agreement import SELECTING
from jax_sentemb.files import fingerprint
from jax_sentemb.formats.checkpoint import Checkpoints
from jax_sentemb.formats.run_dir import CONTINUED, averaged, write_metadata
from jax_sentemb.inference.load import load
from jax_sentemb.parallel import (
    agree,
    fsdp_sharding,
    is_main_process,
    keeps_compiled_programs,
    make_mesh,
    process_share,
    put_whole,
    replicated,
)
from jax_sentemb.reporting.html_parts import duration_text
from jax_sentemb.setting_texts import rewind_window
from jax_sentemb.training.checkpoint_selection import (
    Progress,
    better,
    check_plateau,
    continued,
    kept_encoder,
    score,
    selected_by,
)  # fmt: skip
from jax_sentemb.training.dev_task import dev_metric
from jax_sentemb.training.logger import Log, check_writers
from jax_sentemb.training.loop import Hooks, Metrics, batches_on_device, check_finite, fit
from jax_sentemb.training.measures import make_measures
from jax_sentemb.training.optimizer import drop_rate, make_optimizer, warmup_notes
from jax_sentemb.training.results import Results
from jax_sentemb.training.run_metadata import about, description, model_metadata, stored_settings, write_json
from jax_sentemb.training.run_sources import run_mark, run_sources, selection_sources
from jax_sentemb.training.setup import check_attention, prepare, run_encoder, trained_method
from jax_sentemb.training.signals import Preempted, StopSignal
from jax_sentemb.training.starting_encoder import (
    begins_as_start,
    dense_layers,
    dense_notes,
    read_start,
    whole_start,
    with_start,
)
from jax_sentemb.training.step import create_state, make_step
from jax_sentemb.types import Batch, Params, TrainState

ON_HALVES = "diagnostics/retrieval"
REWINDS = 3  # most rewinds of train.on_nan in a run


class Trainer:
    """Train a run in its work directory, from its newest checkpoint on: `with Trainer(...)`, `train`, `finish`.

    Raises:
        ConfigError: The run cannot start or continue with these settings; raised before anything is compiled.
        DataError: The corpus or an evaluation set cannot be read; raised before anything is compiled.
        ModelFileError: The weights or a checkpoint cannot be read; raised before anything is compiled.
    """

    def __init__(self, config: Config, workdir: Path, brief: bool = False) -> None:
        """Print the final scores in one line if `brief` is true."""
        self._begin = time.monotonic()
        check_writers(config.train)
        self.start = read_start(config)
        config, notes = with_start(config, self.start)
        self.config, self.workdir = config, workdir
        self.mesh = make_mesh(config.data.batch_size, fsdp=config.train.fsdp)
        check_attention(config.train, self.mesh)
        self.setup = setup = prepare(config, workdir, self.start)
        measured, method = SELECTING if setup.held_out else "", config.method
        validates = setup.validation is not None and method.validation_selects
        self.progress = Progress(
            selected_by=selected_by(config.eval, validates, self.on_dev, method.is_cross_encoder, measured),
            scale={f"eval.{name}": getattr(config.eval, name) for name in ("max_seq_length", "diagnostic_sentences")},
            measured_on=selection_sources(config, setup),
        )
        check_plateau(config.optimizer.plateau_factor, method, self.progress.selected_by)
        epoch = setup.batches.steps_per_epoch
        self.steps = config.train.number_of_steps(epoch)
        self.eval_steps = config.eval.eval_steps if config.eval.eval_steps >= 0 else epoch
        sources = run_sources(config, setup, self.steps, self.start)
        agree(json.dumps(sources))
        with contextlib.ExitStack() as opened:  # closes what is open if something below fails
            self.log = Log(workdir, config.train, flatten(config), brief)
            opened.callback(self.log.close)
            for line in description(setup, self.steps, self.mesh.size, config.data).splitlines():
                self.log.info(line)

            notes += dense_notes(config, self.start, setup.loaded)
            for note in (*unused_notes(config), *notes, *warmup_notes(config.optimizer, self.steps)):
                self.log.info(note)

            self.encoder = run_encoder(config, setup.encoder_config, self.mesh)
            self.method = trained_method(config, setup.encoder_config, dense_layers(config, self.start))
            self.optimizer = make_optimizer(config.optimizer, self.steps, epoch, config.method.step_shares)
            self.state = self._untrained()
            self.stop = StopSignal()
            self.mark = run_mark(workdir.name, sources)
            self.model_metadata = model_metadata(config, setup, workdir.name, self.start) | self.mark
            self.measures = make_measures(config, setup, self.method, self.encoder, self.model_metadata, self.mesh, self.log)
            scorer, agreement = self.measures.scorer, self.measures.agreement
            self.results = Results(config, setup, self.model_metadata, scorer, agreement, self.log, workdir)
            self.checkpoints = Checkpoints(workdir, sources, config.train.keep_checkpoints, config.train.save_steps, self.log.warn)
            opened.callback(self.checkpoints.close)
            new_scale = self._continue()
            if self.progress.best_step < 0:  # a run that was killed before its first checkpoint leaves best weights, too
                self.checkpoints.delete_best()
            # First, so that files of this run are never next to events of another run.
            self.log.rewind(-1 if new_scale is None else self.step)
            self._describe()
            facts = {"new_scale": new_scale} if new_scale else {}  # measures whose earlier values cannot be compared
            milliseconds = round(1000 * (time.monotonic() - self._begin))
            self.log.event(self.step, {"event": "start", "milliseconds_before": milliseconds, **facts})
            self._opened = opened.pop_all()

    @property
    def step(self) -> int:
        """Return the number of steps done."""
        return int(self.state.step)

    def train(self) -> None:
        """Train to the last step, or until evaluations stop improving.

        Raises:
            Preempted: A signal arrived; the state is saved.
        """
        is_due = 0 < self.step < self.steps and self.eval_steps and self.progress.evaluated < self.step
        # A signal interrupted the evaluation of this step, or the scores of earlier steps do not count any more.
        if self.step == 0 or (is_due and (self.step % self.eval_steps == 0 or self.progress.evaluated < 0)):
            self.log.info("scoring   " + ("the start" if self.step == 0 else f"step {self.step}"))
            self.state = self._evaluate(self.step, self.state)
        if self.step < self.steps:
            reused = " (later runs of these shapes reuse the compiled programs)" if keeps_compiled_programs() else ""
            self.log.info(f"compiling the step{reused}")
        mesh, config = self.mesh, self.config
        shardings = fsdp_sharding(mesh, self.state)
        step = make_step(self.method, self.encoder, self.optimizer, mesh, config.train.grad_cache_chunk, shardings)
        hooks = Hooks(self._evaluate, self._save, self._exhausted, self.eval_steps, config.train.save_steps, self.steps)
        while not self._exhausted() and self.progress.evaluated < self.steps:
            metrics = Metrics(self.log, config.data.batch_size, self.steps, config.train.logging_steps)
            try:
                with contextlib.closing(batches_on_device(self._batch, self.step, self.steps, mesh)) as batches:
                    self.state = fit(self.state, step, batches, metrics, hooks, self.stop)
                if not self.stop.reached and not self._exhausted():
                    with contextlib.suppress(Preempted):
                        self.log.info(f"scoring   step {self.steps}")
                        self.state = self._evaluate(self.steps, self.state)
                    self._save(self.steps, self.state)
            except NotFinite as error:
                self._rewind(error)  # also if a signal came: the next step saves which batches are skipped
            else:
                if self.stop.reached:
                    raise Preempted

    def finish(self) -> None:
        """Score and export the best weights, or the last weights if there is no selection metric.

        Raises:
            Preempted: A signal arrived.
        """
        self.stop.watch()
        self.checkpoints.wait()
        params, step = self._best()
        params = averaged(params, self.setup.loaded, self.config.train.average_with_start)
        progress = self.progress
        encoder, reason = kept_encoder(self.config.method, params, progress.best_encoder, progress.selected_by)
        if encoder:
            self.log.info(note_text(f"the {encoder} encoder is exported: ", *reason))
        kept = {"kept_encoder": encoder, "kept_because": stored_text(*reason)} if encoder else {}
        self.log.info(f"scoring   the weights of step {step}, then the export and the report")
        with self.stop.interruptible():
            self.results.score(params, step, progress, kept, self.steps * self.config.data.batch_size)
        self.log.event(self.step, {"event": "end"})
        self.log.info(f"time      {duration_text(time.monotonic() - self._begin)} from reading the corpus to the export")

    def print_stopped(self) -> None:
        """Print the step at which a run stopped."""
        self.checkpoints.wait()
        self.log.info(f"stopped at step {self.step} of {self.steps} and saved; the same command continues")

    def __enter__(self) -> "Trainer":
        return self

    def __exit__(self, *error: object) -> None:
        self._opened.close()

    def _untrained(self) -> TrainState:
        seed = self.config.train.seed
        return create_state(self.method, self.encoder, self.optimizer, self.setup.loaded, seed, self.mesh)

    def _continue(self) -> list[str] | None:
        """Restore state and progress from the newest checkpoint; return the measures that begin anew, None without a checkpoint."""
        restored = self.checkpoints.restore(self.state)
        if restored is None:
            return None
        self.state, saved = restored
        if self.step > self.steps:
            raise ModelFileError(
                f"{self.workdir} is already at step {self.step}, but this run has {self.steps} steps: "
                f"give at least {self.step} steps, or another ",
                Setting("--workdir"),
            )
        path = self.workdir / "checkpoints" / str(self.step)
        self.progress, note, new_scale = continued(path, saved, self.progress)
        done = "; training is done, so only the scores, the export and the report follow" if self.step == self.steps else ""
        self.log.info(f"continuing at step {self.step} of {self.steps}{done}")
        if note:
            self.log.info(note)
        return new_scale

    def _describe(self) -> None:
        """Write model.json and the tokenizer, which an export from a checkpoint needs, and the run's settings and versions."""
        setup, workdir = self.setup, self.workdir
        if is_main_process():
            setup.tokenizer.save(workdir / "tokenizer")
            write_metadata(workdir, setup.encoder_config, self.model_metadata)
        settings = stored_settings(self.config)
        write_json(workdir / "config.json", settings)
        facts = about(setup, self.steps, self.state.params, self.progress.selected_by, self.config.eval)
        if self.config.train.average_with_start:
            continued = {name: setup.loaded[name] for name in CONTINUED if name in setup.loaded}
            self.checkpoints.save_start(put_whole(continued, replicated(self.mesh)))
        write_json(workdir / "run.json", {**facts, "settings_sha256": fingerprint(settings), **self.mark})

    def _batch(self, step: int) -> tuple[Batch, ...]:
        """Return the batch of a step in parts.

        Their sizes are multiples of the number of devices and of the gradient-caching chunk.
        """
        multiple = math.lcm(self.mesh.size, self.config.train.grad_cache_chunk or 1)
        return self.setup.batches.parts(self._batch_number(step), *process_share(self.mesh), multiple)

    def _batch_number(self, step: int) -> int:
        return after_skips(step, self.progress.skipped)

    def _evaluate(self, step: int, state: TrainState) -> TrainState:
        """Score a state and save its weights if they are the best; return it. `plateau_factor` may lower its learning rate.

        Raises:
            Preempted: A signal arrived.
        """
        progress, log = self.progress, self.log
        with self.stop.interruptible():
            measured = self.measures(step, state)
            name, params, best_score = self._better(step, state.params, score(progress.selected_by, measured))
        progress.evaluated = step
        if step == 0:
            start = self.start
            is_start = begins_as_start(self.config, start, self.setup.encoder_config, self.setup.loaded)
            if start is not None and not is_start and whole_start(self.config):
                measured = self.measures.of_model(load(start.name).embed_as)
            progress.measured = {name: value for name, value in measured.items() if name in (ON_HALVES, SELECTING, self.on_dev)}
            progress.start = self._start_scores(measured, state.params)
            progress.first_rows = self.steps * self.config.data.batch_size
            self.results.sample("start", step, state.params, progress.first_rows, progress.first_rows)
            if is_start and progress.selected_by in progress.measured:  # a sentence encoder may be the best
                self._keep(step, params, best_score, name)
        elif best_score is not None and best_score > progress.best_score:
            self._keep(step, params, best_score, name)
        else:
            progress.not_improved += 1
        if progress.not_improved and self.config.optimizer.plateau_factor < 1:
            state, total = drop_rate(state, self.config.optimizer.plateau_factor)
            log.event(step, {"learning_rate_factor": total})
            log.info(f"step {step}: no improvement since step {progress.best_step}: learning rate x {total:.2g} from now on")
        return state

    def _keep(self, step: int, params: Params, best_score: float | None, encoder: str) -> None:
        """Save the weights that are the best so far."""
        check_finite(step, params)
        progress = self.progress
        progress.best_score, progress.best_step = -math.inf if best_score is None else best_score, step
        progress.best_encoder, progress.not_improved = encoder, 0
        facts = {name: getattr(progress, name) for name in ("start", "measured", "best_score", "best_step", "best_encoder")}
        self.checkpoints.save_best(step, params, facts)

    @property
    def on_dev(self) -> str:
        """Return the name of the score on the development set in metrics.jsonl, "" without a development set."""
        return dev_metric(self.setup.dev, self.setup.dev_task)

    def _better(self, step: int, params: Params, default_score: float | None) -> tuple[str, Params, float | None]:
        """Return name, parameters and score of the method's best encoder; `default_score` is the score of its first encoder."""
        encoders = self.config.method.encoders(params)
        default, *other_names = encoders
        scores = {default: default_score}
        # At step 0 all are equal. The validation loss is that of all encoders together.
        if step and "/" in self.progress.selected_by:
            measured = {name: self.measures.of_encoder(step, encoders[name], f"{name} encoder") for name in other_names}
            scores |= {name: score(self.progress.selected_by, values) for name, values in measured.items()}
        best = better(scores)
        return best, encoders[best], scores[best]

    def _start_scores(self, measured: dict[str, float], params: Params) -> dict[str, float]:
        if self.config.eval.data == "grammar":
            return self.measures.scorer.all_spearman(params)
        dev_score = score(self.on_dev, measured)
        return {} if dev_score is None else {self.setup.dev: dev_score}

    def _exhausted(self) -> bool:
        return 0 < self.config.eval.patience <= self.progress.not_improved

    def _save(self, step: int, state: TrainState) -> None:
        check_finite(step, state)
        self.checkpoints.save(step, state, dataclasses.asdict(self.progress))

    def _rewind(self, error: NotFinite) -> None:
        """Restore the last checkpoint and skip the batches before `error`; raise it if `train.on_nan` is empty."""
        progress, window = self.progress, rewind_window(self.config.train.on_nan)
        rows = self.setup.rows(self.setup.batches.lines(self._batch_number(error.step - 1))).tolist()
        report = {"step": error.step, "problem": str(error), "rows": rows, "losses": list(self.log.losses)}
        write_json(self.workdir / "not_finite.json", report)
        if not window or progress.rewinds == REWINDS:
            file = self.workdir / "not_finite.json"
            skip = (", or skip them with ", Setting("train.on_nan", "rewind:1"))
            stopped = NotFinite(
                error.step,
                f"{error.problem}; {file} has its rows, the last checkpoint is untouched: lower ",
                Setting("optimizer.learning_rate"),
                ", look at the rows",
                *((f", they were skipped {REWINDS} times already",) if window else skip),
            )
            self.log.warn(error.step, *stopped.message)
            raise stopped from None
        self.checkpoints.wait()
        restored = self.checkpoints.restore(self.state)
        self.state = restored[0] if restored else self._untrained()
        restored_step = self.step
        skipped = [self._batch_number(step) for step in range(max(error.step - window, restored_step), error.step)]
        progress.skipped = sorted({*progress.skipped, *skipped})
        progress.rewinds += 1
        progress.evaluated, progress.not_improved = restored_step, restored[1]["not_improved"] if restored else 0
        self.log.rewind(restored_step)
        self.log.warn(
            restored_step, f"{error}; not_finite.json has its rows. Back at step {restored_step}, batches {skipped} are skipped"
        )

    def _best(self) -> tuple[Params, int]:
        """Return the weights to export, and their step."""
        progress, log = self.progress, self.log
        params, at = self.state.params, self.step
        if at < self.steps:
            patience = self.config.eval.patience
            log.info(f"training ends at step {at}: {patience} evaluations without improvement since step {progress.best_step}")
        if progress.best_step < 0 or (progress.best_step == at and not progress.best_encoder):
            return params, at
        at, params = self.checkpoints.restore_best(params, progress.best_step) or (at, params)
        progress.best_encoder = self.checkpoints.best_scores(at).get("best_encoder", "")
        if at != progress.best_step:
            log.warn(at, f"the best weights, of step {progress.best_step}, are missing: those of step {at} are exported")
        return params, at
