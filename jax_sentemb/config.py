"""The settings of a run as typed dataclasses. A config file in configs/ builds one Config; defaults live here or in a method.

Names are those of the field (learning_rate, num_train_epochs, max_seq_length...). Every field can be set on the command line,
for instance --config.optimizer.learning_rate=1e-5.
"""

import dataclasses
import functools
import math
import re
import sys
import typing
from dataclasses import dataclass, field
from typing import Any, TypeVar

from jax_sentemb.errors import ConfigError
from jax_sentemb.methods.base import Method

LARGEST = 1 << 31  # steps and seeds are counted in int32 on a device
NAMES = {bool: "True or False", int: "a whole number", float: "a number", str: "text"}


# Settings by the names that they had before 0.1.0: accepted for one release, with a note.
OLD_NAMES = {"before": "pretrain", "lr_drop": "plateau_factor", "vary": "sweep"}


def current_name(setting: str) -> str:
    """The name of a setting ("optimizer.lr_drop", "before.train.seed") as it is now, with a note on stderr if it was an old one."""
    new = ".".join(OLD_NAMES.get(part, part) for part in setting.split("."))
    if new != setting:
        print(f"note: the setting {setting} is {new} now; the old name goes with the next release", file=sys.stderr)
    return new


def stored_name(setting: str) -> str:
    """The name of a setting in checkpoints, which do not change their names."""
    old = {new: old for old, new in OLD_NAMES.items()}
    return ".".join(old.get(part, part) for part in setting.split("."))


Settings = TypeVar("Settings", bound=type)


def takes_old_names(settings: Settings) -> Settings:
    """The dataclass, whose constructor takes OLD_NAMES, too."""
    init = settings.__init__

    @functools.wraps(init)
    def with_old_names(self: Any, *values: Any, **named: Any) -> None:
        init(self, *values, **{current_name(name): value for name, value in named.items()})

    settings.__init__ = with_old_names
    return settings


@dataclass
class Data:
    """Which sentences, how they are tokenised and batched."""

    # Paths and globs, comma separated; or hf:NAME, tfds:NAME, senteval:TASK, grammar:COUNT (generated), arguments:FILE (pairs).
    files: str = ""
    column: str = "text"  # of .jsonl, .csv, .tsv, .parquet and data sets; several, comma separated, are several sentences
    tokenizer: str = ""  # directory; empty: that of encoder.weights, or a new vocabulary if there are no weights
    vocab_size: int = 8000  # of a new vocabulary
    max_seq_length: int = 32  # word pieces, [CLS] and [SEP] included
    batch_size: int = 64  # sentences over all devices
    pack: bool = (
        False  # masked-language-model training: rows of consecutive sentences up to max_seq_length, none beyond a blank line
    )
    subset: float = 0.0  # low-shot: a number of sentences (>= 1) or a fraction of them (< 1); 0: all
    subset_seed: int = 0
    num_workers: int = -1  # processes that tokenise a large corpus; -1: one a core, 0: none. Same tokens
    length_grouping: int = 32  # batches whose sentences are sorted by length together; 1: random batches, as the papers have
    scheme: str = "10-fold"  # of arguments:FILE, what is tested: a tenth of each topic, or one topic ("cross-topic")
    fold: int = 0  # number of the tested tenth or topic, all others are trained on; sweep="data.fold=all" is a run for each
    validation: int = 0  # sentences held out of training: loss and accuracy of the method's own task are measured on them


@dataclass
class Encoder:
    """A BERT from a directory, or a new one of the given size."""

    weights: str = ""  # Hugging Face or sentence-transformers directory, or hub name; empty: from scratch
    hidden_size: int = 256
    num_hidden_layers: int = 4
    num_attention_heads: int = 4
    intermediate_size: int = 1024
    dropout: float = 0.1  # hidden states and attention; overrides what the directory's config.json says


@dataclass
class Words:
    """Word vectors in place of a BERT, for recurrent and linear encoders. The words are those of the corpus and of `eval.data`."""

    vectors: str = ""  # GloVe or fastText text, .vec or .npz, packed or not; empty: new vectors
    hidden_size: int = 300  # of new vectors
    trained: bool = False  # False: the vectors stay as they are
    max_words: int = 100_000  # most frequent ones; the others are unknown, their vector 0
    lowercase: bool = True


@takes_old_names
@dataclass
class Optimizer:
    """AdamW, or RMSprop, with a schedule, as optax has them; defaults of the papers' trainer."""

    name: str = "adamw"  # or rmsprop, sgd
    learning_rate: float = 3e-5
    lr_scheduler_type: str = "linear"  # linear or cosine to 0, constant, steps or exponential, after the warm-up
    lr_steps: str = ""  # of "steps": STEP:RATE,... the rate from that step on, for instance 500:8e-6,1000:6e-6
    lr_decay: float = 0.99  # of "exponential": the rate is multiplied by it after each epoch
    plateau_factor: float = 1.0  # the rate is multiplied by it when the score of eval.select is not above its best (InferSent: 0.2)
    warmup_steps: int = 0
    warmup_ratio: float = 0.0  # of all steps, where warmup_steps is 0
    adam_beta1: float = 0.9
    adam_beta2: float = 0.999
    adam_epsilon: float = 1e-8
    adam_bias_correction: bool = True  # False: as the published code of IS-BERT
    rmsprop_decay: float = 0.9
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0  # 0: no clipping


@dataclass
class Evaluation:
    """What the model is scored on while it trains and at the end."""

    data: str = ""  # SentEval folder; "grammar" for the generated graded pairs; empty: label-free diagnostics only
    tasks: str = ""  # scored at the end beside STS: names and groups as in jax-sentemb evaluate; "corpus": that of data.files
    classifier: str = "senteval"  # protocol of those tasks
    dev: str = ""  # pair file (sentence1, sentence2, score); empty: STS-B dev of `data` where it is there
    eval_steps: int = 250  # 0: at the end only; -1: after each epoch
    select: str = ""  # what chooses the weights: dev, validation, retrieval or last; empty: dev, validation, last: what there is
    patience: int = 0  # training ends after so many evaluations in a row that were not above the best; 0: never
    batch_size: int = 64
    max_seq_length: int = 128  # test sentences are cut here, not at the training length
    diagnostic_sentences: int = 512
    report_sentences: int = 2000  # of the corpus, among which report.html looks for nearest neighbours; 0: none


@dataclass
class Train:
    """Length, precision and bookkeeping of the run."""

    seed: int = 42
    num_train_epochs: float = 1.0
    max_steps: int = -1  # overrides num_train_epochs; 0 trains nothing: scores and exports the starting point
    precision: str = "float32"  # of matrix products: float32 or bfloat16
    fsdp: int = 1  # devices over which parameters and the optimiser's state are split; 1: each device has all of them
    grad_cache_chunk: int = 0  # sentences encoded at once; 0: the whole batch. Same gradients, less memory
    attention_block: int = 0  # queries that attend at once: memory linear in the length, for long sentences; 0: whole maps
    fused_attention: str = ""  # a kernel: "cudnn" (NVIDIA, bfloat16) or "xla"; attention weights have no dropout then
    remat: bool = False  # layers are computed again in the backward pass: less memory on accelerators (a CPU's compiler undoes it)
    logging_steps: int = 10
    save_steps: int = 500  # 0: at the end only
    keep_checkpoints: int = 2
    tensorboard: bool = False
    wandb: str = ""  # project in Weights & Biases; WANDB_MODE=offline in the environment writes to the work directory only
    on_nan: str = ""  # "rewind:K": a loss that is not finite skips its batch and the K - 1 before it, from the last checkpoint on
    strict: bool = False  # a collapse stops the run (exit 5) instead of a warning


@dataclass
class Variant:
    """One method of a study: what its runs have in place of the study's own settings. What `vary` names comes before both."""

    method: Method
    settings: dict[str, Any] = field(default_factory=dict)  # {"optimizer.learning_rate": 1e-5}
    by_subset: dict[float, dict[str, Any]] = field(default_factory=dict)  # {0.1: {...}}: settings where data.subset is that
    baseline: str = ""  # the variant without what this one adds: paired differences to it are tabulated and drawn


@takes_old_names
@dataclass
class Config:
    """One run."""

    method: Method
    data: Data = field(default_factory=Data)
    encoder: Encoder | Words = field(default_factory=Encoder)
    optimizer: Optimizer = field(default_factory=Optimizer)
    eval: Evaluation = field(default_factory=Evaluation)
    train: Train = field(default_factory=Train)
    pretrain: "Config | None" = None  # a run done first, with this run's weights and seed; this one goes on from it
    sweep: str = ""  # the run is done for each value: "train.seed=1..10", "data.files=a.txt|b.txt data.subset_seed,train.seed=1,2"
    variants: dict[str, Variant] = field(default_factory=dict)  # methods of a study, all of them run; sweep="variant=A,B": these


def sized(config: Config, size: str) -> Config:
    """The config itself for size "", or shrunk to seconds on generated sentences for "tiny"; the method keeps its settings."""
    if size == "tiny":
        if config.pretrain is not None:
            config.pretrain = sized(config.pretrain, size)
        config.sweep = ""
        held_out = 16 if config.data.validation else 0
        config.data = Data(
            files="grammar:400", vocab_size=1000, max_seq_length=24, batch_size=8, validation=held_out, pack=config.data.pack,
            length_grouping=config.data.length_grouping,
        )  # fmt: skip
        if isinstance(config.encoder, Words):
            config.encoder = dataclasses.replace(config.encoder, vectors="", hidden_size=12)
        else:
            config.encoder = dataclasses.replace(
                config.encoder, weights="", hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
            )
        config.optimizer.learning_rate, config.optimizer.lr_steps = 1e-3, config.optimizer.lr_steps and "3:5e-4"
        config.eval = Evaluation(
            data="grammar", eval_steps=0, batch_size=32, max_seq_length=24, diagnostic_sentences=64, report_sentences=64
        )
        config.train = Train(max_steps=6, logging_steps=1, save_steps=3)
    elif size:
        raise ConfigError(f"config size {size!r} is unknown: write the config's path alone, or with ':tiny' behind it")
    return config


def check(config: Config) -> None:
    """Raise ConfigError, one line with field, value and limit, for settings that cannot work whatever the data."""
    _check_types(config)
    for name, value in flatten(config).items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{name}={value} is not a finite number")
        if isinstance(value, int) and value >= LARGEST:
            raise ConfigError(f"{name}={value} must be below {LARGEST}")
    least = {
        "data.max_seq_length": 3, "data.batch_size": 2, "data.vocab_size": 50, "data.subset": 0,
        "data.subset_seed": 0, "data.fold": 0, "data.num_workers": -1, "data.length_grouping": 1,
        "encoder.hidden_size": 1, "encoder.num_hidden_layers": 1, "encoder.num_attention_heads": 1,
        "encoder.intermediate_size": 1, "encoder.dropout": 0,
        "encoder.max_words": 1, "data.validation": 0, "optimizer.learning_rate": 0, "optimizer.warmup_steps": 0,
        "optimizer.weight_decay": 0, "optimizer.max_grad_norm": 0, "optimizer.adam_epsilon": 0,
        "eval.eval_steps": -1, "eval.batch_size": 1, "eval.max_seq_length": 3, "eval.diagnostic_sentences": 16,
        "eval.report_sentences": 0, "eval.patience": 0,
        "train.num_train_epochs": 0, "train.max_steps": -1, "train.grad_cache_chunk": 0, "train.fsdp": 1,
        "train.attention_block": 0, "train.logging_steps": 1,
        "train.save_steps": 0, "train.keep_checkpoints": 1, "train.seed": 0,
    }  # fmt: skip
    values = flatten(config)
    for name, limit in least.items():
        if name in values and values[name] < limit:
            raise ConfigError(f"{name}={values[name]} must be at least {limit}")
    if isinstance(config.encoder, Encoder):
        _check_encoder(config.encoder)
    for beta in ("adam_beta1", "adam_beta2", "rmsprop_decay", "lr_decay", "warmup_ratio"):
        if not 0 <= getattr(config.optimizer, beta) < 1:
            raise ConfigError(f"optimizer.{beta}={getattr(config.optimizer, beta)} must be from 0 to below 1")
    if config.train.fused_attention == "cudnn" and config.train.precision != "bfloat16":
        raise ConfigError("train.fused_attention=cudnn needs train.precision=bfloat16")
    if config.train.fused_attention and config.train.attention_block:
        raise ConfigError("train.fused_attention and train.attention_block are two ways to do the same: set one of them")
    if not 0 < config.optimizer.plateau_factor <= 1:
        raise ConfigError(
            f"optimizer.plateau_factor={config.optimizer.plateau_factor} must be above 0 and at most 1 (1: the rate never drops)"
        )
    if config.optimizer.plateau_factor < 1 and not config.data.validation:
        raise ConfigError(
            f"optimizer.plateau_factor={config.optimizer.plateau_factor} needs held-out sentences: --config.data.validation=1000"
        )
    if 0 < config.data.validation < config.data.batch_size:
        raise ConfigError(
            f"data.validation={config.data.validation} must be 0 or at least data.batch_size={config.data.batch_size}: "
            "it is read in batches"
        )
    _check_selection(config)
    _check_variants(config)
    choices = {
        "data.scheme": ("10-fold", "cross-topic"),
        "eval.select": ("", "dev", "validation", "retrieval", "last"),
        "train.precision": ("float32", "bfloat16"),
        "train.fused_attention": ("", "cudnn", "xla"),
        "optimizer.name": ("adamw", "rmsprop", "sgd"),
        "optimizer.lr_scheduler_type": ("linear", "cosine", "constant", "steps", "exponential"),
    }
    for name, allowed in choices.items():
        if values[name] not in allowed:
            raise ConfigError(f"{name}={values[name]!r} is not one of {', '.join(allowed)}")
    rate_steps(config.optimizer)
    rewind_window(config.train)
    chunk = config.train.grad_cache_chunk
    if chunk and config.data.batch_size % chunk:
        raise ConfigError(f"data.batch_size={config.data.batch_size} is not a multiple of train.grad_cache_chunk={chunk}")
    if not config.data.files and "data.files=" not in config.sweep:
        raise ConfigError("data.files is empty: name a text file, --config.data.files=corpus.txt")
    if config.pretrain is not None:
        if config.pretrain.pretrain is not None or config.pretrain.sweep or config.pretrain.variants:
            raise ConfigError(
                "pretrain: the run that is done first has no run before it and varies nothing: put that into this run"
            )
        try:
            check(config.pretrain)
        except ConfigError as error:
            raise ConfigError(f"before.{error}".replace("--config.", "--config.pretrain.")) from None


def _check_variants(config: Config) -> None:
    for name, variant in config.variants.items():
        if not re.fullmatch(r"[^\s,|=]+", name):
            raise ConfigError(f"variants: the name {name!r} has a space or one of , | =")
        if variant.baseline and variant.baseline not in config.variants:
            raise ConfigError(f"variants: {name} has the baseline {variant.baseline}, which is no variant")
        _check_types(variant, f"variants.{name}.")
    if config.variants and all(config.method != variant.method for variant in config.variants.values()):
        raise ConfigError(
            "method settings of a study belong to its variants: change the file, or one variant by "
            '--config.sweep="variant=NAME method.SETTING=VALUE"'
        )


def _check_selection(config: Config) -> None:
    if config.eval.select == "validation" and not config.data.validation:
        raise ConfigError("eval.select=validation needs held-out sentences: --config.data.validation=1000")
    if config.eval.patience and not config.eval.eval_steps:
        raise ConfigError(f"eval.patience={config.eval.patience} counts evaluations on the way: set eval.eval_steps")


def _check_types(settings: Any, prefix: str = "") -> None:
    """ConfigError for a field of a dataclass tree whose value is not of the type that is written beside it."""
    kinds = typing.get_type_hints(type(settings))
    for name in (item.name for item in dataclasses.fields(settings)):
        kind, value = kinds[name], getattr(settings, name)
        if not _is_a(value, kind):
            wanted = NAMES.get(kind) or getattr(kind, "__name__", kind)
            raise ConfigError(f"{prefix}{name}={repr(value)[:60]} is {type(value).__name__}, not {wanted}")
        if dataclasses.is_dataclass(value):
            _check_types(value, f"{prefix}{name}.")


def _is_a(value: Any, kind: Any) -> bool:
    if typing.get_origin(kind) is tuple:
        return isinstance(value, tuple) and all(_is_a(item, typing.get_args(kind)[0]) for item in value)
    if typing.get_origin(kind) is dict:
        key_kind, value_kind = typing.get_args(kind)
        return isinstance(value, dict) and all(_is_a(key, key_kind) and _is_a(item, value_kind) for key, item in value.items())
    if kind is Any:
        return True
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, int | float if kind is float else kind)


def _check_encoder(encoder: Encoder) -> None:
    if encoder.dropout >= 1:
        raise ConfigError(f"encoder.dropout={encoder.dropout} must be below 1")
    if encoder.hidden_size % encoder.num_attention_heads:
        raise ConfigError(
            f"encoder.hidden_size={encoder.hidden_size} is not a multiple of "
            f"encoder.num_attention_heads={encoder.num_attention_heads}"
        )


def rate_steps(options: Optimizer) -> dict[int, float]:
    """{step: learning rate from it on} of optimizer.lr_steps; ConfigError for what is not that."""
    if (options.lr_scheduler_type == "steps") != bool(options.lr_steps):
        raise ConfigError(
            f"optimizer.lr_scheduler_type={options.lr_scheduler_type} and lr_steps={options.lr_steps!r} do not fit: "
            "steps needs lr_steps, for instance 500:8e-6,1000:6e-6, the others have none"
        )
    try:
        pairs = [entry.split(":") for entry in options.lr_steps.split(",") if entry]
        rates = {int(step): float(rate) for step, rate in pairs}
    except ValueError:
        rates = {0: -1.0}
    if any(step < 1 or not 0 <= rate < math.inf for step, rate in rates.items()) or list(rates) != sorted(rates):
        raise ConfigError(f"optimizer.lr_steps={options.lr_steps!r}: write rising STEP:RATE pairs, for instance 500:8e-6,1000:6e-6")
    return rates


def rewind_window(options: Train) -> int:
    """K of train.on_nan=rewind:K, 0 for "": stop."""
    name, _, count = options.on_nan.partition(":")
    if options.on_nan and not (name == "rewind" and count.isdecimal() and int(count) > 0):
        raise ConfigError(f"train.on_nan={options.on_nan!r} is not rewind:K with K from 1 on, for instance rewind:10; empty: stop")
    return int(count or 0)


def flatten(settings: Any, prefix: str = "") -> dict[str, Any]:
    """{"data.batch_size": 64, ...} for every leaf of a dataclass tree; a missing optional part is one leaf, None."""
    leaves: dict[str, Any] = {}
    for item in dataclasses.fields(settings):
        value = getattr(settings, item.name)
        if dataclasses.is_dataclass(value):
            leaves |= flatten(value, f"{prefix}{item.name}.")
        else:
            leaves[prefix + item.name] = value
    return leaves
