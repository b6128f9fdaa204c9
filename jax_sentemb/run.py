"""One run from settings to scores and export: it puts the parts together and holds no mathematics."""

import contextlib
import dataclasses
import json
import math
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from filelock import FileLock, Timeout

from jax_sentemb import __version__
from jax_sentemb.checkpoint import Checkpoints
from jax_sentemb.command_line import PREEMPTED, use_compilation_cache
from jax_sentemb.config import Config, Words, flatten
from jax_sentemb.convert import export_run, read_facts, write_facts
from jax_sentemb.distributed import agree, first
from jax_sentemb.errors import BusyError, ConfigError, ModelFileError
from jax_sentemb.evaluation.embed import Embedder
from jax_sentemb.evaluation.held_out import HeldOut, held_out_score
from jax_sentemb.evaluation.scorer import FinalTasks, Scorer, evaluation_tasks, score_table, word_overlap_scores
from jax_sentemb.evaluation.sts import StsTask
from jax_sentemb.export import check_exportable
from jax_sentemb.generated import corpus_files, corpus_task
from jax_sentemb.log import Log
from jax_sentemb.models.bert import Bert, BertConfig
from jax_sentemb.models.words import FROZEN, WordsConfig, WordVectors, make_encoder
from jax_sentemb.sharding import gathered, make_mesh, over_batch, over_parameters
from jax_sentemb.text.batches import Batches, BatchesInTurn, make_batches
from jax_sentemb.text.examples import Corpus, Examples, hold_out
from jax_sentemb.text.pairs import JoinedPairs
from jax_sentemb.text.tokenizer import Lines, Tokenizer
from jax_sentemb.text.words import WordTokenizer
from jax_sentemb.train import StopSignal, batches_on_device, create_state, drop_rate, fit, make_optimizer, make_step
from jax_sentemb.types import Params, TrainState
from jax_sentemb.vary import run_all
from jax_sentemb.weights import read_parts, resolve
from jax_sentemb.word_table import word_table

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
)


class Material(NamedTuple):
    """What a run works on, before any compilation."""

    sentences: Lines
    tokenizer: Any  # Tokenizer, or WordTokenizer
    examples: Examples
    batches: Batches | BatchesInTurn
    held_out: Batches | BatchesInTurn | None  # data.validation sentences
    encoder_config: BertConfig | WordsConfig
    loaded: Params  # by part: "encoder", "cnn"...; {} for a start from scratch
    tasks: dict[str, StsTask]
    absent: list[str]
    dev: str  # the task that selects the best checkpoint, "" without one
    final: FinalTasks | None  # classification and other tasks for the end


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
    material = prepare(config, workdir)
    steps = total_steps(config, material.batches)
    log = Log(workdir, config.train.tensorboard)
    facts = _facts(config, material, steps)
    agree(json.dumps(facts))
    _write_json(workdir / "config.json", flatten(config))
    _write_json(workdir / "run.json", {**_versions(), "corpus": material.examples.report, "steps": steps})
    log.say(_describe(material, steps, mesh.size))

    dtype = jnp.dtype(config.train.precision)
    memory = config.train.attention_block, config.train.remat
    encoder = make_encoder(material.encoder_config, dtype, getattr(config.encoder, "dropout", 0.0), *memory)
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


def prepare(config: Config, workdir: Path) -> Material:
    """Corpus, tokenizer, batches, weights and evaluation sets, checked against each other; errors before anything compiles."""
    tasks, absent, dev = evaluation_tasks(config.eval)
    final = final_tasks(config)
    if isinstance(config.encoder, Words):
        return _prepare_words(config, config.encoder, workdir, tasks, absent, dev, final)
    weights = resolve(config.encoder.weights) if config.encoder.weights else None
    bert_config, loaded = read_parts(weights) if weights else (None, {})
    config.method.check(Bert(bert_config or _new_bert(config, config.data.vocab_size)), config.data.batch_size)
    vocabulary = config.data.tokenizer or weights

    def make_tokenizer(sentences: Lines) -> Tokenizer:
        return Tokenizer.load(vocabulary) if vocabulary else Tokenizer.train(sentences, config.data.vocab_size)

    corpus = _corpus(config, workdir, make_tokenizer)
    examples = config.method.examples(corpus, config.train.seed)
    tokenizer = corpus.tokenizer
    if first():
        tokenizer.save(workdir / "tokenizer")  # an export from a checkpoint needs it
    if bert_config is None:
        bert_config = dataclasses.replace(_new_bert(config, tokenizer.vocab_size), pad_token_id=tokenizer.pad_id)
    bert_config = dataclasses.replace(bert_config, mask_token_id=tokenizer.mask_id, sep_token_id=tokenizer.sep_id)
    if tokenizer.vocab_size > bert_config.vocab_size:
        raise ModelFileError(
            f"the tokenizer has {tokenizer.vocab_size} tokens, the encoder's embedding {bert_config.vocab_size} rows: "
            "data.tokenizer and encoder.weights do not belong together"
        )
    positions = bert_config.max_position_embeddings - bert_config.position_offset
    for name in ("data", "eval"):
        length = getattr(config, name).max_seq_length
        if length > positions:
            raise ConfigError(f"{name}.max_seq_length={length} exceeds the encoder's {positions} positions")
    examples, batches, held_out = _batches(config, examples)
    return Material(corpus.sentences, tokenizer, examples, batches, held_out, bert_config, loaded, tasks, absent, dev, final)


def _batches(config: Config, examples: Examples) -> tuple[Examples, Batches | BatchesInTurn, Batches | BatchesInTurn | None]:
    """What is trained on, its batches, and those of what is held out."""
    held_out, size, seed = None, config.data.batch_size, config.train.seed
    if config.data.validation:
        examples, held = hold_out(examples, config.data.validation, seed)
        held_out = make_batches(held, size, seed)
    return examples, make_batches(examples, size, seed), held_out


def _corpus(config: Config, workdir: Path, make_tokenizer: Callable[[Lines], Any]) -> Corpus:
    data = config.data
    folder = workdir if first() else workdir / f"process-{jax.process_index()}"  # of files that a run generates
    folder.mkdir(parents=True, exist_ok=True)
    return Corpus(
        lambda pairs: corpus_files(data, config.eval.data, folder, pairs),
        make_tokenizer, data.max_seq_length, data.subset, data.subset_seed,
    )  # fmt: skip


def _prepare_words(
    config: Config, words: Words, workdir: Path, tasks: dict[str, StsTask], absent: list[str], dev: str, final: FinalTasks | None
) -> Material:
    """As `prepare`, with word vectors in place of a BERT."""
    loaded: Params = {}

    def make_tokenizer(sentences: Lines) -> WordTokenizer:
        scored = [text for task in tasks.values() for pairs in task.subsets.values() for side in pairs[:2] for text in side]
        scored += [text for item in (final.items if final else []) for text in item.sentences]
        tokenizer, tables = word_table(words, sentences, scored, config.train.seed)
        loaded.update(tables)
        return tokenizer

    config.method.check(WordVectors(WordsConfig(3, words.hidden_size)), config.data.batch_size)
    corpus = _corpus(config, workdir, make_tokenizer)
    examples = config.method.examples(corpus, config.train.seed)
    if first():
        corpus.tokenizer.save(workdir / "tokenizer")
    vectors = loaded["encoder" if words.trained else FROZEN]["vectors"]
    encoder_config = WordsConfig(len(vectors), vectors.shape[1], corpus.tokenizer.pad_id)
    tokenizer = corpus.tokenizer
    examples, batches, held_out = _batches(config, examples)
    return Material(corpus.sentences, tokenizer, examples, batches, held_out, encoder_config, loaded, tasks, absent, dev, final)


def diagnostic_sample(config: Config, material: Material) -> list[str]:
    """Sentences of the corpus, drawn by the run's seed, that label-free diagnostics look at."""
    count = min(config.eval.diagnostic_sentences, len(material.examples))
    chosen = np.random.default_rng(config.train.seed).choice(len(material.examples), count, replace=False)
    return [material.sentences[int(line)] for line in material.examples.line[np.sort(chosen)]]


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


def final_tasks(config: Config) -> FinalTasks | None:
    """The tasks of eval.tasks with their data, or None."""
    if not config.eval.tasks:
        return None
    if getattr(config.method, "scores_pairs", False):
        raise ConfigError("eval.tasks: a cross-encoder has no embeddings that classifiers could be trained on; leave it empty")
    names = corpus_task(config.data.files) if config.eval.tasks == "corpus" else config.eval.tasks
    return FinalTasks(names, config.eval.data, config.eval.classifier)


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


def _new_bert(config: Config, vocab_size: int) -> BertConfig:
    encoder = config.encoder
    return BertConfig(
        vocab_size=vocab_size,
        hidden_size=encoder.hidden_size,
        num_hidden_layers=encoder.num_hidden_layers,
        num_attention_heads=encoder.num_attention_heads,
        intermediate_size=encoder.intermediate_size,
        max_position_embeddings=max(config.data.max_seq_length, config.eval.max_seq_length),
    )


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
