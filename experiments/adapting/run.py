"""What helps a sentence encoder on the text of a domain without labels: every recipe, domain and seed, beside the start.

    python experiments/adapting/run.py --data DIR --encoders MiniLM=all-MiniLM-L6-v2 mini-2=mini-2@first_last
    python experiments/adapting/run.py ... --tune      only the first part: each method at two learning rates
    python experiments/adapting/run.py --table         writes the tables of README.md, and one of docs/adapting.md

`--data` is the folder of experiments/data.md. A row of results.csv is kept: a study that was stopped continues with the same
command.
"""

import argparse
import functools
import math
import re
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from jax_sentemb import SentenceEncoder, train
from jax_sentemb.config import Config, Data, Evaluation, Optimizer, Train
from jax_sentemb.cosines import unit_length
from jax_sentemb.evaluation.word_baselines import TfIdf
from jax_sentemb.formats.run_dir import averaged, read_checkpoint
from jax_sentemb.inference.load import LoadedModel, load
from jax_sentemb.inference.postprocess import before_length, whitening, with_layer, without_components
from jax_sentemb.inference.token_embeddings import token_embedder
from jax_sentemb.methods.attention_mi import AttentionMI
from jax_sentemb.methods.base import Method
from jax_sentemb.methods.contrastive_tension import ContrastiveTension
from jax_sentemb.methods.crops import Crops
from jax_sentemb.methods.distillation import Distillation
from jax_sentemb.methods.masked_lm import MaskedLM
from jax_sentemb.methods.mirror_bert import MirrorBERT
from jax_sentemb.methods.neighbours import Neighbours
from jax_sentemb.methods.simcse import Momentum, SimCSE
from jax_sentemb.methods.tsdae import TSDAE
from jax_sentemb.system.allocator import keep_freed_memory

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from data import SETS
from domains import DOMAINS, domains, of_pairs, pairs, table
from study_data import add_rows, read_rows, require

HERE = Path(__file__).parent
README, DOCS = HERE / "README.md", HERE.parents[1] / "docs" / "adapting.md"
# The settings in the rules of docs/adapting.md: the column of its table -> recipe, rate, share of the start.
ADVISED = {
    "`adapt`": ("Mirror-BERT", 3e-6, 0.0),
    "at 1e-5": ("Mirror-BERT", 1e-5, 0.0),
    "half of 1e-5": ("Mirror-BERT", 1e-5, 0.5),
    "`adapt_words`": ("words and start, 1:2, 200 steps", 3e-5, 0.0),
    "neighbours": ("neighbours", 1e-5, 0.0),
    "next to tf-idf": ("start next to tf-idf, 2:1", 0.0, 0.0),
}
START, END = "<!-- measured -->", "<!-- end -->"
FIELDS = ("encoder", "domain", "recipe", "rate", "seed", "share_of_start", "in_domain", "held_out", "out_of_domain", "seconds")
STEPS, BATCH = 50, 64
LENGTH = 32  # tokens of a sentence; of a crop 128
PRECISION = "bfloat16"  # of training; README.md compares it with float32
SIF = 1e-3
FIRST = "masked LM first, "  # as many steps of it, at its own rate, before the method
LAST = ", last 2 layers"  # the others stay as they are
LONGER, LONGER_STEPS = ", 200 steps", 200
ORDERED = ("neighbours", "crops")  # these need documents
WORDS = "words:4096"  # tf-idf of the domain, as a teacher
# Also as the average with the start.
AVERAGED = ("SimCSE, temperature 0.5", "masked LM", "neighbours", "Mirror-BERT", f"Mirror-BERT{LAST}")


def methods(pooling: str, start: str = "") -> dict[str, Method]:
    """Every recipe with training. Those with words learn the order of a batch by words and by the encoder at the start."""
    simcse = {"pooling": pooling, "head": False}
    order = {"pooling": pooling, "output": "student", "cosine": 0.0, "rank": 1.0, "teacher_precision": PRECISION}
    return {
        "SimCSE": SimCSE(**simcse),
        "SimCSE, anchor 1": SimCSE(**simcse, anchor=1.0),
        "SimCSE, temperature 0.5": SimCSE(**simcse, temperature=0.5),
        "miCSE": SimCSE(**simcse, ami=AttentionMI(weight=2.5e-3), momentum=Momentum(queue_size=384)),
        "Mirror-BERT": MirrorBERT(pooling=pooling),
        f"Mirror-BERT{LAST}": MirrorBERT(pooling=pooling),
        "TSDAE": TSDAE(pooling=pooling),
        f"TSDAE{LAST}": TSDAE(pooling=pooling),
        "CT in batch": ContrastiveTension(form="in_batch", dropout=True, pooling=pooling),
        "masked LM": MaskedLM(pooling="mean"),
        f"{FIRST}Mirror-BERT": MirrorBERT(pooling=pooling),
        "neighbours": Neighbours(pooling=pooling),
        "neighbours, anchor 1": Neighbours(pooling=pooling, anchor=1.0),
        "crops": Crops(pooling=pooling),
        f"crops{LAST}": Crops(pooling=pooling),
        "words and start": Distillation(teacher=f"{start},{WORDS}", **order),
        "words and start, 1:2": Distillation(teacher=f"{start},{start},{WORDS}", **order),
        f"words and start, 1:2{LONGER}": Distillation(teacher=f"{start},{start},{WORDS}", **order),
        "words": Distillation(teacher=WORDS, **order),
    }


# These have the rate of the other.
TUNED = {
    "SimCSE, anchor 1": "SimCSE",
    "neighbours, anchor 1": "neighbours",
    f"{FIRST}Mirror-BERT": "Mirror-BERT",
    f"words and start, 1:2{LONGER}": "words and start, 1:2",
}


def config(method: Method, rate: float, seed: int, recipe: str = "") -> Config:
    """The settings of one run."""
    last_layers, steps = 2 if recipe.endswith(LAST) else 0, LONGER_STEPS if recipe.endswith(LONGER) else STEPS
    return Config(
        method,
        Data(max_seq_length=4 * LENGTH if isinstance(method, Crops) else LENGTH, batch_size=BATCH),
        optimizer=Optimizer(learning_rate=rate, warmup_ratio=0.1),
        eval=Evaluation(eval_steps=0, select="last", diagnostic_sentences=64, report_sentences=0),
        train=Train(max_steps=steps, seed=seed, save_steps=0, logging_steps=50, precision=PRECISION, last_layers=last_layers),
    )


def whole(sentences: list[str], folder: str, settings: Config, workdir: str) -> None:
    """Trains in `workdir`; ends the study if a signal ended the training, since the program would go on with fewer steps."""
    train(sentences, folder, settings, workdir=workdir)
    _, step = read_checkpoint(Path(workdir), "last")
    if step != settings.train.max_steps:
        raise SystemExit(
            f"stopped after step {step} of {settings.train.max_steps}: the run is not scored; the same command repeats it"
        )


class Study:
    """The rows of a study, in the order in which they are made."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.domains = options, domains(options.data)
        self.elsewhere = pairs(table(options.data / "sts_raw/STSBenchmark-test.tsv"))
        self.rows = read_rows(options.results)

    def add(self, key: tuple[Any, ...], encoder: SentenceEncoder, begin: float) -> None:
        """Score an encoder, and write its row."""
        domain = self.domains[key[1]]
        held_out = domain.scored(encoder, domain.held_out) if domain.held_out else float("nan")
        values = domain.scored(encoder, domain.test), held_out, of_pairs(encoder, self.elsewhere)
        row = dict(
            zip(FIELDS, map(str, (*key, *(f"{value:.2f}" for value in values), f"{time.monotonic() - begin:.0f}")), strict=True)
        )
        self.rows.append(row)
        add_rows(self.options.results, [row], FIELDS)
        print(", ".join(row.values()), flush=True)

    def has(self, key: tuple[Any, ...]) -> bool:
        return any(tuple(row[name] for name in FIELDS[:6]) == tuple(map(str, key)) for row in self.rows)

    def untrained(self, name: str, path: str) -> None:
        """The start, linear maps fitted on its embeddings of the domain's text, and tf-idf of this text, alone and next to it."""
        for domain in self.options.domains:
            keys = {recipe: (name, domain, recipe, 0, 0, 0) for recipe in UNTRAINED}
            missing = [recipe for recipe in UNTRAINED if not self.has(keys[recipe])]
            if not missing:
                continue
            model = load(path)
            text = [sentence for sentence in self.domains[domain].sentences if sentence]
            vectors = before_length(model, text)
            for recipe in missing:
                begin = time.monotonic()
                self.add(keys[recipe], UNTRAINED[recipe](model, text, vectors), begin)

    def trained(self, name: str, path: str, domain: str, recipe: str, rate: float, seed: int) -> None:
        """One run, and for some recipes the average of its weights with the start's."""
        keys = [(name, domain, recipe, rate, seed, share) for share in ((0, 0.5) if recipe in AVERAGED else (0,))]
        if all(self.has(key) for key in keys):
            return
        folder, _, pooling = path.partition("@")
        sentences, begin = self.domains[domain].sentences, time.monotonic()
        with tempfile.TemporaryDirectory() as work:
            if recipe.startswith(FIRST):
                pretrained = f"{work}/pretrain"
                whole(sentences, folder, config(MaskedLM(pooling="mean"), self.rate(name, "masked LM"), seed), pretrained)
                folder = f"{pretrained}/export"
            settings = config(methods(pooling or "mean", path)[recipe], rate, seed, recipe)
            whole(sentences, folder, settings, f"{work}/run")
            reads = f"@{pooling}" if pooling else "@mean" if recipe == "masked LM" else ""
            model, start = load(f"{work}/run/export{reads}"), load(path)
        for key in keys:
            if not self.has(key):
                params = averaged(model.params, start.params, key[-1])
                self.add(key, SentenceEncoder(model._replace(params=params)), begin)

    def rate(self, name: str, recipe: str) -> float:
        """The learning rate of a recipe for an encoder: by the held-out score of the tuning runs."""
        rates = self.options.rates[name]
        found = held_out([row for row in self.rows if row["encoder"] == name], recipe)
        if not set(rates) <= set(found):
            raise SystemExit(f"{name}, {recipe}: no rate was chosen; run with --tune first")
        return max(rates, key=lambda rate: found[rate])

    def tune(self) -> None:
        for name, path in self.options.encoders.items():
            for recipe in self.options.recipes:
                for rate in self.options.rates[name] if recipe not in TUNED else ():
                    self.trained(name, path, tuning_domain(recipe), recipe, rate, 0)

    def run(self) -> None:
        for seed in range(self.options.seeds):
            for name, path in self.options.encoders.items():
                for domain in self.options.domains:
                    for recipe in self.options.recipes:
                        if self.domains[domain].ordered or not recipe.startswith(ORDERED):
                            self.trained(name, path, domain, recipe, self.rate(name, recipe), seed)


class Weighted(SentenceEncoder):
    """The mean of the last layer's token states with SIF weights of the text, without its first axis."""

    def __init__(self, model: LoadedModel, text: list[str]) -> None:
        super().__init__(model)
        self._states = functools.partial(token_embedder(model, "float32"), model.params)
        counts = Counter(piece for ids in self._ids(text) for piece in ids.tolist())
        total = sum(counts.values())
        self._weights = np.array([SIF / (SIF + counts[piece] / total) for piece in range(model.metadata["encoder"]["vocab_size"])])
        _, _, axes = np.linalg.svd(self._mean(text[:5000]), full_matrices=False)
        self._axis = axes[0]

    def encode(self, sentences: Any, *arguments: Any, **options: Any) -> Any:
        vectors = self._mean(list(sentences))
        vectors = vectors - np.outer(vectors @ self._axis, self._axis)
        return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)

    def _ids(self, text: list[str]) -> list[np.ndarray]:
        return self.tokenizer.encode(text, 128)[0]

    def _mean(self, text: list[str]) -> np.ndarray:
        states, _ = self._states(text, 128, 64)
        return np.stack(
            [np.average(rows, axis=0, weights=self._weights[ids]) for rows, ids in zip(states, self._ids(text), strict=True)]
        )


class WithWords(SentenceEncoder):
    """The embedding next to tf-idf of the text, so that a cosine is the weighted mean of both cosines."""

    def __init__(self, model: LoadedModel, text: list[str], weight: float) -> None:
        """`weight` is that of the encoder; the words have 1."""
        super().__init__(model)
        self._words, self._weight = TfIdf().fit(text), weight

    def encode(self, sentences: Any, *arguments: Any, **options: Any) -> Any:
        parts = [self._words.encode(list(sentences))]
        if self._weight:
            vectors = np.asarray(super().encode(list(sentences)), np.float32)
            parts.append(unit_length(vectors) * np.float32(self._weight**0.5))
        return unit_length(np.hstack(parts))


# Encoders without training, from the model, the text of the domain, and the model's vectors of it.
UNTRAINED: dict[str, Callable[[LoadedModel, list[str], np.ndarray], SentenceEncoder]] = {
    "start": lambda model, text, vectors: SentenceEncoder(model),
    "remove 1": lambda model, text, vectors: SentenceEncoder(with_layer(model, without_components(vectors, 1))),
    "whiten": lambda model, text, vectors: SentenceEncoder(with_layer(model, whitening(vectors))),
    "SIF weights": lambda model, text, vectors: Weighted(model, text),
    "tf-idf": lambda model, text, vectors: WithWords(model, text, 0.0),
    "start next to tf-idf, 2:1": lambda model, text, vectors: WithWords(model, text, 2.0),
}


def tuning_domain(recipe: str) -> str:
    """Return the domain with held-out data for a recipe: recipes for search have the paragraphs of novels."""
    return "novels" if recipe.startswith((*ORDERED, "words")) else "SICK"


def held_out(rows: list[dict[str, str]], recipe: str) -> dict[float, float]:
    """The held-out scores of a recipe's tuning runs by learning rate; `rows` of one encoder."""
    recipe = TUNED.get(recipe, recipe)
    key = (tuning_domain(recipe), recipe, "0", "0")
    return {
        float(row["rate"]): float(row["held_out"])
        for row in rows
        if (row["domain"], row["recipe"], row["seed"], row["share_of_start"]) == key
    }


def write_tables(rows: list[dict[str, str]]) -> None:
    """The tables between the marks of README.md, and the one of the rules in docs/adapting.md."""
    for page, content in ((README, tables(rows)), (DOCS, advised([row for row in rows if row["encoder"] == "MiniLM"]))):
        text = page.read_text(encoding="utf-8")
        page.write_text(re.sub(f"(?<={START}\n).*?(?={END})", lambda _, new=content: new, text, flags=re.DOTALL), "utf-8")


def advised(rows: list[dict[str, str]]) -> str:
    """Return a table of the changes by the settings that docs/adapting.md speaks of: a row for each domain, and one for STS-B."""
    starts = {row["domain"]: row for row in rows if row["recipe"] == "start"}
    runs = [
        [row for row in rows if (row["recipe"], float(row["rate"]), float(row["share_of_start"])) == setting]
        for setting in ADVISED.values()
    ]
    lines = [f"| MiniLM | start | {' | '.join(ADVISED)} |", "|---|" + "--:|" * (len(ADVISED) + 1)]
    for domain in (domain for domain in DOMAINS if domain in starts):
        cells = [_cell([_change(row, starts, "in_domain") for row in some if row["domain"] == domain]) for some in runs]
        lines.append(f"| {domain} | {float(starts[domain]['in_domain']):.2f} | {' | '.join(cells)} |")
    away = [[_change(row, starts, "out_of_domain") for row in some] for some in runs]
    elsewhere = float(next(iter(starts.values()))["out_of_domain"])
    lines.append(f"| STS-B, mean (lowest) | {elsewhere:.2f} | {' | '.join(map(_mean_and_lowest, away))} |")
    return "\n".join(lines) + "\n"


def tables(rows: list[dict[str, str]]) -> str:
    """For each encoder: changes of the score by recipe and domain, mean and standard deviation over seeds, and of STS-B.

    The rates with the best held-out scores come first; below, these scores. What was trained for the choice only is not repeated.
    """
    found = []
    for name in dict.fromkeys(row["encoder"] for row in rows):
        own = [row for row in rows if row["encoder"] == name]
        starts = {row["domain"]: row for row in own if row["recipe"] == "start"}
        start = {domain: starts[domain] for domain in DOMAINS if domain in starts}
        found.append(f"| {name} | seeds | " + " | ".join(start) + " | STS-B, mean (lowest) |\n|---|" + "--:|" * (len(start) + 2))
        cells = [f"{float(row['in_domain']):.2f}" for row in start.values()]
        found.append(" | ".join(["| start", "", *cells, f"{float(next(iter(start.values()))['out_of_domain']):.2f} |"]))
        for recipe, rate, share in sorted(
            dict.fromkeys((row["recipe"], row["rate"], row["share_of_start"]) for row in own if row["recipe"] != "start"),
            key=lambda key: float(key[1]) and 1 + (float(key[1]) != _best(held_out(own, key[0]))),
        ):
            some = [row for row in own if (row["recipe"], row["rate"], row["share_of_start"]) == (recipe, rate, share)]
            if {row["seed"] for row in some} == {"0"} and _only_tuned(own, recipe, float(rate), {row["domain"] for row in some}):
                continue
            changes = {domain: [_change(row, start, "in_domain") for row in some if row["domain"] == domain] for domain in start}
            away = [_change(row, start, "out_of_domain") for row in some]
            title = recipe + (f", {share} of the start" if float(share) else "") + (f" ({float(rate):.0e})" if float(rate) else "")
            seeds = sorted({len(values) for values in changes.values() if values})
            row = [f"| {title}", "–".join(map(str, dict.fromkeys((seeds[0], seeds[-1])))), *map(_cell, changes.values())]
            found.append(" | ".join([*row, f"{_mean_and_lowest(away)} |"]))
        found += ["", *_tuning(name, own), ""]
    return "\n".join(found)


def _only_tuned(own: list[dict[str, str]], recipe: str, rate: float, seen: set[str]) -> bool:
    """Whether a rate was tried for the choice only: the table of held-out scores has it."""
    scores = held_out(own, recipe)
    return seen == {tuning_domain(recipe)} and rate in scores and rate != _best(scores)


def _best(scores: dict[float, float]) -> float:
    """Return the rate with the best score, NaN if no rate was tried."""
    return max(scores, key=lambda rate: scores[rate], default=math.nan)


def _tuning(name: str, own: list[dict[str, str]]) -> list[str]:
    """The held-out scores of one encoder by recipe and rate, the best in bold."""
    starts = {row["domain"]: row["held_out"] for row in own if row["recipe"] == "start"}
    by_recipe = {recipe: scores for recipe in methods("mean") if recipe not in TUNED and (scores := held_out(own, recipe))}
    rates = sorted({rate for scores in by_recipe.values() for rate in scores})
    lines = [
        f"| {name}, held out | start | " + " | ".join(f"{rate:.0e}" for rate in rates) + " |",
        "|---|" + "--:|" * (len(rates) + 1),
    ]
    for recipe, scores in by_recipe.items():
        cells = ["" if rate not in scores else f"{scores[rate]:.2f}" for rate in rates]
        best = rates.index(_best(scores))
        cells[best] = f"**{cells[best]}**"
        lines.append(f"| {recipe} | " + " | ".join([starts[tuning_domain(recipe)], *cells]) + " |")
    return lines


def _change(row: dict[str, str], start: dict[str, dict[str, str]], field: str) -> float:
    return float(row[field]) - float(start[row["domain"]][field])


def _mean_and_lowest(changes: list[float]) -> str:
    return f"{statistics.mean(changes):+.2f} ({min(changes):+.2f})"


def _cell(changes: list[float]) -> str:
    if not changes:
        return ""
    spread = f" ± {statistics.stdev(changes):.2f}" if len(changes) > 1 else ""
    return f"{statistics.mean(changes):+.2f}{spread}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder with the data of experiments/data.md")
    parser.add_argument("--encoders", nargs="+", default=[], help="NAME=DIRECTORY or NAME=DIRECTORY@POOLING")
    parser.add_argument("--results", type=Path, default=HERE / "results.csv")
    parser.add_argument(
        "--rates", nargs="+", default=["1e-5", "3e-5"], help="rates that are tried, or NAME=RATE,RATE of an encoder"
    )
    parser.add_argument("--recipes", nargs="+", default=list(methods("mean")), choices=list(methods("mean")))
    parser.add_argument("--domains", nargs="+", default=DOMAINS, choices=DOMAINS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    if options.table:
        write_tables(read_rows(options.results))
        return 0
    if not options.data or not options.encoders:
        parser.error("--data and --encoders are needed, or --table")
    require([options.data / row["path"] for row in SETS if "adapting" in row["studies"]])
    options.encoders = dict(text.split("=", 1) for text in options.encoders)
    common = [float(text) for text in options.rates if "=" not in text]
    own = dict(text.split("=") for text in options.rates if "=" in text)
    options.rates = {name: [float(rate) for rate in own[name].split(",")] if name in own else common for name in options.encoders}
    keep_freed_memory()
    study = Study(options)
    for name, path in options.encoders.items():
        study.untrained(name, path)
    study.tune()
    if not options.tune:
        study.run()
    print(tables(study.rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
