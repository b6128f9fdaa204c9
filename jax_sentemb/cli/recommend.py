"""Recommend a recipe for a corpus as a command, and name the measurement that supports the recommendation.

experiments/recommendations.py writes the measured numbers to recommendations.json.
"""

import json
import math
import shlex
from pathlib import Path
from typing import Any, NamedTuple

from jax_sentemb.data.corpus_files import text_options, text_settings

MEASURED: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("recommendations.json").read_text(encoding="utf-8"))
SMALL = 20_000  # sentences; low-shot training was measured at 1,000 and 10,000
MIN_TO_DISTIL = 2_000  # sentences
HELD_OUT = 1_000  # sentences that distill_encoder holds out; a tenth of a smaller corpus
DISTIL_EPOCHS = 6  # as the measurement on few sentences
DISTIL_LENGTH = 64  # tokens of a text in distill_encoder
READ_LENGTH = 128  # tokens that the export of a BERT reads without eval.max_seq_length
MIN_SENTENCES = 16  # for fewer sentences, nothing is recommended
BATCH, STEPS = 64, 50  # values of configs/adapt.py
MAX_UNKNOWN = 0.02  # with a larger share of unknown pieces, no method is trusted
# Recommended lengths. 32 is that of the papers, and longer texts take time and memory: a BERT that is trained gets MAX_LENGTH at
# most, an encoder that is adapted its own limit. From CHUNKED_LENGTH on, parts of a batch are encoded one after the other.
LENGTHS = (32, 48, 64, 96, 128, 192, 256, 384, 512)
MAX_LENGTH, CHUNKED_LENGTH, CHUNK = 128, 192, 16
MAX_EPOCHS = 4  # low-shot training was measured with this number at 1,000 sentences


class CorpusSummary(NamedTuple):
    """The measurements of a corpus and the settings on which the advice depends."""

    files: str
    column: str
    usable: int  # distinct sentences
    length: int  # tokens of a sentence, from `advised_length` or as given
    ordered: bool | None  # None: too short to tell
    batch_size: int
    weights: str  # "" without weights
    tokenizer: str  # "" for the tokenizer of the weights, or a new one
    vocab_size: int
    pooling: str = ""  # the pooling if the weights are a sentence encoder; "" for a plain BERT
    unknown: float = 0.0  # share of unknown pieces
    join: str = ""  # text between the columns; "": each column is a separate text
    layers: int = 0  # of the weights
    has_texts: bool = False  # most records are texts of several sentences
    reads: int = READ_LENGTH  # tokens that an export reads without the setting eval.max_seq_length

    @property
    def columns(self) -> dict[str, str]:
        """Return the settings about the columns, without those that have their defaults."""
        return text_settings(self.column, self.join)

    @property
    def lengths(self) -> dict[str, int]:
        """Return the settings about the length of sentences: an export reads what it was trained with."""
        return {"data.max_seq_length": self.length} | ({"eval.max_seq_length": self.length} if self.length > self.reads else {})


class Alternative(NamedTuple):
    """Another recipe or setting, and its command if it is not that of the advice with one more setting."""

    text: str
    command: str = ""


class Advice(NamedTuple):
    """A recommended recipe, and how certain it is."""

    recipe: str
    command: str
    max_seq_length: int
    num_train_epochs: int
    steps: int
    confidence: str
    evidence: str
    alternatives: list[Alternative]


class Choice(NamedTuple):
    """A recipe before it is fitted to a corpus."""

    recipe: str
    settings: dict[str, Any]
    steps: int  # the measured number of training steps
    confidence: str
    evidence: str
    alternatives: list[str]


FEW = Choice(
    "adapt",
    {"method.pooling": "first_last", "optimizer.learning_rate": 1e-4},
    STEPS,
    "fair: measured with one BERT of four layers, over {seeds} seeds or more".format(**MEASURED["weak"]),
    "experiments/adapting: it changed Spearman x 100 on pairs of {domains} domains by {lowest:+} to {highest:+}, compared with the "
    "mean of first and last layer without training. The lowest change on other text (STS-B) was {elsewhere:+}. Accuracy@1 on "
    "questions (nearest of the same class) changed by {questions:+} of 100. The untrained start next to tf-idf was better in "
    "{better_words} of {all_domains} domains (changes of {lowest_words:+} to {highest_words:+})".format(**MEASURED["weak"]),
    ["for a BERT of twelve layers, --config.optimizer.learning_rate=2e-5, as published; it was not measured here"],
)
MANY = Choice(
    "simcse_ami",
    {
        "method.ami.weight": 3.0,
        "method.ami.depth": "upper",
        "optimizer.learning_rate": 1e-4,
        "optimizer.warmup_steps": 0,
        "train.max_steps": MEASURED["many"]["steps"],
    },
    MEASURED["many"]["steps"],
    "fair: measured with one BERT of four layers, over {seeds} seeds; weight and rate were chosen with labels".format(
        **MEASURED["many"]
    ),
    "experiments/simcse_family: after {steps} steps on 100,000 sentences its [CLS] scores {simcse_ami} on five similarity sets, "
    "the mean of first and last layer without training {untrained}, GloVe with SIF weights {sif}, and tf-idf {tfidf}".format(
        **MEASURED["many"]
    ),
    [
        "simcse with --config.method.pooling=first_last --config.method.head=False --config.method.temperature=0.5 "
        "--config.optimizer.learning_rate=1e-4 --config.train.max_steps=100: a BERT of four layers went from {untrained} to "
        "{simcse} (experiments/simcse_family, {seeds} seeds)".format(**MEASURED["family"]),
        "simcse with the published settings, for a BERT of twelve layers: not measured here",
        "mlm first, for a domain with its own words: not measured on real text here",
    ],
)
SCRATCH = Choice(
    "quickstart",
    # As a share of the steps, since few may follow; and the recipe's own export cuts texts at 48 tokens.
    {"train.max_steps": -1, "eval.data": "", "optimizer.warmup_steps": 0, "optimizer.warmup_ratio": 0.1, "eval.max_seq_length": 0},
    MEASURED["scratch"]["steps"],
    "low: measured on generated sentences only",
    "`make quickstart`: {steps} steps on 20,000 generated sentences raise Spearman x 100 from {untrained} to {trained}; tf-idf "
    "scores {tfidf}".format(**MEASURED["scratch"]),
    [
        "--weights MODEL: an encoder that knows the language is a better start; for English all-MiniLM-L6-v2, or mini-distilled, "
        "which ships with the package",
        "mlm, then simcse on its export, for a corpus of millions of words, as the encoder mini-2 of experiments/pretraining",
    ],
)
ADAPT = Choice(
    "adapt",
    {},
    STEPS,
    "fair: measured with one sentence encoder, all-MiniLM-L6-v2, over {seeds} seeds".format(**MEASURED["adapting"]),
    "experiments/adapting: it changed Spearman x 100 on pairs of {domains} domains by {lowest:+} to {highest:+}; the lowest "
    "change on other text (STS-B) was {elsewhere:+}. Accuracy@1 changed by {questions:+} of 100 on questions (nearest of the same "
    "class), and by {novels:+} on paragraphs of novels (nearest is the other half). In one seed it changed by {packages:+} "
    "on Debian descriptions (nearest of the same section), and nDCG@10 x 100 on Cranfield by {abstracts:+}".format(
        **MEASURED["adapting"]
    ),
    [
        "--config.optimizer.learning_rate=1e-5: more gain and more harm; it changed those pairs by {lowest:+} to {highest:+}, "
        "the questions by {questions:+}, the paragraphs by {novels:+} and the descriptions by {packages:+} (one seed); labelled "
        "pairs (--config.eval.dev) decide".format(**MEASURED["adapting_faster"])
    ],
)
NEIGHBOURS = Choice(
    "neighbours",
    {"optimizer.learning_rate": "1e-5", "optimizer.warmup_ratio": 0.1, "train.max_steps": STEPS},
    STEPS,
    "fair: measured with one sentence encoder, all-MiniLM-L6-v2, on novels, over {seeds} seeds".format(**MEASURED["neighbours"]),
    "experiments/adapting: accuracy@1 on paragraphs of novels (nearest is the other half) changed by {paragraphs:+} of 100; the "
    "lowest change of Spearman x 100 on other text (STS-B) was {elsewhere:+}".format(**MEASURED["neighbours"]),
    [],
)
NEW_OF_FEW = (
    "very low: the smallest text with which a new encoder was measured has 20,000 generated sentences; give --weights, or, for "
    "English, use all-MiniLM-L6-v2 or mini-distilled as it is"
)
CHECKPOINT = (
    "--config.eval.eval_steps=10 --config.eval.select=retrieval --config.eval.patience=3: select better weights than the last, "
    "without labels (experiments/choosing: {retrieval}; the last step {last}, the first evaluation {first}, STS-B dev {dev})"
).format(**MEASURED["checkpoint"])
LONG = "--config.data.max_seq_length=32, as in the measurement above: cuts more text, but takes less time and memory"
WORDS_TOO = Choice(
    "adapt_words",
    {},
    200,
    f"{ADAPT.confidence}, on single sentences of such texts",
    "accuracy@1 changed by {packages:+} of 100 on Debian descriptions and {questions:+} on questions (nearest of the same class), "
    "{novels:+} on paragraphs of novels (nearest is the other half), nDCG@10 x 100 on Cranfield by {abstracts:+}; on novels and "
    "Cranfield, tf-idf dimensions next to the encoder as it is gained more ({novels_next:+}, {abstracts_next:+}); Spearman x 100 "
    "on pairs of sentences changed by {lowest:+} to {highest:+} "
    "(experiments/adapting, all-MiniLM-L6-v2, at least {seeds} seeds)".format(**MEASURED["adapting_words"]),
    [],
)
TOPICS = f"adapt_words, to search or to find texts on the same topic: {WORDS_TOO.evidence}:"
SENTENCES = f"adapt, to compare sentences with sentences; {ADAPT.evidence}:"
DISTILLED = (
    "distill_encoder, if a sentence encoder may be its teacher: a BERT of four layers went from {start} to {student}, with "
    "all-MiniLM-L6-v2 ({teacher}) as the teacher, by 6,000 steps on 200,000 texts (experiments/stronger, {seeds} seeds)"
).format(**MEASURED["distilled"])
WORDS = (
    "a static table with dimensions for words, after this training or instead of it: on the same sets it scores {trained} after "
    "it, {untrained} without it (--model with the BERT), and tf-idf of the same text {tfidf} "
    "(experiments/stronger, {seeds} seeds); it ignores the order of words:"
).format(**MEASURED["tables"])
FEW_WORDS = (
    "a static table with dimensions for words, instead of a training: with 200,000 sentences of mixed text it scores {untrained} "
    "on five similarity sets, and tf-idf of the same text {tfidf} (experiments/stronger); add other text, because words that are "
    "frequent in yours lose their weight:"
).format(**MEASURED["tables"])
FASTER = (
    "a small encoder from every second layer, if it is too slow: layers 1, 3 and 5 of all-MiniLM-L6-v2 kept {layers} of its "
    "{teacher} points at 1.9 times its speed, by 1,500 steps on 200,000 texts (experiments/stronger, {seeds} seeds)"
).format(**MEASURED["distilled"])
OTHER_TEXT = "; with so few sentences, add other text (docs/methods/distillation.md)"
WITH_FEW = (
    OTHER_TEXT + ": on the sentences of 1,398 abstracts alone, layers 1, 3 and 5 kept {abstracts} of {abstracts_teacher} "
    "(nDCG@10 x 100, Cranfield) and {other} of {other_teacher} elsewhere (STS-B)"
).format(**MEASURED["distilled"])
TEACHER = "all-MiniLM-L6-v2"
UNREADABLE = "low: {:.0%} of the pieces are unknown to this tokenizer; use a model that knows the script of the text"
ORDERED = (
    "multi_view or quick_thoughts with --config.encoder.vectors=VECTORS, since neighbouring lines belong together; in "
    "experiments/multiview, no multi-view model was far above the average of its word vectors"
)


MEASURED_TEXTS = 1000  # the smallest domain of experiments/adapting has 1,398
MEASURED_LENGTH = 32  # tokens of a sentence in the studies that the advice cites


def advised_length(whole: int, limit: int, is_encoder: bool) -> int:
    """Return the recommended number of tokens of a sentence.

    Args:
        whole: 99 % of the sentences have at most this number of tokens.
        limit: The largest number of tokens of the model.
        is_encoder: Whether the model is a sentence encoder.
    """
    longest = LENGTHS[-1] if is_encoder else MAX_LENGTH
    return min(next((length for length in LENGTHS if length >= whole), longest), longest, limit)


def advise(corpus: CorpusSummary) -> Advice | None:
    """Recommend a recipe for a corpus. Return None if the corpus is too small for any recipe."""
    if corpus.usable < MIN_SENTENCES:
        return None
    advice = _adapt(corpus) if corpus.pooling else _train(corpus)
    if corpus.unknown > MAX_UNKNOWN:  # nothing was measured on such text
        return advice._replace(confidence=UNREADABLE.format(corpus.unknown), evidence="", alternatives=[])
    if corpus.length > MEASURED_LENGTH and corpus.weights:
        advice = advice._replace(confidence=f"{advice.confidence}, at {MEASURED_LENGTH} tokens and not at {corpus.length}")
    if corpus.usable < MEASURED_TEXTS and corpus.weights:
        measured = advice.confidence.removeprefix("fair: ")
        advice = advice._replace(confidence=f"low: so few sentences were not measured; {measured}")
    return advice


def _train(corpus: CorpusSummary) -> Advice:
    """Return the advice for a plain BERT, or for training from scratch."""
    choice = SCRATCH if not corpus.weights else FEW if corpus.usable < SMALL else MANY
    batch = min(corpus.batch_size, corpus.usable)
    epochs = math.ceil(choice.steps / (corpus.usable // batch))
    limit = {"train.num_train_epochs": (epochs := min(epochs, MAX_EPOCHS))} if choice is SCRATCH else {}
    flags = {
        "data.files": corpus.files,
        **corpus.columns,
        **({"data.tokenizer": corpus.tokenizer} if corpus.tokenizer else {}),
        **({"encoder.weights": corpus.weights} if corpus.weights else {"data.vocab_size": corpus.vocab_size}),
        "data.batch_size": batch,
        **limit,
        **choice.settings,
        **corpus.lengths,
    }
    return Advice(
        choice.recipe,
        _train_command(choice.recipe, flags),
        corpus.length,
        epochs,
        corpus.usable // batch * epochs if limit else choice.steps,
        NEW_OF_FEW if choice is SCRATCH and corpus.usable < SMALL else choice.confidence,
        choice.evidence,
        [
            *([Alternative(WORDS, _table_command(corpus, f"runs/{choice.recipe}", "--words", "1024"))] if choice is MANY else []),
            *([Alternative(FEW_WORDS, _table_command(corpus, corpus.weights, "--words", "1024"))] if choice is FEW else []),
            *([Alternative(LONG)] if corpus.length > LENGTHS[0] else []),
            *([Alternative(CHECKPOINT)] if corpus.weights and choice is not FEW else []),
            *map(Alternative, choice.alternatives),
            *_distil(corpus, DISTILLED, TEACHER, steps=6000, **{"optimizer.learning_rate": 5e-4}),
            *([Alternative(ORDERED)] if corpus.ordered else []),
        ],
    )


def _train_command(recipe: str, settings: dict[str, Any]) -> str:
    """Return the command that trains a recipe with these settings."""
    command = ["jax-sentemb", "train", "--config", recipe, "--workdir", f"runs/{recipe}"]
    return shlex.join(command + [f"--config.{field}={value}" for field, value in settings.items()])


def _table_command(corpus: CorpusSummary, model: str, *options: str) -> str:
    """Return the command that makes a static table of a model."""
    command = ["jax-sentemb", "distill", "--model", model, "--corpus", corpus.files]
    command += [*text_options(corpus.column, corpus.join), *options]
    return shlex.join([*command, "--output", "models/static"])


def _distil(corpus: CorpusSummary, text: str, teacher: str, *, steps: int, **settings: Any) -> list[Alternative]:
    """Return the alternative that distils a teacher into the weights; nothing without weights or with too few sentences."""
    if not corpus.weights or corpus.usable < MIN_TO_DISTIL:
        return []
    is_small = corpus.usable < SMALL
    settings |= {"train.num_train_epochs": DISTIL_EPOCHS} if is_small else {"train.max_steps": steps}
    flags = {"data.files": corpus.files, **corpus.columns, "encoder.weights": corpus.weights, "method.teacher": teacher, **settings}
    flags |= corpus.lengths if corpus.length > DISTIL_LENGTH else {}
    flags |= {"train.grad_cache_chunk": CHUNK} if corpus.length >= CHUNKED_LENGTH else {}
    flags |= {"data.validation": corpus.usable // 10} if corpus.usable < 10 * HELD_OUT else {}
    return [Alternative(f"{text}{WITH_FEW * is_small}:", _train_command("distill_encoder", flags))]


def _few_to_embed(corpus: CorpusSummary) -> dict[str, Any]:
    """Return the setting that limits how many texts the teachers embed."""
    return {"data.subset": SMALL} if corpus.usable > SMALL else {}


def _adapt(corpus: CorpusSummary) -> Advice:
    """Return the advice for a sentence encoder: a short training that helped in measurements, or to use it as it is."""
    encode = ["jax-sentemb", "encode", "--model", corpus.weights, "--input", corpus.files]
    encode += text_options(corpus.column, corpus.join)
    batch = min(corpus.batch_size, corpus.usable)
    flags = {"data.files": corpus.files, "encoder.weights": corpus.weights, **corpus.columns}
    flags |= {"data.tokenizer": corpus.tokenizer} if corpus.tokenizer else {}
    flags |= corpus.lengths if corpus.length != LENGTHS[0] else {}
    flags |= {"train.grad_cache_chunk": CHUNK} if corpus.length >= CHUNKED_LENGTH and batch % CHUNK == 0 else {}
    flags |= {"data.batch_size": batch} if batch != BATCH else {}

    is_small = corpus.usable < SMALL
    choice = NEIGHBOURS if corpus.ordered else WORDS_TOO if corpus.has_texts else ADAPT
    words = _train_command(WORDS_TOO.recipe, flags | _few_to_embed(corpus))
    rows = corpus.usable // 2 if choice is NEIGHBOURS else corpus.usable
    return Advice(
        choice.recipe,
        words if choice is WORDS_TOO else _train_command(choice.recipe, flags | choice.settings),
        corpus.length,
        math.ceil(choice.steps / (rows // min(batch, rows))),
        choice.steps,
        choice.confidence,
        choice.evidence,
        [
            *([Alternative(LONG)] if corpus.length > LENGTHS[0] else []),
            *map(Alternative, choice.alternatives),
            *([Alternative(SENTENCES, _train_command(ADAPT.recipe, flags | ADAPT.settings))] if choice is not ADAPT else []),
            *([Alternative(TOPICS, words)] if choice is not WORDS_TOO else []),
            Alternative(
                f"the encoder as it is, with the {corpus.pooling} pooling of its directory:",
                shlex.join([*encode, "--output", "vectors"]),
            ),
            *(
                _distil(corpus, FASTER, corpus.weights, steps=1500, **{"encoder.layers": (corpus.layers + 1) // 2})
                if corpus.layers > 1
                else []
            ),
            Alternative(
                f"a static table, if speed counts more than the last points{OTHER_TEXT * is_small}:",
                _table_command(corpus, corpus.weights),
            ),
        ],
    )
