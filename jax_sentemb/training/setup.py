"""Build corpus, tokenizer, batches, first weights and evaluation sets of a run, and check them before anything compiles."""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractDevice, Mesh

from jax_sentemb import files
from jax_sentemb.config import Config, Data, Evaluation, Train, Words
from jax_sentemb.data.batches import AnyBatches, make_batches
from jax_sentemb.data.corpus import Corpus
from jax_sentemb.data.divided import Part
from jax_sentemb.data.examples import Examples, check_validation, train_validation_split
from jax_sentemb.data.sentences import Sentences
from jax_sentemb.data.targets import LineVectors
from jax_sentemb.data.tokenizer import Lines, Tokenizer, read_lines
from jax_sentemb.data.tokens import Subsample, subset_size
from jax_sentemb.data.word_tokenizer import WordTokenizer
from jax_sentemb.distillation.teacher import teacher_vectors
from jax_sentemb.errors import ConfigError, Setting
from jax_sentemb.evaluation.sts_data import StsTask
from jax_sentemb.formats.encode_settings import DEFAULTS, EncodeSettings
from jax_sentemb.methods.base import Method
from jax_sentemb.methods.distillation import Distillation
from jax_sentemb.methods.matryoshka import in_prefixes
from jax_sentemb.methods.through_dense import through_dense
from jax_sentemb.models.architectures import make_encoder
from jax_sentemb.models.bert import BertConfig, first_trained_layer
from jax_sentemb.models.encoder import TokenEncoder
from jax_sentemb.models.self_attention import kernel_problem
from jax_sentemb.models.word_vectors import WordsConfig
from jax_sentemb.parallel import gather, gather_texts, is_main_process
from jax_sentemb.training.agreement import HeldOut, check_judge, held_out_sentences
from jax_sentemb.training.argument_folds import is_split, split
from jax_sentemb.training.corpus_source import PROCESS, corpus_files, corpus_task
from jax_sentemb.training.dev_task import DEV, DevTask, open_dev_task
from jax_sentemb.training.encoder_source import BertSource, EncoderSource, WordSource
from jax_sentemb.training.evaluator import DownstreamTasks, evaluation_tasks
from jax_sentemb.training.starting_encoder import Start, dense_layers, kept_settings, without_unused_dense
from jax_sentemb.types import ROW_NUMBERS, Params


class EvaluationSets(NamedTuple):
    """The evaluation sets of a run."""

    tasks: dict[str, StsTask]
    missing_tasks: list[str]  # names of sets that were not found
    dev: str  # the task that selects the best checkpoint, "" if there is none
    final: DownstreamTasks | None  # tasks that are scored after training
    dev_task: DevTask | None  # takes the place of a set of pairs that selects

    def sentences(self) -> Iterator[str]:
        """Yield all sentences of all sets."""
        for task in self.tasks.values():
            for pairs in task.subsets.values():
                yield from pairs.first
                yield from pairs.second
        for item in self.final.items if self.final else ():
            yield from item.sentences
        if self.dev_task:
            yield from self.dev_task.sentences()


class RunSetup(NamedTuple):
    """Data, tokenizer, first weights and evaluation sets of a run."""

    sentences: Lines
    tokenizer: Tokenizer | WordTokenizer
    examples: Examples
    batches: AnyBatches
    validation: AnyBatches | None  # data.validation sentences
    encoder_config: BertConfig | WordsConfig
    loaded: Params  # by part: "encoder", "cnn"...; {} for a new encoder
    tasks: dict[str, StsTask]
    missing_tasks: list[str]
    dev: str  # the task that selects the best checkpoint, "" if there is none
    final: DownstreamTasks | None  # tasks that are scored after training
    dev_task: DevTask | None  # takes the place of a set of pairs that selects
    rows: Callable[[np.ndarray], np.ndarray]  # the records of the files that have these sentences or pairs
    parts: int = 1  # number of parts of the corpus: 1, or one for each process
    held_out: HeldOut | None = None  # sentences on which the agreement with a teacher is measured
    teacher: str = ""  # the fingerprint of the vectors of a teacher for the corpus of this process
    settings: EncodeSettings = DEFAULTS  # the prompts of the start, with which evaluations read texts

    @property
    def plain_tokenizer(self) -> Tokenizer | WordTokenizer:
        """Return the tokenizer as the run saves it, without the prompt of training texts."""
        return self.tokenizer.with_prompt("") if isinstance(self.tokenizer, Tokenizer) else self.tokenizer


def prepare(config: Config, workdir: Path, start: Start | None = None) -> RunSetup:
    """Build the setup of a run that keeps the readout of `start`.

    Raises:
        ConfigError: Settings, data and weights do not fit each other.
        DataError: The corpus or an evaluation set is missing or malformed.
        ModelFileError: The weights are missing or damaged.
    """
    method, seed, parts = config.method, config.train.seed, corpus_parts(config)
    data = own_data(config.data, parts)
    scored = _evaluation_sets(config.eval, data, method)
    settings = kept_settings(config, start)
    source = _encoder_source(config, scored.sentences, settings.prompt_text(method.text_role) or "")
    blank = source.blank()
    method.check(blank, data.batch_size)
    if isinstance(blank.config, BertConfig):  # the width of word vectors is that of their file, which is read below
        check_last_layers(config, blank.config)
        trained_method(config, blank.config, dense_layers(config, start))
    check_judge(config)
    teacher = None
    if isinstance(method, Distillation):
        teacher = functools.partial(_teach, method, data.validation)
    corpus = _corpus(data, method, source, config.eval.data, workdir, teacher)
    examples: Examples = method.examples(corpus, seed)
    held_out: Examples | None = None
    encoder_config = source.config(corpus.tokenizer)
    if data.validation:
        examples, held_out = train_validation_split(examples, data.validation, seed)
    if parts > 1:
        examples = Part(examples, jax.process_index(), gather)
        held_out = Part(held_out, jax.process_index(), gather) if held_out else None
    validation = make_batches(held_out, data.batch_size, seed, data.length_grouping) if held_out else None
    sample = functools.partial(_sample, corpus.sentences, examples, parts, seed=seed)
    agreeing = held_out_sentences(config, held_out, corpus.sentences, parts, sample)
    batches = make_batches(examples, data.batch_size, seed, data.length_grouping)
    loaded = without_unused_dense(config, start, source.loaded | _from_examples(method, examples, seed, parts))
    return RunSetup(
        sentences=corpus.sentences,
        tokenizer=corpus.tokenizer,
        examples=examples,
        batches=batches,
        validation=validation,
        encoder_config=encoder_config,
        loaded=loaded,
        **scored._asdict(),
        rows=corpus.rows,
        parts=parts,
        held_out=agreeing,
        teacher=corpus.teacher,
        settings=settings,
    )


def _from_examples(method: Method, examples: Examples, seed: int, parts: int) -> Params:
    """Return `method.from_examples`.

    If each process has a part of the corpus, the result is that of the first process, with row numbers of the whole corpus.
    """
    params = method.from_examples(examples, seed)
    if parts == 1 or not params:
        return params
    first = jax.tree.map(lambda leaf: gather(leaf)[0], params)
    return {part: {**values, "rows": _in_whole_corpus(values["rows"], parts)} for part, values in first.items()}


def _in_whole_corpus(rows: np.ndarray, parts: int) -> np.ndarray:
    """Return the numbers in the whole corpus, as in `Batch.row`, of rows of its first part."""
    return (rows.astype(np.int64) * parts % ROW_NUMBERS).astype(np.int32)


def _teach(method: Distillation, validation: int, sentences: Sentences, subset: Subsample) -> LineVectors:
    """Return the vectors of the teachers of a method; too little text is an error before a teacher encodes it."""
    check_validation(validation, subset_size(len(sentences), subset) if subset.size else len(sentences))
    return teacher_vectors(method.teacher, method.teacher_precision, sentences, subset)


def corpus_parts(config: Config) -> int:
    """Return the number of parts of the corpus: that of the processes if data.files has {process}, otherwise 1.

    Raises:
        ConfigError: data.files has {process} in a run of one process, or the processes would have different vocabularies.
    """
    name, count = config.data.files, jax.process_count()
    if PROCESS not in name:
        return 1
    if count == 1:
        raise ConfigError(
            Setting("data.files", name), f": {PROCESS} is the number of a process, and this run is one process: name all files"
        )
    if isinstance(config.encoder, Words) or not (config.encoder.weights or config.data.tokenizer):
        raise ConfigError(
            Setting("data.files", name),
            ": each process would make its own vocabulary; give ",
            Setting("encoder.weights"),
            " or ",
            Setting("data.tokenizer"),
        )
    return count


def own_data(data: Data, parts: int) -> Data:
    """Return the data settings of this process.

    They name its files of a divided corpus, and its share of numbers of sentences, rounded up.
    """
    if parts == 1:
        return data
    files = data.files.replace(PROCESS, str(jax.process_index()))
    subset = -(-data.subset // parts) if data.subset >= 1 else data.subset
    return dataclasses.replace(data, files=files, subset=subset, validation=-(-data.validation // parts))


def run_encoder(config: Config, encoder_config: BertConfig | WordsConfig, mesh: Mesh) -> TokenEncoder:
    """Return the encoder as a run trains it on the devices of `mesh`, with its precision, dropout and use of memory."""
    options, platform = config.train, mesh.devices.flat[0].platform
    check_last_layers(config, encoder_config)
    names = "attention_block", "remat", "last_layers"
    memory: dict[str, Any] = {name: getattr(options, name) for name in names}
    kernel = options.fused_attention
    if kernel == "pallas":
        kernel = _pallas_or_plain(mesh.abstract_mesh.abstract_device)
    memory |= {"fused_attention": kernel, "mesh": mesh if kernel == "pallas" else None}
    memory["scan"] = platform != "cpu"  # a CPU gains nothing by it
    memory["activations"] = jnp.dtype(options.activations or ("float32" if platform == "cpu" else options.precision))
    return make_encoder(encoder_config, jnp.dtype(options.precision), getattr(config.encoder, "dropout", 0.0), **memory)


@functools.cache  # one warning, however many encoders a plan makes
def _pallas_or_plain(device: AbstractDevice) -> str:
    """Return "pallas", or "" after a warning if this JAX cannot lower that kernel; both drop the same attention weights."""
    problem = kernel_problem(device)
    if not problem:
        return "pallas"
    if is_main_process():
        files.print_warning(
            f"train.fused_attention=pallas: JAX {jax.__version__} cannot lower the kernel for {device.device_kind} ({problem}); "
            "computing plain attention, which gives the same results up to rounding and needs more memory"
        )
    return ""


def check_last_layers(config: Config, encoder_config: BertConfig | WordsConfig) -> None:
    """Raise ConfigError if `train.last_layers` does not fit the encoder, or leaves a loss of the method without a gradient."""
    count, ami = config.train.last_layers, config.method.ami
    if not count or isinstance(encoder_config, WordsConfig):
        return
    layers = encoder_config.num_hidden_layers
    if count > layers:
        raise ConfigError(Setting("train.last_layers", count), f": the encoder has {layers} layers; give at most {layers}")
    if ami is not None and max(ami.chosen_layers(layers)) < first_trained_layer(encoder_config, count):
        raise ConfigError(
            Setting("train.last_layers", count),
            f": all layers of attention mutual information are frozen ({', '.join(map(str, ami.chosen_layers(layers)))}); "
            "train more layers, or remove ",
            Setting("method.ami"),
        )


def check_attention(options: Train, mesh: Mesh) -> None:
    """Raise ConfigError for an attention kernel that the devices of `mesh` do not have."""
    platform = mesh.devices.flat[0].platform
    if options.fused_attention == "cudnn" and platform not in ("gpu", "cuda"):
        raise ConfigError(
            Setting("train.fused_attention", "cudnn"), f" needs an NVIDIA GPU, and this run has {platform}: leave it out"
        )
    if options.fused_attention == "pallas" and platform == "cpu":
        raise ConfigError(
            Setting("train.fused_attention", "pallas"), " needs a TPU or an NVIDIA GPU, and this run has cpu: leave it out"
        )


def trained_method(config: Config, encoder_config: BertConfig | WordsConfig, dense: tuple[str, ...]) -> Method:
    """Return the method as the train step takes it.

    Its loss is that of the vectors after the dense layers of the start, and on prefixes of the embedding if `train.matryoshka` is
    set.

    Args:
        config: The settings.
        encoder_config: The sizes of the encoder.
        dense: Activations of the layers after the pooling, which `train.matryoshka` cannot cut.
    """
    widths = config.train.matryoshka
    if widths and dense and config.method.dense is None:
        raise ConfigError(Setting("train.matryoshka", widths), ": the start has dense layers after its pooling; use another start")
    return in_prefixes(through_dense(config.method, dense), widths, encoder_config.hidden_size)


def corpus_sample(setup: RunSetup, count: int, seed: int) -> list[str]:
    """Return up to `count` random sentences of the corpus, in its order. Each part of a divided corpus gives the same number."""
    return _sample(setup.sentences, setup.examples, setup.parts, count, seed)


def sample_size(examples: Examples, parts: int, count: int) -> int:
    """Return how many sentences `corpus_sample` gives for `count`."""
    return parts * min(count // parts, len(examples))


def _sample(sentences: Lines, examples: Examples, parts: int, count: int, seed: int) -> list[str]:
    own_count = sample_size(examples, parts, count) // parts
    chosen = np.random.default_rng(seed).choice(len(examples), own_count, replace=False)
    drawn = read_lines(sentences, examples.line[np.sort(chosen)].tolist())
    return gather_texts(drawn) if parts > 1 else drawn


def _encoder_source(config: Config, evaluated: Callable[[], Iterator[str]], prompt: str) -> EncoderSource:
    """Return the source of encoder and tokenizer; `evaluated` yields the evaluation sentences, whose words also get vectors."""
    if isinstance(config.encoder, Words):
        return WordSource(config.encoder, evaluated, config.train.seed)
    lengths = {"data.max_seq_length": config.data.max_seq_length, "eval.max_seq_length": config.eval.max_seq_length}
    return BertSource(config.encoder, config.data, lengths, prompt)


def _evaluation_sets(options: Evaluation, data: Data, method: Method) -> EvaluationSets:
    """Return the sets of `eval.*`, and the tested part of an argument corpus."""
    tasks, missing, dev = evaluation_tasks(options)
    if is_split(data):
        tested = split(data)
        tasks[tested.test.name] = tested.test
        for warning in tested.warnings if is_main_process() else ():
            files.print_warning(warning)
        left_out = [f"{tested.test.name}, {topic} (too few pairs or one gold score)" for topic in tested.left_out]
        missing = [*missing, *left_out]
    final = None
    if options.tasks:
        if method.is_cross_encoder:
            raise ConfigError(Setting("eval.tasks"), ": a cross-encoder has no embeddings to train classifiers on; leave it empty")
        names = corpus_task(data.files) if options.tasks == "corpus" else options.tasks
        final = DownstreamTasks(names, options.data, options.classifier)
    dev_task = open_dev_task(options, method.is_cross_encoder)
    return EvaluationSets(tasks, missing, DEV if dev_task else dev, final, dev_task)


def _corpus(
    data: Data,
    method: Method,
    source: EncoderSource,
    senteval: str,
    workdir: Path,
    teacher: Callable[[Sentences, Subsample], LineVectors] | None,
) -> Corpus:
    """Return the corpus, which is read and tokenised when `method` makes its examples. Generated text is written into `workdir`."""
    if data.pack and not method.reads_packed:
        raise ConfigError(
            Setting("data.pack", True), f": {type(method).__name__} reads single sentences; only MaskedLM reads packed rows"
        )
    folder = workdir if is_main_process() else workdir / f"process-{jax.process_index()}"
    folder.mkdir(parents=True, exist_ok=True)
    return Corpus(
        lambda pairs: corpus_files(data, senteval, folder, pairs),
        source.tokenizer, data.max_seq_length, Subsample(data.subset, data.subset_seed), data.num_workers, data.pack,
        teacher,
    )  # fmt: skip
