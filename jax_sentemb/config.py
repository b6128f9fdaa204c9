"""Define the settings of a run as typed dataclasses. A file in configs/ builds one Config; defaults are here or in a method.

Names are those of the field (learning_rate, num_train_epochs, max_seq_length...). Every field can be set on the command line,
for instance --config.optimizer.learning_rate=1e-5. The comment next to or above a field is its help text.
"""

import dataclasses
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from jax_sentemb.data.unpacking import has_columns
from jax_sentemb.errors import ConfigError, Setting, note_text
from jax_sentemb.methods.base import Method
from jax_sentemb.setting_texts import chosen_layers, rate_steps, rewind_window
from jax_sentemb.settings import LARGEST, check_settings, check_types, setting, unused
from jax_sentemb.settings import NAMES as NAMES
from jax_sentemb.settings import flatten as flatten
from jax_sentemb.settings import setting_lines as setting_lines


@dataclass
class Data:
    """The corpus, its tokenisation, and its batches."""

    # Paths and globs, comma separated; or hf:NAME, tfds:NAME, senteval:TASK, grammar:COUNT (generated), arguments:FILE (pairs).
    # With {process} in a path, each process of a run reads only the files of its own number.
    files: str = ""
    column: str = "text"  # the field with the text in tables and data sets; several, comma separated: each is a sentence
    join: str = ""  # text to put between several columns, which join to one sentence; empty: do not join
    tokenizer: str = ""  # directory of a tokenizer; empty: that of encoder.weights, or a new one
    vocab_size: int = setting(8000, least=50)  # size of a new vocabulary
    max_seq_length: int = setting(32, least=3)  # tokens of a sentence, with [CLS] and [SEP]; longer ones are cut
    batch_size: int = setting(64, least=2)  # sentences over all devices
    # Fill rows up to max_seq_length with consecutive sentences, for masked-language-model training. A blank line ends a row.
    pack: bool = False
    subset: float = setting(0.0, least=0)  # low-shot: number of sentences (>= 1) or fraction of them (< 1); 0: all
    subset_seed: int = setting(0, least=0)  # seed that draws the subset
    num_workers: int = setting(-1, least=-1)  # processes that tokenise a large corpus; -1: one for each core; 0: none
    # Number of batches whose sentences are sorted by length together; 1: random batches, as in the papers.
    length_grouping: int = setting(32, least=1)
    # How arguments:FILE is divided into folds: a tenth of each topic ("10-fold"), or one topic each ("cross-topic").
    scheme: str = setting("10-fold", choices=("10-fold", "cross-topic"))
    # The fold that is tested; the others are used for training. sweep="data.fold=all" runs every fold.
    fold: int = setting(0, least=0)
    # Number of sentences that are held out of training, to measure loss and accuracy of the method's training task.
    validation: int = setting(0, least=0)


@dataclass
class Encoder:
    """A BERT from a directory, or a new one of the given size."""

    weights: str = ""  # Hugging Face or sentence-transformers directory, or hub name; empty: from scratch
    hidden_size: int = setting(256, least=1, used_if="not weights")
    num_hidden_layers: int = setting(4, least=1, used_if="not weights")
    num_attention_heads: int = setting(4, least=1, used_if="not weights")
    intermediate_size: int = setting(1024, least=1, used_if="not weights")
    dropout: float = setting(0.1, least=0, below=1)  # rate for hidden states and attention; overrides config.json
    # Layers of `weights` to start from: a count, spread evenly from the first layer ("3" of 6: 1, 3 and 5), or their numbers from 1
    # in rising order ("1,3,5"; "6," is one layer). Empty: all layers.
    layers: str = ""
    # Which pooling to use for a sentence encoder (a directory with modules.json): that of the directory or that of the method. Its
    # prompts are used in both cases.
    readout: str = setting("directory", choices=("directory", "method"), used_if="weights")
    from_scratch: bool = True  # whether a new encoder is trained if `weights` is empty; False: that is an error


@dataclass
class Words:
    """Vectors for the words of the corpus and of `eval.data` instead of a BERT, for recurrent and linear encoders."""

    vectors: str = ""  # GloVe or fastText text, .vec or .npz, compressed or not; empty: new vectors
    hidden_size: int = setting(300, least=1, used_if="not vectors")  # width of new vectors
    trained: bool = False  # whether to train the vectors
    max_words: int = setting(100_000, least=1)  # the most frequent words; other words are unknown and have the vector 0
    lowercase: bool = True  # look up the words of the corpus in lower case


@dataclass
class Optimizer:
    """Optimiser and learning-rate schedule of optax; the defaults are those of the papers' trainer."""

    name: str = setting("adamw", choices=("adamw", "rmsprop", "sgd"))
    learning_rate: float = setting(3e-5, least=0)
    # Form of the learning rate after the warm-up; linear and cosine fall to 0.
    lr_scheduler_type: str = setting("linear", choices=("linear", "cosine", "constant", "steps", "exponential"))
    lr_steps: str = ""  # rates from given steps on, for the form "steps": 500:8e-6,1000:6e-6
    lr_decay: float = setting(0.99, least=0, below=1, used_if="lr_scheduler_type=exponential")  # factor after each epoch
    # Factor for the learning rate whenever the score of eval.select does not improve (InferSent: 0.2).
    plateau_factor: float = setting(1.0, above=0, most=1)
    warmup_steps: int = setting(0, least=0)  # steps in which the learning rate rises from 0
    warmup_ratio: float = setting(0.0, least=0, below=1, used_if="not warmup_steps")  # warm-up as a share of all steps
    adam_beta1: float = setting(0.9, least=0, below=1, used_if="name=adamw")
    adam_beta2: float = setting(0.999, least=0, below=1, used_if="name=adamw")
    adam_epsilon: float = setting(1e-8, least=0, used_if="name=adamw|rmsprop")
    adam_bias_correction: bool = setting(True, used_if="name=adamw")  # correct Adam's averages; False: as IS-BERT's code
    rmsprop_decay: float = setting(0.9, least=0, below=1, used_if="name=rmsprop")
    weight_decay: float = setting(0.0, least=0)
    max_grad_norm: float = setting(1.0, least=0)  # norm to which gradients are clipped; 0: no clipping


@dataclass
class Evaluation:
    """Evaluation during and after training."""

    data: str = ""  # SentEval folder; "grammar" for the generated graded pairs; empty: label-free diagnostics only
    tasks: str = ""  # tasks to score after training, as in jax-sentemb evaluate; "corpus": the task of data.files
    classifier: str = setting("senteval", used_if="tasks")  # protocol of the tasks
    # The development set: a pair file (sentence1, sentence2, score), a folder with queries and documents in BEIR's layout (its
    # qrels/dev.tsv, or else test.tsv), a table with labels (see `label_column`), or a set of `data` by its name, such as
    # STSBenchmark-dev-disjoint; empty: STS-B dev of `data` if present.
    dev: str = ""
    label_column: str = ""  # the column of the labels of `dev`; empty: `dev` has no labels
    text_column: str = setting("text", used_if="label_column")  # the column of the labelled texts of `dev`
    eval_steps: int = setting(250, least=-1)  # steps between evaluations; 0: only at the end; -1: after each epoch
    # The score that selects the weights. Empty: the first that is available of dev, agreement with a teacher and validation
    # (SimCSE, Mirror-BERT, Contrastive Tension and SCT: without validation), or else the last weights.
    select: str = setting("", choices=("", "dev", "agreement", "validation", "retrieval", "last"))
    # A stronger model that judges a method without a teacher: how many of its nearest neighbours the encoder has too. Empty: none.
    teacher: str = ""
    # Files of text on which the agreement with a teacher is measured. Empty: the sentences of data.validation, or for eval.teacher
    # sentences of the corpus.
    held_out: str = ""
    patience: int = setting(0, least=0)  # evaluations without improvement after which training ends; 0: never
    batch_size: int = setting(64, least=1)  # sentences that are encoded at once in evaluations
    # Tokens of a sentence in evaluations and the export, at least 3. 0: as in the directory of a sentence encoder, or else 128.
    max_seq_length: int = setting(0, least=0)
    diagnostic_sentences: int = setting(512, least=16)  # sentences for the label-free diagnostics
    report_sentences: int = setting(2000, least=0)  # largest number of sentences for the neighbours in report.html; 0: none


@dataclass
class Train:
    """Length, precision, memory, logging and checkpoints of the run."""

    seed: int = setting(42, least=0)
    num_train_epochs: float = setting(1.0, least=0, used_if="max_steps=-1")
    max_steps: int = setting(-1, least=-1)  # steps; -1: num_train_epochs counts; 0: export the untrained weights
    # Share of the initial weights in the exported weights, which average start and result (Wortsman et al. 2022); 0: none.
    average_with_start: float = setting(0.0, least=0, below=1)
    # Number of layers that are trained, counted from the last, with pooling and heads; other layers do not change. 0: all layers.
    last_layers: int = setting(0, least=0)
    # Widths such as 32,64,128: the loss is the mean over the prefixes of these widths, so that all of them can be used.
    # Empty: the full width only.
    matryoshka: tuple[int, ...] = setting((), least=1)
    precision: str = setting("float32", choices=("float32", "bfloat16"))  # precision of matrix products
    # Type of states between products and of states that are stored for the backward pass. Empty: bfloat16 on accelerators if
    # `precision` is bfloat16, otherwise float32.
    activations: str = setting("", choices=("", "float32", "bfloat16"))
    # Number of devices over which parameters and the optimiser's state are split; 1: each device has all of them.
    fsdp: int = setting(1, least=1)
    grad_cache_chunk: int = setting(0, least=0)  # sentences encoded at once: less memory, same gradients; 0: all
    # Number of queries whose attention is computed at once, so that memory is linear in the length; 0: all.
    attention_block: int = setting(0, least=0)
    # An attention kernel: "cudnn" (NVIDIA, bfloat16) and "xla" do not drop attention weights; "pallas" (TPU, NVIDIA) does.
    fused_attention: str = setting("", choices=("", "cudnn", "xla", "pallas"))
    remat: bool = False  # recompute layers in the backward pass: saves memory on accelerators, not on CPUs
    logging_steps: int = setting(10, least=1)  # steps between lines of metrics.jsonl
    save_steps: int = setting(500, least=0)  # steps between checkpoints; 0: only at the end
    keep_checkpoints: int = setting(2, least=1)  # number of latest checkpoints that are kept
    tensorboard: bool = False  # also write the metrics for TensorBoard (needs [tb])
    wandb: str = ""  # project in Weights & Biases; the environment variable WANDB_MODE=offline keeps data in the work directory
    on_nan: str = ""  # "rewind:K": after NaN, return to the last checkpoint and skip the last K batches; empty: end
    strict: bool = False  # end the run with exit 5 if the embeddings collapse, instead of printing a warning

    def number_of_steps(self, epoch: int) -> int:
        """Return the number of steps of a run whose epochs have `epoch` steps."""
        if self.max_steps >= 0:
            return self.max_steps
        return math.ceil(round(self.num_train_epochs * epoch, 6))  # rounded, since 0.28 * 25 is a little more than 7


@dataclass
class Variant:
    """One method of a study. Its settings override those of the study, and `sweep` overrides both."""

    method: Method
    settings: dict[str, Any] = field(default_factory=dict)  # {"optimizer.learning_rate": 1e-5}
    by_subset: dict[float, dict[str, Any]] = field(default_factory=dict)  # {0.1: {...}}: settings for that data.subset
    baseline: str = ""  # another variant; tables and plots show the paired differences from it


@dataclass
class Config:
    """One run."""

    method: Method
    data: Data = field(default_factory=Data)
    encoder: Encoder | Words = field(default_factory=Encoder)
    optimizer: Optimizer = field(default_factory=Optimizer)
    eval: Evaluation = field(default_factory=Evaluation)
    train: Train = field(default_factory=Train)
    pretrain: "Config | None" = None  # a run that is trained first, with the same weights and seed; its export is the start
    sweep: str = ""  # a run for each value: "train.seed=1..10", "data.files=a.txt|b.txt data.subset_seed,train.seed=1,2"
    variants: dict[str, Variant] = field(default_factory=dict)  # methods of a study; sweep="variant=A,B" runs only these


def swept(sweep: str) -> list[str]:
    """Return the names of the settings in a text of `Config.sweep`."""
    return [name for entry in sweep.split() for name in entry.partition("=")[0].split(",")]


def sized(config: Config, size: str) -> Config:
    """Return the config for size "", or for "tiny" a run of seconds on generated sentences with the method's settings.

    Raises:
        ConfigError: The size is unknown.
    """
    if size == "tiny":
        if config.pretrain is not None:
            config.pretrain = sized(config.pretrain, size)
        config.sweep = ""
        held_out = 16 if config.data.validation else 0
        config.data = Data(
            files="grammar:400", max_seq_length=24, batch_size=8, validation=held_out, pack=config.data.pack,
            length_grouping=config.data.length_grouping,
        )  # fmt: skip
        if isinstance(config.encoder, Words):
            config.encoder = dataclasses.replace(config.encoder, vectors="", hidden_size=12)
        else:
            config.data.vocab_size = 1000
            config.encoder = dataclasses.replace(
                config.encoder, weights="", from_scratch=True, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
                intermediate_size=64,
            )  # fmt: skip
        for name, value in {"teacher": "words:16", "queue_size": 24}.items():
            if hasattr(config.method, name):
                setattr(config.method, name, value)
        config.optimizer.learning_rate, config.optimizer.lr_steps = 1e-3, config.optimizer.lr_steps and "3:5e-4"
        config.eval = Evaluation(
            data="grammar", eval_steps=3 if config.optimizer.plateau_factor < 1 else 0, batch_size=32, max_seq_length=24,
            diagnostic_sentences=64, report_sentences=64,
        )  # fmt: skip
        config.train = Train(max_steps=6, logging_steps=1, save_steps=3)
    elif size:
        raise ConfigError(f"size {size!r} of the recipe is unknown: write RECIPE, or RECIPE:tiny")
    return config


def check(config: Config) -> None:
    """Raise ConfigError, with field, value and limit, for settings that are invalid for any data."""
    check_settings(config)
    if isinstance(config.encoder, Encoder):
        _check_encoder(config.encoder)
    if config.train.fused_attention == "cudnn" and config.train.precision != "bfloat16":
        raise ConfigError(Setting("train.fused_attention", "cudnn"), " needs ", Setting("train.precision", "bfloat16"))
    if config.train.activations == "bfloat16" and config.train.precision != "bfloat16":
        raise ConfigError(Setting("train.activations", "bfloat16"), " needs ", Setting("train.precision", "bfloat16"))
    if config.train.fused_attention and config.train.attention_block:
        raise ConfigError(
            Setting("train.fused_attention"), " and ", Setting("train.attention_block"), " exclude each other: set only one of them"
        )
    _check_rate(config)
    if 0 < config.data.validation < config.data.batch_size:
        raise ConfigError(
            Setting("data.validation", config.data.validation),
            " must be 0 or at least ",
            Setting("data.batch_size", config.data.batch_size),
            ": it is read in batches",
        )
    if config.train.last_layers and isinstance(config.encoder, Words):
        raise ConfigError(Setting("train.last_layers", config.train.last_layers), ": word vectors have no layers; remove it")
    for name in ("train.average_with_start", "train.last_layers"):
        if getattr(config.train, name.removeprefix("train.")):
            if not getattr(config.encoder, "weights", "") and config.pretrain is None:
                raise ConfigError(Setting(name), " needs weights to start from: ", Setting("encoder.weights", "DIRECTORY"))
    if config.train.average_with_start and config.method.dense:
        raise ConfigError(
            Setting("train.average_with_start", config.train.average_with_start),
            ": it averages the encoder and not the exported layer W, so they would not fit; remove it, or set ",
            Setting("method.output", "student"),
        )
    _check_selection(config)
    _check_variants(config)
    rewind_window(config.train.on_nan)
    chunk = config.train.grad_cache_chunk
    if chunk and config.data.batch_size % chunk:
        raise ConfigError(
            Setting("data.batch_size", config.data.batch_size), " is not a multiple of ", Setting("train.grad_cache_chunk", chunk)
        )
    if not config.data.files and "data.files=" not in config.sweep:
        raise ConfigError(Setting("data.files"), " is empty: name a text file, ", Setting("data.files", "corpus.txt"))
    if config.pretrain is not None:
        if config.pretrain.pretrain is not None or config.pretrain.sweep or config.pretrain.variants:
            raise ConfigError("pretrain: a pretraining run cannot have pretrain, sweep or variants: set them in the main config")
        _check_pretraining(config, config.pretrain)
        try:
            check(config.pretrain)
        except ConfigError as error:
            error.within("pretrain")
            raise


def _check_rate(config: Config) -> None:
    rate_steps(config.optimizer.lr_scheduler_type, config.optimizer.lr_steps)
    factor = config.optimizer.plateau_factor
    if factor < 1 and (config.eval.select == "last" or not config.eval.eval_steps):
        cause = Setting("eval.select", "last") if config.eval.select == "last" else Setting("eval.eval_steps", 0)
        raise ConfigError(Setting("optimizer.plateau_factor", factor), " needs a score, and there is none with ", cause)


def unused_notes(config: Config) -> list[str]:
    """Return a note for each setting that was changed and has no effect."""
    own = unused(dataclasses.replace(config, pretrain=None))  # that run has its own notes
    return [note_text(changed, " is not used, since ", cause) for changed, cause in (*own, *_unused_across(config))]


OF_BERT = ("activations", "attention_block", "fused_attention", "remat")  # settings of `train`


def _unused_across(config: Config) -> Iterator[tuple[Setting, Setting | str]]:
    """Yield each changed setting that another section makes useless, and the cause."""
    data, weights = config.data, getattr(config.encoder, "weights", "")
    causes: dict[str, Setting | str] = {}
    if weights or data.tokenizer:
        causes["data.vocab_size"] = (
            Setting("data.tokenizer", data.tokenizer) if data.tokenizer else Setting("encoder.weights", weights)
        )
    if not data.files.startswith("arguments:"):
        causes |= dict.fromkeys(("data.fold", "data.scheme"), Setting("data.files", data.files))
    if not data.subset and not data.files.startswith("grammar:"):
        causes["data.subset_seed"] = Setting("data.subset", data.subset)
    if getattr(config.method, "dropout", None) is False:
        causes["encoder.dropout"] = Setting("method.dropout", False)
    if not has_columns(data.files):
        causes |= dict.fromkeys(("data.column", "data.join"), "files of lines have no columns")
    elif "," not in data.column:
        causes["data.join"] = Setting("data.column", data.column)
    if config.method.reads_pairs:
        causes |= dict.fromkeys(("data.column", "data.join"), "labelled pairs have columns of their own")
    if isinstance(config.encoder, Words):
        of_bert = ("data.tokenizer", "data.vocab_size", *(f"train.{name}" for name in OF_BERT))
        causes |= dict.fromkeys(of_bert, "this recipe trains on word vectors")
    if config.method.reads_consecutive:
        causes["data.length_grouping"] = "a batch has consecutive sentences"
    if config.method.is_cross_encoder:
        causes |= dict.fromkeys(("eval.diagnostic_sentences", "eval.report_sentences"), "a cross-encoder has no embeddings")
    teachers = getattr(config.method, "teacher", "").replace(" ", "")
    if teachers and all(name.startswith("words:") for name in teachers.split(",")):
        causes["method.teacher_precision"] = Setting("method.teacher", teachers)
    values, defaults = flatten(config), flatten(Config(config.method, encoder=type(config.encoder)()))
    yield from ((Setting(name, values[name]), cause) for name, cause in causes.items() if values[name] != defaults[name])


def _check_variants(config: Config) -> None:
    for name, variant in config.variants.items():
        if not re.fullmatch(r"[^\s,|=]+", name):
            raise ConfigError(f"variants: the name {name!r} has a space or one of , | =; rename it")
        if variant.baseline and variant.baseline not in config.variants:
            raise ConfigError(f"variants: {name} has the baseline {variant.baseline}, which is not a variant; name another")
        check_types(variant, f"variants.{name}.")
    if config.variants and all(config.method != variant.method for variant in config.variants.values()):
        raise ConfigError(
            "method settings of a study belong to its variants: change the file, or one variant by "
            '--config.sweep="variant=NAME method.SETTING=VALUE"'
        )


def _check_pretraining(config: Config, first: Config) -> None:
    """Raise ConfigError for settings of the pretraining run that those of the whole run replace."""
    own, whole = flatten(first), flatten(config)
    default = flatten(Config(first.method, encoder=type(first.encoder)()))
    for name in (*(name for name in own if name.startswith("encoder.")), "train.seed", "eval.data"):
        if own[name] not in (default[name], whole.get(name)):
            raise ConfigError(Setting(f"pretrain.{name}", own[name]), ": both runs have one value; set ", Setting(name, own[name]))


def _check_selection(config: Config) -> None:
    if 0 < config.eval.max_seq_length < 3:
        raise ConfigError(Setting("eval.max_seq_length", config.eval.max_seq_length), " must be 0 or at least 3")
    if config.eval.select == "validation" and not config.data.validation:
        raise ConfigError(Setting("eval.select", "validation"), " needs held-out sentences: ", Setting("data.validation", 1000))
    if config.eval.patience and not config.eval.eval_steps:
        raise ConfigError(
            Setting("eval.patience", config.eval.patience), " counts evaluations during training: set ", Setting("eval.eval_steps")
        )


def _check_encoder(encoder: Encoder) -> None:
    if not encoder.weights and not encoder.from_scratch:
        raise ConfigError(
            Setting("encoder.weights"),
            " is empty, and this recipe improves a model that is already good: name one, ",
            Setting("encoder.weights", "all-MiniLM-L6-v2"),
        )
    if encoder.layers:
        chosen_layers(encoder.layers, LARGEST)
        if not encoder.weights:
            raise ConfigError(Setting("encoder.layers", encoder.layers), " needs ", Setting("encoder.weights"))
    if encoder.hidden_size % encoder.num_attention_heads:
        raise ConfigError(
            Setting("encoder.hidden_size", encoder.hidden_size),
            " is not a multiple of ",
            Setting("encoder.num_attention_heads", encoder.num_attention_heads),
        )
