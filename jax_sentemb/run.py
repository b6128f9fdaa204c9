"""One run from settings to scores and export: it puts the parts together and holds no mathematics."""

import contextlib
import dataclasses
import json
import math
import os
import platform
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from filelock import FileLock, Timeout

from jax_sentemb import __version__
from jax_sentemb.checkpoint import Checkpoints
from jax_sentemb.command_line import PREEMPTED, use_compilation_cache
from jax_sentemb.config import Config, Words, flatten
from jax_sentemb.convert import export_run, read_facts, write_facts
from jax_sentemb.distributed import agree, first
from jax_sentemb.errors import BusyError, ConfigError
from jax_sentemb.evaluation.embed import Embedder
from jax_sentemb.evaluation.held_out import HeldOut, held_out_score
from jax_sentemb.evaluation.scorer import Scorer, score_table, word_overlap_scores
from jax_sentemb.export import check_exportable
from jax_sentemb.log import Log
from jax_sentemb.material import Material, diagnostic_sample, prepare
from jax_sentemb.models.words import make_encoder
from jax_sentemb.sharding import gathered, make_mesh, over_batch, over_parameters
from jax_sentemb.text.batches import Batches, BatchesInTurn
from jax_sentemb.text.pairs import JoinedPairs
from jax_sentemb.train import StopSignal, batches_on_device, create_state, drop_rate, fit, make_optimizer, make_step
from jax_sentemb.types import Params, TrainState
from jax_sentemb.vary import run_all

# Settings that may change between an interrupted run and its continuation: they do not touch the weights.
FREE = (
    "eval.",
    "train.logging",
    "train.save",
    "train.keep",
    "train.tensorboard",
    "train.strict",
    "train.grad_cache",
    "train.fsdp",
    "train.attention_block",
    "train.remat",
    "data.files",
    "data.num_workers",
)


def run(config: Config, workdir: Path) -> int:
    """Train, score and export into `workdir`; exit code 0, or 75 if a signal stopped it after saving."""
    if config.vary:
        return run_all(config, workdir, run)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    use_compilation_cache()
    try:
        workdir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--workdir {workdir}: {error.strerror}") from error
    try:
        with FileLock(workdir / "LOCK", timeout=0) if first() else contextlib.nullcontext():
            if config.before is not None:
                if code := run(_before(config), workdir / "before"):
                    return code
                config = dataclasses.replace(
                    config, encoder=dataclasses.replace(config.encoder, weights=str(workdir / "before" / "export"))
                )
            return _run(config, workdir)
    except Timeout:
        raise BusyError(f"--workdir {workdir} is in use by another run: wait for it, or give another --workdir") from None


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


def _run(config: Config, workdir: Path) -> int:
    mesh = make_mesh(config.data.batch_size, fsdp=config.train.fsdp)
    if config.train.fused_attention == "cudnn" and jax.default_backend() != "gpu":
        raise ConfigError(
            f"train.fused_attention=cudnn needs an NVIDIA GPU, and this run has {jax.devices()[0].platform}: leave it out"
        )
    material = prepare(config, workdir)
    steps = total_steps(config, material.batches)
    log = Log(workdir, config.train.tensorboard)
    facts = _facts(config, material, steps)
    agree(json.dumps(facts))
    _write_json(workdir / "config.json", flatten(config))
    _write_json(workdir / "run.json", {**_versions(), "corpus": material.examples.report, "steps": steps})
    log.say(_describe(material, steps, mesh.size))

    dtype = jnp.dtype(config.train.precision)
    memory = {name: getattr(config.train, name) for name in ("attention_block", "remat", "fused_attention")}
    encoder = make_encoder(material.encoder_config, dtype, getattr(config.encoder, "dropout", 0.0), **memory)
    if first():
        write_facts(workdir, material.encoder_config, model_facts(config, material, workdir))
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
    sample = diagnostic_sample(config, material)
    scorer = Scorer(embedder, material.tasks, material.dev, sample, log, config.train.strict, scores_pairs)

    checkpoints = Checkpoints(workdir, config.train.keep_checkpoints)
    restored = checkpoints.restore(state, facts)
    best: dict[str, Any] = {"start": {}, "best_score": -math.inf, "best_step": -1}
    if restored is not None:
        state, saved = restored
        best = {name: saved[name] for name in best}
        log.rewind(int(state.step))
        log.say(f"continuing at step {int(state.step)} of {steps}")

    held_out = material.held_out and HeldOut(config.method, encoder, material.held_out, mesh)

    def evaluate(step: int, state: TrainState) -> TrainState:
        score = dev = scorer.dev(step, state.params)
        if held_out:
            values = held_out(state)
            score = held_out_score(values)
            log.event(step, {f"validation/{name}": value for name, value in values.items()})
            log.say(f"step {step}: " + ", ".join(f"validation {name} {value:.4f}" for name, value in values.items()))
        if step == 0:  # the starting point is scored for comparison, it is no checkpoint
            best["start"] = {material.dev: dev} if config.eval.data != "grammar" else scorer.all_spearman(state.params)
        elif score is not None and score > best["best_score"]:
            best.update(best_score=score, best_step=step)
            checkpoints.save_best(step, state.params, best)
        elif config.optimizer.lr_drop < 1:
            state, total = drop_rate(state, config.optimizer.lr_drop)
            log.event(step, {"learning_rate_factor": total})
            log.say(
                f"step {step}: not above the best of step {best['best_step']}: the learning rate is {total:.2g} of its schedule"
            )
        return state

    def save(step: int, state: TrainState) -> None:
        checkpoints.save(step, state, {**facts, **best})

    try:
        start = int(state.step)
        if start == 0:
            state = evaluate(0, state)
        if start < steps:
            step = make_step(config.method, encoder, optimizer, mesh, config.train.grad_cache_chunk, over_parameters(mesh, state))
            eval_steps = config.eval.eval_steps if config.eval.eval_steps >= 0 else material.batches.steps_per_epoch
            process = jax.process_index(), jax.process_count()
            rows = batches_on_device(lambda number: material.batches.at(number, *process), start, steps, mesh)
            with StopSignal() as stop:
                state = fit(
                    state, step, rows, steps, config.train, log, config.data.batch_size,
                    evaluate, eval_steps, save, stop,
                )  # fmt: skip
                if stop.reached:
                    checkpoints.wait()
                    log.say(f"stopped at step {int(state.step)} of {steps} and saved; the same command continues")
                    return PREEMPTED
                state = evaluate(steps, state)
                save(steps, state)
        checkpoints.wait()
        params, at = state.params, steps
        if best["best_step"] >= 0:
            at, params = checkpoints.restore_best(state.params) or (at, params)
            start_score = None if held_out else best["start"].get(material.dev)
            if start_score is not None and best["best_score"] < start_score:
                log.say(
                    f"warning: the best checkpoint scores {best['best_score']:.2f} on {material.dev}, below the starting point's "
                    f"{start_score:.2f}: training made this model worse"
                )
        finish(config, material, scorer, workdir, params, at, best["start"], log)
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
        log.say(f"{cut:,} distinct evaluation sentences were cut at eval.max_seq_length={config.eval.max_seq_length}")
    baselines = {"untrained": start}
    if config.eval.data == "grammar":
        baselines |= word_overlap_scores(material.tasks, [material.sentences[row] for row in range(len(material.sentences))])
    results: dict[str, Any] = {"step": step, "scores": scores, "baselines": baselines, "absent": material.absent}
    log.close()
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
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
