"""Recommends a recipe for a corpus, as a command, and states the measurement behind the recommendation.

experiments/recommendations.py writes the measured numbers to recommendations.json.
"""

import json
import math
import shlex
from pathlib import Path
from typing import Any, NamedTuple

MEASURED: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("recommendations.json").read_text(encoding="utf-8"))
SMALL = 20_000  # sentences: low-shot training was measured at 1,000 and 10,000
LEAST = 16  # sentences below which nothing is advised
BATCH, STEPS = 64, 50  # of configs/adapt.py
UNKNOWN = 0.02  # share of unknown pieces from which no method is trusted
LENGTHS = (32, 48, 64, 96, 128)  # that are advised: 32 is the papers', longer ones cost time and memory
EPOCHS = 4  # at most: what low-shot training was measured with at 1,000 sentences


class CorpusSummary(NamedTuple):
    """The measurements of a corpus and the settings on which the advice depends."""

    files: str
    column: str
    usable: int  # distinct sentences
    whole: int  # tokens that hold 99 % of the sentences whole
    ordered: bool | None  # None: too short to tell
    batch_size: int
    weights: str  # "" without
    tokenizer: str  # "" for that of the weights, or a new one
    vocab_size: int
    positions: int
    readout: str = ""  # pooling of a sentence encoder that the weights are; "" for a BERT that is not a sentence encoder
    unknown: float = 0.0  # share of the pieces
    join: str = ""  # is put between the columns; "": each is a text of its own

    @property
    def columns(self) -> dict[str, str]:
        """The settings about the columns, without those that have their defaults."""
        settings = {"data.column": self.column, "data.join": self.join}
        return {name: value for name, value in settings.items() if value not in ("text", "")}


class Advice(NamedTuple):
    """A recipe, and how sure it is."""

    recipe: str
    command: str
    max_seq_length: int
    num_train_epochs: int
    steps: int
    sure: str
    evidence: str
    alternatives: list[str]


class Choice(NamedTuple):
    """A recipe before it is fitted to a corpus."""

    recipe: str
    settings: dict[str, Any]
    steps: int  # that are wanted, of those that were measured
    sure: str
    evidence: str
    alternatives: list[str]


FEW = Choice(
    "adapt",
    {"method.pooling": "first_last", "optimizer.learning_rate": 1e-4},
    STEPS,
    "fair: measured with one BERT of four layers, over {seeds} seeds or more".format(**MEASURED["weak"]),
    "experiments/adapting: it changed Spearman x 100 on pairs of {domains} domains by {lowest:+} to {highest:+}, from the mean of "
    "first and last layer without training; on other text (STS-B) by {elsewhere:+} at worst, and how many of 100 questions have a "
    "question of the same class nearest by {questions:+}".format(**MEASURED["weak"]),
    ["a BERT of twelve layers: with --config.optimizer.learning_rate=2e-5, as published; it was not measured here"],
)
MANY = Choice(
    "simcse",
    {},
    MEASURED["many"]["steps"],
    "fair: the published settings for BERT-base; measured with one BERT of four layers, one seed",
    "experiments/is_bert: {steps} steps on 196,812 sentences lift [CLS] from {untrained} to {simcse} on similarity; IS-BERT comes "
    "to {is_bert}".format(**MEASURED["many"]),
    [
        "for a small BERT --config.method.pooling=first_last --config.method.head=False --config.method.temperature=0.5 "
        "--config.optimizer.learning_rate=1e-4 --config.train.max_steps=100: one of four layers came to {simcse} from {untrained} "
        "(experiments/simcse_family, {seeds} seeds)".format(**MEASURED["family"]),
        "is_bert with --config.data.column=text: {is_bert} there, at a learning rate chosen on STS-B dev".format(
            **MEASURED["many"]
        ),
        "mlm first, for a domain with words of its own: not measured on real text here",
    ],
)
SCRATCH = Choice(
    "quickstart",
    {"train.max_steps": -1, "eval.data": ""},
    MEASURED["scratch"]["steps"],
    "little: measured on generated sentences only",
    "`make quickstart`: {steps} steps on 20,000 generated sentences lift Spearman x 100 from {untrained} to {trained}; tf-idf "
    "{tfidf}".format(**MEASURED["scratch"]),
    [
        "--weights BERT, a directory or a hub name: an encoder that knows the language is the better start",
        "mlm, then simcse on its export, for a corpus of millions of words: not measured on real text here",
    ],
)
ADAPT = Choice(
    "adapt",
    {},
    STEPS,
    "fair: measured with one ready encoder, all-MiniLM-L6-v2, over {seeds} seeds".format(**MEASURED["adapting"]),
    "experiments/adapting: it changed Spearman x 100 on pairs of {domains} domains by {lowest:+} to {highest:+}, on other text "
    "(STS-B) by {elsewhere:+} at worst; of 100 questions {questions:+} have one of the same class nearest, and of 100 paragraphs "
    "of novels {paragraphs:+} are found by their other half".format(**MEASURED["adapting"]),
    [
        "--config.optimizer.learning_rate=1e-5: more gain and more harm; it changed those pairs by {lowest:+} to {highest:+}, the "
        "questions by {questions:+} and the paragraphs by {paragraphs:+}; labelled pairs (--config.eval.dev) tell which".format(
            **MEASURED["adapting_faster"]
        )
    ],
)
NEIGHBOURS = Choice(
    "neighbours",
    {"optimizer.learning_rate": "1e-5", "optimizer.warmup_ratio": 0.1, "train.max_steps": STEPS},
    STEPS,
    "fair: measured with one ready encoder, all-MiniLM-L6-v2, on novels, over {seeds} seeds".format(**MEASURED["neighbours"]),
    "experiments/adapting: of 100 paragraphs of novels {paragraphs:+} are found by their other half; Spearman x 100 on other text "
    "(STS-B) changed by {elsewhere:+} at worst".format(**MEASURED["neighbours"]),
    [],
)
CHECKPOINT = (
    "--config.eval.eval_steps=10 --config.eval.select=retrieval --config.eval.patience=3: without labels, better weights than "
    "the last (experiments/choosing: {retrieval} against {last}; by STS-B dev {dev}), see docs/choosing.md"
).format(**MEASURED["checkpoint"])
LONG = "--config.data.max_seq_length=32, as in the papers and in that measurement: more is cut, and it takes less time and memory"
SENTENCES = "for sentences that are compared with sentences; " + ADAPT.evidence
UNREADABLE = "little: {:.0%} of the pieces are unknown to this tokenizer; take a model that knows the script of the text"
ORDERED = (
    "multi_view or quick_thoughts with --config.encoder.vectors=VECTORS: neighbouring lines belong together; "
    "here no multi-view model was far above the average of its word vectors (experiments/multiview)"
)


def advise(corpus: CorpusSummary) -> Advice | None:
    """The recipe for a corpus; None for one that is too small for any."""
    if corpus.usable < LEAST:
        return None
    advice = _adapt(corpus) if corpus.readout else _train(corpus)
    return advice._replace(sure=UNREADABLE.format(corpus.unknown)) if corpus.unknown > UNKNOWN else advice


def _train(corpus: CorpusSummary) -> Advice:
    """The advice for a BERT that is no sentence encoder, or for none."""
    choice = SCRATCH if not corpus.weights else FEW if corpus.usable < SMALL else MANY
    batch = min(corpus.batch_size, corpus.usable)
    length = min(next((length for length in LENGTHS if length >= corpus.whole), LENGTHS[-1]), corpus.positions)
    epochs = math.ceil(choice.steps / (corpus.usable // batch))
    limit = {} if choice is FEW else {"train.num_train_epochs": (epochs := min(epochs, EPOCHS))}
    flags = {
        "data.files": corpus.files,
        **corpus.columns,
        **({"data.tokenizer": corpus.tokenizer} if corpus.tokenizer else {}),
        **({"encoder.weights": corpus.weights} if corpus.weights else {"data.vocab_size": corpus.vocab_size}),
        "data.max_seq_length": length,
        "data.batch_size": batch,
        **limit,
        **choice.settings,
    }
    command = ["jax-sentemb", "train", "--config", choice.recipe, "--workdir", f"runs/{choice.recipe}"]
    return Advice(
        choice.recipe,
        shlex.join(command + [f"--config.{field}={value}" for field, value in flags.items()]),
        length,
        epochs,
        corpus.usable // batch * epochs if limit else choice.steps,
        choice.sure,
        choice.evidence,
        [
            *([LONG] if length > LENGTHS[0] else []),
            *([CHECKPOINT] if corpus.weights and choice is not FEW else []),
            *choice.alternatives,
            *([ORDERED] if corpus.ordered else []),
        ],
    )


def _adapt(corpus: CorpusSummary) -> Advice:
    """The advice for a sentence encoder: a short training that was measured to help, or to use it as it is."""
    column = [word for name, value in corpus.columns.items() for word in (f"--{name.removeprefix('data.')}", value)]
    text = [*column, "--output"]
    encode = ["jax-sentemb", "encode", "--model", corpus.weights, "--input", corpus.files, *text, "vectors"]
    distill = ["jax-sentemb", "distill", "--model", corpus.weights, "--corpus", corpus.files, *text, "models/static"]
    flags = {"data.files": corpus.files, "encoder.weights": corpus.weights, **corpus.columns}
    flags |= {"data.batch_size": corpus.usable} if corpus.usable < BATCH else {}

    def command(choice: Choice) -> str:
        settings = [f"--config.{field}={value}" for field, value in (flags | choice.settings).items()]
        return shlex.join(["jax-sentemb", "train", "--config", choice.recipe, "--workdir", f"runs/{choice.recipe}", *settings])

    choice = NEIGHBOURS if corpus.ordered else ADAPT
    rows = corpus.usable // 2 if choice is NEIGHBOURS else corpus.usable
    return Advice(
        choice.recipe,
        command(choice),
        LENGTHS[0],
        math.ceil(choice.steps / (rows // min(BATCH, rows))),
        choice.steps,
        choice.sure,
        choice.evidence,
        [
            *choice.alternatives,
            *([f"{command(ADAPT)}: {SENTENCES}"] if choice is NEIGHBOURS else []),
            f"{shlex.join(encode)}: the encoder as it is, read by {corpus.readout} as its directory says",
            f"{shlex.join(distill)}: a static table, where speed counts more than the last points"
            + ("; so few sentences are better mixed with other text (docs/distilling.md)" if corpus.usable < SMALL else ""),
        ],
    )
