"""One run from settings to scores and export: it puts the parts together and holds no mathematics."""

import contextlib
import dataclasses
import json
import math
import os
import platform
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from filelock import FileLock, Timeout

from jax_sentemb import __version__
from jax_sentemb.checkpoint import Checkpoints
from jax_sentemb.command_line import PREEMPTED, use_compilation_cache
from jax_sentemb.config import Config, Words, flatten, rewind_window
from jax_sentemb.convert import export_run, read_facts, write_facts
from jax_sentemb.distributed import agree, first
from jax_sentemb.errors import BusyError, ConfigError, NotFinite, NumericsError
from jax_sentemb.evaluation.embed import Embedder
from jax_sentemb.evaluation.held_out import HeldOut, held_out_score
from jax_sentemb.evaluation.samples import look
from jax_sentemb.evaluation.scorer import Scorer, score_table, word_overlap_scores
from jax_sentemb.export import check_exportable
from jax_sentemb.log import Log, check_writers
from jax_sentemb.material import Material, corpus_sample, prepare
from jax_sentemb.models.words import make_encoder
from jax_sentemb.report import write_report
from jax_sentemb.sharding import gathered, make_mesh, over_batch, over_parameters
from jax_sentemb.text.batches import Batches, BatchesInTurn, after_skips
from jax_sentemb.text.pairs import JoinedPairs
from jax_sentemb.train import (
    Stopped,
    StopSignal,
    batches_on_device,
    check_finite,
    create_state,
    drop_rate,
    fit,
    make_optimizer,
    make_step,
)
from jax_sentemb.types import Params, TrainState
from jax_sentemb.vary import run_all

# Settings that may change between an interrupted run and its continuation: they do not touch the weights.
FREE = (
    "eval.",
    "train.logging",
    "train.save",
    "train.keep",
    "train.tensorboard",
    "train.wandb",
    "train.strict",
    "train.on_nan",
    "train.grad_cache",
    "train.fsdp",
    "train.attention_block",
    "train.remat",
    "data.files",
    "data.num_workers",
)


REWINDS = 3  # of train.on_nan, in a run


def run(config: Config, workdir: Path) -> int:
    """Train, score and export into `workdir`; exit code 0, or 75 if a signal stopped it after saving."""
    if config.vary:
        code = run_all(config, workdir, run)
        if code != PREEMPTED:
            _report(workdir)
        return code
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    use_compilation_cache()
    try:
        workdir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--workdir {workdir}: {error.strerror}") from error
    with _lock(workdir) if first() else contextlib.nullcontext():
        if config.before is not None:
            if code := run(_before(config), workdir / "before"):
                return code
            config = dataclasses.replace(
                config, encoder=dataclasses.replace(config.encoder, weights=str(workdir / "before" / "export"))
            )
        try:
            code = _run(config, workdir)
        except NumericsError:  # other errors end a run before it begins
            _report(workdir)
            raise
        _report(workdir)
        return code


@contextlib.contextmanager
def _lock(workdir: Path) -> Iterator[None]:
    """Hold `workdir`/LOCK, which says who holds it. The operating system frees it when its holder is gone, however that ended."""
    path = workdir / "LOCK"
    try:
        holder = json.loads(path.read_text(encoding="utf-8"))
        who = f"process {holder['pid']} on {holder['host']} since {holder['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        who = ""
    lock = FileLock(path, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise BusyError(
            f"--workdir {workdir} is in use by {who or 'another run'}: wait for it, or give another --workdir"
        ) from None
    try:
        if who:
            print(f"note: {path} was held by {who}, which is gone: taken over", file=sys.stderr)
        mine = {"host": platform.node(), "pid": os.getpid(), "since": time.strftime("%Y-%m-%d %H:%M:%S %z")}
        path.write_text(json.dumps(mine) + "\n", encoding="utf-8")
        yield
    finally:
        path.write_text("", encoding="utf-8")
        lock.release()


def _before(config: Config) -> Config:
    """The run that is done first, with the weights, tokenizer, seed and evaluation folder of the whole."""
    assert config.before is not None
    first = config.before
    return dataclasses.replace(
        first,
        data=dataclasses.replace(first.data, tokenizer=first.data.tokenizer or config.data.tokenizer),
        encoder=config.encoder,
        train=dataclasses.replace(first.train, seed=config.train.seed),
        eval=dataclasses.replace(first.eval, data=config.eval.data),
    )


def _report(workdir: Path) -> None:
    if first():
        with _not_vital(workdir):
            write_report(workdir)


@contextlib.contextmanager
def _not_vital(workdir: Path) -> Iterator[None]:
    """A defect of the report is said in one line, and the run goes on: what it learns, and its exit code, do not depend on it."""
    try:
        yield
    except Exception as error:
        problem = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        how = f"python -m jax_sentemb.report --workdir {workdir}"
        print(f"warning: the report is not complete: {problem}; {how} tries again", file=sys.stderr)


def _run(config: Config, workdir: Path) -> int:
    check_writers(config.train)
    mesh = make_mesh(config.data.batch_size, fsdp=config.train.fsdp)
    if config.train.fused_attention == "cudnn" and jax.default_backend() != "gpu":
        raise ConfigError(
            f"train.fused_attention=cudnn needs an NVIDIA GPU, and this run has {jax.devices()[0].platform}: leave it out"
        )
    material = prepare(config, workdir)
    steps = total_steps(config, material.batches)
    facts = _facts(config, material, steps)
    agree(json.dumps(facts))
    log = Log(workdir, config.train, flatten(config))
    log.say(_describe(material, steps, mesh.size))

    dtype = jnp.dtype(config.train.precision)
    memory = {name: getattr(config.train, name) for name in ("attention_block", "remat", "fused_attention")}
    encoder = make_encoder(material.encoder_config, dtype, getattr(config.encoder, "dropout", 0.0), **memory)
    optimizer = make_optimizer(config.optimizer, steps, material.batches.steps_per_epoch)
    state = create_state(config.method, encoder, optimizer, material.loaded, config.train.seed, mesh)
    scores_pairs = getattr(config.method, "scores_pairs", False)
    embedder = Embedder(
        lambda params, rows: config.method.embed(make_encoder(material.encoder_config), params, rows),
        JoinedPairs(material.tokenizer) if scores_pairs else material.tokenizer,
        config.eval.max_seq_length,
        config.eval.batch_size,
        sharding=over_batch(mesh),
    )
    sample = corpus_sample(material, config.eval.diagnostic_sentences, config.train.seed)
    scorer = Scorer(embedder, material.tasks, material.dev, sample, log, config.train.strict, scores_pairs)

    checkpoints = Checkpoints(workdir, config.train.keep_checkpoints, log.warn)
    restored = checkpoints.restore(state, facts)
    # What a checkpoint says beside its facts: of the best weights, the evaluation done last, the batches taken out.
    own: dict[str, Any] = {"start": {}, "best_score": -math.inf, "best_step": -1, "evaluated": -1, "skipped": [], "rewinds": 0}
    if restored is not None:
        state, saved = restored
        own = {name: saved[name] for name in own}
        log.say(f"continuing at step {int(state.step)} of {steps}")
    if first():
        material.tokenizer.save(workdir / "tokenizer")  # an export from a checkpoint needs both
        write_facts(workdir, material.encoder_config, model_facts(config, material, workdir))
    _write_json(workdir / "config.json", flatten(config))
    _write_json(workdir / "run.json", _about(config, material, steps, state.params))
    log.rewind(int(state.step) if restored else -1)
    log.event(int(state.step), {"event": "start"})

    held_out = material.held_out and HeldOut(config.method, encoder, material.held_out, mesh)

    def evaluate(step: int, state: TrainState) -> TrainState:
        with stop.breaks():
            score = dev = scorer.dev(step, state.params)
            if held_out:
                values = held_out(state)
                score = held_out_score(values)
                log.event(step, {f"validation/{name}": value for name, value in values.items()})
                log.say(f"step {step}: " + ", ".join(f"validation {name} {value:.4f}" for name, value in values.items()))
        own["evaluated"] = step
        if step == 0:  # the starting point is scored for comparison, it is no checkpoint
            own["start"] = scorer.all_spearman(state.params) if config.eval.data == "grammar" else _scored(material.dev, dev)
            _look(config, material, scorer, workdir, "start", step, state.params)
        elif score is not None and score > own["best_score"]:
            check_finite(step, state.params)
            own.update(best_score=score, best_step=step)
            checkpoints.save_best(step, state.params, {name: own[name] for name in ("start", "best_score", "best_step")})
        elif config.optimizer.lr_drop < 1:
            state, total = drop_rate(state, config.optimizer.lr_drop)
            log.event(step, {"learning_rate_factor": total})
            log.say(f"step {step}: not above the best of step {own['best_step']}: the learning rate is {total:.2g} of its schedule")
        return state

    def save(step: int, state: TrainState) -> None:
        check_finite(step, state)
        checkpoints.save(step, state, {**facts, **own})

    def stopped(step: int) -> int:
        checkpoints.wait()
        log.say(f"stopped at step {step} of {steps} and saved; the same command continues")
        return PREEMPTED

    def batch_of(step: int) -> int:
        return after_skips(step, own["skipped"])

    def rewind(error: NotFinite) -> TrainState:
        """Back to the last checkpoint, without the batches that led to `error`; raises it where that is not wanted."""
        batch = batch_of(error.step - 1)
        report = {"step": error.step, "problem": str(error), "lines": (material.batches.lines(batch) + 1).tolist()}
        _write_json(workdir / "not_finite.json", {**report, "losses": list(log.losses)})
        if not window or own["rewinds"] == REWINDS:
            file = workdir / "not_finite.json"
            advice = f"they were skipped {REWINDS} times already" if window else "or skip them with train.on_nan=rewind:1"
            problem = (
                f"{error}; {file} has its lines, the last checkpoint is untouched: lower optimizer.learning_rate, "
                f"look at the lines, {advice}"
            )
            log.warn(error.step, problem)
            raise NotFinite(error.step, problem.partition(": ")[2]) from None
        checkpoints.wait()
        found = checkpoints.restore(state, facts)
        earlier = found[0] if found else create_state(config.method, encoder, optimizer, material.loaded, config.train.seed, mesh)
        back = int(earlier.step)
        out = [batch_of(step) for step in range(max(error.step - window, back), error.step)]
        own.update(skipped=sorted({*own["skipped"], *out}), rewinds=own["rewinds"] + 1, evaluated=back)
        log.rewind(back)
        log.warn(back, f"{error}; not_finite.json has its lines. Back at step {back}, batches {out} are skipped")
        return earlier

    stop = StopSignal()
    window = rewind_window(config.train)
    try:
        with stop:
            start = int(state.step)
            eval_steps = config.eval.eval_steps if config.eval.eval_steps >= 0 else material.batches.steps_per_epoch
            if start == 0:
                state = evaluate(0, state)
            elif start < steps and eval_steps and start % eval_steps == 0 and own["evaluated"] < start:
                state = evaluate(start, state)  # a signal had ended it
            step = make_step(config.method, encoder, optimizer, mesh, config.train.grad_cache_chunk, over_parameters(mesh, state))
            process = jax.process_index(), jax.process_count()
            while start < steps or own["evaluated"] < steps:
                rows = batches_on_device(lambda number: material.batches.at(batch_of(number), *process), start, steps, mesh)
                try:
                    with contextlib.closing(rows):
                        state = fit(
                            state, step, rows, steps, config.train, log, config.data.batch_size,
                            evaluate, eval_steps, save, stop,
                        )  # fmt: skip
                    start = int(state.step)
                    if stop.reached:
                        return stopped(start)
                    with contextlib.suppress(Stopped):
                        state = evaluate(steps, state)
                    save(steps, state)
                    if stop.reached:
                        return stopped(steps)
                except NotFinite as error:
                    state = rewind(error)
                    start = int(state.step)
            stop.watch()
            checkpoints.wait()
            params, at = state.params, steps
            if own["best_step"] >= 0:
                at, params = checkpoints.restore_best(state.params) or (at, params)
                if at != own["best_step"]:
                    log.warn(steps, f"the best weights, of step {own['best_step']}, are not there: those of step {at} are exported")
                start_score = None if held_out else own["start"].get(material.dev)
                if start_score is not None and own["best_score"] < start_score:
                    log.warn(
                        own["best_step"],
                        f"the best checkpoint scores {own['best_score']:.2f} on {material.dev}, below the starting point's "
                        f"{start_score:.2f}: training made this model worse",
                    )
            with stop.breaks():
                finish(config, material, scorer, workdir, params, at, own["start"], log)
                _look(config, material, scorer, workdir, "end", at, params)
    except Stopped:
        return stopped(steps)
    finally:
        log.close()
        checkpoints.close()
    return 0


def finish(
    config: Config,
    material: Material,
    scorer: Scorer,
    workdir: Path,
    params: Params,
    step: int,
    start: dict[str, float],
    log: Log,
) -> None:
    """Final scores to the terminal and scores.json, then the verified export."""
    params = gathered(params)
    scores = scorer.all_tasks(params) if material.tasks else {}
    if cut := scorer.embedder.truncated:
        log.warn(step, f"{cut:,} distinct evaluation sentences were cut at eval.max_seq_length={config.eval.max_seq_length}")
    baselines = {"untrained": start}
    if config.eval.data == "grammar":
        baselines |= word_overlap_scores(material.tasks, [material.sentences[row] for row in range(len(material.sentences))])
    results: dict[str, Any] = {"step": step, "scores": scores, "baselines": baselines, "absent": material.absent}
    log.summary({name: result["spearman"]["all"] for name, result in scores.items()})
    log.finish_progress()
    if scores or not material.final:
        print(score_table(scores, material.absent, baselines))
    if material.final:
        results["transfer"] = material.final.score(workdir.name, lambda sentences: scorer.embedder(params, sentences))
        results["absent"] = [*material.absent, *material.final.absent]
    if not first():
        return
    _write_json(workdir / "scores.json", results)
    facts = model_facts(config, material, workdir)
    write_facts(workdir, material.encoder_config, {**facts, "scores": scores, "scores_of_step": step})
    try:
        if not isinstance(config.encoder, Words):  # word models are directories of our own
            check_exportable(config.method.pooling, getattr(config.method, "convolution", None))
    except ConfigError as error:  # known before, but no reason not to train: evaluation reads the work directory
        print(f"not exported: {error}")
        return
    export_run(workdir / "export", read_facts(workdir), jax.device_get(params), workdir, step)


def model_facts(config: Config, material: Material, workdir: Path) -> dict[str, Any]:
    """What an export says of the run: published with the model, so names of files, not paths."""
    method: Any = config.method
    convolution = getattr(method, "convolution", None)
    recipe = {name: value for name, value in flatten(config).items() if name.startswith(("method.", "optimizer."))}
    return {
        "name": workdir.name,
        "method": type(config.method).__name__,
        "base_model": None if config.before else Path(getattr(config.encoder, "weights", "")).name or None,
        "pooling": config.method.pooling,
        **({"settings": dataclasses.asdict(method)} if isinstance(config.encoder, Words) else {}),
        "convolution": dataclasses.asdict(convolution) if convolution else None,
        "scores_pairs": getattr(config.method, "scores_pairs", False),
        "max_seq_length": config.eval.max_seq_length,
        "absent": material.absent,
        "tokenizer": material.tokenizer.fingerprint,
        "training": {
            "corpus": ", ".join(Path(name).name for name in config.data.files.split(",")),
            "examples": len(material.examples),
            "batch size": config.data.batch_size,
            "max_seq_length": config.data.max_seq_length,
            "seed": config.train.seed,
            **recipe,
        },
    }


def total_steps(config: Config, batches: Batches | BatchesInTurn) -> int:
    """max_steps, or as many as num_train_epochs needs."""
    if config.train.max_steps >= 0:
        return config.train.max_steps
    return math.ceil(config.train.num_train_epochs * batches.steps_per_epoch)


def _facts(config: Config, material: Material, steps: int) -> dict[str, Any]:
    """What a checkpoint belongs to: a change of any of these is refused when a run continues."""
    settings = {name: value for name, value in flatten(config).items() if not name.removeprefix("before.").startswith(FREE)}
    for name in ("train.max_steps", "train.num_train_epochs", "encoder.weights", "data.tokenizer"):
        settings.pop(name, None)  # their effect is in the facts below, or in the weights
    return {
        **settings, "corpus": material.examples.fingerprint, "tokenizer": material.tokenizer.fingerprint, "steps": steps,
    }  # fmt: skip


def _describe(material: Material, steps: int, devices: int) -> str:
    report = ", ".join(
        f"{name} {value:,}" if isinstance(value, int) else f"{name} {value}" for name, value in material.examples.report.items()
    )
    absent = f"; evaluation sets absent: {', '.join(material.absent)}" if material.absent else ""
    return f"corpus: {report}; {steps:,} steps on {devices} {jax.devices()[0].platform} device(s){absent}"


def _scored(name: str, score: float | None) -> dict[str, float]:
    return {} if score is None else {name: score}


def _look(config: Config, material: Material, scorer: Scorer, workdir: Path, when: str, step: int, params: Params) -> None:
    """`workdir`/samples/`when`.json: what the report shows of these weights, so that it needs no model."""
    with _not_vital(workdir):
        sentences = [] if scorer.scores_pairs else corpus_sample(material, config.eval.report_sentences, config.train.seed)
        found = look(lambda texts: scorer.embedder(params, texts), sentences, scorer.similarities, material.tasks)
        _write_json(workdir / "samples" / f"{when}.json", {"step": step, **found})


def _about(config: Config, material: Material, steps: int, params: Params) -> dict[str, Any]:
    """run.json: what made this run, and what it works on."""
    return {
        **_versions(),
        "devices": {
            "platform": jax.devices()[0].platform,
            "kind": jax.devices()[0].device_kind,
            "count": jax.device_count(),
            "processes": jax.process_count(),
        },
        "corpus": material.examples.report,
        "steps": steps,
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(params)),
        "selected_by": "validation" if material.held_out else f"eval/{material.dev}/spearman_cosine" if material.dev else "",
    }


def _versions() -> dict[str, Any]:
    import flax
    import optax

    packages = {
        "jax_sentemb": __version__,
        "jax": jax.__version__,
        "flax": flax.__version__,
        "optax": optax.__version__,
    }
    return {"versions": packages, "python": platform.python_version(), "argv": sys.argv}


def _write_json(path: Path, content: Any) -> None:
    if not first():
        return
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
